"""Finds why many jobs wait: the same reasons as on each job's own page, in a bounded number of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, QuerySet

from jobs.lanes import read_lane
from jobs.models import Job
from jobs.services.explain.waiting import Reason, explain_waiting
from jobs.states import WAITING, JobState, Priority

from .forecast import sample_of_batch

MAX_LANES_FORESEEN = 5
MAX_OF_A_BATCH_COUNTED = 100_000  # waiting jobs of one batch
TIERS = [tier.value for tier in (Priority.URGENT, Priority.NORMAL, Priority.LOW)]


def foresee(jobs: Sequence[Job]) -> None:
    """
    Set on parked jobs, in memory, the time at which their limits should let them go, as it is foreseen now.

    A job's row has the time that was foreseen when the job was parked. In the MAX_LANES_FORESEEN lanes with the most
    of these jobs, the first and the last job are foreseen anew. The jobs between them get a time by their place. Jobs
    of other lanes keep the time of their row.
    """
    lanes: dict[str, list[Job]] = {}
    for job in jobs:
        if job.status == JobState.RATE_LIMITED and job.lane is not None:
            lanes.setdefault(job.lane, []).append(job)
    for parked in sorted(lanes.values(), key=len, reverse=True)[:MAX_LANES_FORESEEN]:
        parked.sort(key=lambda job: (TIERS.index(job.priority), job.eligible_since, job.pk))
        first, last = _starts_at(parked[0]), _starts_at(parked[-1])
        if first is None or last is None:
            continue  # paused, or without a known time
        for place, job in enumerate(parked):
            job.scheduled_at = first + (last - first) * (place / max(1, len(parked) - 1))


@dataclass(frozen=True, slots=True)
class HeldLane:
    """
    The waiting jobs of a batch in one lane, or in none, and what they wait for.

    Attributes:
        user: The jobs' user; empty: they have none, or are in no lane.
        jobs: How many wait in the lane; `more`: not all jobs of the batch were counted, so the lane may have more.
        reasons: Why the last job waits, in the order in which the reasons must end; empty: the next claims take it.
        last_starts_at: When limits should let the last job go; None: nobody knows.
    """

    user: str
    jobs: int
    more: bool
    reasons: tuple[Reason, ...]
    last_starts_at: datetime | None


def holds_of_batch(batch_id: UUID, *, most: int = MAX_LANES_FORESEEN) -> list[HeldLane]:
    """Return why the batch's waiting jobs wait, by lane, the lanes with most jobs first; at most `most` lanes."""
    sampled: dict[str | None, UUID] = dict(sample_of_batch(batch_id))  # the last job of each lane
    read = _waiting_of(batch_id).values("pk")[:MAX_OF_A_BATCH_COUNTED]
    counts = dict(Job.objects.filter(pk__in=read).order_by().values_list("lane").annotate(jobs=Count("pk")))
    more = sum(counts.values()) >= MAX_OF_A_BATCH_COUNTED
    longest = sorted(counts.items(), key=lambda one: (-one[1], one[0] or ""))[:most]
    for lane in {lane for lane, _ in longest} - sampled.keys():
        if other := _waiting_of(batch_id).filter(lane=lane).first():
            sampled[lane] = other.pk
    last = Job.objects.in_bulk([sampled[lane] for lane, _ in longest if lane in sampled])
    holds = []
    for lane, count in longest:
        job = last.get(sampled[lane]) if lane in sampled else None
        told = explain_waiting(job) if job is not None and job.status in WAITING else None
        if told is not None:
            starts_at = told.forecast.starts_at if told.forecast else None
            holds.append(HeldLane(read_lane(lane).user if lane else "", count, more, told.reasons, starts_at))
    return holds


def _waiting_of(batch_id: UUID) -> QuerySet[Job]:
    return Job.objects.filter(batch_id=batch_id, status__in=sorted(WAITING)).order_by()


def _starts_at(job: Job) -> datetime | None:
    told = explain_waiting(job)
    return told.forecast.starts_at if told and told.forecast else None
