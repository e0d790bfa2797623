"""How long claims take; each batch is completed before the next claim."""

from __future__ import annotations

import time
from uuid import uuid4

from django.db import connection

from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Succeeded

WARM_UP = 5  # claims until the statements are prepared


def claim_milliseconds(*, claims: int, wanted: int) -> list[float]:
    """Return the durations of claims, with start and commit, on a connection with an executor's settings."""
    with connection.cursor() as cursor:
        cursor.execute("SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
    connection.connection.prepare_threshold = 2
    taken: list[float] = []
    executor, turns, gate = uuid4(), ClassTurns(), LaneGate()
    for _ in range(WARM_UP + claims):
        begun = time.monotonic()
        jobs = claim_jobs(executor, wanted=wanted, lease_seconds=30, turns=turns, gate=gate)
        taken.append((time.monotonic() - begun) * 1000)
        if len(jobs) < wanted:
            raise SystemExit(f"a claim of {wanted} jobs got {len(jobs)}")
        record_outcomes([Succeeded(job, "bench", None, 1.0) for job in jobs], policies={})
    return taken[WARM_UP:]
