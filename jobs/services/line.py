"""The calls in which jobs leave their lane: those of one coalesce key together, as many as one call may hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import F, Func, IntegerField

from jobs.handlers.registry import Coalesce, UnknownKind, find_handler

# As it is stored: of large payloads, that is less than the text of which a call may hold so much.
STANDING = ("kind", "coalesce_key", Func(F("payload"), function="pg_column_size", output_field=IntegerField()))
STANDING_COSTS = ("cost", "known_cost")


class Standing(NamedTuple):
    """A waiting job, as far as it decides with whom it leaves. `size`: of its payload, in bytes, about."""

    kind: str
    coalesce_key: str | None
    size: int
    cost: float
    known_cost: float | None


class LineCall(NamedTuple):
    """What the limits are asked for: the cost of the job that leads the call."""

    cost: float
    known_cost: float | None


def calls_of(jobs: Iterable[Standing]) -> tuple[list[LineCall], int]:
    """
    Return the calls that jobs leave in, and the place among them of the last job's call.

    Args:
        jobs: In the order in which their lane releases them.
    """
    calls: list[LineCall] = []
    open_calls: dict[str, tuple[int, int, int]] = {}  # by key: place, jobs and bytes of the call that has room
    place = -1
    for job in jobs:
        key = job.coalesce_key
        if key is not None and key in open_calls:
            place, items, size = open_calls[key]
            rule = _rule(job.kind)
            if items < rule.max_items and size + job.size <= rule.max_bytes:
                open_calls[key] = (place, items + 1, size + job.size)
                continue
        place = len(calls)
        calls.append(LineCall(job.cost, job.known_cost))
        if key is not None:
            open_calls[key] = (place, 1, job.size)
    return calls, place


def _rule(kind: str) -> Coalesce:
    """Of a kind that this process does not know, the usual one."""
    try:
        return find_handler(kind).coalesce or Coalesce(key=str)
    except UnknownKind:
        return Coalesce(key=str)
