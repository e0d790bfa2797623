"""Finds budgets that would not suffice for work that is not submitted yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from queueops.tenancy.scope import for_everyone
from ratelimits.models import Budget
from ratelimits.money.budgets import budgets_of
from ratelimits.money.spend import Payer
from ratelimits.money.standings import standing_of

MAX_USERS_LOOKED_AT = 20  # the users whose work costs most

Prices = Mapping[UUID | None, int | None]
"""By user, what the work should cost in micro-units; None: a price is missing."""


@dataclass(frozen=True, slots=True)
class BudgetGap:
    """
    A budget that has less left than the work should cost.

    Attributes:
        user_id: The user whom the budget counts; None: it counts the project.
        policy: What becomes of the jobs beyond the budget: `wait` or `reject`.
        needed: What the work should cost; None: a price is missing, and a budget lets no call of unknown cost go.
    """

    budget: str
    user_id: UUID | None
    policy: str
    needed: int | None
    left: int


@for_everyone()
def find_gaps(project_id: str, prices: Prices, *, only_user: UUID | None = None) -> list[BudgetGap]:
    """
    Args:
        only_user: The end user who asks: only budgets that count this user are returned, and no budget of the project.
    """
    rules = budgets_of(project_id)
    if not rules or not prices:
        return []
    users = sorted(prices.items(), key=lambda one: (one[1] is not None, -(one[1] or 0)))[:MAX_USERS_LOOKED_AT]
    found = Budget.objects.in_bulk([rule.id for rule in rules])
    gaps = []
    for rule in rules:
        budget = found.get(rule.id)
        of_users = rule.scope in {Budget.Scope.EACH_USER, Budget.Scope.USER}
        if budget is None or rule.scope == Budget.Scope.BATCH or (only_user and not of_users):
            continue
        needs: Prices = dict(users) if of_users else {None: _sum(prices)}
        for user, needed in needs.items():
            key = rule.key_of(Payer(project_id, user, None))
            if key is None or needed == 0:
                continue
            left = standing_of(budget, key).left
            if needed is None or needed > left:
                gaps.append(BudgetGap(rule.name, user if of_users else None, budget.policy, needed, left))
    return gaps


def _sum(prices: Prices) -> int | None:
    known = [price for price in prices.values() if price is not None]
    return sum(known) if len(known) == len(prices) else None
