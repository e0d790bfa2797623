"""The producer's client for asyncio. `QueueOps` says what its methods do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from queueops_client.calls import AnyBatch, Calls, Id, Letters, Subject, Target
from queueops_client.line import AsyncLine
from queueops_client.records import Batch, DeadLetter, Job, Moved, Operation, Paused, Project, Result, SubmittedBatch
from queueops_client.retry import Retry
from queueops_client.specs import AnyJob, JobOptions, JobSpec, Spool
from queueops_client.transport import DEFAULT_TIMEOUT_SECONDS, AsyncToken, AsyncTransport
from queueops_client.watching import PATIENCE_SECONDS, Update, watch_of

OTHERS_TURN_JOBS = 500  # read in one go before other tasks have their turn

Priority = Literal["urgent", "normal", "low"]


class AsyncQueueOps:
    """
    As QueueOps, awaited; lists, results and updates by `async for`. Belongs to the event loop it is first used on.

    Args:
        key: A producer key or a user's token, or a function, asynchronous or not, that returns one.
    """

    def __init__(
        self, base_url: str, key: AsyncToken, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, retry: Retry | None = None
    ) -> None:
        self.transport = AsyncTransport(base_url, key, timeout=timeout, retry=retry)
        self._calls = Calls(self.transport.retry)
        self._run = self.transport.run
        self._iterate = self.transport.iterate

    # Submitting

    async def submit(self, kind: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Job:
        return await self._run(self._calls.submit(JobSpec(kind=kind, payload=payload or {}, **options)))

    async def submit_many(
        self,
        jobs: Iterable[AnyJob] | AsyncIterable[AnyJob],
        *,
        name: str = "",
        partial: bool = False,
        start_interval_seconds: float = 0.0,
        idempotency_key: str | None = None,
    ) -> SubmittedBatch:
        with Spool() as spool:
            if isinstance(jobs, AsyncIterable):
                async for job in jobs:
                    spool.add(job)
            else:
                for number, job in enumerate(jobs):
                    spool.add(job)
                    if number % OTHERS_TURN_JOBS == 0:
                        await asyncio.sleep(0)
            return await self._run(
                self._calls.submit_batch(
                    spool,
                    name=name,
                    partial=partial,
                    start_interval_seconds=start_interval_seconds,
                    idempotency_key=idempotency_key,
                )
            )

    # Looking

    async def job(self, job: Id | Job) -> Job:
        return await self._run(self._calls.job(job))

    async def batch(self, batch: Id | AnyBatch) -> Batch:
        return await self._run(self._calls.batch(batch))

    async def operation(self, operation: Id | Operation) -> Operation:
        return await self._run(self._calls.operation(operation))

    async def find(self, target: Target) -> Subject:
        return await self._run(self._calls.subject(target))

    async def project(self) -> Project:
        return await self._run(self._calls.project())

    async def handlers(self) -> list[dict[str, Any]]:
        return await self._run(self._calls.handlers())

    def jobs(self, **filters: Any) -> AsyncIterator[Job]:
        return self._iterate(self._calls.jobs(filters))

    def batches(self, **filters: Any) -> AsyncIterator[Batch]:
        return self._iterate(self._calls.batches(filters))

    def dead_letters(self, **filters: Any) -> AsyncIterator[DeadLetter]:
        return self._iterate(self._calls.dead_letters(filters))

    def results(self, batch: Id | AnyBatch) -> AsyncIterator[Result]:
        return self._iterate(self._calls.results(batch))

    # Waiting

    async def watch(
        self,
        target: Target,
        *,
        timeout: float | None = None,
        events: bool = True,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> AsyncIterator[Update]:
        line = AsyncLine()
        watch = watch_of(self.transport, line, timeout=timeout, events=events, patience_seconds=patience_seconds)
        try:
            async for update in self._iterate(watch.follow(target)):
                yield update
        finally:
            await line.close()

    @overload
    async def wait(self, target: Job, timeout: float | None = None) -> Job: ...
    @overload
    async def wait(self, target: AnyBatch, timeout: float | None = None) -> Batch: ...
    @overload
    async def wait(self, target: Operation, timeout: float | None = None) -> Operation: ...
    @overload
    async def wait(self, target: Id, timeout: float | None = None) -> Job | Batch: ...
    async def wait(self, target: Target, timeout: float | None = None) -> Subject:
        async for update in self.watch(target, timeout=timeout, events=False):
            latest = update.subject
        return latest

    # Steering

    async def cancel_job(self, job: Id | Job, *, reason: str = "") -> Job:
        return await self._run(self._calls.cancel_job(job, reason))

    async def cancel_jobs(self, jobs: Iterable[Id | Job], *, reason: str = "") -> Moved:
        return await self._run(self._calls.cancel_jobs(jobs, reason))

    async def retry_job(
        self,
        job: Id | Job,
        *,
        payload: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        note: str = "",
    ) -> Job:
        return await self._run(self._calls.retry_job(job, payload=payload, priority=priority, note=note))

    async def cancel_batch(self, batch: Id | AnyBatch, *, reason: str = "") -> Operation:
        return await self._run(self._calls.cancel_batch(batch, reason))

    async def retry_batch(
        self, batch: Id | AnyBatch, *, priority: Priority | None = None, spread_seconds: float = 0.0, note: str = ""
    ) -> Operation:
        return await self._run(
            self._calls.retry_batch(batch, priority=priority, spread_seconds=spread_seconds, note=note)
        )

    async def pause_batch(self, batch: Id | AnyBatch, *, reason: str = "") -> Paused:
        return await self._run(self._calls.pause_batch(batch, reason))

    async def resume_batch(self, batch: Id | AnyBatch, *, reason: str = "") -> Paused:
        return await self._run(self._calls.resume_batch(batch, reason))

    async def pause_project(self, *, reason: str = "") -> Paused:
        return await self._run(self._calls.pause_project(reason))

    async def resume_project(self, *, reason: str = "") -> Paused:
        return await self._run(self._calls.resume_project(reason))

    async def requeue(
        self,
        letters: Letters,
        *,
        payload: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        spread_seconds: float = 0.0,
        note: str = "",
    ) -> Moved:
        return await self._run(
            self._calls.requeue(letters, payload=payload, priority=priority, spread_seconds=spread_seconds, note=note)
        )

    async def requeue_where(
        self,
        where: Mapping[str, Any],
        *,
        payload: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        spread_seconds: float = 0.0,
        note: str = "",
    ) -> Operation:
        return await self._run(
            self._calls.requeue_where(
                where, payload=payload, priority=priority, spread_seconds=spread_seconds, note=note
            )
        )

    async def discard(self, letters: Letters, *, reason: str) -> Moved:
        return await self._run(self._calls.discard(letters, reason=reason))

    async def discard_where(self, where: Mapping[str, Any], *, reason: str) -> Operation:
        return await self._run(self._calls.discard_where(where, reason=reason))

    async def close(self) -> None:
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
