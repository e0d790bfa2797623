"""The bodies and query parameters of allowances and of usage."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import ConfigDict, Field, RootModel, StringConstraints

from queueops.core.values.moments import MomentInUTC
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import Input, as_changes
from ratelimits.api.inputs import Reason
from ratelimits.models import AllowancePolicy, AllowanceUnit
from ratelimits.usage.models import MAX_IDEMPOTENCY_KEY_LENGTH, MAX_QUOTA, MAX_RESERVATION_SECONDS, MAX_SERVICE_LENGTH

MAX_USE = 1_000_000_000  # units of one call: a month's sum stays far below what a bigint holds
MAX_EVENTS = 1000


class NewAllowance(Input):
    """The use that each user of the project has for a calendar month."""

    quota: Annotated[int, Field(strict=True, ge=0, le=MAX_QUOTA)] = Field(
        description="In the unit, for each user and month."
    )
    unit: AllowanceUnit = AllowanceUnit.REQUESTS
    policy: AllowancePolicy = Field(
        default=AllowancePolicy.STRICT, description="Whether reservations beyond the quota are refused or recorded."
    )
    time_zone: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="UTC", description="Where a month begins at midnight."
    )
    reservation_seconds: Annotated[int, Field(strict=True, ge=1, le=MAX_RESERVATION_SECONDS)] = Field(
        default=300, description="A reservation that nobody confirmed is given back after so long."
    )
    reason: Reason = Field(default="", description="For the audit trail.")

    def figures(self) -> dict[str, Any]:
        """The figures that were given, by the names of the allowance's fields."""
        return self.model_dump(exclude_unset=True, exclude={"reason"})


class ChangeAllowance(NewAllowance):
    """Changes to an allowance. A field that is left out stays as it is."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    quota: Annotated[int, Field(strict=True, ge=0, le=MAX_QUOTA)] = 0


class ReserveUsage(Input):
    """Units of a user's allowance to hold before a call."""

    amount: Annotated[int, Field(strict=True, ge=1, le=MAX_USE)] = Field(
        default=1, description="In the allowance's unit; with tokens, the most that the call may cost."
    )
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=MAX_IDEMPOTENCY_KEY_LENGTH)] | None = (
        Field(default=None, description="The same key again gets the same reservation. Or send it as Idempotency-Key.")
    )
    user_id: UUID | None = Field(default=None, description="A server key names the user; a user's token is its own.")


class UsedUnits(Input):
    """One call that was made."""

    event_id: UUID = Field(description="Made by whoever made the call, once: it is counted once, however often sent.")
    user_id: UUID | None = Field(default=None, description="A server key names the user; a user's token is its own.")
    tokens: Annotated[int, Field(strict=True, ge=0, le=MAX_USE)] = Field(
        description="What the call cost. Where the allowance counts requests, every event is one."
    )
    ts: MomentInUTC = Field(description="When it was made: ISO 8601 with a time zone.")
    reservation_id: UUID | None = Field(default=None, description="Released, and confirmed, by the event.")
    service: Annotated[str, StringConstraints(max_length=MAX_SERVICE_LENGTH, pattern=NO_NUL)] = ""


Events = Annotated[list[UsedUnits], Field(min_length=1, max_length=MAX_EVENTS)]


class EventsByName(Input):
    events: Events


class IngestUsage(RootModel[Events | EventsByName | UsedUnits]):
    """
    Up to 1,000 events, as an array or below `events`, or one event by itself.

    For the OpenAPI document only: each event is read alone.
    """


class CancelReservation(Input):
    reservation_id: UUID


class OfUser(Input):
    """Query parameters that name a user."""

    user_id: UUID | None = Field(default=None, description="A server key names the user; a user's token is its own.")
