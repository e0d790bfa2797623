"""Tasks as an application has them."""

import os
import signal
from pathlib import Path
from typing import Any

from django.db import transaction

from jobs.django_tasks import task
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import RunningJob
from jobs.models import Batch
from jobs.task_framework import TaskContext
from queueops.tenancy.models import Project


@task()
def add(left: int, right: int) -> int:
    return left + right


@task(priority=7, queue_name="mail")
async def shout(text: str, *, mark: str = "!") -> str:
    return text.upper() + mark


@task(takes_context=True, repeatable=True)
def succeed_at(context: TaskContext, attempt: int) -> dict[str, object]:
    if context.attempt < attempt:
        raise LookupError(f"attempt {context.attempt}")
    return {"attempt": context.attempt, "id": context.task_result.id}


@task()
def fail(text: str) -> None:
    raise LookupError(text)


@task(repeatable=True)
def know_better() -> None:
    raise ProviderError(503, "closed for good", code="closed", outcome="answered", repeat=False)


@task()
def return_something_else() -> object:
    return object()


@task()
async def count_projects() -> int:
    return await Project.objects.acount()


@task(timeout_seconds=0.2)
async def never_end() -> None:
    import asyncio

    await asyncio.Event().wait()


@task(in_one_commit=True)
def book(name: str) -> str:
    """Its effect is one batch of that name. It kills its process where it is told to, the first time."""
    die_at("begun")
    Batch.objects.create(project_id="tasks", name=name, submitted_by="tasks:book")
    die_at("written")
    transaction.on_commit(lambda: die_at("committed"))
    if name == "bad":
        raise LookupError(name)
    return name


def die_at(place: str) -> None:
    marker = Path(os.environ.get("DIES_ONCE", "/"))
    if os.environ.get("DIES_AT") == place and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get("DIES_AT") == "completed":
    completes = RunningJob.complete

    def complete(self: RunningJob[Any], result: Any = None) -> None:
        completes(self, result)
        die_at("completed")

    RunningJob.complete = complete  # type: ignore[method-assign]


def no_task() -> None:
    """Nobody may run this."""
