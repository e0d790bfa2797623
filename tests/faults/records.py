"""What the database says of jobs, their log and their counts, for tests that compare it with a ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from jobs.models import Job, JobCount, JobEvent
from jobs.services.submit.submit import submit_batch
from jobs.states import TERMINAL, JobState
from tests.factories import make_project
from tests.faults.app import handlers  # noqa: F401 - registers the kinds that submit() names
from tests.support.processes import wait_for

PROJECT = "faults"


@dataclass(frozen=True, slots=True)
class Crash:
    """One crash that a job was charged with; `executor`: who had claimed it."""

    job: UUID
    at: datetime
    executor: UUID


def submit(specs: Iterable[Mapping[str, Any]]) -> UUID:
    """Submit a batch as a producer does; its id."""
    make_project(PROJECT)
    return submit_batch(specs, project_id=PROJECT, actor="key:test").id


def submit_work(count: int, kind: str, **payload: Any) -> UUID:
    """Submit so many equal jobs; the batch's id."""
    return submit({"kind": f"faults.{kind}", "payload": payload} for _ in range(count))


def statuses() -> dict[str, int]:
    """Jobs by status, counted."""
    return dict(Counter(Job.objects.values_list("status", flat=True)))


def counted() -> dict[str, int]:
    """Jobs by status, as the project's counters have it."""
    totals: Counter[str] = Counter()
    for row in JobCount.objects.filter(project_id=PROJECT, batch_id=UUID(int=0)).values(*JobState.values):
        totals.update(row)
    return {state: count for state, count in totals.items() if count}


def wait_until_drained(*, seconds: float = 60.0) -> None:
    """Wait until every job is in a terminal state, and check that the counters say the same."""

    def unfinished() -> Any:
        return Job.objects.exclude(status__in=TERMINAL)

    try:
        wait_for(lambda: not unfinished().exists(), seconds=seconds, what="the end of every job")
    except AssertionError as error:
        left = list(unfinished().values("id", "kind", "status", "scheduled_at", "crash_count", "executor")[:10])
        raise AssertionError(f"{error}: {statuses()}, such as {left}") from None
    assert counted() == statuses()


def crashes() -> list[Crash]:
    """Every crash that the log charges a job with."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT event.job_id, event.created_at,
                   (SELECT (claim.data ->> 'executor')::uuid FROM jobs_jobevent AS claim
                     WHERE claim.job_id = event.job_id AND claim.id < event.id AND claim.to_status = 'dispatched'
                     ORDER BY claim.id DESC LIMIT 1)
              FROM jobs_jobevent AS event JOIN jobs_job AS job ON job.id = event.job_id -- the log outlives a test
             WHERE event.to_status IN ('retried', 'failed')
               AND (event.message = 'its executor stopped renewing the lease'
                    OR event.message LIKE 'its process died%%')
            """
        )
        found = [Crash(*row) for row in cursor.fetchall()]
    assert len(found) == sum(Job.objects.values_list("crash_count", flat=True))
    return found


def refused_writes() -> list[JobEvent]:
    """The log's entries of writes that a stale executor tried."""
    ours = Job.objects.values("pk")  # the log outlives a test
    return list(JobEvent.objects.filter(job_id__in=ours, event_type="error", data__operation="lease_lost"))


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [now] = cursor.fetchone()
    assert isinstance(now, datetime)
    return now
