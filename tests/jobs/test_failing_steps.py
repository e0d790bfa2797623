"""A step of an executor's cycle that fails keeps no other step from being taken."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection

from jobs.models import Job
from jobs.states import JobState
from queueops.core.clock import Now
from tests.factories import make_job, make_jobs
from tests.support.executing import executing
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def refused_promotion() -> Iterator[Job]:
    """A job whose time has come and that the database refuses to promote."""
    job = make_job(kind="test.refused", delay_seconds=3600)
    Job.objects.update(scheduled_at=Now() - timedelta(hours=1))
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE jobs_job ADD CONSTRAINT refused CHECK (kind <> 'test.refused' OR scheduled_at IS NOT NULL)"
        )
    yield job
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job DROP CONSTRAINT refused")


def test_an_executor_that_cannot_promote_claims_and_ends_jobs_and_tells_of_it_until_it_can(
    refused_promotion, stage, caplog
):
    jobs = make_jobs(6, kind="test.double", payload='{"n": 1}')
    ended = Job.objects.filter(pk__in=[job.pk for job in jobs], status=JobState.COMPLETED)
    with executing(slots=2) as pump:
        wait_for(lambda: ended.count() == len(jobs), what="the ends of the jobs that need no promotion")
        assert pump._failing == {"promote"}
        with connection.cursor() as cursor:
            cursor.execute("UPDATE jobs_job SET kind = 'test.nothing' WHERE kind = 'test.refused'")
        wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == len(jobs) + 1, what="its promotion")
        wait_for(lambda: not pump._failing, what="the end of the trouble")
    told = [one.message for one in caplog.records if "its step promote failed" in one.message]  # both executors promote
    assert told
    assert len(told) == len(set(told))
