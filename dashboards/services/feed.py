"""The newest events, for people to read."""

from __future__ import annotations

from typing import Any

from dashboards.services.shared.wire import iso
from jobs.models import Job, JobEvent
from queueops.core.values.masking import masked_text

MAX_FEED_SHOWN = 40
EVENTS_LOOKED_AT = 2000  # how many of the newest events are searched
MAX_MESSAGE_LENGTH = 300


def newest_events(
    *, project: str | None = None, service: str | None = None, state: str | None = None, most: int = MAX_FEED_SHOWN
) -> list[dict[str, Any]]:
    """
    Return events in the form of the live protocol, with their job's kind, the newest first.

    Args:
        project, service, state: Only events of these; they are looked for among the newest events.
    """
    newest = JobEvent.objects.order_by("-id")
    looked_at = EVENTS_LOOKED_AT if project or service or state else most
    fitting = [
        event
        for event in newest[:looked_at]
        if (not project or event.project_id == project)
        and (not service or event.service == service)
        and (not state or event.to_status == state)
    ][:most]
    kinds = dict(Job.objects.filter(pk__in={event.job_id for event in fitting}).values_list("pk", "kind"))
    return [_event(event, kinds.get(event.job_id, "")) for event in fitting]


def _event(event: JobEvent, kind: str) -> dict[str, Any]:
    return {
        "id": event.id,
        "job": str(event.job_id),
        "project": event.project_id,
        "user": None if event.user_id is None else str(event.user_id),
        "batch": None if event.batch_id is None else str(event.batch_id),
        "service": event.service,
        "kind": kind,
        "type": event.event_type,
        "from": event.from_status,
        "to": event.to_status,
        "message": masked_text(event.message)[:MAX_MESSAGE_LENGTH],
        "percent": event.progress_percent,
        "at": iso(event.created_at),
    }
