"""A job's events as a path of states with durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.safestring import SafeString

from jobs.admin.states import state_badge
from jobs.models import Job, JobEvent
from jobs.states import OUTAGE, RUNNING, SHOWN, TERMINAL, JobState
from jobs.tracebacks import without_diagnostics
from queueops.core.values.masking import masked_text, pretty
from queueops.screens.formatting import duration
from queueops.tenancy.people import name_of

MAX_EVENTS_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Stay:
    """A time in one state, or held by an outage. `weight` is its share of the picture, 1 to 100."""

    state: str
    since: datetime
    lasted: str
    weight: int
    is_now: bool

    @property
    def badge(self) -> SafeString:
        return state_badge(self.state)

    @property
    def tone(self) -> str:
        return SHOWN[self.state].tone


@dataclass(frozen=True, slots=True)
class Happening:
    """An event as the page shows it."""

    event: JobEvent
    after: str
    badge: SafeString | None
    message: str
    data: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt, from its start to its end."""

    number: int
    began_at: datetime
    lasted: str
    ended_as: SafeString | None
    answer: str
    facts: Sequence[tuple[str, Any]]
    traceback: str = ""
    log: str = ""


def _shown(event: JobEvent) -> str:
    """The state as people know it: a rate_limited job with a forecast waits for a limit, without one for an outage."""
    is_held = event.to_status == JobState.RATE_LIMITED and not (event.data or {}).get("scheduled_at")
    return OUTAGE if is_held else str(event.to_status)


def _by(actor: str) -> str:
    """Say who submitted: the message of a job's first event is the actor, of which masking would leave `key:`."""
    return f"by {name_of(actor)}" if actor else ""


def path_of(job: Job, events: Sequence[JobEvent]) -> list[Stay]:
    moves = [event for event in events if event.to_status]
    if not moves:
        return []
    until = (job.finished_at or moves[-1].created_at) if job.status in TERMINAL else timezone.now()
    ends = [*(move.created_at for move in moves[1:]), until]
    spans = [max(0.0, (end - move.created_at).total_seconds()) for move, end in zip(moves, ends, strict=True)]
    longest = max(spans) or 1.0
    return [
        Stay(
            state=_shown(move),
            since=move.created_at,
            lasted="" if move.to_status in TERMINAL else duration(span),
            # Without the square root, a state that lasts milliseconds could not be seen beside one that lasts hours.
            weight=max(1, round(100 * (span / longest) ** 0.5)),
            is_now=move is moves[-1] and job.status not in TERMINAL,
        )
        for move, span in zip(moves, spans, strict=True)
    ]


def happenings_of(events: Sequence[JobEvent]) -> list[Happening]:
    found, last = [], None
    for event in events:
        found.append(
            Happening(
                event=event,
                after="" if last is None else f"+{duration(event.created_at - last)}",
                badge=state_badge(_shown(event)) if event.to_status else None,
                message=masked_text(event.message) if event.from_status or not event.to_status else _by(event.message),
                data=pretty(without_diagnostics(event.data))[0] if event.data else "",
            )
        )
        last = event.created_at
    return found


def attempts_of(events: Sequence[JobEvent]) -> list[Attempt]:
    attempts: list[Attempt] = []
    began: JobEvent | None = None
    for event in events:
        if event.to_status == JobState.DISPATCHED:
            began = event
        elif began is not None and event.from_status in RUNNING and event.to_status not in RUNNING:
            attempts.append(_attempt(len(attempts) + 1, began, event))
            began = None
    if began is not None:
        attempts.append(Attempt(len(attempts) + 1, began.created_at, "still running", None, "", ()))
    return attempts


def log_text(data: Mapping[str, Any]) -> str:
    """Show what a handler logged in an attempt, a line each: `+1,204 ms INFO asked for page 3`."""
    lines = data.get("log")
    if not isinstance(lines, list):
        return ""
    return masked_text("\n".join(f"+{int(at):,} ms  {level:<7} {text}".rstrip() for at, level, text in lines))


def _attempt(number: int, began: JobEvent, ended: JobEvent) -> Attempt:
    data = ended.data or {}
    shown = ("http_status", "error_code", "error_class", "retry_after", "delay_seconds", "duration_ms")
    return Attempt(
        number=number,
        began_at=began.created_at,
        lasted=duration(ended.created_at - began.created_at),
        ended_as=state_badge(str(ended.to_status)),
        answer=masked_text(ended.message or str(data.get("error_message") or "")),
        facts=[(name.replace("_", " "), data[name]) for name in shown if data.get(name) is not None],
        traceback=masked_text(str(data.get("traceback") or "")),
        log=log_text(data),
    )
