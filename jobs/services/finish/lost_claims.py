"""Finds claims that were taken from their executor because it was judged dead."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from queueops.core.sql import run_sql

from .claimed import ClaimedJob


def find_lost(jobs: Collection[ClaimedJob]) -> set[tuple[UUID, int]]:
    """
    Return the ids and fencing tokens of the claims that were taken from an executor judged dead. Claims that a
    cancellation or reset ended are left out.
    """
    parameters = {
        "ids": [job.id for job in jobs],
        "tokens": [job.token for job in jobs],
        "crashes": [job.crash_count for job in jobs],
    }
    return {(job_id, token) for job_id, token in run_sql("jobs", "find_lost_claims", parameters)}
