"""Dead letters."""

from __future__ import annotations

from rest_framework import serializers

from jobs.models import DeadLetter

from .events import EventData
from .fields import AnyJSON


class DeadLetterSerializer(serializers.ModelSerializer[DeadLetter]):
    payload = AnyJSON(read_only=True)
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
