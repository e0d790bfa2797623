"""How budgets stand, for people and for jobs that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import QuerySet, Sum

from queueops.core.clock import database_now
from queueops.core.postgres.zones import zone_of
from ratelimits.models import Budget, BudgetPeriod, Spend

from .holds import end_of, spent_of

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """
    A budget, for one key, in the current period.

    Attributes:
        unknown: The part of `spent` that may not have been billed: the most that calls of unknown cost can have cost.
        ends_at: When the period ends; None: never.
    """

    budget: Budget
    key: str
    spent: int
    held: int
    starts_at: datetime
    ends_at: datetime | None
    unknown: int = 0

    @property
    def left(self) -> int:
        return max(0, self.budget.amount - self.spent - self.held)

    @property
    def percent(self) -> int:
        """The settled percentage of the amount, rounded down."""
        if self.budget.amount:
            return 100 * self.spent // self.budget.amount
        return 100 if self.spent else 0


def begin_of(budget: Budget, moment: datetime) -> datetime:
    """The beginning of the period that contains a moment, as in period_start.sql."""
    if budget.period == Budget.Period.TOTAL:
        return BEGINNING
    zone = zone_of(budget.time_zone)
    day = moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return (day.replace(day=1) if budget.period == Budget.Period.MONTH else day).replace(tzinfo=zone)


def standing_of(budget: Budget, key: str = "") -> BudgetStanding:
    """How a budget stands now for one key."""
    starts_at = begin_of(budget, datetime.fromtimestamp(database_now(), UTC))
    row = BudgetPeriod.objects.filter(budget=budget, key=key, starts_at=starts_at).first()
    return _standing(budget, key, row, starts_at)


def standings_of(budgets: Sequence[Budget]) -> dict[int, BudgetStanding]:
    """How budgets stand now, by id. A budget of each user has the standing of the user who has spent the most."""
    now = datetime.fromtimestamp(database_now(), UTC)
    begins = {budget.pk: begin_of(budget, now) for budget in budgets}
    rows = BudgetPeriod.objects.filter(budget__in=begins, starts_at__in=set(begins.values()))
    dearest = rows.order_by("budget_id", "starts_at", "-spent", "pk").distinct("budget_id", "starts_at")
    found = {(row.budget_id, row.starts_at): row for row in dearest}
    unsure = Spend.objects.filter(kind=Spend.Kind.UNKNOWN, project__in={budget.project_id for budget in budgets})
    projects = set(unsure.order_by().values_list("project_id", flat=True).distinct())
    return {
        budget.pk: _standing(
            budget, row.key if row else "", row, begins[budget.pk], unsure=budget.project_id in projects
        )
        for budget in budgets
        for row in [found.get((budget.pk, begins[budget.pk]))]
    }


def _standing(
    budget: Budget, key: str, row: BudgetPeriod | None, starts_at: datetime, *, unsure: bool = True
) -> BudgetStanding:
    """
    Return how a period stands. If it has no row yet, the ledger says what was spent.

    Args:
        unsure: Whether the project has calls whose cost nobody knows.
    """
    period = row or BudgetPeriod(key=key, starts_at=starts_at)
    period.budget = budget
    if row is None and (key or budget.scope != Budget.Scope.EACH_USER):
        period.spent = _sum(spent_of(period))
    unknown = _sum(spent_of(period).filter(kind=Spend.Kind.UNKNOWN)) if unsure and period.spent else 0
    return BudgetStanding(budget, key, period.spent, period.held, starts_at, end_of(period), unknown)


def _sum(rows: QuerySet[Spend]) -> int:
    return int(rows.aggregate(sum=Sum("money", default=0))["sum"])


def room_of(budget_id: int, key: str) -> int | None:
    """Return how much of a budget is left now, in micro-units; None: the budget does not exist any more."""
    budget = Budget.objects.filter(pk=budget_id).first()
    if budget is None:
        return None
    return standing_of(budget, key).left
