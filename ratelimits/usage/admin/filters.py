"""Filters of the lists of usage."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from queueops.screens.filters import Choice
from ratelimits.usage.models import NEAR, PASSED
from ratelimits.usage.reports import months_until

from .parts import is_month

EVERY_MONTH = "any"
MONTHS_OFFERED = 24


def this_month() -> str:
    """The current month in UTC. People choose another month where a project's month begins earlier or later."""
    return f"{timezone.now():%Y-%m}"


def months_offered() -> list[str]:
    return months_until(this_month(), MONTHS_OFFERED)[::-1]


def month_wanted(request: HttpRequest) -> str | None:
    """The month that the list of usage shows; None: every month."""
    chosen = request.GET.get("month", "")
    if is_month(chosen):
        return chosen
    return None if chosen == EVERY_MONTH or request.GET.get("q") else this_month()


class MonthFilter(Choice):
    title = "month"
    parameter_name = "month"
    column = "month_year"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        offered = months_offered()
        chosen = request.GET.get("month", "")
        more = [chosen] if is_month(chosen) and chosen not in offered else []
        return [(month, month) for month in [*more, *offered]]


class ThisMonthFilter(MonthFilter):
    """Selects this month unless another choice is made: the list of several years is long."""

    all_option = ["", "this month"]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*super().lookups(request, model_admin), (EVERY_MONTH, "every month")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        month = month_wanted(request)
        return queryset.filter(month_year=month) if month else queryset


class LevelFilter(Choice):
    title = "level"
    parameter_name = "level"
    choices_offered = (("near", f"near: {NEAR} % to all of the quota"), ("over", "over the quota"))
    conditions = {"near": {"level__gte": NEAR, "level__lt": PASSED}, "over": {"level": PASSED}}


class MarkFilter(Choice):
    title = "marked"
    parameter_name = "marked"
    choices_offered = (("over", "over the limit"), ("correction", "corrections"))
    conditions = {"over": {"over_limit": True}, "correction": {"correction": True}}
