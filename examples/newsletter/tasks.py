"""Tasks of a Django app: functions that run as durable jobs."""

from __future__ import annotations

from jobs.django_tasks import task


@task(repeatable=True)
def write_letter(subscriber: str, issue: int) -> str:
    """Write the letter of one subscriber; a real one would send it."""
    return f"Dear {subscriber}, this is issue {issue}."
