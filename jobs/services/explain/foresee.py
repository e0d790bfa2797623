"""Forecasts for lists of jobs: what each job's own page tells, in a bounded number of reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs.models import Job
from jobs.states import JobState, Priority

from .waiting import explain_waiting

MOST_LANES_FORESEEN = 5
TIERS = [tier.value for tier in (Priority.URGENT, Priority.NORMAL, Priority.LOW)]


def foresee(jobs: Sequence[Job]) -> None:
    """
    Give parked jobs, in memory, the time at which their limits should let them go by now.

    Their row has the time that was foreseen when they were parked. Of the MOST_LANES_FORESEEN lanes with the most jobs
    here the first and the last job are foreseen, and those between them by their place; others keep what the row says.
    """
    lanes: dict[str, list[Job]] = {}
    for job in jobs:
        if job.status == JobState.RATE_LIMITED and job.lane is not None:
            lanes.setdefault(job.lane, []).append(job)
    for parked in sorted(lanes.values(), key=len, reverse=True)[:MOST_LANES_FORESEEN]:
        parked.sort(key=lambda job: (TIERS.index(job.priority), job.eligible_since, job.pk))
        first, last = _starts_at(parked[0]), _starts_at(parked[-1])
        if first is None or last is None:
            continue  # paused, or nobody knows
        for place, job in enumerate(parked):
            job.scheduled_at = first + (last - first) * (place / max(1, len(parked) - 1))


def _starts_at(job: Job) -> datetime | None:
    told = explain_waiting(job)
    return told.forecast.starts_at if told and told.forecast else None
