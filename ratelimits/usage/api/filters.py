"""The filters of usage's lists."""

from __future__ import annotations

import django_filters

from queueops.rest.filtering import FilterSet, TruthFilter


class UserMonthFilterSet(FilterSet):
    user_id = django_filters.UUIDFilter()
    month = django_filters.CharFilter(field_name="month_year")


class UsageEventFilterSet(UserMonthFilterSet):
    over_limit = TruthFilter()
