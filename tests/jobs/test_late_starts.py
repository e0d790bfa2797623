"""Calls that begin later after their grant than their limits allow for: they are not sent, and fewer are claimed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pydantic import BaseModel

from jobs.executor import adaptive_concurrency
from jobs.executor.adaptive_concurrency import AdaptiveConcurrency
from jobs.executor.loop import HandlerLoop
from jobs.handlers import registry
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Job, JobEvent
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import settlements_of
from jobs.services.finish.outcomes import GivenBack, Outcome, Succeeded
from jobs.states import JobState
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.factories import make_job, make_jobs
from tests.support.awake import awake
from tests.support.executing import executing
from tests.support.processes import wait_for


class Nothing(BaseModel): ...


class Stage:
    """What the test's handlers wait for and tell."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.blocked = threading.Event()
        self.let_go = threading.Event()


@pytest.fixture
def stage(monkeypatch) -> Stage:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    told = Stage()

    @handler(kind="test.call", service="test", payload=Nothing)
    async def call(job: RunningJob[Nothing]) -> Done:
        told.begun.append(time.monotonic())
        return Done()

    @handler(kind="test.call_together", service="test", payload=Nothing)
    async def call_together(jobs: list[RunningJob[Nothing]]) -> list[Done]:
        told.begun.append(time.monotonic())
        return [Done() for _ in jobs]

    @handler(kind="test.block", service="free", payload=Nothing, idempotent=True)
    async def block(job: RunningJob[Nothing]) -> Done:
        told.blocked.set()
        told.let_go.wait(timeout=60)  # of the whole loop
        return Done()

    @handler(kind="test.wait", service="test", payload=Nothing, idempotent=True)
    async def wait(job: RunningJob[Nothing]) -> Done:
        told.begun.append(time.monotonic())
        while told.blocked.is_set():  # noqa: ASYNC110 (another thread clears it)
            await asyncio.sleep(0.01)
        return Done()

    return told


@pytest.fixture
def loop(stage) -> Iterator[HandlerLoop]:
    made = HandlerLoop(slots=4, wake=lambda: None)
    made.start()
    yield made
    made.stop()


def claimed(kind: str, *, left: float | None) -> ClaimedJob:
    """Return a job whose call has so many seconds left to be sent in."""
    return ClaimedJob(
        id=uuid4(), token=7, project="acme", user_id=None, batch_id=None, kind=kind, payload="{}",
        effect_key="e", retry_policy=None, retry_count=0, crash_count=0, window_used=0.0, weight=1.0, tier_class=2,
        service="test", call_type="write", model=None, credential=None, cost=1, known_cost=None, lane=None,
        coalesce_key=None, partial=None, was="queued", waited=0.0, claimed_at=0.0,
        send_by=None if left is None else time.monotonic() + left,
    )  # fmt: skip


def carry_out(loop: HandlerLoop, *jobs: ClaimedJob) -> list[Outcome]:
    loop.carry_out(jobs)
    wait_for(lambda: loop.waiting_seconds is not None and not loop.active, what="the jobs' end")
    return loop.collect()[0]


def test_a_call_that_begins_in_time_is_sent(loop):
    outcomes = carry_out(loop, claimed("test.call", left=60), claimed("test.call", left=None))
    assert [type(one) for one in outcomes] == [Succeeded, Succeeded]
    assert not loop.take_late()


@pytest.mark.parametrize("coalesce_key", [None, "together"])
def test_a_call_that_begins_too_late_is_given_back_unsent(loop, stage, coalesce_key):
    """Also with all that were to leave with it, and where the handler must not be called twice."""
    kind = "test.call" if coalesce_key is None else "test.call_together"
    leader = claimed(kind, left=-1)._replace(coalesce_key=coalesce_key, holds=True)
    other = claimed(kind, left=None)._replace(coalesce_key=coalesce_key, group=leader.id)
    jobs = [leader] if coalesce_key is None else [leader._replace(group=leader.id), other]
    outcomes = carry_out(loop, *jobs)
    assert {one.job.id for one in outcomes} == {job.id for job in jobs}
    assert all(isinstance(one, GivenBack) for one in outcomes)
    assert [(one.holder, one.actual) for one in settlements_of(outcomes)] == [(leader.holder, 0)]
    assert stage.begun == []
    assert loop.take_late()
    assert not loop.take_late()


def test_who_begins_one_call_at_a_time_sends_it_however_late_and_tells(loop, stage):
    loop.sends_late = True
    [outcome] = carry_out(loop, claimed("test.call", left=-1))
    assert isinstance(outcome, Succeeded)
    assert loop.take_late()
    carry_out(loop, claimed("test.call", left=60))
    assert not loop.sends_late


def test_slots_are_a_quarter_fewer_after_each_second_with_late_calls_and_come_back_by_tenths():
    slots = AdaptiveConcurrency(40)
    seen = []
    for now, late in [
        (0, False),
        (1, True),
        (1.5, True),
        (1.9, False),
        (2, False),
        (3, False),
        (3.5, True),
        (4, False),
    ]:
        slots.note(late=late, now=now)
        seen.append(slots.slots)
    assert seen == [40, 30, 30, 30, 23, 27, 27, 21]
    for second in range(5, 100):
        slots.note(late=second < 40, now=second)
        seen.append(slots.slots)
    assert min(seen) == 1
    assert seen[-1] == 40


@pytest.fixture
def limit(db: None) -> Iterator[Limit]:
    """A thousand calls in twenty seconds."""
    catalogue.forget()
    yield Limit.objects.create(name="limit", service="test", capacity=1000, window_seconds=20, scope="global")
    catalogue.forget()


@pytest.mark.django_db(transaction=True)
def test_where_every_call_is_late_work_goes_on_one_at_a_time(stage, limit, monkeypatch):
    """As where each commit takes longer than a call has time: nothing would ever be sent."""
    monkeypatch.setattr(catalogue, "MIN_SEND_SECONDS", 0.0)
    Limit.objects.update(slack_seconds=0)
    catalogue.forget()
    monkeypatch.setattr(adaptive_concurrency, "CHANGE_SECONDS", 0.01)
    jobs = make_jobs(6, kind="test.call", payload="{}", service="test")
    with executing(slots=4):
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the calls")
    assert len(stage.begun) == len(jobs)
    assert JobEvent.objects.filter(message__startswith="not sent").exists()


@pytest.mark.django_db(transaction=True)
def test_calls_that_a_stall_held_up_leave_with_a_later_claim_and_fewer_are_claimed(stage, limit, monkeypatch):
    monkeypatch.setattr(adaptive_concurrency, "CHANGE_SECONDS", 1e6)  # or slots would come back while the test looks
    make_job(kind="test.block", payload="{}", service="free")
    with awake() as clock, executing(slots=4) as executor:
        wait_for(stage.blocked.is_set, what="the loop's stall")
        jobs = make_jobs(3, kind="test.call", payload="{}", service="test")
        wait_for(lambda: Job.objects.filter(status=JobState.IN_PROGRESS).count() == 4, what="three calls granted")
        late_at = time.monotonic() + catalogue.MIN_SEND_SECONDS + 0.1
        wait_for(lambda: time.monotonic() > late_at, what="them to be late")
        let_go_at = time.monotonic()
        stage.let_go.set()
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the calls")
        assert len(stage.begun) == len(jobs)
        assert not Job.objects.filter(retry_count__gt=0).exists()
        given_back = JobEvent.objects.filter(job_id__in=[job.pk for job in jobs], message__startswith="not sent")
        assert given_back.values("job_id").distinct().count() == len(jobs)
        # Only a machine that stood still once more makes a call late once more.
        assert given_back.count() == len(jobs) or clock.stood_still(since=let_go_at)

        held = make_jobs(8, kind="test.wait", payload="{}", service="test")
        looked = executor._next["claim"]
        wait_for(lambda: len(stage.begun) == len(jobs) + 3, what="as many calls as are claimed now")
        wait_for(lambda: executor._next["claim"] > looked, what="another look")
        running = Job.objects.filter(pk__in=[job.pk for job in held], status=JobState.IN_PROGRESS).count()
        stage.blocked.clear()
    assert running == 3
