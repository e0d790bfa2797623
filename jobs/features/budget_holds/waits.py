"""Puts back jobs that waited for money."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from jobs.handlers.registry import find_handler, served_names
from jobs.models import BudgetWait, Job
from jobs.states import WAITING
from queueops.core.clock import Now, database_now
from queueops.core.notify import Channel, notify
from ratelimits.costs import INPUT_TOKENS, REQUESTS
from ratelimits.models import Price, Via
from ratelimits.money import budgets, prices
from ratelimits.money.standings import room_of

RELEASED_AT_ONCE = 1_000  # the most jobs of one budget in one query
_JOB = Job.objects.filter(pk=OuterRef("job_id"))
# A price of input is enough where a price of requests is missing: the call has no input.
_ENOUGH = {why: {unit, INPUT_TOKENS} if unit == REQUESTS else {unit} for unit, why in budgets.NO_PRICE_OF.items()}
_OF_UNIT = {why: f" of {unit.replace('_', ' ')}" for unit, why in budgets.NO_PRICE_OF.items()}


def why_unknown(why: str, *, kind: str, provider: str, model: str) -> str:
    """Say why nobody knows what a job can cost: a sentence without its full stop."""
    match why:
        case budgets.NO_ZONE:
            return "the database does not know its time zone: delete it, and make it with another zone"
        case budgets.UNSTATED:
            return f"the handler of {kind} does not say how much a call can use at most"
        case budgets.UNBOUNDED:
            return (
                "nobody knows how much it can use: set max_output_tokens, or the most that a call brings at the price"
            )
        case budgets.UNCOUNTED:
            return "nobody knows how many tokens its input has, such as pictures and files"
    return f"{provider} {model} has no price{_OF_UNIT.get(why, '')}"


def tend_budget_waits() -> int:
    """
    Put back jobs whose budget has room now: it was raised or deleted, its period turned, or calls ended cheaper.

    It puts back only as many jobs of a budget as the room pays for at their most: others would only be held again.
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
    chosen += _known_now(waits.filter(needed=None))[:RELEASED_AT_ONCE]
    _forget_ended(waits)
    return _put_back(chosen)


def _known_now(unknown: QuerySet[BudgetWait]) -> QuerySet[BudgetWait]:
    """
    Return the waits of jobs whose most may be known now, the longest wait first.

    Jobs whose most is still not known are left out: many of them would keep all later jobs waiting.
    """
    met = [_unstated(), *_zoned(unknown), *_priced(unknown, datetime.fromtimestamp(database_now(), UTC))]
    return unknown.filter(reduce(or_, met)).order_by("since")


def _unstated() -> Q:
    """Waits of jobs whose handler now states the most, as after a deploy, or whose provider is free."""
    stating = [name for name, kind in served_names().items() if find_handler(kind).most is not None]
    states = Q(Exists(_JOB.filter(kind__in=stating)))
    return Q(why=budgets.UNSTATED) & (~Q(provider__in=prices.who_bills()) | states)


def _zoned(unknown: QuerySet[BudgetWait]) -> Iterator[Q]:
    """Waits for a budget whose time zone the database did not know and knows now, as after an upgrade of its zones."""
    own = Q(why=budgets.NO_ZONE)
    if (wait := unknown.filter(own).first()) and budgets.has_zone(wait.budget_id):
        yield own


def _priced(unknown: QuerySet[BudgetWait], now: datetime) -> Iterator[Q]:
    """Waits of jobs that lacked a price or bound which their model now has."""
    any_price = Price.objects.filter(provider=OuterRef("provider"), model=OuterRef("model"))
    # Look only at models that have a price: jobs may name any number of models that have none.
    groups = unknown.filter(Exists(any_price), why__in=[*budgets.PRICELESS, budgets.UNBOUNDED])
    for why, provider, model in groups.order_by().values_list("why", "provider", "model").distinct():
        ways = [via for via in (Via.LIVE, Via.BATCH) if _has(why, prices.price_list(provider, model, via=via), now)]
        own = Q(why=why, provider=provider, model=model)
        if Via.LIVE in ways:
            yield own
        elif ways:  # a job that cannot go by batch would be put back in vain again and again
            yield own & Q(Exists(_JOB.filter(via=Via.BATCH, scheduled_at__isnull=False)))


def _has(why: str, known: prices.PriceList, now: datetime) -> bool:
    """Whether the prices now have what a job lacked. These are the conditions of `bound_of`."""
    if why == budgets.UNBOUNDED:
        return known.most_output is not None
    if why == budgets.MISSING_PRICE:
        return bool(known.at(now))
    rates = known.most_at(now)
    return any(unit in rates for unit in _ENOUGH[why])


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
