"""Jobs, in lists and by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from jobs.features.dependencies.takes import shown_takes
from jobs.features.forecast.reasons import foresee
from jobs.models import Batch, Job, Tag
from jobs.services.explain.event_log import Cursor
from jobs.services.explain.snapshots import JobSnapshot
from jobs.states import BatchVerdict, JobState, ended_verdict

from .costs import BatchOfJobSerializer, WayPricesSerializer
from .events import EventSerializer
from .fields import MOMENT, AnyJSON, DetailSerializer
from .results import PLACE_HELP, PlaceOfResultSerializer, place_of_result, result_here
from .waiting import WaitingSerializer, waiting_answer

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


class _ListedJobs(serializers.ListSerializer[Job]):
    """Jobs with their tags, and a current forecast for jobs that wait for a limit."""

    def to_representation(self, data: Any) -> Any:
        jobs = list(data)
        foresee(jobs)
        tell_tags(jobs)
        return super().to_representation(jobs)


def tell_tags(rows: Sequence[Job | Batch]) -> None:
    """Fetch the tags of jobs or batches, for the serializers."""
    tags = Tag.objects.of([row.pk for row in rows])
    for row in rows:
        row.tags = tags.get(row.pk, [])


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


class CountsSerializer(serializers.Serializer[dict[str, int]]):
    """Jobs by state."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {state.value: serializers.IntegerField() for state in JobState}


class EndedBatchSerializer(serializers.Serializer[Any]):
    """A batch's end, as its callback is told of it."""

    batch = serializers.UUIDField()
    name = serializers.CharField()
    counts = CountsSerializer(allow_null=True, help_text="When the callback was let go; null: it waits.")
    verdict = serializers.ChoiceField(
        choices=BatchVerdict.choices, allow_null=True, help_text="What became of it; null: it had not ended."
    )


class TakeSerializer(serializers.Serializer[Any]):
    """A value of the payload that comes from another job's result."""

    place = serializers.CharField(help_text="In the payload: `payload.values.0.0`.")
    job = serializers.UUIDField()
    path = serializers.CharField(help_text="In that job's result: `data.total`; empty: all of it.")


def told_of(ended: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return how a batch ended, as the column of its callback job keeps it; None: the job is no callback."""
    if ended is None:
        return None
    return {"counts": None, **ended, "verdict": ended_verdict(ended.get("counts"))}


class JobDetailSerializer(DetailSerializer, JobSerializer):
    payload = AnyJSON()
    result = AnyJSON()
    stored_result = PlaceOfResultSerializer(allow_null=True, help_text=PLACE_HELP)
    ended_batch = EndedBatchSerializer(allow_null=True, help_text="Of a batch's callback; null: it is none.")
    takes = TakeSerializer(
        many=True,
        help_text="The values of its payload that come from other jobs; in the payload once it need not wait.",
    )
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
    prices = WayPricesSerializer(
        allow_null=True, help_text="Null: it can go live alone, or nothing tells what it takes."
    )
    provider_batch = BatchOfJobSerializer(allow_null=True, help_text="Null: it never was in one.")

    class Meta:
        model = Job
        fields = (
            *JOB_FIELDS,
            "payload",
            "result",
            "stored_result",
            "ended_batch",
            "takes",
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


def job_answer(snapshot: JobSnapshot, *, cursor: Cursor) -> dict[str, Any]:
    """
    Args:
        cursor: The position in the log of events, read before the snapshot.
    """
    job = snapshot.job
    tell_tags([job])
    shown = JobSerializer(job).data
    waiting = snapshot.waiting
    if job.status == JobState.RATE_LIMITED and job.lane is not None and waiting is not None and waiting.forecast:
        shown["scheduled_at"] = MOMENT.to_representation(waiting.forecast.starts_at)
    return {
        **shown,
        "payload": job.payload,
        "result": result_here(job),
        "stored_result": place_of_result(job),
        "ended_batch": told_of(job.ended_batch),
        "takes": shown_takes(job.takes),
        "attempts": job.retry_count + (job.status in ATTEMPT_UNDER_WAY_OR_OVER and job.started_at is not None),
        "eta": getattr(snapshot, "eta", None),
        "effective_priority": snapshot.effective_priority,
        "waiting_for": snapshot.waiting_for,
        "waiting": waiting_answer(snapshot.waiting) if snapshot.waiting else None,
        "recheck_after_seconds": snapshot.recheck_after_seconds,
        "last_event": EventSerializer(snapshot.last_event).data if snapshot.last_event else None,
        **cursor.answer(),
    }


ATTEMPT_UNDER_WAY_OR_OVER = frozenset({JobState.IN_PROGRESS, JobState.COMPLETED, JobState.FAILED})
