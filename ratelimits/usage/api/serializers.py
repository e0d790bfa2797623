"""Allowances and usage as the API shows them."""

from __future__ import annotations

from typing import ClassVar

from rest_framework import serializers

from ratelimits.models import Allowance
from ratelimits.usage.models import UsageEvent, UsageTracking


class AllowanceSerializer(serializers.ModelSerializer[Allowance]):
    project = serializers.CharField(source="project_id")

    class Meta:
        model = Allowance
        fields: ClassVar = [
            *("project", "unit", "quota", "policy", "time_zone", "reservation_seconds", "set_by_operator", "updated_at")
        ]


class SavedAllowanceSerializer(AllowanceSerializer):
    """An allowance that was just saved; `context["saved"]` says what that means."""

    months = serializers.SerializerMethodField(help_text="How many users' months have another quota now.")
    warnings = serializers.SerializerMethodField(help_text="What the change means, where that may surprise.")

    class Meta(AllowanceSerializer.Meta):
        fields: ClassVar = [*AllowanceSerializer.Meta.fields, "months", "warnings"]

    def get_months(self, row: Allowance) -> int:
        return int(self.context["saved"].months)

    def get_warnings(self, row: Allowance) -> list[str]:
        return list(self.context["saved"].warnings)


class UserMonthSerializer(serializers.ModelSerializer[UsageTracking]):
    month = serializers.CharField(source="month_year")

    class Meta:
        model = UsageTracking
        fields = ("id", "user_id", "month", "quota", "used", "reserved", "overage")


class UsageEventSerializer(serializers.ModelSerializer[UsageEvent]):
    month = serializers.CharField(source="month_year")
    reservation_id = serializers.UUIDField(source="reservation", allow_null=True)

    class Meta:
        model = UsageEvent
        fields = (
            *("id", "event_id", "user_id", "month", "service", "tokens", "amount", "occurred_at", "created_at"),
            *("reservation_id", "over_limit", "correction"),
        )
