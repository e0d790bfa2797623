"""What is written down of a job whose handler held its worker's loop."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from jobs.features.recovery.event_fold import fold
from jobs.features.watches.watch import watch_executors
from jobs.models import Executor, Job, JobEvent
from jobs.services.claim.blocked_loop import Held, note_held
from jobs.services.finish.finish import find_lost
from jobs.transitions import Move, move_jobs
from ratelimits.models import QuotaAlert
from tests.support.finishing import started

pytestmark = pytest.mark.django_db


@pytest.fixture
def executor() -> Executor:
    return Executor.objects.create(host="h", pid=4, process_started_at=0, cluster_pid=1, slots=5)


def crashes_of(job_id: UUID) -> int:
    """As the row and its log have it."""
    crashes = Job.objects.get(pk=job_id).crash_count
    assert fold(JobEvent.objects.filter(job_id=job_id).order_by("id")).crash_count == crashes
    return crashes


def test_a_held_loop_counts_as_one_crash_while_the_job_runs_and_as_two_when_it_comes_back(executor):
    job, other = started(), started()
    note_held([Held(job, 2.04), Held(other, 3.0)], executor_id=executor.pk)
    assert (crashes_of(job.id), crashes_of(other.id)) == (1, 1)
    event = JobEvent.objects.filter(job_id=job.id).latest("id")
    assert event.message == "its handler held the loop of its worker for 2.0 s"
    note_held([Held(job, 5.0, has_ended=True)], executor_id=executor.pk)
    assert crashes_of(job.id) == 2
    note_held([Held(job, 5.0)], executor_id=executor.pk)
    assert crashes_of(job.id) == 2, "it runs alone already: what it does there is no crash of its process"
    executor.refresh_from_db()
    assert executor.loops_held == 3, "each run counts once"
    assert executor.loop_held_by == f"job {job.id} ({job.kind}, project acme)"


def test_a_run_that_is_over_is_not_charged(executor):
    job = started()
    logged = JobEvent.objects.filter(job_id=job.id).count()
    note_held([Held(job._replace(token=job.token + 1), 2.0)], executor_id=executor.pk)
    move_jobs("cancel", [Move(job.id)])
    logged += 1
    note_held([Held(job, 2.0)], executor_id=executor.pk)
    assert (crashes_of(job.id), JobEvent.objects.filter(job_id=job.id).count()) == (0, logged)


@pytest.mark.parametrize(("taken_by", "is_lost"), [("cancel", False), ("reset", False), ("rescue", True)])
def test_a_lost_lease_is_told_from_a_cancel_although_the_loop_was_held(executor, taken_by, is_lost):
    job = started()
    note_held([Held(job, 2.0)], executor_id=executor.pk)
    move_jobs(taken_by, [Move(job.id, token=job.token, delay_seconds=None if taken_by == "cancel" else 0)])
    assert find_lost([job]) == ({(job.id, job.token)} if is_lost else set())


def test_operators_are_told_which_job_held_the_loop_for_a_while(executor):
    def opened() -> list[tuple[str, str, str]]:
        return list(QuotaAlert.objects.filter(resolved_at=None).values_list("kind", "subject", "message"))

    job = started()
    note_held([Held(job, 2.5)], executor_id=executor.pk)
    watch_executors()
    by = f"job {job.id} ({job.kind}, project acme)"
    message = f"Executor h:4 stood still for its other jobs: the handler of {by} held its event loop"
    assert opened() == [("stuck_executor", str(executor.pk), message)]
    Executor.objects.update(loop_held_at=timezone.now() - timedelta(minutes=2))
    watch_executors()
    assert opened() == []
