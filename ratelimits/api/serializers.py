"""Limits and usage as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ratelimits.models import Allowance, Budget, Limit, LimitOverride
from ratelimits.models.allowance import UsageEvent, UsageTracking
from ratelimits.services.money.standings import BudgetStanding


class OverrideSerializer(serializers.ModelSerializer[LimitOverride]):
    class Meta:
        model = LimitOverride
        fields = ("key", "capacity", "refill_per_second", "note", "ends_at")


class BudgetSerializer(serializers.ModelSerializer[Budget]):
    """
    A budget and how it stands in the current period; amounts in millionths of the currency.

    `context["standings"]`: how each budget stands, by its id.
    """

    currency = serializers.SerializerMethodField()
    key = serializers.SerializerMethodField(
        help_text="Of a budget for each user: who has spent the most; the figures are theirs."
    )
    spent = serializers.SerializerMethodField()
    unknown = serializers.SerializerMethodField(
        help_text="The part of `spent` of which nobody knows whether it was billed: the most that it can be."
    )
    held = serializers.SerializerMethodField(help_text="What calls under way can cost at most.")
    left = serializers.SerializerMethodField()
    ends_at = serializers.SerializerMethodField(help_text="When the next period begins; null: never.")

    class Meta:
        model = Budget
        fields: ClassVar = [
            *("id", "name", "scope", "user_id", "batch_id", "period", "time_zone", "policy", "note"),
            *("set_by_operator", "currency"),
            *("amount", "key", "spent", "unknown", "held", "left", "ends_at"),
        ]

    def get_currency(self, row: Budget) -> str:
        return settings.QUEUEOPS.currency

    def get_key(self, row: Budget) -> str:
        return self._now(row).key

    def get_spent(self, row: Budget) -> int:
        return self._now(row).spent

    def get_unknown(self, row: Budget) -> int:
        return self._now(row).unknown

    def get_held(self, row: Budget) -> int:
        return self._now(row).held

    def get_left(self, row: Budget) -> int:
        return self._now(row).left

    def get_ends_at(self, row: Budget) -> datetime | None:
        return self._now(row).ends_at

    def _now(self, row: Budget) -> BudgetStanding:
        standing: BudgetStanding = self.context["standings"][row.pk]
        return standing


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


class GaugeSerializer(serializers.Serializer[Any]):
    """How a counter stands; figures in the limit's unit."""

    counter_id = serializers.CharField()
    key = serializers.CharField()
    unit = serializers.CharField()
    used = serializers.FloatField()
    available = serializers.FloatField()
    capacity = serializers.FloatField()
    percent = serializers.FloatField()
    level = serializers.IntegerField(help_text="The highest threshold reached, in percent.")
    pressure = serializers.FloatField(help_text="The part of the cap in use since the provider pushed back.")
    share = serializers.FloatField(help_text="The part of the cap that the ramp after a resume leaves open; 1: all.")
    blocked_until = serializers.DateTimeField(allow_null=True)
    blocked_reason = serializers.CharField(allow_blank=True)
    next_free_at = serializers.DateTimeField(allow_null=True, help_text="Null: one more call has room now.")
    per_second = serializers.FloatField(allow_null=True)
    shadow_denials = serializers.IntegerField()
    updated_at = serializers.DateTimeField()
    proposed_capacity = serializers.FloatField(
        allow_null=True, help_text="What the provider says the cap of this key is; null: nothing is proposed."
    )
    proposed_at = serializers.DateTimeField(allow_null=True)
    override_ends_at = serializers.DateTimeField(
        allow_null=True, help_text="When the cap of this key comes back to what it was; null: it has none that ends."
    )


class LimitSerializer(serializers.ModelSerializer[Limit]):
    """A limit, with the overrides and counters that its caller may see: `context["seen"]`, by limit."""

    overrides = serializers.SerializerMethodField()
    counters = serializers.SerializerMethodField(help_text="Up to 20, the fullest first.")

    class Meta:
        model = Limit
        fields: ClassVar = [
            *(
                "id",
                "name",
                "service",
                "call_type",
                "scope",
                "model",
                "project",
                "kind",
                "per_model",
                "unit",
                "counts_cached",
                "reserves",
            ),
            *("algorithm", "capacity"),
            *("refill_per_second", "window_seconds", "provider_quota", "slack_seconds", "reset_zone", "guard_seconds"),
            *("lease_seconds", "headroom_percent", "notice_percent", "warning_percent"),
            *("clears_late_seconds", "fail_open", "shadow", "enabled", "learns_caps"),
            *("proposed_at", "proposed_reserves", "note", "updated_at", "overrides", "counters"),
        ]
        read_only_fields = fields

    @extend_schema_field(OverrideSerializer(many=True))
    def get_overrides(self, limit: Limit) -> list[dict[str, Any]]:
        return list(OverrideSerializer(self.context["seen"].overrides.get(limit.pk, ()), many=True).data)

    @extend_schema_field(GaugeSerializer(many=True))
    def get_counters(self, limit: Limit) -> list[dict[str, Any]]:
        return list(GaugeSerializer(self.context["seen"].gauges.get(limit.pk, ()), many=True).data)


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
