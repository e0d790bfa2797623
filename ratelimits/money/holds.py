"""
Ends calls that hold money of budgets: they are settled at their cost, or lost at the most that they can have cost.

All code that touches budgets locks in one order, or transactions would deadlock: a budget, its periods by their ids,
holds, rows of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum

from queueops.core.postgres.zones import zone_of
from queueops.core.sql import plain_array, run_sql, text_array
from ratelimits.costs import Usage
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, Spend

from .spend import MadeCall, Payer, write_ledger

NO_USAGE = Usage(requests=1)
LOST_AT_ONCE = 1_000


class _Lost(NamedTuple):
    """A row of lose_budget_holds.sql."""

    job_id: UUID
    token: int
    amount: int
    project: str
    user_id: UUID | None
    batch_id: UUID | None
    provider: str
    model: str
    via: str
    at: float
    periods: list[int] | None


def end_holds(calls: Sequence[tuple[UUID, int]], *, paid: Sequence[tuple[Payer, float]] = ()) -> Sequence[int] | None:
    """
    Release what these calls, named by job and token, hold of budgets, in the transaction that writes their costs.

    Args:
        paid: The payer and time of the claim of each call that the transaction writes into the ledger next, also of
            calls that hold nothing.

    Returns:
        The periods that are locked, for `record_calls`; None: there are no calls, and no period was locked.
    """
    if not calls:
        return None
    rows = run_sql(
        "ratelimits",
        "end_budget_holds",
        {
            **_pairs(calls),
            "projects": text_array([payer.project for payer, _ in paid]),
            "users": plain_array([payer.user_id for payer, _ in paid]),
            "batches": plain_array([payer.batch_id for payer, _ in paid]),
            "times": plain_array([at for _, at in paid]),
        },
    )
    return [period for (period,) in rows]


@transaction.atomic(savepoint=False)
def lose_holds(calls: Sequence[tuple[UUID, int]], *, expired: int = 0) -> int:
    """
    Count calls of crashed executors at the most that they can have cost: nobody knows whether they were made.

    An answer that comes after all corrects the cost.

    Args:
        calls: The calls, by job and token; a call that holds nothing is left out.
        expired: How many other calls, whose time is over, to count at most.
    """
    rows = [_Lost(*row) for row in run_sql("ratelimits", "lose_budget_holds", {**_pairs(calls), "expired": expired})]
    if rows:
        write_ledger([(_call(row), Spend.Kind.UNKNOWN, row.amount) for row in rows], locked=rows[0].periods or [])
    return len(rows)


def lose_expired() -> int:
    """Do what `lose_holds` does for calls whose time is over. For house-keeping; cheap if there are none."""
    return lose_holds((), expired=LOST_AT_ONCE)


def held_by_budgets(calls: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], dict[str, float]]:
    """Read what budgets hold for each call, `bound`, and since when, `claimed_at`. For calls that are not in memory."""
    rows = BudgetHold.objects.filter(job_id__in=[job for job, _ in calls]).order_by()
    wanted = set(calls)
    return {
        (job, token): {"bound": amount, "claimed_at": at.timestamp()}
        for job, token, amount, at in rows.values_list("job_id", "token", "amount", "at")
        if (job, token) in wanted
    }


def losing_known(calls: Sequence[tuple[UUID, int]]) -> int:
    """Do what `lose_holds` does, but without a lock if none of these calls holds anything."""
    held = BudgetHold.objects.filter(job_id__in=[job for job, _ in calls], lost=False)
    return lose_holds(calls) if calls and held.exists() else 0


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """A period whose sum differed from the sum of its ledger."""

    period: int
    spent: int
    ledger: int


def recount_periods(*, since: datetime | None = None) -> list[LedgerDifference]:
    """
    Set the spend of each period to the sum of its ledger, and return the differences. Each period has a transaction.

    A period differs if it began while a transaction that did not see it was ending calls or pricing spend.

    Args:
        since: Only periods that were begun after this; None: all.
    """
    periods = BudgetPeriod.objects.all() if since is None else BudgetPeriod.objects.filter(created_at__gte=since)
    found = [_recount(pk) for pk in periods.order_by("pk").values_list("pk", flat=True)]
    return [one for one in found if one is not None]


@transaction.atomic
def _recount(pk: int) -> LedgerDifference | None:
    period = BudgetPeriod.objects.select_for_update(of=("self",)).select_related("budget").filter(pk=pk).first()
    if period is None:
        return None
    # This is a separate statement after the lock, so that its sum includes all that was written to the ledger before.
    ledger = int(spent_of(period).aggregate(sum=Sum("money", default=0))["sum"])
    if ledger == period.spent:
        return None
    before, period.spent = period.spent, ledger
    period.save(update_fields=["spent"])
    return LedgerDifference(pk, before, ledger)


def spent_of(period: BudgetPeriod) -> QuerySet[Spend]:
    """The calls that a period counts."""
    budget = period.budget
    rows = Spend.objects.filter(project_id=budget.project_id, at__gte=period.starts_at)
    if (end := end_of(period)) is not None:
        rows = rows.filter(at__lt=end)
    match budget.scope:
        case Budget.Scope.EACH_USER:
            return rows.filter(user_id=period.key)
        case Budget.Scope.USER:
            return rows.filter(user_id=budget.user_id)
        case Budget.Scope.BATCH:
            return rows.filter(batch_id=budget.batch_id)
    return rows


def end_of(period: BudgetPeriod) -> datetime | None:
    """When the next period begins; None: never."""
    budget, zone = period.budget, zone_of(period.budget.time_zone)
    begun = period.starts_at.astimezone(zone)
    if budget.period == Budget.Period.TOTAL:
        return None
    naive = begun.replace(tzinfo=None)
    following = naive + timedelta(days=1 if budget.period == Budget.Period.DAY else 32)
    if budget.period == Budget.Period.MONTH:
        following = following.replace(day=1)
    return following.replace(tzinfo=zone)


def _pairs(calls: Sequence[tuple[UUID, int]]) -> dict[str, str | None]:
    return {
        "jobs": plain_array([job for job, _ in calls]),
        "tokens": plain_array([token for _, token in calls]),
    }


def _call(row: _Lost) -> MadeCall:
    payer = Payer(row.project, row.user_id, row.batch_id)
    return MadeCall(row.job_id, row.token, payer, row.provider, row.model, row.at, NO_USAGE, row.via)
