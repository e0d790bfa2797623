"""Which job holds the loop: every step of a handler is timed, and one that takes too long is named while it lasts."""

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

LOOKS_A_BUDGET = 5  # times that the watch looks while a step uses up its budget
MARKS_A_BUDGET = 20  # times that a busy loop's processor time is noted: to ask for it costs more than most steps
FRAMES = 3  # the innermost, in the log

_jobs: ContextVar[Sequence[ClaimedJob]] = ContextVar("jobs_of_task", default=())


def tell_whose(jobs: Sequence[ClaimedJob]) -> None:
    """Say whose the tasks are that this context begins from now on, and those that they begin."""
    _jobs.set(jobs)


@dataclass(slots=True, eq=False)
class _Step:
    jobs: Sequence[ClaimedJob]
    began: float
    cpu: float  # the thread's, noted shortly before it began
    looks: int = 0
    told: bool = False


class LoopWatch:
    """
    Names the jobs whose handler holds the event loop for longer than a budget, once a run.

    A handler gives the loop back at each of its awaits; until then no other job of the process goes on.

    Threads: `make_task` and `end` are for the loop's; a thread of its own looks at it, because a held loop cannot.
    `collect` is for the pump's.

    Args:
        budget_seconds: Of one step.
        wake: Called when there is something to collect.
        pulse: Is told whose step it is, for those who find this process dead.
    """

    def __init__(self, *, budget_seconds: float, wake: Callable[[], None], pulse: OwnPulse | None = None) -> None:
        self.budget_seconds = budget_seconds
        self._pulse = pulse
        self._wake = wake
        self._step: _Step | None = None
        self._holders: dict[tuple[UUID, int], float] = {}  # runs that go on, and for how long they held it at most
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
        """Return what held the loop since the last call: each run once while it goes on, and once when it has ended."""
        return [self._held.popleft() for _ in range(len(self._held))]

    def make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """Return a task whose steps are timed as those of the jobs that its context tells; the loop's task factory."""
        jobs = _jobs.get()
        return asyncio.Task(_Steps(work, self, jobs) if jobs else work, loop=loop, **options)

    def end(self, job: ClaimedJob, *, comes_back: bool) -> None:
        """Forget a run that ends; one that held the loop and comes back is told once more."""
        if self._step is not None:
            self._judge(self._step)  # this one is not over, and what it gives back must not be written before its name
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
        Name a step that the watch could not see, on the loop's thread.

        Code that keeps the interpreter to itself, as a regular expression does, keeps the watch from looking. Where the
        step used no processor it was another thread's code, or the machine stood still.
        """
        seconds = time.monotonic() - step.began
        if seconds > self.budget_seconds and (step.told or time.thread_time() - step.cpu > self.budget_seconds / 2):
            self._name(step, seconds)

    def _look(self) -> None:
        while not self._ended.wait(self.budget_seconds / LOOKS_A_BUDGET):
            step = self._step
            if step is None or step.told:
                continue
            step.looks += 1  # looks, not time: a machine that stood still is nobody's doing
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
                if is_first or key in self._holders:  # not again one whose run ended in this step
                    self._holders[key] = max(seconds, self._holders.get(key, 0.0))
        if is_first:
            self._wake()

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to see another thread's
        frames = traceback.extract_stack(frame)[-FRAMES:] if frame else []
        return " < ".join(f"{one.name} ({one.filename}:{one.lineno})" for one in reversed(frames))


class _Steps(Coroutine[Any, Any, R]):
    """A task's work; its code between two waits is one step."""

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
        return getattr(self._work, name)  # the state of the coroutine, which libraries ask a task for


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
