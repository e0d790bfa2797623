"""Claiming: which jobs an executor carries out next."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from jobs.transitions import Move, move_jobs
from jobs.turns import ClassTurns
from queueops.core.sql import run_sql

PROMOTE_AT_ONCE = 1000


class ClaimedJob(NamedTuple):
    """
    What an executor needs to carry out a job and to prove that it owns it.

    `payload` is JSON text. `window_used`: seconds since the first attempt, less the time waited for limits.
    `tier_class`: the class it was claimed in, counted from the lowest tier.
    """

    id: UUID
    token: int
    project: str
    user_id: UUID | None
    batch_id: UUID | None
    kind: str
    payload: str
    effect_key: str
    retry_policy: str | None
    retry_count: int
    crash_count: int
    window_used: float
    weight: float
    tier_class: int


@transaction.atomic(savepoint=False)
def claim_jobs(executor_id: UUID, *, wanted: int, lease_seconds: float, turns: ClassTurns) -> list[ClaimedJob]:
    """
    Claim and start up to `wanted` jobs, in the order the specification gives.

    Dispatch and start are logged as two moves of one commit: a handler is called only after both are durable, so
    what was running when a process died is known exactly.
    """
    if wanted < 1:
        return []
    standing = turns.standing()
    rows = run_sql(
        "jobs",
        "claim_jobs",
        {
            "wanted": wanted,
            "starved": turns.owed_to_starved(wanted),
            "executor": executor_id,
            "lease": lease_seconds,
            "turn_classes": [of_class for of_class, _, _ in standing],
            "turn_projects": [project for _, project, _ in standing],
            "turn_passes": [at for _, _, at in standing],
            "turn_nows": turns.nows(),
        },
    )
    claimed = _start(rows)
    turns.served(
        Counter((job.tier_class, job.project) for job in claimed), {job.project: job.weight for job in claimed}
    )
    return claimed


@transaction.atomic(savepoint=False)
def claim_suspect(executor_id: UUID, *, lease_seconds: float) -> list[ClaimedJob]:
    """Claim and start the oldest job that has brought down its process twice, if there is one."""
    return _start(run_sql("jobs", "claim_suspect", {"executor": executor_id, "lease": lease_seconds}))


def promote_due(*, most: int = PROMOTE_AT_ONCE) -> tuple[int, float | None]:
    """
    Make jobs whose time has come claimable.

    Returns:
        How many, and the seconds until the next is due (None: none waits for a time).
    """
    [(promoted, next_due)] = run_sql("jobs", "promote_jobs", {"most": most})
    return promoted, next_due


def renew_leases(owned: dict[UUID, int], *, lease_seconds: float) -> set[UUID]:
    """
    Prolong leases.

    Args:
        owned: Fencing token by job id.

    Returns:
        The ids that are not owned any more: cancelled, reset or rescued meanwhile.
    """
    if not owned:
        return set()
    parameters = {"ids": list(owned), "tokens": list(owned.values()), "lease": lease_seconds}
    return {row[0] for row in run_sql("jobs", "renew_leases", parameters)}


def _start(rows: list[tuple[object, ...]]) -> list[ClaimedJob]:
    claimed = [ClaimedJob._make(row) for row in rows]
    move_jobs("start", [Move(job.id, token=job.token) for job in claimed])
    return claimed
