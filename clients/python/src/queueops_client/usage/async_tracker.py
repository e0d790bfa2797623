"""The tracker for asyncio. It uses the outbox's file in a thread, so that the loop never waits for a disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

from queueops_client.errors import ClientError
from queueops_client.exchange import Pause, Steps
from queueops_client.retry import NEVER
from queueops_client.transport import DEFAULT_TIMEOUT_SECONDS, AsyncToken, AsyncTransport, resumed
from queueops_client.usage.cache import View
from queueops_client.usage.desk import Standing, Usage
from queueops_client.usage.errors import TrackerClosed
from queueops_client.usage.flush import Flushed, Idle
from queueops_client.usage.opening import open_desk
from queueops_client.usage.outbox import MAX_ROWS
from queueops_client.usage.policies import NEAR, Amount, Policy
from queueops_client.usage.report import Report, report
from queueops_client.usage.tracker import CLOSE_SECONDS, GATHER_SECONDS, OTHERS_SECONDS

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class AsyncUse:
    """The result of `AsyncUsageTracker.use`: `async with` begins the use and writes down how it ended."""

    def __init__(self, tracker: AsyncUsageTracker, usage: Usage) -> None:
        self._tracker = tracker
        self._usage = usage

    async def __aenter__(self) -> Usage:
        await self._tracker.begin(self._usage)
        return self._usage

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._tracker.finish(self._usage, self._usage.taken(failed=kind is not None))


class AsyncUsageTracker:
    """
    Counts the uses of an allowance; belongs to the event loop that it is first used on.

    Args:
        token: As for UsageTracker. The function may be asynchronous; `user_id` is then needed.

    The other arguments are those of UsageTracker.
    """

    def __init__(
        self,
        base_url: str,
        token: AsyncToken,
        *,
        user_id: UUID | str | None = None,
        path: Path | str | None = None,
        policy: Policy | str = Policy.HYBRID,
        threshold: Amount = NEAR,
        credit: Amount | None = None,
        background: bool = True,
        gather_seconds: float = GATHER_SECONDS,
        max_rows: int = MAX_ROWS,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport = AsyncTransport(base_url, token, timeout=timeout, retry=NEVER)
        self._desk = open_desk(
            base_url,
            token if isinstance(token, str) else None,
            user_id=user_id,
            path=path,
            policy=policy,
            threshold=threshold,
            credit=credit,
            max_rows=max_rows,
            clock=clock,
        )
        self._sends = background
        self._gather_seconds = gather_seconds
        self._closed = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="queueops-usage")
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def use(self, estimate: int | None = None, *, service: str = "", user_id: UUID | str | None = None) -> AsyncUse:
        """`async with tracker.use(estimate=800) as usage: ...; usage.tokens = n`; else as UsageTracker.use."""
        return AsyncUse(self, self._desk.usage(estimate=estimate, service=service, user_id=user_id))

    async def begin(self, usage: Usage) -> None:
        """As UsageTracker.begin. If this is cancelled, the use has not begun."""
        self._check()
        try:
            await self._run(self._desk.admit(usage))
        except asyncio.CancelledError:
            await self._in_worker(self._desk.finish, usage, None)
            raise

    async def finish(self, usage: Usage, tokens: int | None) -> None:
        """As UsageTracker.finish. The use is written down even if the task is cancelled meanwhile."""
        await self._in_worker(self._desk.finish, usage, tokens)
        self._wake.set()

    async def standing(self, user_id: UUID | str | None = None) -> Standing:
        """As UsageTracker.standing."""
        self._check()
        return await self._run(self._desk.standing(self._desk.user(user_id)))

    async def known(self, user_id: UUID | str | None = None) -> View | None:
        """As UsageTracker.known."""
        return await self._in_worker(self._desk.outbox.view, self._desk.user(user_id))

    async def flush(self, timeout: float | None = None) -> Flushed:  # noqa: ASYNC109 (how long to wait for others)
        """As UsageTracker.flush."""
        self._check()
        deadline = time.monotonic() + (timeout or 0.0)
        sent = rejected = 0
        while True:
            done = await self._run(self._desk.flusher.flush())
            sent, rejected = sent + done.sent, rejected + done.rejected
            if not done.pending or time.monotonic() > deadline:
                return Flushed(sent, rejected, done.pending)
            await asyncio.sleep(OTHERS_SECONDS)

    async def report(self) -> Report:
        """As UsageTracker.report."""
        return await self._in_worker(report, self._desk.outbox, self._desk.clock, self._desk.flusher.pace)

    async def resolve(self, event_id: UUID | str, *, tokens: int | None) -> bool:
        """As UsageTracker.resolve."""
        done = await self._in_worker(self._desk.resolve, event_id, tokens)
        self._wake.set()
        return done

    async def retry_rejected(self) -> int:
        """As UsageTracker.retry_rejected."""
        count = await self._in_worker(self._desk.outbox.retry_rejected)
        self._wake.set()
        return count

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:  # noqa: ASYNC109 (as UsageTracker.close)
        """As UsageTracker.close."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        self._wake.set()
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(timeout):
                if self._task is not None:
                    await asyncio.wait({self._task})  # otherwise the rows that it is sending would be sent twice
                await self._run(self._desk.flusher.flush())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._transport.close()
        await self._in_worker(self._desk.outbox.close)

    def _check(self) -> None:
        if self._closed:
            raise TrackerClosed("The tracker was closed.")
        if self._sends and self._task is None:
            self._task = asyncio.create_task(self._send_for_ever())

    async def _run(self, steps: Steps[Value]) -> Value:
        """Carry out all steps; the code between requests uses the file, so it runs in the worker thread."""
        try:
            step, end = await self._in_worker(_next, steps, None)
            while end is None:
                step, end = await self._in_worker(_next, steps, await self._transport.take(step))
            return end.value
        finally:
            await self._in_worker(steps.close)

    async def _send_for_ever(self) -> None:
        steps = self._desk.flusher.keep_flushing(every_seconds=self._gather_seconds)
        try:
            outcome = None
            while True:
                step, _ = await self._in_worker(_next, steps, outcome)
                outcome = None
                if isinstance(step, Idle):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), step.seconds)
                    self._wake.clear()
                elif isinstance(step, Pause):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), step.seconds)
                else:
                    outcome = await self._transport.take(step)
                    continue
                if self._stop.is_set():
                    return
        finally:
            await self._in_worker(steps.close)

    async def _in_worker(
        self, work: Callable[Arguments, Value], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Value:
        """Finish a short piece of work even if cancelled meanwhile: the work may be writing a row."""
        running = asyncio.get_running_loop().run_in_executor(self._worker, lambda: work(*args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            raise

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class End(Generic[Value]):
    value: Value


def _next(steps: Steps[Value], outcome: Any) -> tuple[Any, End[Value] | None]:
    """Return the next step, or what the steps return: StopIteration cannot leave a thread."""
    try:
        return resumed(steps, outcome), None
    except StopIteration as end:
        return None, End(end.value)
