"""Results: in the answer, or where they are."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from jobs.features.results.reference import stored_in
from jobs.models import Job
from jobs.states import JobState

from .fields import AnyJSON


class PlaceOfResultSerializer(serializers.Serializer[Any]):
    """Where a result is that is too large to be part of this answer."""

    bytes = serializers.IntegerField(help_text="Of the result, as JSON.")
    url = serializers.CharField(help_text="Gives the result alone.")


def place_of_result(job: Job) -> dict[str, Any] | None:
    """The place of a large result; None: it is in the job's row, or there is none."""
    stored = stored_in(job.result)
    return stored and {"bytes": stored.bytes, "url": f"/api/v1/jobs/{job.pk}/result/"}


def result_here(job: Job) -> Any:
    """A job's result, unless it is in the result store."""
    return None if stored_in(job.result) else job.result


PLACE_HELP = "Of a large result, which is in the result store: where to get it, while `result` is null. Else null."


class ResultSerializer(serializers.ModelSerializer[Job]):
    state = serializers.ChoiceField(source="status", choices=JobState.choices)
    result = AnyJSON(source="shown_result")
    stored_result = PlaceOfResultSerializer(source="place_of_result", allow_null=True, help_text=PLACE_HELP)

    def to_representation(self, instance: Job) -> dict[str, Any]:
        instance.shown_result = result_here(instance)
        instance.place_of_result = place_of_result(instance)
        return super().to_representation(instance)

    class Meta:
        model = Job
        fields = (
            "id",
            "kind",
            "user_id",
            "idempotency_key",
            "state",
            "result",
            "stored_result",
            "last_error_code",
            "last_error_message",
            "origin",
            "finished_at",
        )
        read_only_fields = fields
