"""What the list of limits can be narrowed by."""

from __future__ import annotations

import django_filters

from queueops.rest.filtering import ChoicesFilter
from ratelimits.models import CallType, Limit, Unit


class LimitFilter(django_filters.FilterSet):  # type: ignore[misc]  # untyped package
    scope = ChoicesFilter(choices=Limit.Scope.choices)
    call_type = ChoicesFilter(choices=CallType.choices)
    unit = ChoicesFilter(choices=Unit.choices)
    enabled = django_filters.BooleanFilter()
    shadow = django_filters.BooleanFilter()

    class Meta:
        model = Limit
        fields = ("service", "name", "model")
