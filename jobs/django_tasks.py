"""
A backend for `django.tasks`: `@task` functions run as jobs of one project.

    TASKS = {"default": {"BACKEND": "jobs.django_tasks.QueueOpsBackend", "OPTIONS": {"project": "tasks"}}}

The handler that carries them out is jobs/handlers/django_task.py; docs/how-to/django-tasks.md is for users.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured, ValidationError

from jobs import task_framework
from jobs.features.results.read import whole_result
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import RUNNING, TERMINAL, WAITING, EventType, JobState, Priority
from jobs.task_framework import (
    BaseTaskBackend,
    InvalidTaskError,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from queueops.tenancy.models import Project, project_id_rule
from queueops.tenancy.secrets.encryption import CannotRead

KIND = "django.task"
OPTIONS = frozenset({"project", "repeatable", "in_one_commit"})

STATUSES = {
    **dict.fromkeys(WAITING, TaskResultStatus.READY),
    **dict.fromkeys(RUNNING, TaskResultStatus.RUNNING),
    **dict.fromkeys(TERMINAL, TaskResultStatus.FAILED),
    JobState.COMPLETED: TaskResultStatus.SUCCESSFUL,
}


class TaskNotFinished(Exception):
    """The error in the result of a task that ended without an exception of its own: cancelled, crashed or expired."""


if TYPE_CHECKING:
    AnyTask = Task[..., Any]
else:
    AnyTask = Task  # Django's own is not generic


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOpsTask(AnyTask):
    """
    A task with the attributes that a queue needs beyond django.tasks; each is a keyword of this module's `@task`.

    Attributes:
        repeatable: Running it twice does no harm. Only such a task is run again after it failed or its
            worker died.
        in_one_commit: Its writes to the default database and its completion are one commit, so that its effect happens
            exactly once. It must be synchronous. It is run again like a repeatable task, as a run that does not
            complete it leaves nothing behind.
        retry_policy: Name of the RetryPolicy of a repeatable task; None: `moderate`.
        timeout_seconds: Time limit of one run; at most MAX_TASK_SECONDS of the handler.
    """

    repeatable: bool = False
    in_one_commit: bool = False
    retry_policy: str | None = None
    timeout_seconds: float = 300.0


@overload
def task(function: Callable[..., Any], /) -> QueueOpsTask: ...


@overload
def task(
    *,
    repeatable: bool = ...,
    in_one_commit: bool = ...,
    retry_policy: str | None = ...,
    timeout_seconds: float = ...,
    **options: Any,
) -> Callable[[Callable[..., Any]], QueueOpsTask]: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    repeatable: bool = False,
    in_one_commit: bool = False,
    retry_policy: str | None = None,
    timeout_seconds: float = 300.0,
    **options: Any,
) -> QueueOpsTask | Callable[[Callable[..., Any]], QueueOpsTask]:
    """
    Decorate a function like `@task` of django.tasks, which from Django 6.0 on takes no keywords of a backend.

    Args:
        function: The function, if the decorator is used without brackets.
        repeatable, in_one_commit, retry_policy, timeout_seconds: See `QueueOpsTask`.
        options: Keywords of django.tasks: `priority`, `queue_name`, `backend`, `takes_context`.
    """

    def decorate(function: Callable[..., Any]) -> QueueOpsTask:
        made: QueueOpsTask = task_framework.task(**options)(function)
        return replace(
            made,
            repeatable=repeatable,
            in_one_commit=in_one_commit,
            retry_policy=retry_policy,
            timeout_seconds=timeout_seconds,
        )

    return decorate if function is None else decorate(function)


class QueueOpsBackend(BaseTaskBackend):
    """
    Runs tasks as jobs of one project.

    Options: `project`: the project of the jobs, made at the first use. `repeatable`: dotted paths of tasks that may
    run twice, for tasks of other people's apps. `in_one_commit`: dotted paths of tasks whose effect and completion are
    one commit.
    """

    task_class = QueueOpsTask  # type: ignore[assignment]  # declared as the generic class itself
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.project: str = self.options.get("project", "")
        self.repeatable = self.options.get("repeatable", ())
        self.in_one_commit = self.options.get("in_one_commit", ())

    def is_repeatable(self, task: Task[..., Any]) -> bool:
        """Whether a task may run twice. A task in one commit may, as an incomplete run leaves nothing behind."""
        told = getattr(task, "repeatable", False) or task.module_path in self.repeatable
        return told or self.is_in_one_commit(task)

    def is_in_one_commit(self, task: Task[..., Any]) -> bool:
        return getattr(task, "in_one_commit", False) or task.module_path in self.in_one_commit

    def validate_task(self, task: Task[..., Any]) -> None:
        """
        Raises:
            InvalidTaskError: This backend cannot run the task as it is declared.
        """
        super().validate_task(task)
        if self.is_in_one_commit(task) and iscoroutinefunction(task.func):
            raise InvalidTaskError(f"{task.module_path} is async; one commit needs a synchronous task.")

    def enqueue(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """
        Store the task as a job. In a transaction of the caller, the job exists only if that transaction commits.

        Raises:
            InvalidTaskError: This backend cannot run the task as it is declared.
            TypeError, ValueError: The arguments cannot be written as JSON.
            QueueOpsError: Nothing was stored; see `submit_job`.
        """
        self.validate_task(task)
        result: TaskResult[Any] = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        spec = JobSpec(
            kind=KIND,
            payload={
                "task": task.module_path,
                "args": result.args,
                "kwargs": result.kwargs,
                "queue": task.queue_name,
                "backend": self.alias,
            },
            priority=priority_of(task.priority),
            scheduled_at=task.run_after,
            retry_policy=getattr(task, "retry_policy", None),
        )
        project, _ = Project.objects.get_or_create(pk=self._checked_project(), defaults={"name": "Tasks"})
        job_id = submit_job(spec, project_id=project.pk, actor=f"tasks:{self.alias}").id
        object.__setattr__(result, "id", str(job_id))
        created_at = Job.objects.values_list("created_at", flat=True).get(pk=job_id)
        object.__setattr__(result, "enqueued_at", created_at)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """
        Read the result of a task's job. If the job was requeued from the dead letters, read its latest requeue.

        Raises:
            TaskResultDoesNotExist: This backend has no such job, or retention has deleted it.
            CannotRead: The payload or result is encrypted, and this process lacks the key.
            ResultMissing, StoreError: The result is in the result store, which has lost it or does not answer.
        """
        job = self._job(result_id)
        while letter := DeadLetter.objects.filter(job=job).select_related("requeued_as").first():
            if letter.requeued_as is None:
                break
            job = letter.requeued_as
        task = find_task(job.payload["task"])
        status = JobState(job.status)
        events = list(
            JobEvent.objects.filter(
                job_id=job.pk, created_at__gte=job.created_at, event_type=EventType.STATE_CHANGE
            ).order_by("id")
        )
        result: TaskResult[Any] = TaskResult(
            task=task.using(queue_name=job.payload["queue"], backend=self.alias),
            id=result_id,
            status=STATUSES[status],
            enqueued_at=job.created_at,
            started_at=job.first_attempt_at,
            finished_at=job.finished_at,
            last_attempted_at=job.started_at,
            args=job.payload["args"],
            kwargs=job.payload["kwargs"],
            backend=self.alias,
            errors=_errors(job, events),
            worker_ids=_workers(events),
        )
        object.__setattr__(result, "_return_value", whole_result(job))
        return result

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """System checks of TASKS[alias]."""
        where = f"TASKS[{self.alias!r}]['OPTIONS']"
        try:
            project_id_rule(self.project)
        except ValidationError as error:
            hint = " ".join(error.messages)
            yield checks.Error(f"{where}['project'] must name a project.", hint=hint, id="jobs.E001")
        if unknown := sorted(set(self.options) - OPTIONS):
            yield checks.Error(f"{where} has no option {', '.join(unknown)}.", id="jobs.E002")
        for option in ("repeatable", "in_one_commit"):
            paths = getattr(self, option)
            if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
                yield checks.Error(f"{where}[{option!r}] must be a list of dotted paths.", id="jobs.E003")

    def _checked_project(self) -> str:
        try:
            project_id_rule(self.project)
        except ValidationError as error:
            raise ImproperlyConfigured(
                f"TASKS[{self.alias!r}]['OPTIONS']['project'] must name a project: {' '.join(error.messages)}"
            ) from None
        return self.project

    def _job(self, result_id: str) -> Job:
        try:
            job = Job.objects.of_project(self.project).get(pk=UUID(result_id), kind=KIND)
        except (ValueError, Job.DoesNotExist):
            raise TaskResultDoesNotExist(result_id) from None
        if not isinstance(job.payload, dict):  # encrypted with a key that is not set here
            raise CannotRead
        if job.payload.get("backend") != self.alias:
            raise TaskResultDoesNotExist(result_id)
        return job


def priority_of(number: int) -> Priority:
    """The tier of a django.tasks priority: above 0 urgent, 0 normal, below 0 low."""
    if number == 0:
        return Priority.NORMAL
    return Priority.URGENT if number > 0 else Priority.LOW


def find_task(path: str) -> Task[..., Any]:
    """
    Return the task of a dotted path.

    The path may come from anybody who can submit jobs, and importing runs code. Only the module `tasks` of an installed
    app, and modules below it, are therefore imported.

    Raises:
        ValueError: The path does not lead to a task of a QueueOpsBackend.
    """
    module_name, _, name = path.rpartition(".")
    module = sys.modules.get(module_name)
    homes = {f"{app.name}.tasks" for app in apps.get_app_configs()}
    if module is None and any(f"{module_name}.".startswith(f"{home}.") for home in homes):
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ValueError(f"{path!r} cannot be imported: {error}") from None
    task = getattr(module, name, None)
    if not isinstance(task, Task) or task.module_path != path:
        raise ValueError(f"{path!r} is not a task, or its app is not installed")
    backend_of(task.backend)
    return task


def backend_of(alias: str) -> QueueOpsBackend:
    """
    Return the backend of an alias.

    Raises:
        ValueError: TASKS has no backend of that name, or the backend is not a QueueOpsBackend.
    """
    backend = task_backends[alias] if alias in task_backends.settings else None
    if isinstance(backend, QueueOpsBackend):
        return backend
    raise ValueError(f"TASKS has no QueueOpsBackend {alias!r}")


def _workers(events: Iterable[JobEvent]) -> list[str]:
    """The executor of each attempt."""
    found = []
    executor = ""
    for event in events:
        if event.to_status == JobState.DISPATCHED:
            executor = str((event.data or {}).get("executor", ""))
        elif event.to_status == JobState.IN_PROGRESS:
            found.append(executor)
    return found


def _errors(job: Job, events: Iterable[JobEvent]) -> list[TaskError]:
    """Return an error for each failed attempt, and one if the job was cancelled or failed without an attempt."""
    errors = []
    for event in events:
        facts = event.data or {}
        ended_badly = event.to_status in {JobState.FAILED, JobState.CANCELLED}
        if not ended_badly and not (event.from_status in RUNNING and "error_class" in facts):
            continue
        details = facts.get("details", {})
        known = facts.get("error_class") == "TimeoutError"
        errors.append(
            TaskError(
                exception_class_path=details.get("exception_class")
                or ("builtins.TimeoutError" if known else f"{__name__}.{TaskNotFinished.__qualname__}"),
                traceback=facts.get("traceback") or event.message or job.last_error_message,
            )
        )
    return errors
