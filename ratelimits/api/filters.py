"""Filters of the lists."""

from __future__ import annotations

import django_filters

from queueops.rest.filtering import ChoicesFilter, FilterSet, TruthFilter
from ratelimits.models import Budget, Limit, LimitCallType, Unit
from ratelimits.models.allowance import UsageEvent, UsageTracking


class LimitFilterSet(FilterSet):
    scope = ChoicesFilter(choices=Limit.Scope.choices)
    call_type = ChoicesFilter(choices=LimitCallType.choices)
    unit = ChoicesFilter(choices=Unit.choices)
    enabled = TruthFilter()
    shadow = TruthFilter()

    class Meta:
        model = Limit
        fields = ("service", "name", "model")


class BudgetFilterSet(FilterSet):
    scope = ChoicesFilter(choices=Budget.Scope.choices)
    period = ChoicesFilter(choices=Budget.Period.choices)
    policy = ChoicesFilter(choices=Budget.Policy.choices)
    user_id = django_filters.UUIDFilter()
    batch_id = django_filters.UUIDFilter()

    class Meta:
        model = Budget
        fields = ("name",)


class UserMonthFilterSet(FilterSet):
    user_id = django_filters.UUIDFilter()
    month = django_filters.CharFilter(field_name="month_year")

    class Meta:
        model = UsageTracking
        fields = ()


class UsageEventFilterSet(UserMonthFilterSet):
    over_limit = TruthFilter()

    class Meta:
        model = UsageEvent
        fields = ()
