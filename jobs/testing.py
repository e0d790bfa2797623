"""For tests of handlers: run a handler without a database, or let real executors empty the queue."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pydantic_core
from django.conf import settings
from django.db import connection
from django.db.models import Case, Exists, F, Min, OuterRef, Q, When
from django.db.models.functions import Coalesce

from jobs.executor.inline import InlineEventLoop, InlinePump, end_commit, kept_open
from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.handlers.registry import (
    Continue,
    Done,
    EndedBatch,
    Handler,
    RunningJob,
    check_answer,
    close_handlers,
    find_handler,
)
from jobs.models import Job, new_id
from jobs.states import GuardState, JobState
from queueops.core.clock import Now, TransactionNow
from queueops.tenancy.secrets.credentials import OpenCredential

POLL_SECONDS = 0.02
BUSY_AT_LEAST_SECONDS = 5.0  # jobs that are due are still carried out for so long after the deadline
_LIMITED = Q(status=JobState.RATE_LIMITED) | Q(lane__isnull=False)


class StillUnfinished(AssertionError):
    """`drain` gave up: jobs that should have ended have not ended."""


def run_handler(
    kind: str,
    payload: Any,
    *,
    project: str = "test",
    user_id: UUID | None = None,
    effect_key: str = "",
    attempt: int = 1,
    on_progress: Callable[[int, str], None] = lambda percent, message: None,
    credential: OpenCredential | None = None,
    ended_batch: EndedBatch | None = None,
) -> Done:
    """
    Run one handler at once, as an executor would, without a database unless the handler uses it.

    The payload goes through JSON and the handler's schema, the handler has its time limit, and the result must be
    JSON-able. A handler that returns Continue runs again until it is done; a handler that coalesces gets a group of
    this one job. Use `arun_handler` where an event loop runs already.

    Args:
        payload: As a producer sends it, or an instance of the schema.
        on_progress: Called with each `job.progress(percent, message)`.
        credential, ended_batch: The values of `job.credential` and `job.ended_batch`.

    Raises:
        UnknownKind: The module that registers the handler was not imported.
        pydantic.ValidationError: The payload does not fit the handler's schema.
        TimeoutError: An async handler took longer than its time limit.
        Exception: Whatever the handler raises, such as ProviderError.
    """
    handler, job = _prepare(
        kind,
        payload,
        project=project,
        user_id=user_id,
        effect_key=effect_key,
        attempt=attempt,
        on_progress=on_progress,
        credential=credential,
        ended_batch=ended_batch,
    )
    if handler.is_async:
        return asyncio.run(_closing(handler, job))
    return _called(handler, job)


async def arun_handler(
    kind: str,
    payload: Any,
    *,
    project: str = "test",
    user_id: UUID | None = None,
    effect_key: str = "",
    attempt: int = 1,
    on_progress: Callable[[int, str], None] = lambda percent, message: None,
    credential: OpenCredential | None = None,
    ended_batch: EndedBatch | None = None,
) -> Done:
    """Do what `run_handler` does, on the running loop."""
    handler, job = _prepare(
        kind,
        payload,
        project=project,
        user_id=user_id,
        effect_key=effect_key,
        attempt=attempt,
        on_progress=on_progress,
        credential=credential,
        ended_batch=ended_batch,
    )
    if handler.is_async:
        return await _closing(handler, job)
    return await asyncio.to_thread(_called, handler, job)


def drain(*, seconds: float = 30.0, slots: int = 20) -> None:
    """
    Carry out queued jobs, as executors do, until every job has ended.

    Held jobs, and jobs not due within `seconds`, are left alone.

    In a test that rolls back (`@pytest.mark.django_db`), everything runs in the test's transaction and thread,
    synchronous handlers included. Retries and jobs scheduled for later do not wait: their time is brought forward.
    On-commit functions run. Batch APIs are not called, alerts are not looked for, and only the test's connection is
    used.

    In a test that commits (`transaction=True`), real executors in this process carry the jobs out, each with threads
    and connections of its own, and `drain` waits for retries.

    Args:
        slots: Jobs carried out at once.

    Raises:
        StillUnfinished: Jobs were left at the deadline; the message names them.
    """
    chosen = settings.QUEUEOPS
    options = ExecutorSettings(
        slots=slots,
        lease_seconds=chosen.lease_seconds,
        renew_seconds=chosen.renew_seconds,
        sweep_seconds=chosen.sweep_seconds,
        poll_seconds=POLL_SECONDS,
        drain_grace_seconds=5.0,
        listen=chosen.listen and not connection.in_atomic_block,
    )
    if connection.in_atomic_block:
        _drain_here(options, seconds)
        return
    # The first executor of a cluster becomes the quarantine executor, so one alone would carry out only suspects.
    executors = [ExecutorPump(options, cluster_pid=os.getpid()) for _ in range(2)]
    for executor in executors:
        executor.start()
    try:
        _wait_until_empty(seconds)
    finally:
        for executor in executors:
            executor.stop()


def _drain_here(options: ExecutorSettings, seconds: float) -> None:
    executors = [InlinePump(options, cluster_pid=os.getpid()) for _ in range(2)]
    loop = InlineEventLoop()
    with kept_open():
        try:
            for executor in executors:
                executor.begin_on(loop)
            end_commit()
            _take_turns(executors, time.monotonic() + seconds)
        finally:
            loop.finish()
            for executor in executors:
                executor.leave()


def _take_turns(executors: Sequence[InlinePump], deadline: float) -> None:
    brought_forward = 0.0
    for executor in executors:
        executor.take_turn(is_idle=True)
    while True:
        # An idle turn does the duties, which may make more jobs ready.
        is_busy = any(executor.take_turn(is_idle=is_idle) for is_idle in (False, True) for executor in executors)
        now = time.monotonic()
        if is_busy and now < deadline + BUSY_AT_LEAST_SECONDS:
            continue
        horizon = deadline - now - brought_forward
        left = _due_within(horizon)
        if not left:
            return
        if not is_busy and (step := _bring_forward(horizon)):
            brought_forward += step
        elif now < deadline and Job.objects.unfinished().filter(_LIMITED | _about_to_be_let_go()).exists():
            time.sleep(POLL_SECONDS)  # meanwhile limits refill by the clock, and the next idle turn does the duties
        else:
            raise StillUnfinished(f"{len(left)} jobs have not ended: " + "; ".join(left))


def _bring_forward(seconds: float) -> float:
    """Bring all jobs that wait for a time forward until the first is due now; return by how many seconds."""
    # now() stands still until the test's transaction ends, so by now() no job becomes due, even if its time has passed.
    Job.objects.filter(status=JobState.RATE_LIMITED, scheduled_at__lte=Now()).update(scheduled_at=TransactionNow())
    waiting = Job.objects.filter(
        status__in=[JobState.QUEUED, JobState.RETRIED],
        scheduled_at__gt=TransactionNow(),
        scheduled_at__lte=Now() + timedelta(seconds=max(0.0, seconds)),
    )
    until = waiting.aggregate(step=Min("scheduled_at") - TransactionNow())["step"]
    if until is None:
        return 0.0
    waiting.update(scheduled_at=F("scheduled_at") - until)
    return float(until.total_seconds())


def _prepare(
    kind: str,
    payload: Any,
    *,
    project: str,
    user_id: UUID | None,
    effect_key: str,
    attempt: int,
    on_progress: Callable[[int, str], None],
    credential: OpenCredential | None,
    ended_batch: EndedBatch | None,
) -> tuple[Handler, RunningJob[Any]]:
    handler = find_handler(kind)
    job_id = new_id()
    text = pydantic_core.to_json(payload, by_alias=True)
    return handler, RunningJob(
        id=job_id,
        payload=handler.schema.validate_json(text),
        payload_text=text.decode(),
        project=project,
        user_id=user_id,
        effect_key=effect_key or str(job_id),
        attempt=attempt,
        report=on_progress,
        credential=credential,
        ended_batch=ended_batch,
    )


async def _closing(handler: Handler, job: RunningJob[Any]) -> Done:
    try:
        while True:
            async with asyncio.timeout(handler.timeout.total_seconds()):
                answer = await _awaited(handler, job)
            if not _goes_on(job, answer):
                return _checked(answer)
    finally:
        await close_handlers()


async def _awaited(handler: Handler, job: RunningJob[Any]) -> Any:
    function: Any = handler.function
    if handler.coalesce is None:
        return await function(job)
    [answer] = await function([job])
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _called(handler: Handler, job: RunningJob[Any]) -> Done:
    function: Any = handler.function
    while True:
        answer = function(job)
        if not _goes_on(job, answer):
            return _checked(answer)


def _goes_on(job: RunningJob[Any], answer: Any) -> bool:
    """Return whether the handler runs again. If so, set the `partial` for its next run, through JSON as if stored."""
    if isinstance(answer, Continue):
        job.partial = pydantic_core.from_json(pydantic_core.to_json(answer.partial))
    return isinstance(answer, Continue)


def _checked(done: Any) -> Done:
    check_answer(done)
    done = done or Done()
    pydantic_core.to_json(done.result)
    return Done(done.result, done.cost, usage=done.usage)


def _wait_until_empty(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left := _due_within(deadline - time.monotonic()):
        if time.monotonic() >= deadline:
            raise StillUnfinished(f"{len(left)} jobs have not ended after {seconds:g} s: " + "; ".join(left))
        time.sleep(POLL_SECONDS)


def _about_to_be_let_go() -> Q:
    """Jobs that their batch's guard still holds, but will release, because the batch's first jobs have ended."""
    first = Job.objects.unfinished().filter(batch=OuterRef("batch"), pk__lte=OuterRef("batch__trial_until"))
    tried = Q(held=True, batch__paused=False, pk__gt=F("batch__trial_until"))
    return tried & ~Q(batch__guard_state=GuardState.STOPPED) & Q(~Exists(first))


def _due_within(seconds: float) -> list[str]:
    """
    Describe up to ten unfinished jobs that are neither held nor scheduled for later than in `seconds`.

    Jobs that a batch's guard is about to release count as well: otherwise a drain would end after the batch's first
    jobs.
    """
    # For a job that a limit holds, scheduled_at is only a forecast, so the job counts as due now.
    wished = Case(When(status=JobState.RATE_LIMITED, then=Now()), default=Coalesce("scheduled_at", Now()))
    due = Job.objects.unfinished().filter(Q(held=False) | _about_to_be_let_go()).annotate(due=wished)
    rows = due.filter(due__lte=Now() + timedelta(seconds=max(0.0, seconds))).order_by("id")
    return [
        f"{kind} {pk} is {status} {error}".strip()
        for pk, kind, status, error in rows.values_list("pk", "kind", "status", "last_error_message")[:10]
    ]
