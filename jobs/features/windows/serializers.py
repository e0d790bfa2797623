"""Maintenance windows."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.features.windows.windows import next_spans
from jobs.models import MaintenanceWindow


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
