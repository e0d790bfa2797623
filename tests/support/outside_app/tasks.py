"""Tasks that know nothing of QueueOps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django

if TYPE_CHECKING or django.VERSION < (6, 0):
    from django_tasks import task
else:
    from django.tasks import task


@task(priority=10, queue_name="mail")
def add(left: int, right: int = 0) -> int:
    return left + right


@task()
def fail() -> None:
    raise ValueError("there is no such invoice")
