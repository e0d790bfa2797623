"""The job's state machine as data. The database's guard, the diagram and the documentation derive from it."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models


class JobState(models.TextChoices):
    QUEUED = "queued"  # accepted; may be claimed once scheduled_at is null and it is not held
    RATE_LIMITED = "rate_limited"  # put back because a limit or a provider's outage left no room; costs no attempt
    DISPATCHED = "dispatched"  # claimed by an executor, about to be sent
    IN_PROGRESS = "in_progress"  # the handler runs
    RETRIED = "retried"  # waits for scheduled_at after a failed attempt, or was given back by its executor
    COMPLETED = "completed"
    FAILED = "failed"  # for good: a dead letter says why
    CANCELLED = "cancelled"


class Priority(models.TextChoices):
    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"


class CallType(models.TextChoices):
    READ = "read"
    WRITE = "write"


class EventType(models.TextChoices):
    STATE_CHANGE = "state_change"
    PROGRESS = "progress"
    ERROR = "error"
    SCHEDULING = "scheduling"
    AUDIT = "audit"


S = JobState

WAITING = frozenset({S.QUEUED, S.RATE_LIMITED, S.RETRIED})
RUNNING = frozenset({S.DISPATCHED, S.IN_PROGRESS})
TERMINAL = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED})


@dataclass(frozen=True, slots=True)
class Transition:
    """
    One edge, or several edges with one meaning.

    `needs_lease` edges are taken only by the executor whose fencing token the row still carries.
    The counters named are raised by one: retry_count, crash_count, deferral_count.
    """

    sources: frozenset[JobState]
    target: JobState
    needs_lease: bool = False
    consumes_attempt: bool = False
    counts_crash: bool = False
    counts_deferral: bool = False


TRANSITIONS: dict[str, Transition] = {
    "dispatch": Transition(WAITING, S.DISPATCHED),
    "start": Transition(frozenset({S.DISPATCHED}), S.IN_PROGRESS, needs_lease=True),
    "complete": Transition(frozenset({S.IN_PROGRESS}), S.COMPLETED, needs_lease=True),
    "retry": Transition(RUNNING, S.RETRIED, needs_lease=True, consumes_attempt=True),
    "hand_back": Transition(RUNNING, S.RETRIED, needs_lease=True),
    "fail": Transition(RUNNING, S.FAILED, needs_lease=True),
    "rescue": Transition(RUNNING, S.RETRIED, counts_crash=True),
    "bury": Transition(RUNNING, S.FAILED, counts_crash=True),
    "reset": Transition(RUNNING, S.RETRIED),
    "park": Transition(frozenset({S.QUEUED, S.RETRIED}), S.RATE_LIMITED, counts_deferral=True),
    "back_off": Transition(frozenset({S.QUEUED, S.RATE_LIMITED}), S.RETRIED),
    "release": Transition(frozenset({S.RATE_LIMITED, S.RETRIED}), S.QUEUED),
    "reject": Transition(WAITING, S.FAILED),
    "cancel": Transition(WAITING | RUNNING, S.CANCELLED),
}

LEGAL_MOVES: frozenset[tuple[JobState, JobState]] = frozenset(
    (source, edge.target) for edge in TRANSITIONS.values() for source in edge.sources
)
