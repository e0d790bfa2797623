"""
A backend of `django.tasks` for any Django site: the site's tasks become jobs of a QueueOps installation, over its API.

    TASKS = {"default": {"BACKEND": "queueops_client.django_tasks.QueueOpsApiBackend", "OPTIONS": {"url": …, "key": …}}}

The installation's workers run the tasks, so the app that has them must be installed there, too (QUEUEOPS_EXTRA_APPS).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from queueops_client.errors import InvalidRequest, NotFound
from queueops_client.producer import Priority, QueueOps

if TYPE_CHECKING or django.VERSION < (6, 0):
    from django_tasks import TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued
else:
    from django.tasks import TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued

KIND = "django.task"
STATUSES = {
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
    "dispatched": TaskResultStatus.RUNNING,
    "in_progress": TaskResultStatus.RUNNING,
}


class TaskNotSuccessful(Exception):
    """
    The class in a result's errors: the API returns the message of the error that ended the task, but not its class.
    """


class QueueOpsApiBackend(BaseTaskBackend):
    """
    Options: `url` and `key` of the project that the installation uses for tasks (or QUEUEOPS_URL and QUEUEOPS_KEY).
        `backend`: the alias of the backend in the installation's own TASKS, by default `default`.

    `enqueue` sends at once, even if the site's transaction is rolled back later: call it with `transaction.on_commit`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def queue(self) -> QueueOps:
        """
        Raises:
            ImproperlyConfigured
        """
        url = self.options.get("url") or os.environ.get("QUEUEOPS_URL")
        key = self.options.get("key") or os.environ.get("QUEUEOPS_KEY")
        if not url or not key:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]['OPTIONS'] must name the installation's url and a key.")
        return QueueOps(url, key)

    def enqueue(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """
        Send the task; when this returns, it is stored durably.

        Raises:
            InvalidTask, TypeError, ValueError: This backend cannot run the task so, or its arguments are no JSON.
            ClientError: The installation refused it, or does not answer.
        """
        self.validate_task(task)
        result: TaskResult[Any] = _result(task, "", self.alias, {"args": list(args), "kwargs": dict(kwargs)})
        payload = {
            "task": task.module_path,
            "args": result.args,
            "kwargs": result.kwargs,
            "queue": task.queue_name,
            "backend": self.options.get("backend", "default"),
        }
        priority: Priority = "normal" if task.priority == 0 else "urgent" if task.priority > 0 else "low"
        job = self.queue.submit(KIND, payload, priority=priority, scheduled_at=task.run_after)
        object.__setattr__(result, "id", str(job.id))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """
        Raises:
            TaskResultDoesNotExist: There is no such task, or the installation has deleted its result.
            ClientError: The installation refused, or does not answer.
        """
        try:
            job = self.queue.job(result_id)
        except (NotFound, InvalidRequest):
            raise TaskResultDoesNotExist(result_id) from None
        payload = job.payload if isinstance(job.payload, dict) else {}
        task = _task(str(payload.get("task")))
        if job.kind != KIND or task is None:
            raise TaskResultDoesNotExist(result_id)
        result = _result(task.using(queue_name=payload["queue"], backend=self.alias), result_id, self.alias, payload)
        told = job.raw
        for name, value in {
            "status": STATUSES.get(job.state or "", TaskResultStatus.READY),
            "enqueued_at": job.created_at,
            "finished_at": job.finished_at,
            "worker_ids": [""] * int(told.get("attempts") or 0),  # so many runs; the API does not name the workers
            "_return_value": self.queue.result(job) if job.state == "completed" else None,
        }.items():
            object.__setattr__(result, name, value)
        if result.status == TaskResultStatus.FAILED:
            path = f"{__name__}.{TaskNotSuccessful.__qualname__}"
            said = told.get("last_error_message") or told.get("last_error_code") or job.state
            result.errors.append(TaskError(exception_class_path=path, traceback=str(said)))
        return result


def _result(task: Task[..., Any], result_id: str, alias: str, given: Mapping[str, Any]) -> TaskResult[Any]:
    return TaskResult(
        task=task,
        id=result_id,
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=given["args"],
        kwargs=given["kwargs"],
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def _task(path: str) -> Task[..., Any] | None:
    """Return the task of a dotted path. The path is foreign, so only modules `tasks` of installed apps are imported."""
    module_name, _, name = path.rpartition(".")
    if module_name not in sys.modules and module_name in {f"{app.name}.tasks" for app in apps.get_app_configs()}:
        importlib.import_module(module_name)
    found = getattr(sys.modules.get(module_name), name, None)
    return found if isinstance(found, Task) else None
