"""Batches, in lists and by themselves."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from jobs.models import Batch, OnFailure
from jobs.services.explain.event_log import Cursor
from jobs.services.explain.snapshots import BatchSnapshot
from jobs.states import BatchVerdict, GuardState

from .fields import MOMENT, DetailSerializer
from .jobs import CountsSerializer, tell_tags

NOTHING_FOUND: dict[str, Any] = {"ended": None, "failed": None, "code": None}
NO_WAIT: dict[str, Any] = {"after": [], "on_failure": None}


class GuardSerializer(serializers.Serializer[dict[str, Any]]):
    """When a batch stops itself, and whether it has."""

    state = serializers.ChoiceField(
        choices=GuardState.choices,
        help_text="`trial`: its first jobs are tried, others are held; `passed`: the rest was let go; `stopped`: it is "
        "paused, `resume` goes on; `went_on`: somebody said so.",
    )
    percent = serializers.IntegerField(help_text="Of the first jobs, that fail for good with one code.")
    first = serializers.IntegerField(help_text="Jobs that decide.")
    ended = serializers.IntegerField(allow_null=True, help_text="Of these, when it stopped; null: it did not.")
    failed = serializers.IntegerField(allow_null=True, help_text="Of those, for good with `code`.")
    code = serializers.CharField(allow_null=True, help_text="The most frequent error code of them.")


class BatchSerializer(serializers.ModelSerializer[Batch]):
    """A batch, with its progress."""

    after = serializers.ListField(
        child=serializers.UUIDField(), help_text="The jobs and batches that it was submitted to wait for."
    )
    on_failure = serializers.ChoiceField(
        choices=OnFailure.choices, allow_null=True, help_text="What if one of those does not succeed."
    )
    tags = serializers.ListField(child=serializers.CharField())
    known_batches = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="The first 20 batches that have jobs which were submitted again with this one, and their results.",
    )
    verdict = serializers.ChoiceField(
        choices=BatchVerdict.choices,
        help_text="The state of the batch in one word. A batch that has ended has the first of these that fits: "
        "`succeeded`, every job is completed; `failed`, some jobs failed and none is completed; `cancelled`, at least "
        "half of the jobs were cancelled; `succeeded_with_failures`.",
    )
    held_by = serializers.CharField(
        allow_null=True, help_text="What stops it, in words, where the verdict is `held`; else null."
    )
    guard = GuardSerializer(allow_null=True, help_text="When it stops itself; null: never.")
    counts = CountsSerializer(help_text="Items by state; a requeued item counts once, as its latest job.")
    held_by_outage = serializers.IntegerField(
        help_text="Of those rate_limited, how many wait for an outage to end, and not for quota; at most 10,000."
    )
    scheduled = serializers.IntegerField(
        help_text="Of those queued, how many wait for their time; at most 100,000, in long lists 10,000."
    )
    scheduled_until = serializers.DateTimeField(
        allow_null=True, help_text="When the last of them may begin; null: none waits for its time."
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
            "id",
            "name",
            "tags",
            "total",
            "paused",
            "submitted_by",
            "after",
            "on_failure",
            "on_finish_job",
            "known_batches",
            "created_at",
            "finished_at",
            "verdict",
            "held_by",
            "guard",
            "counts",
            "held_by_outage",
            "scheduled",
            "scheduled_until",
            "finished",
            "progress",
            "rate_per_second",
            "eta",
            "eta_earliest",
            "recheck_after_seconds",
        )
        read_only_fields = fields


class BatchDetailSerializer(DetailSerializer, BatchSerializer):
    class Meta:
        model = Batch
        fields = (*BatchSerializer.Meta.fields, "cost_money", "currency", "cursor", "epoch")
        read_only_fields = fields


def _guard(batch: Batch) -> dict[str, Any] | None:
    if batch.guard is None:
        return None
    return dict(GuardSerializer({**NOTHING_FOUND, **batch.guard, "state": batch.guard_state}).data)


def batch_answer(snapshot: BatchSnapshot) -> dict[str, Any]:
    batch = snapshot.batch
    return {
        "id": str(batch.pk),
        "name": batch.name,
        "tags": batch.tags,
        "total": batch.total,
        "paused": batch.paused,
        "submitted_by": batch.submitted_by,
        "after": (batch.after or NO_WAIT)["after"],
        "on_failure": (batch.after or NO_WAIT)["on_failure"],
        "on_finish_job": batch.on_finish_job and str(batch.on_finish_job),
        "known_batches": [str(one) for one in batch.known_batches],
        "created_at": MOMENT.to_representation(batch.created_at),
        "finished_at": batch.finished_at and MOMENT.to_representation(batch.finished_at),
        "verdict": snapshot.verdict.value,
        "held_by": snapshot.held_by,
        "guard": _guard(batch),
        "counts": snapshot.counts,
        "held_by_outage": snapshot.held_by_outage,
        "scheduled": snapshot.scheduled.jobs,
        "scheduled_until": snapshot.scheduled.last and MOMENT.to_representation(snapshot.scheduled.last),
        "finished": snapshot.finished,
        "progress": snapshot.progress,
        "rate_per_second": batch.rate_now,
        "eta": snapshot.eta and MOMENT.to_representation(snapshot.eta),
        "eta_earliest": snapshot.eta_earliest and MOMENT.to_representation(snapshot.eta_earliest),
        "recheck_after_seconds": snapshot.recheck_after_seconds,
    }


def batch_detail_answer(snapshot: BatchSnapshot, *, cursor: Cursor) -> dict[str, Any]:
    """
    Args:
        cursor: The position in the log of events, read before the snapshot.
    """
    tell_tags([snapshot.batch])
    return {**batch_answer(snapshot), **cursor.answer()}
