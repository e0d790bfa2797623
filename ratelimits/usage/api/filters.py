"""The filters of usage's lists."""

from __future__ import annotations

import django_filters

from queueops.rest.filtering import FilterSet, TruthFilter
from ratelimits.usage.models import UsageEvent, UsageTracking


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
