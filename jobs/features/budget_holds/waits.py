"""Puts back jobs that waited for money."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import QuerySet

from jobs.handlers.registry import UnknownKind, find_handler
from jobs.models import BudgetWait, Job
from jobs.states import WAITING
from queueops.core.clock import Now, database_now
from queueops.core.notify import Channel, notify
from ratelimits.models import Via
from ratelimits.money import budgets
from ratelimits.money.amounts import most_of
from ratelimits.money.prices import bills, price_list
from ratelimits.money.standings import room_of

RELEASED_AT_ONCE = 1_000  # the most jobs of one budget in one query


def why_unknown(why: str, *, kind: str, provider: str, model: str) -> str:
    """Say why nobody knows what a job can cost: a sentence without its full stop."""
    match why:
        case budgets.UNSTATED:
            return f"the handler of {kind} does not say how much a call can use at most"
        case budgets.UNBOUNDED:
            return (
                "nobody knows how much it can use: set max_output_tokens, or the most that a call brings at the price"
            )
        case budgets.UNCOUNTED:
            return "nobody knows how many tokens its input has, such as pictures and files"
    return f"{provider} {model} has no price"


def tend_budget_waits() -> int:
    """
    Put back jobs whose budget has room now: it was raised or deleted, its period turned, or calls ended cheaper.

    It puts back only as many jobs of a budget as the room pays for if each costs its most, so that none goes in vain.
    Jobs that wait longest come first. A job that never fits is passed over: otherwise it would keep all others waiting.

    For house-keeping: one short statement if no job waits.

    Returns:
        How many jobs were put back.
    """
    places = BudgetWait.objects.order_by().values_list("budget_id", "key").distinct()
    return sum(_release(budget, key) for budget, key in list(places))


def _release(budget_id: int, key: str) -> int:
    waits = BudgetWait.objects.filter(budget_id=budget_id, key=key)
    room = room_of(budget_id, key)
    if room is None:
        return _put_back(waits[:RELEASED_AT_ONCE])
    chosen: list[BudgetWait] = []
    for wait in waits.filter(needed__lte=room).order_by("since")[:RELEASED_AT_ONCE]:
        room -= wait.needed or 0
        if room < 0:
            break
        chosen.append(wait)
    now = datetime.fromtimestamp(database_now(), UTC)
    unknown = list(waits.filter(needed=None).order_by("since")[:RELEASED_AT_ONCE])
    kinds = dict(Job.objects.filter(pk__in=[wait.job_id for wait in unknown]).values_list("pk", "kind"))
    chosen += [wait for wait in unknown if _is_known_now(wait, kinds.get(wait.job_id, ""), now)]
    _forget_ended(waits)
    return _put_back(chosen)


def _is_known_now(wait: BudgetWait, kind: str, now: datetime) -> bool:
    """Whether the most that a job can cost, which was unknown, may be known now."""
    if wait.why == budgets.UNSTATED:
        return _states_most(kind) or not bills(wait.provider)
    if wait.why == budgets.UNCOUNTED:
        return False
    lists = [price_list(wait.provider, wait.model, via=via) for via in Via]
    return any(
        most_of(1, 1, prices.most_at(now)) is not None
        and (wait.why != budgets.UNBOUNDED or prices.most_output is not None)
        for prices in lists
    )


def _states_most(kind: str) -> bool:
    """
    Whether the kind's handler in this process states the most that a call can use: a deploy may bring another handler.
    """
    try:
        return find_handler(kind).most is not None
    except UnknownKind:
        return False


@transaction.atomic
def _put_back(waits: Sequence[BudgetWait] | QuerySet[BudgetWait]) -> int:
    ids = [wait.job_id for wait in waits]
    if not ids:
        return 0
    # Every statement locks jobs in this order; another order could deadlock.
    locked = list(
        Job.objects.filter(pk__in=ids, held=True, status__in=WAITING)
        .order_by("pk")
        .select_for_update()
        .values_list("pk", flat=True)
    )
    BudgetWait.objects.filter(pk__in=ids).delete()
    released = Job.objects.filter(pk__in=locked).update(held=False, updated_at=Now())
    if released:
        notify(Channel.READY)
    return released


def _forget_ended(waits: QuerySet[BudgetWait]) -> None:
    """Delete the waits of jobs that were cancelled, rejected or erased meanwhile."""
    some = list(waits.order_by("since").values_list("job_id", flat=True)[:RELEASED_AT_ONCE])
    waiting = set(Job.objects.filter(pk__in=some, status__in=WAITING).values_list("pk", flat=True))
    BudgetWait.objects.filter(pk__in=[one for one in some if one not in waiting]).delete()
