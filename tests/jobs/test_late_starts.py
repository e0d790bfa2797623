"""Calls that start, or leave, later than their limits allow for: what a handler loop tells of them and does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from aiohttp import web
from pydantic import BaseModel

from jobs.executor import width
from jobs.executor.loop import HandlerLoop
from jobs.executor.width import Width
from jobs.handlers import registry
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Executor as ExecutorRow
from jobs.models import Job
from jobs.services.claimed import ClaimedJob, Grant
from jobs.services.finish import GivenBack, Outcome, Succeeded
from jobs.states import JobState
from queueops.core.outbound import OutboundClient
from queueops.core.outbound_policy import OutboundPolicy
from ratelimits.models import Limit
from ratelimits.services import catalogue
from ratelimits.services.catalogue import Lateness
from ratelimits.services.decide import Call
from ratelimits.subjects import Subject
from tests.factories import make_job, make_jobs
from tests.jobs.test_executor_loop import executing
from tests.ratelimits.counting import used
from tests.support.http_server import serving
from tests.support.processes import wait_for

CALL = Call(Subject("test", "write", "acme", "", ""))
LATE = Lateness(counts=0.1, stale=15)


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

    @handler(kind="test.call", service="test", payload=Nothing, idempotent=True)
    async def call(job: RunningJob[Nothing]) -> Done:
        told.begun.append(time.monotonic())
        return Done()

    @handler(kind="test.call_together", service="test", payload=Nothing, idempotent=True)
    async def call_together(jobs: list[RunningJob[Nothing]]) -> list[Done]:
        told.begun.append(time.monotonic())
        return [Done() for _ in jobs]

    @handler(kind="test.call_later", service="test", payload=Nothing, idempotent=True)
    async def call_later(job: RunningJob[Nothing]) -> Done:
        """Make two calls, each later than the limits allow for."""
        client = OutboundClient()
        async with serving(_ok) as url:
            for _ in range(2):
                told.begun.append(time.monotonic())
                while time.monotonic() <= told.begun[-1] + 2 * LATE.counts:  # noqa: ASYNC110 - nobody sets an event
                    await asyncio.sleep(0.01)
                await client.send(
                    "GET", url, policy=OutboundPolicy(allow_loopback=True), timeout_seconds=30, max_response_bytes=10
                )
            await client.close()
        return Done()

    @handler(kind="test.block", service="free", payload=Nothing, idempotent=True)
    async def block(job: RunningJob[Nothing]) -> Done:
        told.blocked.set()
        told.let_go.wait(timeout=60)  # of the whole loop
        return Done()

    @handler(kind="test.wait", service="test", payload=Nothing, idempotent=True)
    async def wait(job: RunningJob[Nothing]) -> Done:
        told.begun.append(time.monotonic())
        while not told.let_go.is_set() or told.blocked.is_set():  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.01)
        return Done()

    return told


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


@pytest.fixture
def loop(stage) -> Iterator[HandlerLoop]:
    made = HandlerLoop(slots=4, wake=lambda: None)
    made.start()
    yield made
    made.stop()


def claimed(kind: str, *, age: float, late: Lateness = LATE, granted: bool = True) -> ClaimedJob:
    grant = Grant(CALL, 1_800_000_000.0, time.monotonic() - age, late)
    return ClaimedJob(
        id=uuid4(), token=7, project="acme", user_id=None, batch_id=None, kind=kind, payload="{}",
        effect_key="e", retry_policy=None, retry_count=0, crash_count=0, window_used=0.0, weight=1.0, tier_class=2,
        service="test", call_type="write", model=None, credential=None, cost=1, known_cost=None, lane=None,
        coalesce_key=None, partial=None, was="queued", waited=0.0, claimed_at=0.0, grant=grant if granted else None,
    )  # fmt: skip


def carry_out(loop: HandlerLoop, *jobs: ClaimedJob) -> list[Outcome]:
    loop.carry_out(jobs)
    wait_for(lambda: loop.waiting_seconds is not None and not loop.active, what="the jobs' end")
    return loop.collect()[0]


def test_a_call_that_starts_in_time_is_no_matter(loop):
    outcomes = carry_out(
        loop, claimed("test.call", age=0, late=Lateness(60, 120)), claimed("test.call", age=99, granted=False)
    )
    assert [type(one) for one in outcomes] == [Succeeded, Succeeded]
    assert loop.collect_late() == ([], False)


def test_a_call_that_starts_after_the_slack_is_to_be_charged_again(loop):
    job = claimed("test.call", age=2)
    [outcome] = carry_out(loop, job)
    assert isinstance(outcome, Succeeded)
    [late], started_late = loop.collect_late()
    assert job.grant
    assert (late.call, late.charged_at) == (CALL, job.grant.at)
    assert 2 <= late.late_seconds < 60
    assert started_late
    assert loop.take_start_lag() >= 2
    assert loop.take_start_lag() == 0
    loop.put_back_late([late])
    assert loop.collect_late() == ([late], False)


def test_what_a_handler_does_before_its_call_is_charged_and_is_not_its_executors_lateness(loop, stage):
    job = claimed("test.call_later", age=0, late=Lateness(LATE.counts, 120))
    [outcome] = carry_out(loop, job)
    assert isinstance(outcome, Succeeded)
    late, _ = loop.collect_late()
    *started, first, second = late  # on a busy machine its start may have been late already
    assert len(started) <= 1
    assert first.late_seconds >= 2 * LATE.counts
    assert second.charged_at == pytest.approx(first.charged_at + first.late_seconds)


@pytest.mark.parametrize("coalesce_key", [None, "together"])
def test_a_call_whose_grant_is_stale_is_given_back_unsent(loop, stage, coalesce_key):
    kind = "test.call" if coalesce_key is None else "test.call_together"
    leader = claimed(kind, age=LATE.stale + 1)._replace(coalesce_key=coalesce_key)
    other = claimed(kind, age=0, granted=False)._replace(coalesce_key=coalesce_key, group=leader.id)
    jobs = [leader] if coalesce_key is None else [leader._replace(group=leader.id), other]
    outcomes = carry_out(loop, *jobs)
    assert {one.job.id for one in outcomes} == {job.id for job in jobs}
    assert all(isinstance(one, GivenBack) and one.cost == 0 for one in outcomes)
    assert stage.begun == []
    assert loop.collect_late() == ([], True)


def test_jobs_that_leave_together_are_charged_once(loop, stage):
    leader = claimed("test.call_together", age=2)._replace(coalesce_key="together")
    other = claimed("test.call_together", age=2, granted=False)._replace(coalesce_key="together", group=leader.id)
    outcomes = carry_out(loop, leader._replace(group=leader.id), other)
    assert [type(one) for one in outcomes] == [Succeeded, Succeeded]
    late, started_late = loop.collect_late()
    assert (len(late), started_late) == (1, True)


def test_slots_are_halved_after_each_second_with_late_starts_and_come_back_by_tenths():
    slots = Width(40)
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
    assert seen == [40, 20, 20, 20, 10, 14, 14, 7]
    for second in range(5, 100):
        slots.note(late=second < 20, now=second)
        seen.append(slots.slots)
    assert min(seen) == 1
    assert seen[-1] == 40


@pytest.fixture
def of_ten_seconds(db: None) -> Iterator[Limit]:
    """A thousand calls in ten seconds."""
    yield Limit.objects.create(name="ten", service="test", capacity=1000, window_seconds=10, scope="global")
    catalogue.forget()


@pytest.mark.django_db(transaction=True)
def test_calls_that_were_held_up_are_charged_at_their_sending_and_fewer_are_claimed(stage, of_ten_seconds, monkeypatch):
    monkeypatch.setattr(width, "CHANGE_SECONDS", 1e6)  # or slots would come back while the test looks
    catalogue.forget()
    make_job(kind="test.block", payload="{}", service="free")
    with executing(slots=4) as executor:
        wait_for(stage.blocked.is_set, what="the loop's stall")
        jobs = make_jobs(3, kind="test.call", payload="{}", service="test")
        wait_for(lambda: Job.objects.filter(status=JobState.IN_PROGRESS).count() == 4, what="three calls granted")
        granted_at = time.time()
        wait_for(lambda: time.time() > granted_at + 0.7, what="them to be late")
        stage.let_go.set()
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the calls")
        # A window and its slack after their grant the calls still count, because they left later.
        over = granted_at + 10 + 10 / 120 + 2 * 10 / 60
        wait_for(lambda: used(of_ten_seconds, "*", now=over) == len(jobs), what="the charges at the sending")
        executor._next["renew"] = 0.0
        wait_for(lambda: ExecutorRow.objects.get(pk=executor.id).start_lag_ms >= 500, what="the heartbeat")

        held = make_jobs(8, kind="test.wait", payload="{}", service="test")
        looked = executor._next["claim"]
        wait_for(lambda: len(stage.begun) == len(jobs) + 2, what="as many calls as are claimed now")
        wait_for(lambda: executor._next["claim"] > looked, what="another look")
        running = Job.objects.filter(pk__in=[job.pk for job in held], status=JobState.IN_PROGRESS).count()
        stage.blocked.clear()
    assert running == 2
