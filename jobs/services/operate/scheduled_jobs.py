"""Scheduled jobs: queued jobs that wait for their time. Screens show them apart from jobs that wait for their turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from jobs.models import Job, Way
from jobs.models.job import HAS_A_TIME
from jobs.states import JobState
from queueops.core.clock import TransactionNow as Now
from queueops.core.sql import run_sql

# Jobs are counted up to this number, which no single batch exceeds. Several batches or projects share the number, but
# each is counted up to the minimum at least.
MAX_SCHEDULED_COUNTED = 100_000
MIN_SCHEDULED_COUNTED = 10_000


class Scheduled(NamedTuple):
    """
    How many jobs wait for their time, counted up to a bound.

    Attributes:
        first, last: When the first and the last of these jobs may begin; None: there is none.
        more: There may be more than `jobs`.
    """

    jobs: int = 0
    first: datetime | None = None
    last: datetime | None = None
    more: bool = False


NOTHING_SCHEDULED = Scheduled()


def scheduled() -> Q:
    """Return the condition of jobs that wait for their time; sql/fragments/scheduled.sql says the same."""
    return HAS_A_TIME & Q(scheduled_at__gt=Now())


def is_scheduled(job: Job) -> bool:
    """Whether a job waits for its time."""
    is_to_come = job.scheduled_at is not None and job.scheduled_at > timezone.now()
    return is_to_come and job.status == JobState.QUEUED and job.via != Way.BATCH


def scheduled_of_batches(batch_ids: Collection[UUID]) -> dict[UUID, Scheduled]:
    """
    Count the scheduled jobs of each batch in one read, at most MAX_SCHEDULED_COUNTED.

    Several batches share that bound. Batches without scheduled jobs are left out.
    """
    return {UUID(whose): one for whose, one in _count(batches=tuple(batch_ids)).items()} if batch_ids else {}


def scheduled_of_projects(project_ids: Collection[str]) -> dict[str, Scheduled]:
    """Count the scheduled jobs of each project, as `scheduled_of_batches` does for batches."""
    return _count(projects=tuple(project_ids)) if project_ids else {}


def count_scheduled(project_id: str | None = None) -> Scheduled:
    """Count the scheduled jobs of a project, or all; at most MAX_SCHEDULED_COUNTED."""
    if project_id is not None:
        return scheduled_of_projects([project_id]).get(project_id, NOTHING_SCHEDULED)
    return _count(everybody=True).get("", NOTHING_SCHEDULED)


def scheduled_of(*, project_id: str | None, batch_id: UUID | None) -> Scheduled:
    """Count the scheduled jobs of a batch; without a batch, of a project; without a project, all."""
    if batch_id is not None:
        return scheduled_of_batches([batch_id]).get(batch_id, NOTHING_SCHEDULED)
    return count_scheduled(project_id)


def _count(
    *, batches: Sequence[UUID] = (), projects: Sequence[str] = (), everybody: bool = False
) -> dict[str, Scheduled]:
    most = max(MIN_SCHEDULED_COUNTED, MAX_SCHEDULED_COUNTED // max(1, len(batches) + len(projects)))
    given = {"batches": list(batches), "projects": list(projects), "everybody": everybody, "most": most}
    rows = run_sql("jobs", "count_scheduled", given)
    return {whose: Scheduled(jobs, first, last, more=jobs == most) for whose, jobs, first, last in rows}
