"""Claiming the jobs that an executor carries out next."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from jobs.features.budget_holds.afford import afford
from jobs.features.served_kinds.served_kinds import ServedKinds
from jobs.lanes import pool_of_lane
from jobs.models import POOLED
from jobs.services.finish.claimed import ClaimedJob, opened
from jobs.states import JobState
from jobs.transitions import Lease, Move, move_jobs
from queueops.core.notify import Channel, notify
from queueops.core.sql import plain_array, run_sql, run_sql_as, text_array
from ratelimits.limiter.decide import Settlement, settle

from .admit import admit
from .coalesce import with_companions
from .fair_share import ClassTurns
from .lanes import LaneGate
from .scan_cursor import ScanCursor

# Read the oldest suspect by the index: a sort would read all suspects.
OLDEST_FIRST = "SET LOCAL enable_sort = off"
PROMOTE_AT_ONCE = 1000


@transaction.atomic(savepoint=False)
def claim_jobs(
    executor_id: UUID,
    *,
    wanted: int,
    lease_seconds: float,
    turns: ClassTurns,
    gate: LaneGate | None = None,
    heads: ScanCursor | None = None,
    kinds: ServedKinds | None = None,
    pool: str = "",
    settlements: Sequence[Settlement] = (),
) -> list[ClaimedJob]:
    """
    Claim and start up to `wanted` calls, in the order of choose_jobs.sql, as far as every limit admits.

    Dispatch and start are logged as two moves of one commit and one version of the row. A handler is called only after
    both are durable, so the jobs that ran when a process died are known exactly. The limits charge in the same commit.

    Args:
        gate: The executor's view of the lanes; None: a view is made for this claim.
        heads: The queues in which the executor found jobs before; None: no queue yet.
        kinds: The kinds that the executor carries out; None: all.
        pool: The pool that the executor and its gate serve; empty: all jobs.
        settlements: What ended calls settle with the limits: made here, because the claim locks the counters anyway.

    Returns:
        The jobs claimed, perhaps more than `wanted`: a job that leaves in another job's call has its id as `group`.
    """
    if wanted < 1:
        settle(settlements)
        return []
    gate = gate or LaneGate(pool)
    lanes = gate.look(wanted=wanted)
    heads = heads or ScanCursor()
    where = heads.begin()
    most = {"wanted": wanted, "most_bytes": settings.QUEUEOPS.max_claim_bytes}
    chosen = _choose("choose_only_queue", kinds, pool, most) if heads.had_one_queue and not lanes.names else []
    if not chosen:
        open_lanes = {"lanes": lanes.names, "rooms": lanes.rooms, "passes": lanes.passes}
        chosen = _choose("choose_jobs", kinds, pool, {**most, **where, **open_lanes, **_order(turns, gate)})
    heads.end(chosen)
    return _start(
        chosen,
        Lease(executor_id, lease_seconds),
        turns=turns,
        gate=gate,
        opened_lanes=lanes.names,
        kinds=kinds,
        settlements=settlements,
    )


@transaction.atomic(savepoint=False)
def claim_new(
    executor_id: UUID,
    *,
    lease_seconds: float,
    turns: ClassTurns,
    gate: LaneGate,
    kinds: ServedKinds | None = None,
    pool: str = "",
) -> list[ClaimedJob]:
    """
    Claim and start the job that was just submitted, as `claim_jobs` does, if it alone is ready outside lanes.

    This claim waits for no other claim's decision about lanes, and costs a fraction of a choice among all ready jobs.
    Where more jobs are ready, it claims nothing, as their order matters.
    """
    chosen = _choose("choose_new", kinds, pool, {})
    if len(chosen) != 1:
        return []
    return _start(chosen, Lease(executor_id, lease_seconds), turns=turns, gate=gate, kinds=kinds)


def _order(turns: ClassTurns, gate: LaneGate) -> dict[str, object]:
    """Return the parameters by which choose_jobs.sql orders jobs, besides ages and scores."""
    standing = turns.standing()
    flow_projects, flow_passes = gate.flows()
    return {
        "starved_after": turns.starved_after(),
        "starved_every": turns.starved_every(),
        "turn_classes": plain_array([of_class for of_class, _, _ in standing]),
        "turn_projects": text_array([project for _, project, _ in standing]),
        "turn_passes": plain_array([at for _, _, at in standing]),
        "turn_nows": turns.nows(),
        "resting": text_array(gate.resting()),
        "flow_projects": flow_projects,
        "flow_passes": flow_passes,
    }


def _choose(statement: str, kinds: ServedKinds | None, pool: str, more: Mapping[str, Any]) -> list[ClaimedJob]:
    given = {"strange": kinds.left_out() if kinds else [], "pool": pool, **more}
    return run_sql_as(ClaimedJob, "jobs", statement, given, variant=POOLED if pool else "", binary=True)


def _start(
    chosen: list[ClaimedJob],
    lease: Lease,
    *,
    turns: ClassTurns,
    gate: LaneGate,
    opened_lanes: Sequence[str] = (),
    kinds: ServedKinds | None = None,
    settlements: Sequence[Settlement] = (),
) -> list[ClaimedJob]:
    """Start the chosen jobs that the limits admit, and their companions, in the caller's transaction."""
    chosen = _known(chosen, kinds)
    affordable = afford(chosen, lease_seconds=lease.seconds)
    admitted, delays = admit(
        affordable.jobs, lease_seconds=lease.seconds, crowded=gate.crowded, settlements=settlements
    )
    together = with_companions(admitted, affordable)
    affordable.hold(admitted)
    claimed = _begin(together, lease)
    calls = [job for job in claimed if job.group in (None, job.id)]
    turns.served(Counter((job.tier_class, job.project) for job in calls), {job.project: job.weight for job in calls})
    gate.served((job.project, job.lane or "") for job in calls)
    taken = {job.id for job in claimed} if len(calls) < len(chosen) else None  # most claims take all chosen jobs
    left = [] if taken is None else [job for job in chosen if job.id not in taken]
    if left:
        # A refused probe's lane is not among the open lanes, so reading its room would not keep the probe from being
        # chosen again: the gate lets it rest.
        gate.refused(delays, probes=[job.lane for job in left if job.lane and job.lane not in opened_lanes])
    elif opened_lanes and not claimed:
        gate.rest()
    return claimed


@transaction.atomic(savepoint=False)
def claim_suspect(
    executor_id: UUID,
    *,
    lease_seconds: float,
    kinds: ServedKinds | None = None,
    pool: str = "",
    settlements: Sequence[Settlement] = (),
) -> list[ClaimedJob]:
    """Claim and start the oldest suspect, a job with two crashes or more, if limits admit it."""
    with connection.cursor() as cursor:
        cursor.execute(OLDEST_FIRST)
    chosen = _choose("choose_suspect", kinds, pool, {})
    affordable = afford(_known(chosen, kinds), lease_seconds=lease_seconds)
    admitted, _ = admit(affordable.jobs, lease_seconds=lease_seconds, settlements=settlements)
    affordable.hold(admitted)
    return _begin(admitted, Lease(executor_id, lease_seconds), quarantine=True)


def _known(chosen: list[ClaimedJob], kinds: ServedKinds | None) -> list[ClaimedJob]:
    """Drop jobs whose kind this executor lacks. Nothing was written to their rows, and the commit unlocks them."""
    return [opened(job) for job in (chosen if kinds is None else kinds.known_of(chosen))]


def promote_due(*, most: int = PROMOTE_AT_ONCE) -> tuple[int, float | None]:
    """
    Make jobs whose time has come claimable, and wake all executors: this one may have no free slot.

    Returns:
        How many jobs were promoted, and the seconds until the next is due (None: no job waits for a time).
    """
    [(promoted, next_due)] = run_sql("jobs", "promote_jobs", {"most": most, "target": JobState.QUEUED.value})
    if promoted:
        notify(Channel.READY)
    return promoted, next_due


def renew_leases(owned: dict[UUID, int], *, lease_seconds: float) -> set[UUID]:
    """
    Prolong leases.

    Args:
        owned: Fencing token by job id.

    Returns:
        The ids of jobs that this executor no longer owns: cancelled, reset or rescued meanwhile.
    """
    if not owned:
        return set()
    parameters = {"ids": list(owned), "tokens": list(owned.values()), "lease": lease_seconds}
    return {row[0] for row in run_sql("jobs", "renew_leases", parameters)}


def _begin(jobs: list[ClaimedJob], lease: Lease, *, quarantine: bool = False) -> list[ClaimedJob]:
    if not jobs:
        return []
    alone = ', "quarantine": true' if quarantine else ""
    data = f'{{"executor": "{lease.executor}", "fencing_token": {jobs[0].token}{alone}'
    moves = []
    for job in jobs:
        chosen = f', "credential": {json.dumps(job.credential)}}}' if pool_of_lane(job.lane) else "}"
        moves.append(Move(job.id, token=job.token, data=data + chosen))
    move_jobs("claim", moves, lease=lease)
    return jobs
