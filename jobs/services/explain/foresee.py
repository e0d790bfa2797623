"""What many jobs wait for: what each job's own page tells, in a bounded number of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from jobs.lanes import read_lane
from jobs.models import Job
from jobs.states import WAITING, JobState, Priority

from .forecast import MOST_OF_A_BATCH_SAMPLED, sample_of_batch
from .waiting import Reason, explain_waiting

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


@dataclass(frozen=True, slots=True)
class HeldLane:
    """
    What jobs of a batch wait for that stand in one lane, or in none.

    Attributes:
        user: Whose they are; empty: nobody's, or they stand in no lane.
        jobs: Of the sample that was looked at. `more`: there are more.
        reasons: Of the last of them, in the order in which they must end; empty: the next claims will take them.
        last_starts_at: When limits should let the last of them go; None: nobody knows.
    """

    user: str
    jobs: int
    more: bool
    reasons: tuple[Reason, ...]
    last_starts_at: datetime | None


def holds_of_batch(batch_id: UUID, *, most: int = MOST_LANES_FORESEEN) -> list[HeldLane]:
    """Return what the batch's waiting jobs wait for, lane by lane, those with most jobs first; at most `most` lanes."""
    rows = sample_of_batch(batch_id)
    more = len(rows) >= MOST_OF_A_BATCH_SAMPLED
    lanes: dict[str | None, list[UUID]] = {}
    for lane, pk in rows:
        lanes.setdefault(lane, []).append(pk)
    longest = sorted(lanes.items(), key=lambda one: -len(one[1]))[:most]
    last = Job.objects.in_bulk([pks[-1] for _, pks in longest])
    holds = []
    for lane, pks in longest:
        job = last.get(pks[-1])
        told = explain_waiting(job) if job is not None and job.status in WAITING else None
        if told is not None:
            starts_at = told.forecast.starts_at if told.forecast else None
            holds.append(HeldLane(read_lane(lane).user if lane else "", len(pks), more, told.reasons, starts_at))
    return holds


def _starts_at(job: Job) -> datetime | None:
    told = explain_waiting(job)
    return told.forecast.starts_at if told and told.forecast else None
