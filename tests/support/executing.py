"""Executors inside the test's process: handlers to be carried out, the loop that runs them, and the pump."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from jobs.executor.loop import HandlerLoop
from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Executor
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Outcome, Progress

from .processes import wait_for


class Number(BaseModel):
    n: int = 0


class Stage:
    """What the test's handlers wait for and tell."""

    def __init__(self) -> None:
        self.begun: list[UUID] = []
        self.interrupted: list[UUID] = []
        self.let_go = threading.Event()


@pytest.fixture
def stage(monkeypatch) -> Stage:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    told = Stage()
    declare_quick_handlers()
    declare_waiting_handlers(told)
    return told


def declare_quick_handlers() -> None:
    @handler(kind="test.double", service="test", payload=Number, idempotent=True)
    async def double(job: RunningJob[Number]) -> Done:
        job.progress(10, "begun")
        job.progress(90, "nearly")
        return Done({"n": 2 * job.payload.n, "attempt": job.attempt})

    @handler(kind="test.double_in_a_thread", service="test", payload=Number)
    def double_in_a_thread(job: RunningJob[Number]) -> Done:
        assert threading.current_thread().name.startswith("handler")
        return Done({"n": 2 * job.payload.n})

    @handler(kind="test.nothing", service="test", payload=Number)
    def nothing(job: RunningJob[Number]) -> None: ...

    @handler(kind="test.bad_result", service="test", payload=Number, idempotent=True)
    async def bad_result(job: RunningJob[Number]) -> Done:
        return Done({"socket": object()})

    @handler(kind="test.raise", service="test", payload=Number, idempotent=True)
    async def fail(job: RunningJob[Number]) -> Done:
        raise ProviderError(503, "not now", code="http_503", outcome="answered", retry_after=9)

    @handler(kind="test.exit", service="test", payload=Number)
    async def leave(job: RunningJob[Number]) -> Done:
        raise SystemExit(3)

    @handler(kind="test.exit_in_a_thread", service="test", payload=Number)
    def leave_in_a_thread(job: RunningJob[Number]) -> Done:
        raise KeyboardInterrupt

    @handler(kind="test.unstorable", service="test", payload=Number)
    async def confuse(job: RunningJob[Number]) -> Done:
        raise type("E" * 300, (Exception,), {})  # longer than its column

    @handler(kind="test.bug", service="test", payload=Number)
    def bug(job: RunningJob[Number]) -> Done:
        raise LookupError("no such thing")


def declare_waiting_handlers(told: Stage) -> None:
    for kind, idempotent in (("test.wait", True), ("test.wait_once", False)):

        @handler(kind=kind, service="test", payload=Number, idempotent=idempotent)
        async def wait(job: RunningJob[Number]) -> Done:
            told.begun.append(job.id)
            try:
                while not told.let_go.is_set():  # noqa: ASYNC110 (another thread sets it)
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                told.interrupted.append(job.id)
                raise
            return Done("went on")

    @handler(kind="test.wait_in_a_thread", service="test", payload=Number)
    def wait_in_a_thread(job: RunningJob[Number]) -> Done:
        told.begun.append(job.id)
        job.cancelled.wait(timeout=20)
        told.interrupted.append(job.id)
        job.raise_if_cancelled()
        return Done()

    for kind, function in (("test.slow", wait), ("test.slow_in_a_thread", wait_in_a_thread)):
        handler(kind=kind, service="test", payload=Number, timeout=timedelta(seconds=0.1))(function)


def claimed(kind: str, payload: str = '{"n": 4}') -> ClaimedJob:
    return ClaimedJob(
        id=uuid4(), token=7, project="acme", user_id=None, batch_id=None, kind=kind, payload=payload,
        effect_key="e", retry_policy=None, retry_count=2, crash_count=0, window_used=0.0, weight=1.0, tier_class=2,
            service="test", call_type="write", model=None, credential=None, cost=1, known_cost=None, lane=None,
            coalesce_key=None, partial=None, was="queued", waited=0.0, claimed_at=0.0,
    )  # fmt: skip


class Driven:
    """A HandlerLoop, and what it has given so far."""

    def __init__(self, loop: HandlerLoop) -> None:
        self.loop = loop
        self.outcomes: list[Outcome] = []
        self.notes: list[Progress] = []

    def collect(self) -> None:
        outcomes, notes = self.loop.collect()
        self.outcomes += outcomes
        self.notes += notes

    def run(self, *jobs: ClaimedJob) -> list[Outcome]:
        """Begin these jobs and wait until all have ended."""
        self.loop.carry_out(jobs)

        def all_ended() -> bool:
            self.collect()
            return len(self.outcomes) == len(jobs)

        wait_for(all_ended, what="the end of the jobs")
        return self.outcomes


@contextmanager
def executing(slots: int = 4, *, grace: float = 5.0) -> Iterator[ExecutorPump]:
    """A general executor, and before it the one that takes the quarantine seat."""
    settings = ExecutorSettings(
        slots=slots, lease_seconds=6, renew_seconds=2, sweep_seconds=1, poll_seconds=1, drain_grace_seconds=grace,
        listen=True,
    )  # fmt: skip
    quarantine = ExecutorPump(settings, cluster_pid=os.getpid())
    general = ExecutorPump(settings, cluster_pid=os.getpid())
    quarantine.start()
    try:
        wait_for(lambda: Executor.objects.filter(pk=quarantine.id).exists(), what="the quarantine seat")
        general.start()
        wait_for(lambda: Executor.objects.filter(pk=general.id).exists(), what="the executor")
        try:
            yield general
        finally:
            general.stop()
    finally:
        quarantine.stop()
