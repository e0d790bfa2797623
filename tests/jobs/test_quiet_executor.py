"""An executor that has nothing to do looks seldom, and is told at once of whatever there is to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from jobs.executor import pump
from jobs.executor.pump import ExecutorPump
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Batch, Executor, Job, PauseSwitch
from jobs.services.claim import claim
from jobs.services.operate import operate
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.services.submit.prepare import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.services.upkeep.upkeep import is_under_way
from jobs.states import JobState
from tests.factories import make_batch, make_job, make_project
from tests.jobs.test_executor_loop import Number, executing
from tests.support.processes import wait_for

AT_ONCE = 8.0  # seconds; far below what the executor sleeps

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExecutorPump]:
    """An executor that would look by itself only after minutes, and has come to that."""
    monkeypatch.setattr(pump, "SLEEP_AFTER_SECONDS", 0.3)
    monkeypatch.setattr(pump, "SELDOM_SECONDS", 300.0)
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    make_project()
    tried: set[str] = set()

    @handler(kind="test.quiet", service="test", payload=Number, retry="moderate")
    async def works(job: RunningJob[Number]) -> Done:
        return Done(job.payload.n)

    @handler(kind="test.quiet_fails_once", service="test", payload=Number, idempotent=True, retry="moderate")
    async def fails_once(job: RunningJob[Number]) -> Done:
        if str(job.id) not in tried:
            tried.add(str(job.id))
            raise ProviderError(503, "busy", code="http_503", outcome="answered")
        return Done(job.payload.n)

    with executing() as executor:
        wait_until_quiet(executor)
        yield executor


def wait_until_quiet(executor: ExecutorPump) -> None:
    def sleeps() -> bool:
        waits = min(executor._next[name] for name in ("claim", "promote", "tick", "park")) - time.monotonic()
        return executor._is_quiet(time.monotonic()) and waits > 200

    wait_for(sleeps, what="quiet")


def ended(job_id: UUID) -> bool:
    return Job.objects.get(pk=job_id).status == JobState.COMPLETED


def submitted(**options: object) -> UUID:
    spec = JobSpec.model_validate({"kind": "test.quiet", "payload": {"n": 1}, **options})
    return submit_job(spec, project_id="acme", actor="key:test").id


@pytest.mark.parametrize("options", [{}, {"delay_seconds": 1}], ids=["now", "in a second"])
def test_it_hears_of_a_job_that_is_submitted(quiet: ExecutorPump, options: dict[str, object]):
    job = submitted(**options)
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="its end")


def test_it_comes_back_to_what_it_retries(quiet: ExecutorPump):
    job = submitted(kind="test.quiet_fails_once")
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="its end")
    assert Job.objects.get(pk=job).retry_count == 1


def test_it_wakes_when_what_it_knows_to_be_due_is_due(quiet: ExecutorPump):
    job = submitted(delay_seconds=4)
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="its end")


def test_it_hears_of_what_an_operator_lets_go(quiet: ExecutorPump):
    job = submitted(delay_seconds=3600)
    batch = submit_batch([{"kind": "test.quiet", "payload": {"n": 1}}], project_id="acme", actor="key:test")
    wait_for(lambda: Batch.objects.get(pk=batch.id).finished_at is not None, what="the batch's end")
    pause_scope(PauseSwitch.Scope.PROJECT, "acme", actor="user:1", reason="x")
    held = submitted()
    wait_until_quiet(quiet)
    resume_scope(PauseSwitch.Scope.PROJECT, "acme", actor="user:1", reason="x")
    wait_for(lambda: ended(held), seconds=AT_ONCE, what="the held job's end")
    wait_until_quiet(quiet)
    operate.schedule_jobs([job], delay=timedelta(), actor="user:1", reason="x")
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="the scheduled job's end")


def test_whoever_promotes_wakes_the_others(quiet: ExecutorPump):
    job = make_job(kind="test.quiet", payload='{"n": 1}', scheduled_at=timezone.now() + timedelta(hours=1))
    Job.objects.filter(pk=job.pk).update(scheduled_at=timezone.now())  # as nobody here could know
    assert claim.promote_due()[0] == 1
    wait_for(lambda: ended(job.pk), seconds=AT_ONCE, what="its end")


def test_work_of_others_keeps_awake_whoever_does_what_is_for_all():
    assert not is_under_way()
    make_job(scheduled_at=timezone.now() + timedelta(hours=1))
    make_job(batch=make_batch(paused=True))
    assert not is_under_way()
    for state in (JobState.QUEUED, JobState.RATE_LIMITED, JobState.IN_PROGRESS):
        make_job(state=state)
        assert is_under_way(), state
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobs_job CASCADE")
    assert not Executor.objects.exists()
