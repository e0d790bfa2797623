"""Alerts about users who are near their month's quota, or have passed a strict quota."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F

from queueops.core.sql import run_sql
from ratelimits.alerts.alerts import Kind, Opening, Severity, open_all, resolve
from ratelimits.models import Allowance, QuotaAlert, UsageTracking
from ratelimits.usage.models import LEVELS, PASSED

SEVERITIES = dict(zip(LEVELS, (Severity.NOTICE, Severity.WARNING, Severity.CRITICAL), strict=True))
OF_ALLOWANCES = (Kind.ALLOWANCE, Kind.OVERAGE)
OF_THE_QUEUE = tuple(kind for kind in Kind if kind not in OF_ALLOWANCES)
MONTHS_AT_ONCE = 200


class _Month(NamedTuple):
    """A row of lock_untold_months.sql."""

    id: int
    project_id: str
    user_id: UUID
    month: str
    quota: int
    used: int
    overage: int
    level: int
    alerted_level: int
    unit: str | None
    policy: str | None
    is_over: bool

    @property
    def subject(self) -> str:
        """The alert's subject. The month comes first: find_alerts_of_past_months.sql looks for earlier months."""
        return f"{self.month}/{self.project_id}/{self.user_id}"


@transaction.atomic
def tend_allowance_alerts() -> int:
    """
    Open, raise and resolve the alerts of months whose use has reached another level; at most MONTHS_AT_ONCE a call.

    A user's month has one alert, whose severity rises with the level. Under the strict policy a second alert opens once
    use exceeds the quota. Both are resolved when the level falls, because the quota was raised or usage corrected. They
    are also resolved when the month is over: there are no alerts of past months.

    Returns:
        How many months were dealt with.
    """
    months = [_Month(*row) for row in run_sql("ratelimits", "lock_untold_months", {"most": MONTHS_AT_ONCE})]
    fallen = [one.subject for one in months if one.level < one.alerted_level]
    if fallen:
        resolve(QuotaAlert.objects.filter(kind__in=OF_ALLOWANCES, subject__in=fallen))
    openings = [opening for one in months if not one.is_over for opening in _openings(one)]
    if openings:
        open_all(openings)
    if months:
        UsageTracking.objects.filter(pk__in=[one.id for one in months]).update(alerted_level=F("level"))
    _resolve_past()
    return len(months)


def _openings(month: _Month) -> Sequence[Opening]:
    if not month.level:
        return ()
    figures = {
        "project": month.project_id,
        "user": str(month.user_id),
        "month": month.month,
        "unit": month.unit,
        "used": month.used,
        "quota": month.quota,
        "overage": month.overage,
    }
    who = f"{month.project_id}, user {month.user_id}"
    what = f"{month.used:,} of {month.quota:,} {month.unit} of {month.month} used"
    percent = f", {100 * month.used // month.quota} %" if month.quota else ""
    severity = SEVERITIES[min(month.level, LEVELS[-1])]
    near = Opening(Kind.ALLOWANCE, month.subject, severity, f"{who}: {what}{percent}", figures)
    if month.level < PASSED or month.policy != Allowance.Policy.STRICT:
        return (near,)
    message = f"{who}: the strict quota of {month.month} was passed by {month.overage:,} {month.unit}"
    return (near, Opening(Kind.OVERAGE, month.subject, Severity.CRITICAL, message, figures))


def _resolve_past() -> None:
    kinds = [kind.value for kind in OF_ALLOWANCES]
    over = run_sql("ratelimits", "find_alerts_of_past_months", {"kinds": kinds, "most": MONTHS_AT_ONCE})
    if over:
        resolve(QuotaAlert.objects.filter(pk__in=[pk for (pk,) in over]))
