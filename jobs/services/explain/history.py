"""A job's past: its log, and what its dead letter kept when days of the log were deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings

from jobs.models import DeadLetter, Job, JobEvent


@dataclass(frozen=True, slots=True)
class History:
    """
    Attributes:
        events: The oldest event first.
        pruned: What is missing because the log's days were deleted, in words for people; empty: nothing.
    """

    events: Sequence[JobEvent]
    pruned: str = ""


def read_history(job: Job, *, most: int) -> History:
    """Return the oldest `most` events of a job, from the log and from what its dead letter kept of it."""
    logged = list(JobEvent.objects.filter(job_id=job.pk).order_by("id")[:most])
    if logged and logged[0].from_status is None and logged[0].to_status is not None:
        return History(logged)
    days = settings.QUEUEOPS.retention_days
    timeline = DeadLetter.objects.filter(job=job).values_list("timeline", flat=True).first()
    if timeline is None:
        return History(logged, f"What was logged more than {days} days ago is deleted.")
    known = {event.pk for event in logged}
    kept = [_event(job, **line) for line in timeline["events"] if line["id"] not in known]
    left_out = timeline["logged"] - len(timeline["events"])
    without = f" {left_out:,} more were left out: progress, and all but the newest 300." if left_out else ""
    return History(
        [*kept, *logged][:most],
        f"Days of the log are deleted after {days} days; the first {len(kept):,} lines are those that its dead letter"
        f" kept.{without}",
    )


def _event(job: Job, *, created_at: str, **columns: object) -> JobEvent:
    of_job = {"job_id": job.pk, "project_id": job.project_id, "user_id": job.user_id, "batch_id": job.batch_id}
    return JobEvent(**of_job, **columns, created_at=datetime.fromisoformat(created_at).astimezone(UTC))
