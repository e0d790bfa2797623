"""Operations in the background."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import BulkOperation, CanaryState
from jobs.services.operate.bulk_outcome import canary_outcome


class CanarySerializer(serializers.Serializer[dict[str, Any]]):
    """The rows of an operation that go first."""

    state = serializers.ChoiceField(
        choices=CanaryState.choices,
        help_text="`trying`: the rest waits for them; `passed`: it follows; `failed`: the operation has ended.",
    )
    rows = serializers.IntegerField(help_text="How many were asked for.")
    percent = serializers.IntegerField(help_text="It fails where so many percent failed with one code.")
    jobs = serializers.IntegerField(help_text="How many have gone.")
    ended = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="For good, with `code`.")
    code = serializers.CharField(help_text="The most frequent error code of them; empty: none failed.")


class OperationSerializer(serializers.ModelSerializer[BulkOperation]):
    canary = serializers.SerializerMethodField(help_text="Null: all went at once.")

    @extend_schema_field(CanarySerializer(allow_null=True))
    def get_canary(self, operation: BulkOperation) -> dict[str, Any] | None:
        if operation.canary is None:
            return None
        return {
            "state": operation.canary_state,
            "rows": operation.canary,
            "percent": operation.canary_percent,
            **canary_outcome(operation)._asdict(),
        }

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
            "canary",
            "created_at",
            "updated_at",
            "finished_at",
        )
        read_only_fields = fields
