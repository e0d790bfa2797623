"""The calls in which jobs leave their lane: jobs of one coalesce key share a call, as many as it may hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import F, Func, IntegerField

from jobs.handlers.registry import Coalesce, UnknownKind, find_handler
from ratelimits.costs import CALLS, INPUT_OF_CALLS, INPUT_TOKENS, NO_AMOUNTS, Amounts
from ratelimits.limiter.estimates import Alike, with_cached

# The payload's size as stored. Large payloads are compressed, so this is less than the text that a call's bound counts.
LINE_COLUMNS = ("kind", "coalesce_key", Func(F("payload"), function="pg_column_size", output_field=IntegerField()))
LINE_COST_COLUMNS = ("cost", "known_cost", "costs", "model", "project_id", "service", "progress")
ROUNDED = 0.5  # calls; progress is rounded to whole percent


class LineJob(NamedTuple):
    """
    The values of a waiting job that decide which jobs leave with it, and what its call costs.

    Attributes:
        size: About the bytes of its payload.
        progress: Percent of its calls that were made, if it takes several.
    """

    kind: str
    coalesce_key: str | None
    size: int
    cost: float
    known_cost: float | None
    costs: Amounts | None = None
    model: str | None = None
    project: str = ""
    service: str = ""
    progress: float = 0.0


class LineCall(NamedTuple):
    """A call at the cost of its first job, as limits count it. `times`: how many equal calls it stands for."""

    cost: float
    known_cost: float | None
    times: float
    amounts: Amounts = NO_AMOUNTS


def calls_of(jobs: Iterable[LineJob], *, times: float = 1.0) -> tuple[list[LineCall], int]:
    """
    Return the calls that jobs leave in, and the index of the last job's call among them.

    Args:
        jobs: In the order in which their lane releases them.
        times: For how many equal jobs each job stands; the equal jobs fill up its call first.
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
        calls.append(_call_of(job, stands_for))
    return calls, place


def calls_left(costs: Amounts | None, progress: float) -> float:
    """Return how many calls a job still takes; at least 1, its last."""
    return max(1.0, (costs or NO_AMOUNTS).get(CALLS, 1.0) * (1 - progress / 100))


def coming_back(running: LineJob) -> LineJob | None:
    """Return a running job as it will wait again after its present call; None: that call is its last."""
    count = (running.costs or NO_AMOUNTS).get(CALLS, 1.0)
    if count * (1 - running.progress / 100) < 2 - ROUNDED:
        return None
    return running._replace(progress=running.progress + 100 / count)


def _call_of(job: LineJob, times: float) -> LineCall:
    """Return a job's call; for a job that takes several calls, the mean of them, so that the sum is right."""
    amounts = job.costs or NO_AMOUNTS
    smaller = 0.0
    if job.coalesce_key is None and (count := amounts.get(CALLS)):
        times *= calls_left(amounts, job.progress)
        if INPUT_OF_CALLS in amounts:
            smaller = amounts[INPUT_TOKENS] - amounts[INPUT_OF_CALLS] / count
            amounts = {**amounts, INPUT_TOKENS: amounts[INPUT_TOKENS] - smaller}
    amounts = with_cached(amounts, Alike(job.project, job.service, job.kind, job.model))
    known = None if job.known_cost is None else max(0.0, job.known_cost - smaller)
    return LineCall(max(0.0, job.cost - smaller), known, times, amounts)


def _calls_for(items: float, size: float, rule: Coalesce) -> float:
    return max(1.0, items / rule.max_items, size / rule.max_bytes)


def _rule(kind: str) -> Coalesce:
    """Return how a kind's jobs coalesce; for a kind that this process does not know, the defaults."""
    try:
        return find_handler(kind).coalesce or Coalesce(key=str)
    except UnknownKind:
        return Coalesce(key=str)
