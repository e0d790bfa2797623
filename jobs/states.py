"""
The job's state machine as data. The database's guard and counts, the screens and the documentation derive from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import models


class JobState(models.TextChoices):
    QUEUED = "queued"
    RATE_LIMITED = "rate_limited"
    DISPATCHED = "dispatched"
    IN_PROGRESS = "in_progress"
    RETRIED = "retried"
    COMPLETED = "completed"
    FAILED = "failed"
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
UNFINISHED = WAITING | RUNNING
# Parts of a state that screens show apart: rate_limited jobs whose target is out, and queued jobs with a future time.
OUTAGE = "outage"
SCHEDULED = "scheduled"
APART = frozenset({OUTAGE, SCHEDULED})


@dataclass(frozen=True, slots=True)
class Appearance:
    """
    How a state looks to people.

    Attributes:
        tone: A colour of the style sheets: grey, blue, amber, green or red.
        sign: A Material symbol.
        colour: Its colour in the dashboard's charts: the number from `--fill-0` to `--fill-6` in dashboard.css.
    """

    words: str
    tone: str
    sign: str
    colour: int
    meaning: str


SHOWN: dict[str, Appearance] = {
    S.QUEUED: Appearance("queued", "grey", "inbox", 1, "accepted; waits for its turn"),
    SCHEDULED: Appearance("scheduled", "grey", "schedule", 0, "accepted; waits for its time, `scheduled_at`"),
    S.RATE_LIMITED: Appearance(
        "waiting for quota",
        "amber",
        "hourglass_top",
        3,
        "put back because a limit or a provider's outage leaves no room; costs no attempt",
    ),
    OUTAGE: Appearance("held by an outage", "red", "cloud_off", 6, "what they call does not answer"),
    S.DISPATCHED: Appearance("dispatched", "blue", "send", 4, "claimed by an executor, about to be sent"),
    S.IN_PROGRESS: Appearance("running", "blue", "autorenew", 2, "the handler runs"),
    S.RETRIED: Appearance(
        "retrying", "amber", "replay", 5, "waits for its next attempt, or was given back by its executor"
    ),
    S.COMPLETED: Appearance("completed", "green", "check", 2, "done"),
    S.FAILED: Appearance("failed", "red", "close", 6, "failed for good; a dead letter says why"),
    S.CANCELLED: Appearance("cancelled", "grey", "block", 0, "cancelled by its producer or an operator"),
}


def told_apart(counts: Mapping[str, int], *, held_by_outage: int, scheduled: int) -> dict[str, int]:
    """Return counts by state, with jobs held by an outage apart from rate_limited, and scheduled jobs from queued."""
    # Each part is counted after its state and may be larger by then: without min(), a count could be below zero.
    held, later = min(held_by_outage, counts[S.RATE_LIMITED]), min(scheduled, counts[S.QUEUED])
    limited, queued = counts[S.RATE_LIMITED] - held, counts[S.QUEUED] - later
    apart = {**counts, S.QUEUED: queued, SCHEDULED: later, S.RATE_LIMITED: limited, OUTAGE: held}
    return {str(state): apart[state] for state in SHOWN}


class BatchVerdict(models.TextChoices):
    """The state of a batch in one word, on every surface. `services/explain/verdicts.py` decides it."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    SUCCEEDED_WITH_FAILURES = "succeeded_with_failures", "succeeded with failures"
    FAILED = "failed"
    CANCELLED = "cancelled"


class GuardState(models.TextChoices):
    """The stage of a batch's guard; see features/batch_guards/guards.py."""

    TRIAL = "trial"  # the batch's first jobs are tried, the others are held
    PASSED = "passed"  # the other jobs were released, or none was left to hold
    STOPPED = "stopped"  # the guard has paused the batch
    WENT_ON = "went_on"  # a person or a producer resumed it


V = BatchVerdict

SHOWN_VERDICTS: dict[str, Appearance] = {
    V.WAITING: Appearance(V.WAITING.label.lower(), "grey", "inbox", 1, "none of its jobs has begun"),
    V.HELD: Appearance(
        V.HELD.label.lower(),
        "amber",
        "pause",
        3,
        "something stops it: a pause, an outage, what it waits for; `held_by` says what",
    ),
    V.RUNNING: Appearance(V.RUNNING.label.lower(), "blue", "autorenew", 2, "it has begun and not ended"),
    V.SUCCEEDED: Appearance(V.SUCCEEDED.label.lower(), "green", "check", 2, "all of it is completed"),
    V.SUCCEEDED_WITH_FAILURES: Appearance(
        V.SUCCEEDED_WITH_FAILURES.label, "amber", "warning", 3, "some of it is completed, some failed or was cancelled"
    ),
    V.FAILED: Appearance(V.FAILED.label.lower(), "red", "close", 6, "some of it failed and nothing is completed"),
    V.CANCELLED: Appearance(
        V.CANCELLED.label.lower(), "grey", "block", 0, "at least half of it was cancelled, or nothing else became of it"
    ),
}


def verdict_of_ended(counts: Mapping[str, int]) -> BatchVerdict:
    """Return the verdict on a batch whose items have all ended; without items, it succeeded."""
    completed, failed, cancelled = (counts.get(state, 0) for state in (S.COMPLETED, S.FAILED, S.CANCELLED))
    if not failed and not cancelled:
        return V.SUCCEEDED
    if not completed and failed:
        return V.FAILED
    return V.CANCELLED if cancelled >= completed + failed else V.SUCCEEDED_WITH_FAILURES


def ended_verdict(counts: Mapping[str, int] | None) -> str | None:
    """Return `verdict_of_ended`; None: the batch's counts are not known, or some of its items have not ended."""
    if not counts or any(counts.get(state) for state in UNFINISHED):
        return None
    return verdict_of_ended(counts).value


@dataclass(frozen=True, slots=True)
class Transition:
    """
    One edge, or several edges with one meaning.

    `when` says when the edge is taken. An edge with `needs_lease` is taken only by the executor whose fencing token is
    still in the row. `consumes_attempt`, `counts_crash` and `counts_deferral` add one to retry_count, crash_count or
    deferral_count. `through` is a state that is logged, but never stored: two steps in one commit write the row once.
    """

    sources: frozenset[JobState]
    target: JobState
    when: str
    needs_lease: bool = False
    consumes_attempt: bool = False
    counts_crash: bool = False
    counts_deferral: bool = False
    through: JobState | None = None


TRANSITIONS: dict[str, Transition] = {
    "claim": Transition(WAITING, S.IN_PROGRESS, "dispatch and start in one: how executors claim", through=S.DISPATCHED),
    "dispatch": Transition(WAITING, S.DISPATCHED, "an executor claims the job"),
    "start": Transition(frozenset({S.DISPATCHED}), S.IN_PROGRESS, "its handler is called", needs_lease=True),
    "complete": Transition(frozenset({S.IN_PROGRESS}), S.COMPLETED, "its handler returned", needs_lease=True),
    "retry": Transition(
        RUNNING,
        S.RETRIED,
        "an attempt failed and another may help; the attempt counts",
        needs_lease=True,
        consumes_attempt=True,
    ),
    "hand_back": Transition(
        RUNNING,
        S.RETRIED,
        "the executor stops, its whole host is gone, or the provider is out; the attempt does not count",
        needs_lease=True,
    ),
    "fail": Transition(RUNNING, S.FAILED, "an attempt failed and no other may help", needs_lease=True),
    "rescue": Transition(
        RUNNING, S.RETRIED, "the lease lapsed because its process died; repeating it does no harm", counts_crash=True
    ),
    "bury": Transition(
        RUNNING,
        S.FAILED,
        "the lease lapsed and repeating might do harm, or it brought down its process three times",
        counts_crash=True,
    ),
    "reset": Transition(RUNNING, S.RETRIED, "an operator takes it from its executor"),
    "park": Transition(
        frozenset({S.QUEUED, S.RETRIED}),
        S.RATE_LIMITED,
        "a limit has no room, or the provider is out",
        counts_deferral=True,
    ),
    "back_off": Transition(frozenset({S.QUEUED, S.RATE_LIMITED}), S.RETRIED, "it is scheduled again before it ran"),
    "release": Transition(frozenset({S.RATE_LIMITED, S.RETRIED}), S.QUEUED, "its time has come"),
    "reject": Transition(
        WAITING, S.FAILED, "it waited longer than its producer allowed, or a limit will never have room"
    ),
    "reconcile": Transition(
        WAITING,
        S.COMPLETED,
        "it was done before the database was put back to an earlier moment, as the outcome log or an operator says",
    ),
    "cancel": Transition(WAITING | RUNNING, S.CANCELLED, "its producer or an operator does not want it any more"),
}

LEGAL_MOVES: frozenset[tuple[JobState, JobState]] = frozenset(
    (source, edge.target) for edge in TRANSITIONS.values() for source in edge.sources
)
