"""Operations in the background."""

from __future__ import annotations

from rest_framework import serializers

from jobs.models import BulkOperation


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
