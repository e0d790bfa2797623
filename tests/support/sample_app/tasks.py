"""Tasks as an application has them."""

from jobs.django_tasks import task
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


def no_task() -> None:
    """Nobody may run this."""
