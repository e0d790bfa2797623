"""A drain in the test's own transaction, beside one by executors with threads and connections of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.utils import timezone

from jobs import testing
from jobs.features.dependencies.dependants import DependantsDuty
from jobs.features.recovery.event_fold import FoldedJob, fold
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Continue, Done, RunningJob, handler
from jobs.models import Batch, DeadLetter, Executor, Job, JobEvent, RetryPolicy
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from jobs.testing import StillUnfinished, drain
from queueops.tenancy.models import Project
from ratelimits.limits import catalogue
from ratelimits.models import Charge, Limit
from tests.factories import make_project
from tests.jobs import merging
from tests.jobs.merging import ALONE, KIND, Piece, submit

FLAKY, IN_ONE_COMMIT, BROKEN, NARROW, CALLBACK = (
    "test.flaky",
    "test.in_one_commit",
    "test.broken",
    "test.narrow",
    "test.told",
)


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    merging.declare(monkeypatch)

    @handler(kind=FLAKY, service="svc", payload=Piece, idempotent=True)
    async def fail_once(job: RunningJob[Piece]) -> Done:
        job.progress(10 * job.attempt, "begun")
        if job.attempt == 1:
            raise ProviderError(503, "not now", code="http_503", outcome="answered")
        return Done(job.attempt)

    @handler(kind=IN_ONE_COMMIT, service="svc", payload=Piece)
    def complete_here(job: RunningJob[Piece]) -> Done:
        with transaction.atomic():
            job.complete({"n": job.payload.n})
        raise LookupError("after its commit nothing changes it")

    @handler(kind=BROKEN, service="svc", payload=Piece, idempotent=True)
    async def break_down(job: RunningJob[Piece]) -> Done:
        raise ProviderError(404, "no sheet", code="sheet_missing", outcome="answered")

    @handler(kind=NARROW, service="narrow", payload=Piece, idempotent=True)
    async def pass_alone(job: RunningJob[Piece]) -> Done:
        await asyncio.sleep(0)
        return Done(job.payload.n)

    @handler(kind=CALLBACK, service="svc", payload=Piece, idempotent=True, calls_out=False)
    def callback(job: RunningJob[Piece]) -> Done:
        assert job.ended_batch
        return Done(dict(job.ended_batch.counts))


def submit_all() -> None:
    make_project()
    RetryPolicy.objects.update(initial_seconds=0.2, jitter="none")
    Limit.objects.create(
        name="narrow", service="narrow", algorithm="token_bucket", capacity=1, refill_per_second=0.3, scope="project"
    )
    catalogue.forget()
    for kind in (ALONE, FLAKY, IN_ONE_COMMIT, BROKEN, *[NARROW] * 2, *[KIND] * 4):
        submit(kind=kind, n=7)
    submit(kind=ALONE, n=8, spec={"scheduled_at": timezone.now() + timedelta(seconds=1)})
    lines = [{"kind": ALONE, "payload": {"n": 1}}, {"kind": BROKEN, "payload": {}}]
    told = JobSpec(kind=CALLBACK, payload={})
    submit_batch(lines, project_id="acme", actor="key:test", on_finish=told)


def columns(job: Any) -> list[Any]:
    return [getattr(job, name) for name in FoldedJob.__slots__]


def what_became() -> list[Any]:
    """All that does not depend on the time of day, job by job as they were submitted."""
    found: list[Any] = []
    for job in Job.objects.order_by("pk"):
        events = list(JobEvent.objects.filter(job_id=job.pk).order_by("id"))
        assert columns(job) == columns(fold(events))
        way = [event.to_status for event in events if event.to_status not in {None, JobState.RATE_LIMITED}]
        said = {event.message for event in events if event.event_type in {"progress", "error"}}
        figures = attrgetter("kind", "retry_count", "result", "progress", "last_error_code", "held")(job)
        # After a deferral it is queued again or claimed at once, as it happens.
        found.append((figures, way if job.kind != NARROW else {*way} - {"queued"}, said))
    found += DeadLetter.objects.order_by("job_id").values_list("kind", "error_code")
    found += Batch.objects.values_list("total", flat=True)
    assert not Charge.objects.exists()
    assert not Executor.objects.exists()
    return found


@pytest.mark.django_db(transaction=True)
def test_a_drain_in_the_tests_transaction_ends_jobs_as_executors_with_threads_do():
    of_a_test = transaction.atomic()
    of_a_test._from_testcase = True  # type: ignore[attr-defined] # as pytest-django's are: what must be the outermost may be in it
    with of_a_test:
        submit_all()
        drain()
        inline = what_became()
        deferred = Job.objects.filter(kind=NARROW, deferral_count__gt=0).count()
        transaction.set_rollback(True)
    assert deferred
    assert not Job.objects.exists()
    submit_all()
    drain()
    DependantsDuty().do()  # executors that end may not have let the callback go
    drain()
    assert inline == what_became()


def carry_out(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Let a function be the handler of test.this."""
    return handler(kind="test.this", service="svc", payload=Piece, idempotent=True, **options)


def drained(**options: Any) -> Job:
    job = submit(kind="test.this")
    drain(**options)
    job.refresh_from_db()
    return job


@pytest.mark.django_db
def test_handlers_see_and_change_what_the_test_has_not_committed():
    def rename(name: str) -> int:
        return Project.objects.update(name=name)

    for number, handle in enumerate(
        [
            lambda job: rename("0"),
            lambda job: sync_to_async(rename)("1"),
            lambda job: asyncio.to_thread(rename, "2"),
            lambda job: sync_to_async(rename, thread_sensitive=False)("3"),
        ]
    ):

        async def carry_out_async(job: RunningJob[Piece], handle: Any = handle) -> Done:
            return Done(await handle(job))

        def carry_out_here(job: RunningJob[Piece], handle: Any = handle) -> Done:
            return Done(handle(job))

        registry._handlers.pop("test.this", None)
        carry_out()(carry_out_async if number else carry_out_here)
        assert drained().result == 1
        assert Project.objects.get().name == str(number)


@pytest.mark.django_db
def test_what_waits_for_a_commit_happens_in_a_drain_once():
    done: list[str] = []
    transaction.on_commit(lambda: done.append("of the test"))

    @carry_out()
    def handle(job: RunningJob[Piece]) -> None:
        assert done == ["of the test"]
        with transaction.atomic():
            transaction.on_commit(lambda: done.append("of the handler"))
            assert len(done) == 1

    assert drained().status == JobState.COMPLETED
    assert done == ["of the test", "of the handler"]
    drain()
    assert len(done) == 2


@pytest.mark.django_db
def test_a_statement_that_fails_fails_its_job_alone():
    @carry_out()
    def handle(job: RunningJob[Piece]) -> None:
        connection.cursor().execute("SELECT 1 / 0")

    job = drained(seconds=600)
    assert (job.status, job.retry_count, job.last_error_code) == (JobState.FAILED, 5, "handler_error")
    assert "division by zero" in job.last_error_message


@pytest.mark.django_db
def test_retries_are_brought_forward_in_their_order_and_what_is_later_stays():
    begun: list[int] = []

    @carry_out()
    async def handle(job: RunningJob[Piece]) -> None:
        begun.append(job.payload.n)
        if len(begun) < 3:
            raise ProviderError(503, "not now", code="http_503", outcome="answered", retry_after=60)

    now = timezone.now()
    for n, minutes in ((1, 1), (2, 0.5), (3, 200)):
        submit(kind="test.this", n=n, spec={"scheduled_at": now + timedelta(minutes=minutes)})
    drain(seconds=7200)
    assert begun == [2, 1, 2, 1]
    assert Job.objects.get(status=JobState.QUEUED).scheduled_at == now + timedelta(minutes=200)


@pytest.mark.django_db
def test_what_cannot_end_is_told_at_once():
    Limit.objects.create(name="none", service="svc", algorithm="fixed_window", capacity=1, window_seconds=3600)
    catalogue.forget()

    @carry_out()
    async def handle(job: RunningJob[Piece]) -> None: ...

    drained()
    with pytest.raises(StillUnfinished, match=r"^1 jobs have not ended: test\.this .* rate_limited"):
        drained(seconds=0.1)


@pytest.mark.django_db
def test_what_goes_on_for_ever_is_told_at_the_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(testing, "BUSY_AT_LEAST_SECONDS", 0.1)

    @carry_out()
    async def handle(job: RunningJob[Piece]) -> Continue:
        return Continue({})

    with pytest.raises(StillUnfinished, match=r"^1 jobs have not ended: test\.this"):
        drained(seconds=0)


GUARDED = 230  # more than the guard leaves alone


def submit_guarded() -> Batch:
    make_project("acme", guard_percent=20, guard_over=200, guard_first=50)
    lines = [{"kind": ALONE, "payload": {"n": number}} for number in range(GUARDED)]
    return Batch.objects.get(pk=submit_batch(lines, project_id="acme", actor="key:test").id)


@pytest.mark.django_db
def test_a_drain_goes_on_with_the_jobs_that_a_guard_lets_go():
    batch = submit_guarded()
    assert batch.jobs.filter(held=True).exists()
    drain(seconds=60)
    assert batch.jobs.filter(status=JobState.COMPLETED).count() == GUARDED


@pytest.mark.django_db(transaction=True)
def test_a_drain_with_executors_of_its_own_does_so_too():
    batch = submit_guarded()
    assert batch.jobs.filter(held=True).exists()
    drain(seconds=60)
    assert batch.jobs.filter(status=JobState.COMPLETED).count() == GUARDED
