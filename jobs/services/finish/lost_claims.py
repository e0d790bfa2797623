"""Claims whose lease lapsed."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from queueops.core.sql import run_sql

from .claimed import ClaimedJob


def find_lost(jobs: Collection[ClaimedJob]) -> set[tuple[UUID, int]]:
    """
    Return id and fencing token of those claims that were taken from an executor judged gone. One that a cancel or a
    reset ended is none of them.
    """
    parameters = {
        "ids": [job.id for job in jobs],
        "tokens": [job.token for job in jobs],
        "crashes": [job.crash_count for job in jobs],
    }
    return {(job_id, token) for job_id, token in run_sql("jobs", "find_lost_claims", parameters)}
