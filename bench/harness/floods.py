"""Backlogs that compete with other jobs."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import connection, transaction

from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import Project

from .seeding import PROJECT, noop_lines, one_project


def old_flood(count: int, *, aged_seconds: float, held_seconds: float) -> None:
    """Make a project's normal jobs that have waited for `aged_seconds`; each will occupy a slot for `held_seconds`."""
    one_project()
    largest = settings.QUEUEOPS.max_batch_jobs
    for begun in range(0, count, largest):
        submit_batch(_holding_lines(min(largest, count - begun), held_seconds), project_id=PROJECT, actor="bench")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # without the trigger that guards jobs
        cursor.execute(
            "UPDATE jobs_job SET eligible_since = eligible_since - %(age)s * interval '1 second'",
            {"age": aged_seconds},
        )


def many_projects(count: int, *, jobs: int) -> None:
    """Make a number of projects, each with a number of no-op jobs."""
    names = [f"project-{number}" for number in range(count)]
    Project.objects.bulk_create(Project(pk=name, name=name, guard_percent=0) for name in names)
    for name in names:
        submit_batch(noop_lines(jobs), project_id=name, actor="bench")


def _holding_lines(count: int, seconds: float) -> Iterator[bytes]:
    for _ in range(count):
        yield b'{"kind": "bench.hold", "payload": {"seconds": %.3f}}' % seconds
