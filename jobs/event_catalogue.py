"""The types and moves of job events in words: source of the events page, which a test compares with a real log."""

from __future__ import annotations

from jobs.states import EventType

TYPES: dict[EventType, str] = {
    EventType.STATE_CHANGE: "the job went from a state to another, by a move of the table below; the first has no"
    " `from_status`. **A failed call is one of these**",
    EventType.PROGRESS: "its handler said how far it is: `progress_percent` and `message`. Not kept when it has ended",
    EventType.ERROR: "something went wrong around it that is no answer to a call",
    EventType.SCHEDULING: "when, or which way, it is to run changed, and its state did not",
    EventType.AUDIT: "a person or a rule changed something else about it",
}

# Each row: the failure, the transition that follows, and a second transition where there is one.
FAILED_CALLS: tuple[tuple[str, str, str], ...] = (
    ("an attempt failed, and another may help: a 5xx, a time-out of what may be repeated", "retry", ""),
    ("the provider refused for its quota although there was room here; costs no attempt", "hand_back", ""),
    ("a pool has another credential, or the payload another way; costs no attempt", "hand_back", ""),
    ("a probe of an outage failed, or all calls of its credential are refused; costs no attempt", "hand_back", ""),
    ("no other attempt may help, or none is left: also a dead letter", "fail", ""),
    ("its process died while the call was out; a dead letter where it may not be repeated", "rescue", "bury"),
)

# The fields of a failed call's `data`, beside `error_code` and `message`.
OF_A_FAILED_CALL: dict[str, str] = {
    "attempt": "which attempt it was, from 1",
    "error_code": "stable, as the dead letter has it",
    "error_message": "as `message`",
    "error_class": "the exception of the handler",
    "http_status": "what the provider answered; missing: it did not answer",
    "outcome": "`answered`, `refused`, `not_sent` or `unknown`: whether it may have had an effect",
    "retry_after": "seconds, as the provider asks for",
    "duration_ms": "of the attempt",
    "waited_ms": "for a free worker; missing where a limit or a delay was what it waited for",
    "calls": "each call of the attempt, failed or not: `[status, bytes]`, status 0 where no answer came; 100 at most",
    "delay_seconds": "until it may run again",
    "gave_up": "why there is no other attempt",
    "details": "what the provider said, by field",
    "traceback": "shown to people with the permission, never to keys",
    "log": "what its handler logged: `[milliseconds, level, text]`",
    "scheduled_at": "when it may run again",
    "retry_count": "attempts used up with this one",
    "via": "`live` or `batch`, of a job that was to go by a batch of its provider",
}

# Events by their `data.operation`. BY_FIELD has the events that lack it, by a field that other events of the type lack.
OPERATIONS: dict[str, tuple[EventType, str]] = {
    "lease_lost": (EventType.ERROR, "an executor that had lost its lease wrote too late; its write was refused"),
    "worker_died": (EventType.ERROR, "its worker died with `carried` jobs; `suspect`: whether it is the one suspected"),
    "loop_held": (EventType.ERROR, "its handler held its worker's event loop for `held_ms`; counted as a crash"),
    "late_answer": (EventType.AUDIT, "its executor's answer came after it was cancelled or taken back"),
    "rate_limit_check": (EventType.SCHEDULING, "a claim met a limit (`binding_limit`) without room"),
    "rate_limit_schedule": (EventType.SCHEDULING, "it was foreseen that a claim would meet one without room"),
    "reroute": (EventType.SCHEDULING, "it goes by another of its payload's ways (`fallback_step`)"),
    "schedule": (EventType.SCHEDULING, "somebody (`actor`) put it off, or brought it forward"),
    "replace": (EventType.SCHEDULING, "it has the work of a later submission with its unique key"),
    "waited": (EventType.SCHEDULING, "what it waited for has ended"),
    "take": (EventType.SCHEDULING, "its payload has the values that it takes from the results of others"),
}
BY_FIELD: dict[str, tuple[EventType, str]] = {
    "priority": (EventType.AUDIT, "its priority was changed, from `from_priority`, by `actor`"),
    "resolution": (EventType.AUDIT, "its dead letter was requeued (`requeued_as`) or discarded by `actor`"),
    "repaired": (EventType.AUDIT, "its row was written anew from this log"),
}
