"""Reads from a job's log why it waited, and how its attempts ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from jobs.models import JobEvent
from jobs.states import RUNNING, EventType, JobState

MAX_EVENTS_READ = 2_000  # in one query, for all its jobs together
CLOCKS_APART = timedelta(hours=1)  # ids go by the submitter's clock, the log's days by the database's
VERSION_7 = 7


class LogStep(NamedTuple):
    """An event of a job's log."""

    job_id: UUID
    event_type: str
    from_status: str | None
    to_status: str | None
    message: str
    data: dict[str, Any] | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waited, from its log; times in nanoseconds since 1970, by the database's clock."""

    began: int
    ended: int
    attributes: dict[str, str]
    steps: Sequence[LogStep]


def submitted_since(ids: Iterable[UUID]) -> datetime:
    """Return a time that is surely before all these jobs were submitted, if clocks differ by CLOCKS_APART at most."""
    oldest = min(ids)
    if oldest.version != VERSION_7:
        return datetime.fromtimestamp(0, UTC)
    return datetime.fromtimestamp((oldest.int >> 80) / 1000, UTC) - CLOCKS_APART


def read_logs(ids: set[UUID]) -> dict[UUID, list[LogStep]]:
    """Return the log of each job, oldest event first; MAX_EVENTS_READ leaves out the oldest events of long logs."""
    wanted = (EventType.STATE_CHANGE, EventType.SCHEDULING)
    events = JobEvent.objects.filter(job_id__in=ids, created_at__gte=submitted_since(ids), event_type__in=wanted)
    logs: defaultdict[UUID, list[LogStep]] = defaultdict(list)
    for row in reversed(events.order_by("-id").values_list(*LogStep._fields)[:MAX_EVENTS_READ]):
        step = LogStep(*row)
        logs[step.job_id].append(step)
    return logs


def wait_of(log: Sequence[LogStep], token: int) -> Wait | None:
    """Return the wait before the claim with this token, since the submission or the previous attempt."""
    claim = _place_of_claim(log, token)
    if claim is None:
        return None
    begin = next((place for place in range(claim - 1, -1, -1) if _begins_to_wait(log[place])), None)
    if begin is None:
        return None
    waited = log[begin:claim]
    return Wait(nanoseconds(waited[0].created_at), nanoseconds(log[claim].created_at), _held_by(waited), waited[1:])


def state_after(log: Sequence[LogStep], token: int) -> str:
    """Return the state to which the attempt with this token led; empty: the log does not have it yet."""
    claim = _place_of_claim(log, token)
    after = log[claim + 1 :] if claim is not None else []
    return next((str(step.to_status) for step in after if step.from_status == JobState.IN_PROGRESS), "")


def _place_of_claim(log: Sequence[LogStep], token: int) -> int | None:
    return next((place for place, step in enumerate(log) if (step.data or {}).get("fencing_token") == token), None)


def _begins_to_wait(step: LogStep) -> bool:
    is_submission = step.from_status is None and step.to_status == JobState.QUEUED
    return is_submission or (step.from_status in RUNNING and step.to_status not in RUNNING)


def _held_by(waited: Sequence[LogStep]) -> dict[str, str]:
    """Return the last reason: a limit, an outage, a retry, a dependency, a scheduled time; or else the job's turn."""
    for step in reversed(waited):
        data = step.data or {}
        if limit := data.get("binding_limit"):
            return {"queueops.wait.reason": "limit", "queueops.limit": limit, "queueops.limit.unit": data["unit"]}
        if step.to_status == JobState.RATE_LIMITED and not data.get("scheduled_at"):
            return {"queueops.wait.reason": "outage"}
        if step.to_status == JobState.RETRIED:
            return {"queueops.wait.reason": "retry"}
        if data.get("waits_for"):
            return {"queueops.wait.reason": "after"}
        if data.get("scheduled_at"):
            return {"queueops.wait.reason": "scheduled"}
    return {"queueops.wait.reason": "turn"}


def told_of(step: LogStep) -> dict[str, str]:
    limit = (step.data or {}).get("binding_limit")
    return {"message": step.message} | ({"queueops.limit": limit} if limit else {})


def nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
