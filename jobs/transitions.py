"""Moves jobs along the edges of states.py. Besides it only insert_jobs.sql and promote_jobs.sql write a status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from queueops.core.sql import plain_array, run_sql, text_array

from .states import TRANSITIONS


class Move(NamedTuple):
    """
    One job's move along an edge.

    Attributes:
        token: The fencing token it was claimed with; edges that need the lease compare it.
        delay_seconds: Until it may run. None: at once. The database's clock adds it.
        error_code: With `message`, becomes the row's last error. None: the last error stays.
        message: What the event says; None: the edge's common message.
        result: The handler's result as JSON text.
        data: The event's further figures as JSON text.
        coalesce_key: Replaces the job's, so that it leaves with others than before. None: it stays.
    """

    id: UUID
    token: int | None = None
    delay_seconds: float | None = None
    error_code: str | None = None
    message: str | None = None
    result: str | None = None
    data: str | None = None
    coalesce_key: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """
    The executor that claims, and its seconds unless it renews. The moves' tokens become the jobs' fencing tokens.

    `via`: the way of the jobs that were to go by a batch of their provider.
    """

    executor: UUID
    seconds: float
    via: str = "live"


def move_jobs(edge: str, moves: Sequence[Move], *, message: str = "", lease: Lease | None = None) -> set[UUID]:
    """
    Move jobs along one edge of `states.TRANSITIONS`, with their events and counts, in the caller's transaction.

    Args:
        moves: At most one a job.
        message: What the events say of jobs whose move has no message of its own.
        lease: Of the edges `claim` and `dispatch`, which alone give one.

    Returns:
        The ids that moved. A missing job was in no source state of the edge, or another executor owns it.
    """
    if not moves:
        return set()
    return {row[0] for row in run_sql("jobs", "transition_jobs", _parameters(edge, moves, message, lease))}


def _parameters(edge: str, moves: Sequence[Move], message: str, lease: Lease | None) -> dict[str, Any]:
    transition = TRANSITIONS[edge]
    return {
        "target": transition.target.value,
        "through": transition.through and transition.through.value,
        "sources": [state.value for state in transition.sources],
        "needs_lease": transition.needs_lease,
        "attempt": int(transition.consumes_attempt),
        "crash": int(transition.counts_crash),
        "deferral": int(transition.counts_deferral),
        "ids": plain_array([move.id for move in moves]),
        "tokens": plain_array([move.token for move in moves]),
        "delays": plain_array([move.delay_seconds for move in moves]),
        "codes": text_array([move.error_code for move in moves]),
        "messages": text_array([move.message for move in moves]),
        "results": text_array([move.result for move in moves]),
        "data": text_array([move.data for move in moves]),
        "keys": text_array([move.coalesce_key for move in moves]),
        "message": message,
        "executor": lease.executor if lease else None,
        "lease": lease.seconds if lease else None,
        "via": lease.via if lease else None,
    }
