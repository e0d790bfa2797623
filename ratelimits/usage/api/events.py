"""Reading reported events, each by itself, so that a bad event does not make the others fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from pydantic import ValidationError

from queueops.rest.errors import InvalidInput
from queueops.rest.parsers import parse_document
from ratelimits.usage.ingest import Reported
from ratelimits.usage.models import MAX_SERVICE_LENGTH

from .inputs import MAX_EVENTS, MAX_USE, UsedUnits

MAX_ECHO_LENGTH = 64
A_UUID = "must be a UUID"
# We word the messages ourselves, because the parser's messages quote what was sent.
RULES = {
    "event_id": A_UUID,
    "user_id": A_UUID,
    "reservation_id": A_UUID,
    "tokens": f"must be a whole number from 0 to {MAX_USE:,}",
    "ts": "must be a time in ISO 8601 with a time zone",
    "service": f"must be a text of at most {MAX_SERVICE_LENGTH} characters without NUL",
}
NO_OBJECT = "an event must be an object"
UNKNOWN_FIELDS = f"known fields are {', '.join(RULES)}"
UNNAMED_USER = "user_id must name the user: a server key belongs to none"


@dataclass(frozen=True, slots=True)
class Malformed:
    """An event that could not be read; its fields are those of `ratelimits.usage.ingest.Result`."""

    message: str
    status: ClassVar = "rejected"
    reason: ClassVar = "malformed"


@dataclass(frozen=True, slots=True)
class Reading:
    """
    Attributes:
        given_id: The event's id as it was sent, for the answer; None if it was not a text of reasonable length.
    """

    given_id: str | None
    found: Reported | Malformed


def read_events(raw: bytes, *, user_id: UUID | None) -> list[Reading]:
    """
    Read an array of events, an object that has an array as `events`, or a single event by itself.

    Args:
        user_id: The user of events that name no user; None: each event must name its user.

    Raises:
        MalformedJSON, TooDeep
        InvalidInput: The body has another form, or does not hold 1 to MAX_EVENTS events.
    """
    given = parse_document(raw) if raw else None
    if isinstance(given, dict):
        given = given["events"] if set(given) == {"events"} else [given] if _is_event(given) else None
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_EVENTS:
        raise InvalidInput(
            f"The body must be an array of 1 to {MAX_EVENTS:,} events, by itself or as `events`, or one event."
        )
    return [Reading(_given_id(event), _read(event, user_id)) for event in given]


def _is_event(given: dict[str, Any]) -> bool:
    return "events" not in given and not set(given).isdisjoint(RULES)


def _given_id(event: Any) -> str | None:
    given = event.get("event_id") if isinstance(event, dict) else None
    return given if isinstance(given, str) and len(given) <= MAX_ECHO_LENGTH else None


def _read(event: Any, user_id: UUID | None) -> Reported | Malformed:
    if not isinstance(event, dict):
        return Malformed(NO_OBJECT)
    try:
        read = UsedUnits.model_validate(event)
    except ValidationError as error:
        faults = {str(item["loc"][0]) for item in error.errors(include_url=False, include_input=False)}
        told = [f"{field} {rule}" for field, rule in RULES.items() if field in faults]
        return Malformed("; ".join(told if faults <= set(RULES) else [*told, UNKNOWN_FIELDS]))
    user = read.user_id or user_id
    if user is None:
        return Malformed(UNNAMED_USER)
    return Reported(
        event_id=read.event_id,
        user_id=user,
        tokens=read.tokens,
        occurred_at=read.ts,
        reservation_id=read.reservation_id,
        service=read.service,
    )
