"""`django.task`: runs a `@task` function; jobs/django_tasks.py is the backend that submits them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections, transaction
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from jobs.django_tasks import KIND, QueueOpsBackend, backend_of, find_task
from jobs.handlers.errors import ProviderError, time_limit, words_of
from jobs.handlers.registry import Done, NotOurs, RunningJob, handler, on_close
from jobs.task_framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

MAX_TASK_SECONDS = 6 * 3600.0

_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


class DjangoTask(BaseModel):
    """A call of one task function. Only functions decorated with `@task` in an installed app are accepted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str = Field(max_length=500, description="Dotted path of the function.")
    args: list[JsonValue] = Field(default_factory=list)
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    queue: str = Field(default="default", max_length=50, description="Pause it as the service `task:<queue>`.")
    backend: str = Field(default="default", max_length=100, description="Its alias in the setting TASKS.")

    @model_validator(mode="after")
    def _is_a_task(self) -> DjangoTask:
        backend_of(self.backend)
        find_task(self.task)
        return self


@handler(
    kind=KIND,
    service=lambda payload: f"task:{payload.queue}"[:64],
    payload=DjangoTask,
    only_in=lambda payload: backend_of(payload.backend).project,
    idempotent=lambda payload: backend_of(payload.backend).is_repeatable(find_task(payload.task)),
    timeout=timedelta(seconds=MAX_TASK_SECONDS),
    retry="moderate",
    calls_out=False,
)
async def run_task(job: RunningJob[DjangoTask]) -> Done:
    """Run a function decorated with django.tasks' `@task`, async or not."""
    backend, task = backend_of(job.payload.backend), find_task(job.payload.task)
    if backend.project != job.project:
        raise ProviderError(
            None,
            f"Tasks of the backend {backend.alias!r} run in the project {backend.project!r} only.",
            code="project_refused",
            outcome="refused",
        )
    seconds = min(getattr(task, "timeout_seconds", MAX_TASK_SECONDS), MAX_TASK_SECONDS)
    async with time_limit(seconds):
        if iscoroutinefunction(task.func):
            return await _run_async(job, backend, task)
        return await asyncio.get_running_loop().run_in_executor(_pool(), _run_sync, job, backend, task)


@on_close
async def close() -> None:
    """Shut down the thread pool of synchronous tasks, without waiting for its threads."""
    pool = _threads.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        pool.shutdown(wait=False, cancel_futures=True)


def _pool() -> ThreadPoolExecutor:
    # As many threads as slots: asyncio's own pool has only a few, and slow tasks would block the others.
    loop = asyncio.get_running_loop()
    if loop not in _threads:
        _threads[loop] = ThreadPoolExecutor(settings.QUEUEOPS.executor_slots, thread_name_prefix="task")
    return _threads[loop]


def _run_sync(job: RunningJob[DjangoTask], backend: QueueOpsBackend, task: Task[..., Any]) -> Done:
    close_old_connections()
    try:
        result = _begin(job, backend)
        try:
            if backend.is_in_one_commit(task):
                with transaction.atomic(durable=True):
                    value = normalize_json(task.func(*_arguments(result), **result.kwargs))
                    job.complete(value)
            else:
                value = normalize_json(task.func(*_arguments(result), **result.kwargs))
        except NotOurs:
            raise
        except Exception as error:
            raise _failed(result, error) from error
        return _succeeded(result, value)
    finally:
        close_old_connections()


async def _run_async(job: RunningJob[DjangoTask], backend: QueueOpsBackend, task: Task[..., Any]) -> Done:
    await sync_to_async(close_old_connections)()
    try:
        result = await sync_to_async(_begin)(job, backend)
        try:
            value = normalize_json(await task.func(*_arguments(result), **result.kwargs))
        except Exception as error:
            raise await sync_to_async(_failed)(result, error) from error
        return await sync_to_async(_succeeded)(result, value)
    finally:
        await sync_to_async(close_old_connections)()


def _begin(job: RunningJob[DjangoTask], backend: QueueOpsBackend) -> TaskResult[Any]:
    result = backend.get_result(str(job.id))
    task_started.send(type(backend), task_result=result)
    return result


def _arguments(result: TaskResult[Any]) -> list[Any]:
    if result.task.takes_context:
        return [TaskContext(task_result=result), *result.args]
    return result.args


def _succeeded(result: TaskResult[Any], value: Any) -> Done:
    object.__setattr__(result, "_return_value", value)
    _end(result, TaskResultStatus.SUCCESSFUL)
    return Done(value)


def _failed(result: TaskResult[Any], error: Exception) -> ProviderError:
    """Send `task_finished`; return an error that names the exception's class, to be raised from the exception."""
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(error))))
    _end(result, TaskResultStatus.FAILED)
    details = {"exception_class": path}
    if isinstance(error, ProviderError):
        return ProviderError(
            error.status,
            error.message,
            code=error.code,
            retry_after=error.retry_after,
            outcome=error.outcome,
            details={**error.details, **details},
            push_back=error.push_back,
            repeat=error.repeat,
            used=error.used,
        )
    return ProviderError(None, words_of(error), code="task_error", outcome="unknown", details=details)


def _end(result: TaskResult[Any], status: TaskResultStatus) -> None:
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "status", status)
    task_finished.send(QueueOpsBackend, task_result=result)
