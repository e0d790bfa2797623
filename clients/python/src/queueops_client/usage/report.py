"""A report for people of what an outbox holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from queueops_client.usage.clock import ServerClock
from queueops_client.usage.flush import Pace
from queueops_client.usage.outbox import SET_APART, Outbox

OLD_DAYS = 28  # the server takes events of up to 35 days, by default
SHOWN_ROWS = 1000


@dataclass(frozen=True, slots=True)
class LeftIntent:
    """
    A call that a process had begun, or was about to begin, when it died. Only its provider knows whether it happened:
    say so with `resolve(event_id, tokens=...)`, or with None if it did not.

    Attributes:
        estimate: The estimated tokens; None: not given.
    """

    event_id: str
    user_id: str
    service: str
    estimate: int | None
    started_at: datetime


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """
    A use that the server will not count.

    Attributes:
        reason: The server's reason: `too_old`, `from_future`, `foreign_user`, `malformed`, or an error's code.
    """

    event_id: str
    user_id: str
    service: str
    tokens: int
    at: datetime
    reason: str
    message: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Report:
    """
    Attributes:
        intents: Uses that crashes left; at most 1,000 are shown.
        pending: Rows not yet sent.
        in_progress: Uses that are going on, in any process.
        rejected: Rows set apart; at most 1,000 are shown. They count towards `max_rows` until discarded or retried.
        oldest_at: When the oldest of the rows not yet sent was written.
        near_age_limit: Rows not yet sent and older than 28 days; the server refuses them after 35.
        paused: Why nothing is sent until a person acts, such as a token that was revoked; None: rows are sent.
        last_error: The error of this process's last attempt to send; None: it succeeded.
    """

    path: Path
    intents: tuple[LeftIntent, ...]
    pending: int
    in_progress: int
    rejected: tuple[RejectedRow, ...]
    oldest_at: datetime | None
    oldest_age_seconds: float
    near_age_limit: int
    size: int
    max_rows: int
    paused: str | None
    last_error: str | None


def report(outbox: Outbox, clock: ServerClock, pace: Pace) -> Report:
    outbox.adopt()

    def when(at: float, offset: float | None, floor: float) -> datetime:
        return datetime.fromtimestamp(clock.time_of_event(at, offset=offset, floor=floor), UTC)

    left = outbox.read(
        "SELECT event_id, user_id, service, estimate, at, clock_offset, floor FROM event"
        f" WHERE status = 'intent' AND {SET_APART} ORDER BY seq LIMIT {SHOWN_ROWS}"
    )
    rejected = outbox.read(
        "SELECT event_id, user_id, service, tokens, reason, message, attempts, at, clock_offset, floor FROM event"
        f" WHERE status = 'rejected' ORDER BY seq LIMIT {SHOWN_ROWS}"
    )
    waiting = [when(*row) for row in outbox.read("SELECT at, clock_offset, floor FROM event WHERE status = 'ready'")]
    [(in_progress,)] = outbox.read("SELECT count(*) FROM event WHERE status = 'intent' AND owner IS NOT NULL")
    [(size,)] = outbox.read("SELECT coalesce(sum(size), 0) FROM balance")
    ages = [max(0.0, clock.now() - at.timestamp()) for at in waiting]
    return Report(
        path=outbox.path,
        intents=tuple(
            LeftIntent(event_id, user_id, service, estimate, when(*moment))
            for event_id, user_id, service, estimate, *moment in left
        ),
        pending=len(waiting),
        in_progress=in_progress,
        rejected=tuple(
            RejectedRow(event_id, user_id, service, tokens, when(*moment), reason or "", message or "", attempts)
            for event_id, user_id, service, tokens, reason, message, attempts, *moment in rejected
        ),
        oldest_at=min(waiting, default=None),
        oldest_age_seconds=max(ages, default=0.0),
        near_age_limit=sum(age > OLD_DAYS * 86400 for age in ages),
        size=size,
        max_rows=outbox.max_rows,
        paused=pace.paused,
        last_error=str(pace.last_error) if pace.last_error else None,
    )
