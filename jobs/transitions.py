"""Moves jobs along the edges of states.py. Other code writes a status only in insert_jobs.sql and promote_jobs.sql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from queueops.core.sql import plain_array, run_sql, text_array

from .states import TRANSITIONS


class Move(NamedTuple):
    """
    One job's move along an edge.

    Attributes:
        token: The fencing token of its claim; edges that need the lease compare it with the token in the row.
        delay_seconds: Seconds until the job may run, from the database's present time on. None: at once.
        error_code: With `message`, becomes the row's last error. None: the last error stays.
        message: The event's message; None: the common message of all moves.
        result: The handler's result as JSON text.
        data: The event's data as JSON text.
        coalesce_key: Replaces the job's key, so that it leaves with other jobs than before. None: the key stays.
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
    The executor that claims jobs, and for how many seconds it owns a job unless it renews the lease.

    The moves' tokens become the jobs' fencing tokens. `via` replaces the `via` of jobs that have one, such as jobs
    submitted for a provider batch.
    """

    executor: UUID
    seconds: float
    via: str = "live"


def move_jobs(edge: str, moves: Sequence[Move], *, message: str = "", lease: Lease | None = None) -> set[UUID]:
    """
    Move jobs along one edge of `states.TRANSITIONS`, with their events and counts, in the caller's transaction.

    Args:
        moves: At most one for each job.
        message: The events' message for moves without a message of their own.
        lease: The lease of a claim: only for the edges `claim` and `dispatch`.

    Returns:
        The ids that moved. A missing job was in no source state of the edge, or another executor owns it.
    """
    if not moves:
        return set()
    transition = TRANSITIONS[edge]
    parameters = {
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
    return {row[0] for row in run_sql("jobs", "transition_jobs", parameters)}
