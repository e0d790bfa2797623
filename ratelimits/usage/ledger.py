"""Checking months against the sums of their events and reservations, repairing them, and correcting what was used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import F

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.sql import plain_array, run_sql, text_array
from queueops.core.values.reasons import required_reason
from ratelimits.errors import InvalidCorrection
from ratelimits.models import UsageEvent, UsageTracking

from .models import MAX_QUOTA
from .month_end import MONTH
from .months import MonthChange, MonthKey, change_months
from .standings import standing

REPAIRED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One user's month that differs from the sums of its events and reservations.

    Attributes:
        used: The use that the month's row has; `events`: the sum of its events.
        reserved: The reserved amount that the row has; `reservations`: the sum of its active reservations.
    """

    project_id: str
    user_id: UUID
    month: str
    used: int
    events: int
    reserved: int
    reservations: int


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """`rows`: how many months were compared."""

    rows: int
    differences: list[Difference]


@dataclass(frozen=True, slots=True)
class Corrected:
    """`used`: the month's use after the correction."""

    event_id: UUID
    used: int


def check_ledger(project_id: str | None = None) -> LedgerCheck:
    """
    Compare every month of one project, or of all projects, with the events and active reservations behind it.

    Reads the whole ledger in one snapshot and locks nothing.
    """
    rows = run_sql("ratelimits", "compare_ledger", {"project_id": project_id})
    return LedgerCheck(rows[0][0], [Difference(*row) for _, *row in rows if row[0] is not None])


def repair_ledger(project_id: str | None = None, *, actor: str, reason: str) -> list[Difference]:
    """
    Set every month that differs to its sums; events and reservations are the truth and stay as they are.

    Returns:
        The months that differed. The audit trail has each of them with its new figures.

    Raises:
        ReasonRequired.
    """
    reason = required_reason(reason)
    found = check_ledger(project_id).differences
    for start in range(0, len(found), REPAIRED_AT_ONCE):
        _recount(found[start : start + REPAIRED_AT_ONCE], actor=actor, reason=reason)
    return found


@transaction.atomic
def correct(project_id: str, user_id: UUID, month: str, amount: int, *, actor: str, reason: str) -> Corrected:
    """
    Add an event that corrects what was used in a month.

    Args:
        month: YYYY-MM, at the latest the current month.
        amount: In the allowance's unit; negative: less was used.

    Raises:
        NoAllowance, ReasonRequired.
        InvalidCorrection: The use would fall below 0, or there is no such month.
    """
    reason = required_reason(reason)
    if not MONTH.match(month) or month > standing(project_id, user_id).month:
        raise InvalidCorrection(fields={"month": ["Name this month or one before it, as 2026-11."]})
    if not 0 < abs(amount) <= MAX_QUOTA:
        raise InvalidCorrection(fields={"amount": [f"Correct by at least 1 and at most {MAX_QUOTA:,}."]})
    key = (project_id, user_id, month)
    before = change_months({key: MonthChange()})[key].used  # adds the row if it is missing, and locks it
    if before + amount < 0:
        raise InvalidCorrection(fields={"amount": [f"Only {before:,} was used."]})
    event = UsageEvent.objects.create(
        event_id=uuid4(),
        project_id=project_id,
        user_id=user_id,
        month_year=month,
        amount=amount,
        occurred_at=Now(),
        correction=True,
    )
    UsageTracking.objects.filter(project_id=project_id, user_id=user_id, month_year=month).update(
        used=F("used") + amount
    )
    after = {"used": before + amount, "event_id": str(event.event_id)}
    _record("correct_usage", key, before={"used": before}, after=after, actor=actor, reason=reason)
    return Corrected(event.event_id, before + amount)


@transaction.atomic
def _recount(differences: Sequence[Difference], *, actor: str, reason: str) -> None:
    keys = [(one.project_id, one.user_id, one.month) for one in differences]
    change_months({key: MonthChange() for key in keys})  # adds missing rows, and locks all in order
    rows = run_sql(
        "ratelimits",
        "recount_months",
        {
            "project_ids": text_array([project for project, _, _ in keys]),
            "user_ids": plain_array([user for _, user, _ in keys]),
            "months": plain_array([month for _, _, month in keys]),
        },
    )
    now = {(project, user, month): {"used": used, "reserved": held} for project, user, month, used, held in rows}
    for key, one in zip(keys, differences, strict=True):
        before = {"used": one.used, "reserved": one.reserved}
        _record("repair_ledger", key, before=before, after=now[key], actor=actor, reason=reason)


def _record(action: str, key: MonthKey, *, before: Any, after: Any, actor: str, reason: str) -> None:
    project, user, month = key
    trail.record(
        actor=actor,
        action=action,
        target=f"usage {project}/{user} {month}",
        before=before,
        after=after,
        reason=reason,
        project_id=project,
    )
