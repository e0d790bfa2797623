"""The newest events, for people to read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from jobs.admin.masking import masked_text
from jobs.models import Job, JobEvent

from .wire import iso

MOST_SHOWN = 40
LOOKED_AT = 2000  # newest events, of which those that fit are shown
LONGEST_MESSAGE = 300


def newest_events(
    *, project: str = "", service: str = "", state: str = "", user_id: UUID | None = None, most: int = MOST_SHOWN
) -> list[dict[str, Any]]:
    """
    Return events as the live protocol has them, with their job's service and kind, the newest first.

    Args:
        project, service, state: Only events of these; those that fit are looked for among the newest.
        user_id: Of one producer's user.
    """
    newest = JobEvent.objects.order_by("-id")
    looked_at = LOOKED_AT if project or service or state or user_id else most
    fitting = [
        event
        for event in newest[:looked_at]
        if (not project or event.project_id == project)
        and (not state or event.to_status == state)
        and (user_id is None or event.user_id == user_id)
    ]
    jobs = _jobs({event.job_id for event in (fitting if service else fitting[:most])})
    rows = []
    for event in fitting:
        of_service, kind = jobs.get(event.job_id, ("", ""))
        if service and of_service != service:
            continue
        rows.append({**_event(event), "service": of_service, "kind": kind})
        if len(rows) == most:
            break
    return rows


def _jobs(ids: set[UUID]) -> dict[UUID, tuple[str, str]]:
    rows = Job.objects.filter(pk__in=ids).values_list("pk", "service", "kind")
    return {pk: (service, kind) for pk, service, kind in rows}


def _event(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "job": str(event.job_id),
        "project": event.project_id,
        "user": None if event.user_id is None else str(event.user_id),
        "batch": None if event.batch_id is None else str(event.batch_id),
        "type": event.event_type,
        "from": event.from_status,
        "to": event.to_status,
        "message": masked_text(event.message)[:LONGEST_MESSAGE],
        "percent": event.progress_percent,
        "at": iso(event.created_at),
    }
