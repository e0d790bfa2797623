"""What the API shows. Everything is read-only; what it takes is in `inputs`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, get_args

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import (
    Batch,
    BulkOperation,
    DeadLetter,
    Job,
    JobEvent,
    MaintenanceWindow,
    OnFailure,
    ProviderBatch,
    Schedule,
    ScheduleFire,
    Tag,
)
from jobs.services.explain.event_log import Cursor
from jobs.services.explain.foresee import HeldLane, foresee
from jobs.services.explain.snapshots import BatchSnapshot, JobSnapshot
from jobs.services.explain.waiting import Code, Reason, Waiting
from jobs.services.explain.ways import WayPrices, provider_batch_of, way_prices
from jobs.services.operate.schedules import next_fires
from jobs.services.operate.windows import next_spans
from jobs.states import JobState
from jobs.tracebacks import without_diagnostics
from ratelimits.services.money.reports import SpendSum

JOB_FIELDS = (
    "id",
    "batch",
    "user_id",
    "kind",
    "service",
    "model",
    "call_type",
    "cost",
    "costs",
    "priority",
    "state",
    "held",
    "progress",
    "progress_message",
    "idempotency_key",
    "unique_key",
    "tags",
    "retry_policy",
    "retry_count",
    "crash_count",
    "deferral_count",
    "last_error_code",
    "last_error_message",
    "scheduled_at",
    "expires_at",
    "complete_by",
    "via",
    "origin",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
)
PROVIDER_BATCH_FIELDS = (
    "id",
    "kind",
    "service",
    "model",
    "state",
    "provider_id",
    "provider_state",
    "lines",
    "done",
    "succeeded",
    "failed",
    "handed_back",
    "dropped",
    "enqueued_tokens",
    "complete_by",
    "live_at",
    "cancel_requested_at",
    "error",
    "created_at",
    "submitted_at",
    "ended_at",
    "closed_at",
)

CURSOR_HELP = (
    "Everything up to here is in this answer: `resume` a socket from it to get what came after. 0 while none is known."
)

EPOCH_HELP = "Of the cursor: a restored database begins a new one. Send it with the cursor."

SHOWS_TRACEBACKS = "shows_tracebacks"  # in a serializer's context; without it, nobody is shown one


@extend_schema_field({})
class AnyJSON(serializers.JSONField):
    """Any JSON, null included: a nullable field of any type would be described as one of two that both fit null."""


class _ListedJobs(serializers.ListSerializer[Job]):
    """With their tags, and today's forecast of those that wait for a limit."""

    def to_representation(self, data: Any) -> Any:
        jobs = list(data)
        foresee(jobs)
        tell_tags(jobs)
        return super().to_representation(jobs)


class EventData(AnyJSON):
    """What an event says, or all failed attempts say; with tracebacks only where the view asked who reads it."""

    def to_representation(self, value: Any) -> Any:
        if self.context.get(SHOWS_TRACEBACKS):
            return super().to_representation(value)
        return [without_diagnostics(one) for one in value] if isinstance(value, list) else without_diagnostics(value)


def tell_tags(rows: Sequence[Job | Batch]) -> None:
    """Fetch the tags of jobs or batches, for the serializers."""
    tags = Tag.objects.of([row.pk for row in rows])
    for row in rows:
        row.tags = tags.get(row.pk, [])  # type: ignore[union-attr]


class JobSerializer(serializers.ModelSerializer[Job]):
    tags = serializers.ListField(child=serializers.CharField())
    unique_key = serializers.CharField(source="given_unique_key", allow_null=True)
    state = serializers.ChoiceField(source="status", choices=JobState.choices)
    costs = serializers.DictField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="Estimated by unit: input_tokens, output_tokens. Null: the cost says all.",
    )

    class Meta:
        model = Job
        fields = JOB_FIELDS
        read_only_fields = JOB_FIELDS
        list_serializer_class = _ListedJobs


class ProviderBatchSerializer(serializers.ModelSerializer[ProviderBatch]):
    class Meta:
        model = ProviderBatch
        fields = PROVIDER_BATCH_FIELDS
        read_only_fields = PROVIDER_BATCH_FIELDS


class FireSerializer(serializers.ModelSerializer[ScheduleFire]):
    class Meta:
        model = ScheduleFire
        fields = (
            "id",
            "due_at",
            "outcome",
            "job_id",
            "batch_id",
            "error_code",
            "error_message",
            "left_out",
            "asked_by",
            "created_at",
        )
        read_only_fields = fields


class ScheduleSerializer(serializers.ModelSerializer[Schedule]):
    """The view tells of a whole page what fired last: `last_fires`, by schedule."""

    jobs = serializers.ListField(child=serializers.DictField(), read_only=True)
    next_due = serializers.SerializerMethodField(help_text="The next five by the cron text, without jitter.")
    last_fire = serializers.SerializerMethodField()

    class Meta:
        model = Schedule
        fields = (
            "id",
            "name",
            "cron",
            "time_zone",
            "jobs",
            "missed",
            "most_missed",
            "jitter_seconds",
            "ends_at",
            "paused",
            "next_fire_at",
            "next_due",
            "refused_in_a_row",
            "last_fire",
            "created_at",
        )
        read_only_fields = fields

    def get_next_due(self, row: Schedule) -> list[datetime]:
        return [fire.due_at for fire in next_fires(row)]

    @extend_schema_field(FireSerializer(allow_null=True))
    def get_last_fire(self, row: Schedule) -> Any:
        found = self.context["last_fires"].get(row.pk)
        return None if found is None else FireSerializer(found).data


class SpanSerializer(serializers.Serializer[Any]):
    begins_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()


class WindowSerializer(serializers.ModelSerializer[MaintenanceWindow]):
    is_open = serializers.SerializerMethodField(help_text="Whether it holds its work now.")
    next_times = serializers.SerializerMethodField(help_text="The next five, one that is open first.")

    class Meta:
        model = MaintenanceWindow
        fields = (
            "id",
            "scope",
            "key",
            "reason",
            "begins_at",
            "ends_at",
            "weekdays",
            "since",
            "until",
            "time_zone",
            "is_open",
            "next_times",
            "created_at",
        )
        read_only_fields = fields

    def get_is_open(self, row: MaintenanceWindow) -> bool:
        return row.switches.exists()

    @extend_schema_field(SpanSerializer(many=True))
    def get_next_times(self, row: MaintenanceWindow) -> Any:
        return SpanSerializer(next_spans(row), many=True).data


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    data = EventData()  # type: ignore[assignment]  # a field is taken out of the class, so it hides nothing

    class Meta:
        model = JobEvent
        fields = (
            "id",
            "job_id",
            "batch_id",
            "user_id",
            "event_type",
            "from_status",
            "to_status",
            "message",
            "progress_percent",
            "data",
            "created_at",
        )
        read_only_fields = fields


class ResultSerializer(serializers.ModelSerializer[Job]):
    state = serializers.ChoiceField(source="status", choices=JobState.choices)
    result = AnyJSON()

    class Meta:
        model = Job
        fields = (
            "id",
            "kind",
            "user_id",
            "idempotency_key",
            "state",
            "result",
            "last_error_code",
            "last_error_message",
            "origin",
            "finished_at",
        )
        read_only_fields = fields


class ReasonSerializer(serializers.Serializer[Reason]):
    """One thing that keeps a job from running."""

    code = serializers.ChoiceField(choices=get_args(Code))
    text = serializers.CharField(help_text="For people; may change.")
    free_at = serializers.DateTimeField(
        allow_null=True, help_text="When it ends by itself. Null: nobody knows, or somebody must act."
    )
    limit = serializers.CharField(allow_null=True, help_text="The limit's name, for `limit` and `cooled_down`.")
    key = serializers.CharField(allow_null=True, help_text="Whom the limit counts: project:acme.")
    unit = serializers.CharField(allow_null=True, help_text="What it counts: requests, tokens or in_flight.")
    needed = serializers.FloatField(allow_null=True, help_text="In the limit's unit.")
    available = serializers.FloatField(allow_null=True, help_text="In the limit's unit.")
    capacity = serializers.FloatField(allow_null=True, help_text="In the limit's unit.")
    by = serializers.CharField(allow_null=True, help_text="Who gave it its time by hand: user:7.")


class WaitingSerializer(serializers.Serializer[Waiting]):
    """What holds a job up, and when it should go."""

    reasons = ReasonSerializer(many=True, help_text="In the order in which they must end; none: it is next.")
    position = serializers.IntegerField(
        allow_null=True, help_text="Among the waiting calls it shares every limit with: 1 is next. Null: in no lane."
    )
    position_is_exact = serializers.BooleanField(
        allow_null=True, help_text="False: it stands further back; more than 10,000 are not counted."
    )
    ahead = serializers.DictField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="How many of those go first, by the class that they have reached.",
    )
    predicted_start_at = serializers.DateTimeField(
        allow_null=True, help_text="A forecast from rates and queues as they are, never a promise. Null: none."
    )
    forecast = serializers.CharField(allow_null=True, help_text="What the forecast was computed from.")


class HeldLaneSerializer(serializers.Serializer[HeldLane]):
    """What waiting jobs of a batch wait for that share their limits."""

    user = serializers.CharField(help_text="Whose they are; empty: nobody's, or they share no limit.")
    jobs = serializers.IntegerField(help_text="How many; of a large batch those among the next to go.")
    more = serializers.BooleanField(help_text="True: the batch has more waiting jobs than were looked at.")
    reasons = ReasonSerializer(many=True, help_text="Of the last of them, in the order in which they must end.")
    last_starts_at = serializers.DateTimeField(
        allow_null=True, help_text="When limits should let the last of them go. Null: nobody knows."
    )


class BatchWaitingSerializer(serializers.Serializer[Any]):
    results = HeldLaneSerializer(many=True)


class WayPricesSerializer(serializers.Serializer[WayPrices]):
    """What the work costs by each way, in millionths of the currency; null: a price is missing."""

    live = serializers.IntegerField(allow_null=True)
    batch = serializers.IntegerField(allow_null=True)
    is_used = serializers.BooleanField(
        help_text="By what its last call used, at the prices of then; else by what calls like it have had, at today's."
    )


class BatchOfJobSerializer(serializers.Serializer[ProviderBatch]):
    """The batch of its provider that a job was a line of last."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(choices=ProviderBatch.State.choices)
    provider_id = serializers.CharField(help_text="What its provider calls it; empty while it is not known there.")


class CountsSerializer(serializers.Serializer[dict[str, int]]):
    """Jobs by state."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {state.value: serializers.IntegerField() for state in JobState}


class EndedBatchSerializer(serializers.Serializer[Any]):
    """What a batch's callback is told of it."""

    batch = serializers.UUIDField()
    name = serializers.CharField()
    counts = CountsSerializer(allow_null=True, help_text="When the callback was let go; null: it waits.")


class JobDetailSerializer(JobSerializer):
    payload = AnyJSON()
    result = AnyJSON()
    ended_batch = EndedBatchSerializer(allow_null=True, help_text="Of a batch's callback; null: it is none.")
    attempts = serializers.IntegerField(help_text="Attempts begun, crashes apart.")
    eta = serializers.DateTimeField(allow_null=True, help_text="When it should end; null while nothing is known.")
    effective_priority = serializers.IntegerField(
        allow_null=True, help_text="The score by which it is claimed; null once it runs or has ended."
    )
    waiting_for = serializers.CharField(allow_null=True, help_text="Why it does not run now, in words.")
    waiting = WaitingSerializer(allow_null=True, help_text="The same in full; null once it runs or has ended.")
    recheck_after_seconds = serializers.FloatField(
        allow_null=True, help_text="When asking again is worth while; also sent as Retry-After."
    )
    last_event = EventSerializer(allow_null=True)
    cost_money = serializers.IntegerField(
        allow_null=True,
        help_text="What its calls cost so far, in millionths of `currency`; null: not known, or a price is missing.",
    )
    currency = serializers.CharField(help_text="Three letters, such as USD.")
    prices = WayPricesSerializer(
        allow_null=True, help_text="Null: it can go live alone, or nothing tells what it takes."
    )
    provider_batch = BatchOfJobSerializer(allow_null=True, help_text="Null: it never was in one.")
    cursor = serializers.IntegerField(help_text=CURSOR_HELP)
    epoch = serializers.CharField(help_text=EPOCH_HELP)

    class Meta:
        model = Job
        fields = (
            *JOB_FIELDS,
            "payload",
            "result",
            "ended_batch",
            "attempts",
            "eta",
            "effective_priority",
            "waiting_for",
            "waiting",
            "recheck_after_seconds",
            "last_event",
            "cost_money",
            "currency",
            "prices",
            "provider_batch",
            "cursor",
            "epoch",
        )
        read_only_fields = fields


BATCH_FIELDS = (
    "id",
    "name",
    "tags",
    "total",
    "paused",
    "submitted_by",
    "after",
    "on_failure",
    "on_finish_job",
    "created_at",
    "finished_at",
)


NO_WAIT: dict[str, Any] = {"after": [], "on_failure": None}


class BatchSerializer(serializers.ModelSerializer[Batch]):
    """Args, by attribute: see BatchSnapshot."""

    after = serializers.ListField(
        child=serializers.UUIDField(), help_text="The jobs and batches that it was submitted to wait for."
    )
    on_failure = serializers.ChoiceField(
        choices=OnFailure.choices, allow_null=True, help_text="What if one of those does not succeed."
    )
    tags = serializers.ListField(child=serializers.CharField())
    counts = CountsSerializer(help_text="Items by state; a requeued item counts once, as its latest job.")
    held_by_outage = serializers.IntegerField(
        help_text="Of those rate_limited, how many wait for an outage to end, and not for quota; at most 10,000."
    )
    finished = serializers.IntegerField()
    progress = serializers.FloatField(help_text="Percent of the items that have ended.")
    rate_per_second = serializers.FloatField(allow_null=True)
    eta = serializers.DateTimeField(
        allow_null=True,
        help_text="A forecast from its past speed and the limits; null while nothing is known.",
    )
    eta_earliest = serializers.DateTimeField(
        allow_null=True, help_text="Set where the two differ much: it ends between this and `eta`."
    )
    recheck_after_seconds = serializers.FloatField(allow_null=True)

    class Meta:
        model = Batch
        fields = (
            *BATCH_FIELDS,
            "counts",
            "held_by_outage",
            "finished",
            "progress",
            "rate_per_second",
            "eta",
            "eta_earliest",
            "recheck_after_seconds",
        )
        read_only_fields = fields


class BatchDetailSerializer(BatchSerializer):
    cost_money = serializers.IntegerField(
        allow_null=True,
        help_text="What its calls cost so far, in millionths of `currency`; null: not known, or a price is missing.",
    )
    currency = serializers.CharField(help_text="Three letters, such as USD.")
    cursor = serializers.IntegerField(help_text=CURSOR_HELP)
    epoch = serializers.CharField(help_text=EPOCH_HELP)

    class Meta:
        model = Batch
        fields = (*BatchSerializer.Meta.fields, "cost_money", "currency", "cursor", "epoch")
        read_only_fields = fields


class DeadLetterSerializer(serializers.ModelSerializer[DeadLetter]):
    attempts = EventData(
        help_text="Each failed attempt with its time, error and delay; for people's sessions also the `traceback` of "
        "a handler's bug."
    )

    class Meta:
        model = DeadLetter
        fields = (
            "id",
            "job",
            "batch_id",
            "kind",
            "service",
            "payload",
            "error_code",
            "error_class",
            "error_message",
            "http_status",
            "remediation",
            "attempts",
            "retry_count",
            "crash_count",
            "fingerprint",
            "created_at",
            "resolution",
            "resolved_by",
            "resolved_at",
            "requeued_as",
            "note",
        )
        read_only_fields = fields


class OperationSerializer(serializers.ModelSerializer[BulkOperation]):
    class Meta:
        model = BulkOperation
        fields = (
            "id",
            "action",
            "status",
            "total",
            "done",
            "skipped",
            "reason",
            "error",
            "created_at",
            "updated_at",
            "finished_at",
        )
        read_only_fields = fields


def job_answer(snapshot: JobSnapshot, *, cursor: Cursor) -> dict[str, Any]:
    """
    Args:
        cursor: Of the log of events, read before the snapshot.
    """
    job = snapshot.job
    tell_tags([job])
    shown = JobSerializer(job).data
    waiting = snapshot.waiting
    if job.status == JobState.RATE_LIMITED and job.lane is not None and waiting is not None and waiting.forecast:
        shown["scheduled_at"] = _time.to_representation(waiting.forecast.starts_at)
    return {
        **shown,
        "payload": job.payload,
        "result": job.result,
        "ended_batch": job.ended_batch and {"counts": None, **job.ended_batch},
        "attempts": job.retry_count + (job.status in ATTEMPT_UNDER_WAY_OR_OVER and job.started_at is not None),
        "eta": getattr(snapshot, "eta", None),
        "effective_priority": snapshot.effective_priority,
        "waiting_for": snapshot.waiting_for,
        "waiting": waiting_answer(snapshot.waiting) if snapshot.waiting else None,
        "recheck_after_seconds": snapshot.recheck_after_seconds,
        "last_event": EventSerializer(snapshot.last_event).data if snapshot.last_event else None,
        **cursor.answer(),
    }


def waiting_answer(waiting: Waiting) -> dict[str, Any]:
    position, forecast = waiting.position, waiting.forecast
    return {
        "reasons": [ReasonSerializer(reason).data for reason in waiting.reasons],
        "position": position and position.ahead + 1,
        "position_is_exact": position and position.is_exact,
        "ahead": position and {tier.value: count for tier, count in position.by_class.items()},
        "predicted_start_at": forecast and _time.to_representation(forecast.starts_at),
        "forecast": forecast and forecast.basis,
    }


ATTEMPT_UNDER_WAY_OR_OVER = frozenset({JobState.IN_PROGRESS, JobState.COMPLETED, JobState.FAILED})
_time = serializers.DateTimeField()


def money_answer(spent: SpendSum | None) -> dict[str, Any]:
    """What calls cost; a sum that lacks a part is none."""
    known = spent is not None and not spent.unpriced
    return {"cost_money": spent.money if spent and known else None, "currency": settings.QUEUEOPS.currency}


def ways_answer(job: Job) -> dict[str, Any]:
    """What a job costs by each way, and the batch of its provider."""
    prices, batch = way_prices(job), provider_batch_of(job)
    return {
        "prices": prices and WayPricesSerializer(prices).data,
        "provider_batch": batch and BatchOfJobSerializer(batch).data,
    }


def batch_answer(snapshot: BatchSnapshot) -> dict[str, Any]:
    batch = snapshot.batch
    return {
        "id": str(batch.pk),
        "name": batch.name,
        "tags": batch.tags,  # type: ignore[attr-defined] # by tell_tags
        "total": batch.total,
        "paused": batch.paused,
        "submitted_by": batch.submitted_by,
        "after": (batch.after or NO_WAIT)["after"],
        "on_failure": (batch.after or NO_WAIT)["on_failure"],
        "on_finish_job": batch.on_finish_job and str(batch.on_finish_job),
        "created_at": _time.to_representation(batch.created_at),
        "finished_at": batch.finished_at and _time.to_representation(batch.finished_at),
        "counts": snapshot.counts,
        "held_by_outage": snapshot.held_by_outage,
        "finished": snapshot.finished,
        "progress": snapshot.progress,
        "rate_per_second": batch.rate_per_second,
        "eta": snapshot.eta and _time.to_representation(snapshot.eta),
        "eta_earliest": snapshot.eta_earliest and _time.to_representation(snapshot.eta_earliest),
        "recheck_after_seconds": snapshot.recheck_after_seconds,
    }


def batch_detail_answer(snapshot: BatchSnapshot, *, cursor: Cursor) -> dict[str, Any]:
    """
    Args:
        cursor: Of the log of events, read before the snapshot.
    """
    tell_tags([snapshot.batch])
    return {**batch_answer(snapshot), **cursor.answer()}


def retry_after(recheck_after_seconds: float | None) -> dict[str, str]:
    """The Retry-After header of something that has not ended."""
    return {} if recheck_after_seconds is None else {"Retry-After": str(math.ceil(recheck_after_seconds))}


class AtOnceSerializer(serializers.Serializer[Any]):
    """One cap as it stands."""

    id = serializers.IntegerField(source="limit_id")
    name = serializers.CharField(help_text="Of the limit that it is.")
    kind = serializers.CharField(allow_blank=True, help_text="Empty: every kind.")
    service = serializers.CharField(allow_blank=True, help_text="Empty: every service.")
    each_user = serializers.BooleanField()
    at_most = serializers.FloatField()
    used = serializers.FloatField(help_text="In flight now; of caps for each user, of who has the most.")
    enforced = serializers.BooleanField(help_text="False: an operator has switched the limit off, or to shadow.")


class AtOnceCapsSerializer(serializers.Serializer[Any]):
    results = AtOnceSerializer(many=True)
