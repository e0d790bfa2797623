"""Rebuilds a job's row from the job's events alone, to compare it with the stored row. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from jobs.states import TERMINAL, EventType, JobState


class FoldableEvent(Protocol):
    """The columns of JobEvent that tell of a change."""

    @property
    def event_type(self) -> str: ...
    @property
    def to_status(self) -> str | None: ...
    @property
    def message(self) -> str: ...
    @property
    def progress_percent(self) -> int | None: ...
    @property
    def data(self) -> Any: ...
    @property
    def created_at(self) -> datetime: ...


@dataclass(slots=True)
class FoldedJob:
    """The columns of a job's row that its events determine. Payload and result are not among them."""

    status: str = ""
    retry_count: int = 0
    crash_count: int = 0
    deferral_count: int = 0
    fallback_step: int = 0
    scheduled_at: datetime | None = None
    progress: int = 0
    progress_message: str = ""
    last_error_code: str = ""
    last_error_message: str = ""
    created_at: datetime | None = None
    first_attempt_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


def fold(events: Iterable[FoldableEvent]) -> FoldedJob:
    """
    Rebuild a job from its events.

    Args:
        events: All events of one job, by id. Each is written under the row's lock, so this is the order of the changes.
    """
    job = FoldedJob()
    has_part = False
    for event in events:
        data = event.data or {}
        has_part |= "has_part" in data
        if event.event_type == EventType.STATE_CHANGE:
            _move(job, event, data, begins_anew=not has_part)
        elif event.event_type == EventType.PROGRESS:
            job.progress = event.progress_percent or 0
            job.progress_message = event.message
        elif event.event_type == EventType.ERROR:
            job.crash_count = data.get("crash_count", job.crash_count)  # the job blocked its worker's event loop
        elif event.event_type == EventType.SCHEDULING and "scheduled_at" in data:
            job.scheduled_at = _time(data["scheduled_at"])
        elif event.event_type == EventType.SCHEDULING:
            job.fallback_step = data.get("fallback_step", job.fallback_step)
    return job


def _move(job: FoldedJob, event: FoldableEvent, data: dict[str, Any], *, begins_anew: bool) -> None:
    job.status = JobState(event.to_status or "").value
    job.created_at = job.created_at or event.created_at
    job.scheduled_at = _time(data.get("scheduled_at"))
    job.retry_count = data.get("retry_count", job.retry_count)
    job.crash_count = data.get("crash_count", job.crash_count)
    job.deferral_count = data.get("deferral_count", job.deferral_count)
    if "error_code" in data:
        job.last_error_code = data["error_code"]
        job.last_error_message = data.get("error_message", "")
    if job.status == JobState.IN_PROGRESS:
        job.started_at = event.created_at
        job.first_attempt_at = job.first_attempt_at or event.created_at
        if begins_anew:
            job.progress, job.progress_message = 0, ""
    elif job.status == JobState.COMPLETED:
        job.progress = 100
    if job.status in TERMINAL:
        job.finished_at = event.created_at


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
