"""Budgets as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.conf import settings
from rest_framework import serializers

from ratelimits.models import Budget
from ratelimits.money.standings import BudgetStanding


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
