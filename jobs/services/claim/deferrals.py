"""Defers jobs that a limit keeps back. An event of each job says what it needs, what is free, and when it may go on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple
from uuid import UUID

from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql

Operation = Literal["rate_limit_check", "rate_limit_schedule"]

MAX_DEFERRAL_SECONDS = 300.0
MAX_FACTOR = 3.0
JITTER = 0.2


class Met(NamedTuple):
    """A limit that counts a call, and its state when asked, in its unit: `requests`, `tokens` or `in_flight`."""

    limit: str
    key: str
    unit: str
    needed: float
    available: float
    capacity: float


class Deferral(NamedTuple):
    """
    A job's wait: its reason and its length.

    Attributes:
        operation: `rate_limit_check`: a claim was refused; `rate_limit_schedule`: the refusal was foreseen.
        met: Every limit that counts the call, the binding limit first; empty if the limits were removed meanwhile.
        reason: The message of this job's move; empty: the message that all moves share.
    """

    job: UUID
    delay_seconds: float
    operation: Operation
    met: Sequence[Met]
    reason: str = ""


def deferral_delay(deficit_seconds: float, fullness: float, chance: float, *, until_hard_reset: bool = False) -> float:
    """
    Return the delay of a call denied at dispatch.

    The delay is the deficit times 3**fullness (1x in an idle limit, 3x in a full one), spread by +-20 %. The part of
    the spread before the deficit is cut off, and the delay is drawn evenly from the rest. Thus no job wakes before its
    tokens exist, and the jobs do not all wake at once. The delay is at most 300 s (spread over the last 20 % of it),
    even where the tokens take longer. Before a hard reset the delay is the deficit.

    Args:
        deficit_seconds: The time until the call would fit: deficit / refill rate, or `retry_at` - now.
        fullness: Used part of the limit, clipped to 0..1.
        chance: Uniform in [0, 1), drawn by the caller.
    """
    deficit = max(deficit_seconds, 0.0)
    if until_hard_reset:
        return deficit
    middle = deficit * math.pow(MAX_FACTOR, min(max(fullness, 0.0), 1.0))
    latest = min(middle * (1 + JITTER), MAX_DEFERRAL_SECONDS)
    earliest = max(deficit, min(middle, MAX_DEFERRAL_SECONDS) * (1 - JITTER))
    if earliest > latest:
        earliest = latest * (1 - JITTER)
    return min(earliest + chance * (latest - earliest), latest)


def defer_jobs(edge: str, deferrals: Sequence[Deferral], *, message: str) -> set[UUID]:
    """
    Move jobs along `park` or `back_off`, and log the limits that keep them back, in the caller's transaction.

    Returns:
        The ids that moved; nothing is logged for the others.
    """
    moves = [Move(one.job, delay_seconds=one.delay_seconds, message=one.reason or None) for one in deferrals]
    moved = move_jobs(edge, moves, message=message)
    logged = [one for one in deferrals if one.job in moved]
    if logged:
        data = [json.dumps(_figures(one)) for one in logged]
        run_sql("jobs", "log_deferrals", {"ids": [one.job for one in logged], "message": message, "data": data})
    return moved


def _figures(one: Deferral) -> dict[str, object]:
    figures: dict[str, object] = {"operation": one.operation, "delay_seconds": round(one.delay_seconds, 3)}
    if one.met:  # the limit may have been removed since the lane was read
        binding = one.met[0]
        figures |= {
            "binding_limit": binding.limit,
            "key": binding.key,
            "unit": binding.unit,
            "estimated_cost": binding.needed,
            "available": binding.available,
            "capacity": binding.capacity,
            "units": _by_unit(one.met),
        }
    return figures | ({"reason": one.reason} if one.reason else {})


def _by_unit(met: Iterable[Met]) -> dict[str, dict[str, float]]:
    """Return by unit what a call needs and what is free; where several limits count a unit, the scarcest counts."""
    least: dict[str, Met] = {}
    for one in met:
        if one.unit not in least or one.available < least[one.unit].available:
            least[one.unit] = one
    return {unit: {"estimated_cost": one.needed, "available": one.available} for unit, one in least.items()}
