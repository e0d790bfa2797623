"""Limits as the API shows them."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ratelimits.models import Limit, LimitOverride


class OverrideSerializer(serializers.ModelSerializer[LimitOverride]):
    class Meta:
        model = LimitOverride
        fields = ("key", "capacity", "refill_per_second", "note", "ends_at")


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
