"""Events of jobs."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from jobs.models import JobEvent
from jobs.tracebacks import without_diagnostics

from .fields import AnyJSON

SHOWS_TRACEBACKS = "shows_tracebacks"  # in a serializer's context; without it nobody is shown a traceback


class EventData(AnyJSON):
    """The data of an event, or of all failed attempts. Tracebacks are left out unless the view checked its reader."""

    def to_representation(self, value: Any) -> Any:
        if self.context.get(SHOWS_TRACEBACKS):
            return super().to_representation(value)
        return [without_diagnostics(one) for one in value] if isinstance(value, list) else without_diagnostics(value)


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    data = EventData()  # type: ignore[assignment]  # DRF takes fields out of the class, so this hides nothing

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
