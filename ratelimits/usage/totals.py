"""The use of each project's users together in the current month."""

from __future__ import annotations

from dataclasses import dataclass, field

from queueops.core.sql import run_sql

from .models import LEVELS, PASSED


@dataclass(slots=True)
class UsageTotals:
    """
    The totals of one project, in its allowance's unit.

    Attributes:
        users: How many users there are, by the level that they have reached; see UsageTracking.
        quota: The sum of these users' quotas.
        refused: Reservations refused for want of room; `expired`: reservations that nobody confirmed in time.
    """

    users: dict[int, int] = field(default_factory=lambda: dict.fromkeys((0, *LEVELS, PASSED), 0))
    quota: int = 0
    used: int = 0
    reserved: int = 0
    overage: int = 0
    refused: int = 0
    expired: int = 0


def usage_totals() -> dict[str, UsageTotals]:
    """The totals of each project with an allowance. Reads every user's current month."""
    totals: dict[str, UsageTotals] = {}
    for project, level, users, *sums in run_sql("ratelimits", "sum_usage", {}):
        total = totals.setdefault(project, UsageTotals())
        if level is None:
            continue
        total.users[level] = users
        for name, value in zip(("quota", "used", "reserved", "overage", "refused", "expired"), sums, strict=True):
            setattr(total, name, getattr(total, name) + value)
    return totals
