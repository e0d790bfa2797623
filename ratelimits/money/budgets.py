"""Asking budgets whether calls may go. A call reserves its upper bound in all budgets that pay for it, or in none."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cachetools import TTLCache, cached
from django.db.models import CharField, F, Func, Q

from queueops.core.postgres.replica import from_primary
from queueops.core.sql import plain_array, run_sql, text_array
from ratelimits.costs import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS
from ratelimits.models import Budget, Via

from .spend import Payer

BUDGETS_KEPT_SECONDS = 0.5  # a budget that another process made takes effect at most this late
_KNOWN_ZONE = Func(F("time_zone"), function="ratelimits_known_zone", output_field=CharField())
_HAS_ZONE = Q(period=Budget.Period.TOTAL) | Q(known_zone__isnull=False)
EXHAUSTED = "budget_exhausted"
COST_UNKNOWN = "cost_unknown"

# Reasons why nobody knows what a call can cost at most.
MISSING_PRICE = "missing_price"  # the model has no price at all
NO_PRICE_OF = {INPUT_TOKENS: "no_input_price", OUTPUT_TOKENS: "no_output_price", REQUESTS: "no_request_price"}
UNBOUNDED = "unbounded"  # nobody knows how much output it can bring
UNCOUNTED = "uncounted"  # nobody knows how many tokens its input has, such as pictures
UNSTATED = "unstated"  # its handler does not say how much a call can use
NO_ZONE = "no_zone"  # the database does not know the budget's time zone, so nobody knows what it has spent
PRICELESS = frozenset({MISSING_PRICE, *NO_PRICE_OF.values()})
FOR_GOOD = frozenset({UNCOUNTED, UNSTATED})  # adding a price does not help


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """
    The fields of a budget that say for whom it pays.

    Attributes:
        has_zone: Whether the database knows where its periods begin.
    """

    id: int
    name: str
    project: str
    scope: str
    user_id: UUID | None
    batch_id: UUID | None
    has_zone: bool = True

    def key_of(self, payer: Payer) -> str | None:
        """The key under which the budget pays for a call; None: it does not pay. The same as in paying_periods.sql."""
        if payer.project != self.project:
            return None
        match self.scope:
            case Budget.Scope.PROJECT:
                return ""
            case Budget.Scope.EACH_USER:
                return None if payer.user_id is None else str(payer.user_id)
            case Budget.Scope.USER:
                return "" if payer.user_id == self.user_id else None
        return "" if payer.batch_id is not None and payer.batch_id == self.batch_id else None


class AskedMoney(NamedTuple):
    """
    A call that asks its budgets.

    Attributes:
        most: What it can cost at most, in micro-units; None: nobody knows, see `why`.
        hold_seconds: After this time the call's executor counts as crashed, and its hold is lost.
    """

    job_id: UUID
    token: int
    payer: Payer
    provider: str
    model: str
    at: float
    most: int | None
    hold_seconds: float
    via: str = Via.LIVE
    why: str = ""


class Standing(NamedTuple):
    """A period of a budget, locked: a row of lock_budget_periods.sql."""

    period: int
    budget: int
    key: str
    amount: int
    policy: str
    spent: int
    held: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """
    The reason why a budget does not let a call go.

    Attributes:
        most: What the call needs; None: nobody knows what it can cost.
        is_spent: Settled spend alone leaves no room: waiting for calls under way does not help.
    """

    budget: int
    key: str
    name: str
    policy: str
    amount: int
    spent: int
    held: int
    most: int | None
    why: str = ""

    @property
    def is_spent(self) -> bool:
        return self.most is not None and self.spent + self.most > self.amount

    @property
    def rejects(self) -> bool:
        return self.policy == Budget.Policy.REJECT and (self.is_spent or self.why in FOR_GOOD)


@dataclass(slots=True)
class Weighed:
    """
    The answers of budgets about calls.

    Attributes:
        shortages: Why each of the other calls may not go, by job.
        places: The ids of the periods that pay for each call that may go, by job.
        room: The room that these calls leave in each period, by id.
    """

    shortages: dict[UUID, Shortage] = field(default_factory=dict)
    places: dict[UUID, tuple[int, ...]] = field(default_factory=dict)
    room: dict[int, int] = field(default_factory=dict)

    def has_room(self, place: int, amount: int) -> bool:
        """Say whether a call has room. A call that costs nothing has, also where a lowered budget is overspent."""
        return amount <= max(0, self.room[place])

    def take_more(self, job_id: UUID, amount: int) -> bool:
        """Take `amount` more for a call that may go, if all its budgets have room; say whether they had."""
        places = self.places[job_id]
        if not all(self.has_room(place, amount) for place in places):
            return False
        self.room.update((place, self.room[place] - amount) for place in places)
        return True


_kept_lock = threading.Lock()
_kept: TTLCache[object, dict[str, tuple[BudgetRule, ...]]] = TTLCache(1, BUDGETS_KEPT_SECONDS)


def budgets_of(project_id: str) -> tuple[BudgetRule, ...]:
    """A project's budgets, as read at most BUDGETS_KEPT_SECONDS ago."""
    return _read().get(project_id, ())


def has_zone(budget_id: int) -> bool:
    """Whether the database knows where a budget's periods begin."""
    return Budget.objects.alias(known_zone=_KNOWN_ZONE).filter(_HAS_ZONE, pk=budget_id).exists()


def forget() -> None:
    """Make the next call read the budgets again. Call this after changing a budget."""
    with _kept_lock:
        _kept.clear()


@cached(_kept, lock=_kept_lock)
@from_primary
def _read() -> dict[str, tuple[BudgetRule, ...]]:
    found: dict[str, list[BudgetRule]] = {}
    for row in Budget.objects.order_by("pk").alias(known_zone=_KNOWN_ZONE).annotate(has_zone=_HAS_ZONE):
        rule = BudgetRule(row.pk, row.name, row.project_id, row.scope, row.user_id, row.batch_id, row.has_zone)
        found.setdefault(row.project_id, []).append(rule)
    return {project: tuple(rules) for project, rules in found.items()}


def weigh_budgets(calls: Sequence[AskedMoney]) -> Weighed:
    """
    Say for which of these calls all their budgets have room, in the order given. Locks the budgets' periods.

    Nothing is taken yet: the caller's transaction tells `hold_money` which calls really go. If one budget has no room
    for a call, the call takes nothing of the others either, and smaller calls behind it may go. A call waits
    if one of its budgets has a time zone that the database does not know.
    """
    wanted = {call.job_id: places_of(call.payer) for call in calls}
    at = min((call.at for call in calls), default=0.0)
    counting = {(rule.id, key) for places in wanted.values() for rule, key in places if rule.has_zone}
    standings = _lock(sorted(counting), at)
    weighed = Weighed(room={one.period: one.amount - one.spent - one.held for one in standings.values()})
    for call in calls:
        if lost := [(rule, key) for rule, key in wanted[call.job_id] if not rule.has_zone]:
            rule, key = lost[0]
            weighed.shortages[call.job_id] = _without_zone(rule, key)
            continue
        places = [(rule, standings[rule.id, key]) for rule, key in wanted[call.job_id] if (rule.id, key) in standings]
        short = next(
            ((rule, one) for rule, one in places if call.most is None or not weighed.has_room(one.period, call.most)),
            None,
        )
        if short is None:
            weighed.places[call.job_id] = tuple(one.period for _, one in places)
            weighed.take_more(call.job_id, call.most or 0)
            continue
        rule, one = short
        held = one.amount - one.spent - weighed.room[one.period]
        weighed.shortages[call.job_id] = Shortage(
            rule.id, one.key, rule.name, one.policy, one.amount, one.spent, held, call.most, call.why
        )
    return weighed


def _without_zone(rule: BudgetRule, key: str) -> Shortage:
    return Shortage(rule.id, key, rule.name, Budget.Policy.WAIT, amount=0, spent=0, held=0, most=None, why=NO_ZONE)


def hold_money(calls: Sequence[AskedMoney], weighed: Weighed) -> None:
    """Reserve what these calls can cost at most, in the transaction that weighed them."""
    rows = [(period, call) for call in calls for period in weighed.places.get(call.job_id, ())]
    if not rows:
        return
    run_sql(
        "ratelimits",
        "insert_budget_holds",
        {
            "periods": plain_array([period for period, _ in rows]),
            "jobs": plain_array([call.job_id for _, call in rows]),
            "tokens": plain_array([call.token for _, call in rows]),
            "amounts": plain_array([call.most or 0 for _, call in rows]),
            "projects": text_array([call.payer.project for _, call in rows]),
            "users": plain_array([call.payer.user_id for _, call in rows]),
            "batches": plain_array([call.payer.batch_id for _, call in rows]),
            "providers": text_array([call.provider for _, call in rows]),
            "models": text_array([call.model for _, call in rows]),
            "vias": text_array([str(call.via) for _, call in rows]),
            "times": plain_array([call.at for _, call in rows]),
            "holds": plain_array([call.hold_seconds for _, call in rows]),
        },
    )


def places_of(payer: Payer) -> list[tuple[BudgetRule, str]]:
    """The budgets that pay for a call, each with the key under which it pays."""
    found = ((rule, rule.key_of(payer)) for rule in budgets_of(payer.project))
    return [(rule, key) for rule, key in found if key is not None]


def _lock(places: Sequence[tuple[int, str]], at: float) -> dict[tuple[int, str], Standing]:
    """Lock the budgets' periods that contain a time, and begin missing periods; deleted budgets are left out."""
    if not places:
        return {}
    wanted = {
        "budgets": plain_array([budget for budget, _ in places]),
        "keys": text_array([key for _, key in places]),
        "at": at,
    }
    rows = run_sql("ratelimits", "lock_budget_periods", {**wanted, "all_or_none": True})
    if not rows:
        # No period may be locked here. Beginning a period locks its budget, and a deletion locks the budget before the
        # periods: the two would deadlock.
        run_sql("ratelimits", "add_budget_periods", wanted)
        rows = run_sql("ratelimits", "lock_budget_periods", {**wanted, "all_or_none": False})
    return {(row[1], row[2]): Standing(*row) for row in rows}
