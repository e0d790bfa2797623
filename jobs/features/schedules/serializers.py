"""Schedules, and the outcome of their fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.features.schedules.schedules import next_fires
from jobs.models import Schedule, ScheduleFire


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
    """The view reads the last fires of a whole page at once: `last_fires`, by schedule."""

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
