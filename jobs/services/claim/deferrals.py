"""Deferring: jobs that a limit keeps back, each with one event that says what it needs, what there was, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple
from uuid import UUID

from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql

Operation = Literal["rate_limit_check", "rate_limit_schedule"]


class Met(NamedTuple):
    """One limit that counts a call, and how it stood; amounts in its unit: `requests`, `tokens` or `in_flight`."""

    limit: str
    key: str
    unit: str
    needed: float
    available: float
    capacity: float


class Deferral(NamedTuple):
    """
    Why a job waits, and for how long.

    Attributes:
        operation: Whether a claim asked for it, or it was foreseen that the claim would be refused.
        met: Every limit that counts its call, the binding one first; none where it was taken away meanwhile.
        reason: Of the move; empty: what all moves say.
    """

    job: UUID
    delay_seconds: float
    operation: Operation
    met: Sequence[Met]
    reason: str = ""


def defer_jobs(edge: str, deferrals: Sequence[Deferral], *, message: str) -> set[UUID]:
    """
    Move jobs along `park` or `back_off`, and log what they met, in the caller's transaction.

    Returns:
        The ids that moved; nothing is logged of the others.
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
    if one.met:  # the limit may have been taken away since the lane was looked at
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
    """What a call needs of each unit and what is there of it: of several limits, where least is left."""
    least: dict[str, Met] = {}
    for one in met:
        if one.unit not in least or one.available < least[one.unit].available:
            least[one.unit] = one
    return {unit: {"estimated_cost": one.needed, "available": one.available} for unit, one in least.items()}
