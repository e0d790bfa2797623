"""The calls in which jobs leave their lane: those of one coalesce key together, as many as one call may hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import F, Func, IntegerField

from jobs.handlers.registry import Coalesce, UnknownKind, find_handler
from ratelimits.costs import NO_AMOUNTS, Amounts
from ratelimits.services.limiter.estimates import Alike, with_cached

# As it is stored: of large payloads, that is less than the text of which a call may hold so much.
LINE_COLUMNS = ("kind", "coalesce_key", Func(F("payload"), function="pg_column_size", output_field=IntegerField()))
LINE_COST_COLUMNS = ("cost", "known_cost", "costs", "model", "project_id", "service")


class LineJob(NamedTuple):
    """A waiting job, as far as it decides with whom it leaves. `size`: of its payload, in bytes, about."""

    kind: str
    coalesce_key: str | None
    size: int
    cost: float
    known_cost: float | None
    costs: Amounts | None = None
    model: str | None = None
    project: str = ""
    service: str = ""


class LineCall(NamedTuple):
    """What the limits are asked for: the cost of the job that leads the call. `times`: for how many calls it stands."""

    cost: float
    known_cost: float | None
    times: float
    amounts: Amounts = NO_AMOUNTS


def calls_of(jobs: Iterable[LineJob], *, times: float = 1.0) -> tuple[list[LineCall], int]:
    """
    Return the calls that jobs leave in, and the place among them of the last job's call.

    Args:
        jobs: In the order in which their lane releases them.
        times: For how many like it each job stands: they fill up its call first.
    """
    calls: list[LineCall] = []
    open_calls: dict[str, tuple[int, float, float]] = {}  # by key: place, jobs and bytes of the call that has room
    place = -1
    for job in jobs:
        key = job.coalesce_key
        if key is not None and key in open_calls:
            place, items, size = open_calls[key]
            rule = _rule(job.kind)
            if items < rule.max_items and size + job.size <= rule.max_bytes:
                items, size = items + times, size + job.size * times
                open_calls[key] = (place, items, size)
                calls[place] = calls[place]._replace(times=_calls_for(items, size, rule))
                continue
        place, stands_for = len(calls), times
        if key is not None:
            open_calls[key] = (place, times, job.size * times)
            stands_for = min(times, _calls_for(times, job.size * times, _rule(job.kind)))
        amounts = with_cached(job.costs or NO_AMOUNTS, Alike(job.project, job.service, job.kind, job.model))
        calls.append(LineCall(job.cost, job.known_cost, stands_for, amounts))
    return calls, place


def _calls_for(items: float, size: float, rule: Coalesce) -> float:
    return max(1.0, items / rule.max_items, size / rule.max_bytes)


def _rule(kind: str) -> Coalesce:
    """Of a kind that this process does not know, the usual one."""
    try:
        return find_handler(kind).coalesce or Coalesce(key=str)
    except UnknownKind:
        return Coalesce(key=str)
