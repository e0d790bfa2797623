"""Finds which job holds the event loop: times each step of a handler, and names a slow step's jobs while it lasts."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from jobs.services.claim.blocked_loop import Held
from jobs.services.finish.claimed import ClaimedJob
from queueops.core.processes.pulses import OwnPulse

logger = logging.getLogger(__name__)

R = TypeVar("R")

LOOKS_A_BUDGET = 5  # how often the watch thread looks within one budget
MARKS_A_BUDGET = 20  # how often processor time is read within one budget: reading it costs more than most steps
FRAMES = 3  # innermost stack frames, in the log

_jobs: ContextVar[Sequence[ClaimedJob]] = ContextVar("jobs_of_task", default=())


def tell_whose(jobs: Sequence[ClaimedJob]) -> None:
    """Set the jobs of all tasks that this context begins from now on; tasks begun by these tasks have the same jobs."""
    _jobs.set(jobs)


@dataclass(slots=True, eq=False)
class _Step:
    jobs: Sequence[ClaimedJob]
    began: float
    cpu: float  # the loop thread's processor time, read shortly before the step began
    looks: int = 0
    told: bool = False


class LoopWatch:
    """
    Names the jobs whose handler holds the event loop for longer than a budget, once per run of a job.

    A handler gives the loop back whenever it waits in an await; until then no other job of the process goes on.

    Threads: the loop's thread calls `make_task` and `end`, the pump's thread `collect`. A thread of this class watches
    the loop, because a held loop cannot watch itself.

    Args:
        budget_seconds: How long one step may take.
        wake: Called when there is something to collect.
        pulse: Gets the job of each step, so that other processes can name the job if this process dies.
    """

    def __init__(self, *, budget_seconds: float, wake: Callable[[], None], pulse: OwnPulse | None = None) -> None:
        self.budget_seconds = budget_seconds
        self._pulse = pulse
        self._wake = wake
        self._step: _Step | None = None
        self._holders: dict[tuple[UUID, int], float] = {}  # unfinished runs -> seconds of their longest hold
        self._held: deque[Held] = deque()
        self._lock = threading.Lock()  # both threads may name the same step
        self._loop_thread = 0
        self._marked_at = self._cpu = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)

    def start(self) -> None:
        """Begin; call it on the loop's thread."""
        self._loop_thread = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    @property
    def is_held(self) -> bool:
        """Whether a handler holds the loop now, for longer than its budget."""
        step = self._step
        return step is not None and step.told

    def collect(self) -> list[Held]:
        """Return the jobs that held the loop since the last call: once while a run goes on, and once after its end."""
        return [self._held.popleft() for _ in range(len(self._held))]

    def make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """The loop's task factory: return a task whose steps are timed for the jobs that `tell_whose` has set."""
        jobs = _jobs.get()
        return asyncio.Task(_Steps(work, self, jobs) if jobs else work, loop=loop, **options)

    def end(self, job: ClaimedJob, *, comes_back: bool) -> None:
        """Forget a run that ends; report its job once more if the run held the loop and the job will run again."""
        if self._step is not None:
            self._judge(self._step)  # the present step must be named before the outcome of its job is written
        with self._lock:
            seconds = self._holders.pop((job.id, job.token), None)
        if seconds is not None and comes_back:
            self._held.append(Held(job, seconds, has_ended=True))
            self._wake()

    def step(self, jobs: Sequence[ClaimedJob], go_on: Callable[..., R], *given: Any) -> R:
        """Carry out a step of these jobs' task."""
        began = time.monotonic()
        if began - self._marked_at > self.budget_seconds / MARKS_A_BUDGET:
            self._marked_at, self._cpu = began, time.thread_time()
        step = self._step = _Step(jobs, began, self._cpu)
        if self._pulse:
            self._pulse.begin_step(jobs[0].id)
        try:
            return go_on(*given)
        finally:
            if self._pulse:
                self._pulse.end_step()
            self._judge(step)
            self._step = None

    def _judge(self, step: _Step) -> None:
        """
        Name, on the loop's thread, a slow step that the watch thread could not see.

        Code that holds the interpreter lock, such as a regular expression, keeps the watch thread from running. If the
        step used little processor time, another thread held the lock, or the machine stood still.
        """
        seconds = time.monotonic() - step.began
        if seconds > self.budget_seconds and (step.told or time.thread_time() - step.cpu > self.budget_seconds / 2):
            self._name(step, seconds)

    def _look(self) -> None:
        while not self._ended.wait(self.budget_seconds / LOOKS_A_BUDGET):
            step = self._step
            if step is None or step.told:
                continue
            step.looks += 1  # count looks, not time: the time may have passed because the machine stood still
            if step.looks > LOOKS_A_BUDGET:
                self._name(step, time.monotonic() - step.began, self._where())

    def _name(self, step: _Step, seconds: float, where: str = "") -> None:
        with self._lock:
            is_first, step.told = not step.told, True
            if is_first:
                _log(step.jobs, seconds, where)
            for job in step.jobs:
                key = job.id, job.token
                if is_first and key not in self._holders:
                    self._held.append(Held(job, seconds))
                if is_first or key in self._holders:  # otherwise the run ended in this step
                    self._holders[key] = max(seconds, self._holders.get(key, 0.0))
        if is_first:
            self._wake()

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - only this shows other threads' frames
        frames = traceback.extract_stack(frame)[-FRAMES:] if frame else []
        return " < ".join(f"{one.name} ({one.filename}:{one.lineno})" for one in reversed(frames))


class _Steps(Coroutine[Any, Any, R]):
    """A task's coroutine, timed: the code that runs between two waits is one step."""

    def __init__(self, work: Coroutine[Any, Any, R], watch: LoopWatch, jobs: Sequence[ClaimedJob]) -> None:
        self._work, self._watch, self._jobs = work, watch, jobs

    def send(self, value: Any) -> Any:
        return self._watch.step(self._jobs, self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._watch.step(self._jobs, self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, R]:
        return self._work.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)  # libraries read the coroutine's state from a task


def _log(jobs: Sequence[ClaimedJob], seconds: float, where: str) -> None:
    first, others = jobs[0], len(jobs) - 1
    logger.error(
        "job %s (%s, project %s) has held the loop of its worker for %.1f s%s%s",
        first.id,
        first.kind,
        first.project,
        seconds,
        f", with {others:,} others of one call" if others else "",
        f", in {where}" if where else "",
    )
