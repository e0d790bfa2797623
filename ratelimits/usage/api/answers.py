"""The answers about usage, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, Field


class ReservedUnits(BaseModel):
    reservation_id: UUID
    user_id: UUID
    month: str = Field(description="`YYYY-MM`: the month that it counts against, whenever it is used.")
    amount: int
    expires_at: AwareDatetime = Field(description="Given back then, unless an event names it before.")
    remaining: int = Field(description="What the user has left after it.")
    resets_at: AwareDatetime = Field(description="When the next month begins.")
    over_limit: bool = Field(description="Granted beyond the quota, because the policy is to record overage.")


class StandingShown(BaseModel):
    """A user's current month."""

    user_id: UUID
    unit: Literal["requests", "tokens"]
    policy: Literal["strict", "record_overage"]
    month: str
    quota: int
    used: int
    reserved: int
    overage: int
    remaining: int = Field(description="Quota less used less reserved; never below 0.")
    resets_at: AwareDatetime


class EventResult(BaseModel):
    event_id: str | None = Field(description="As it was sent; null if it was no text.")
    status: Literal["accepted", "duplicate", "over_limit", "rejected"]
    reason: Literal["malformed", "foreign_user", "too_old", "from_future"] | None = Field(
        default=None, description="Of rejected."
    )
    message: str | None = Field(default=None, description="Of rejected, for people.")


class IngestedUsage(BaseModel):
    results: list[EventResult] = Field(description="One an event, in order.")
    usage: list[StandingShown] = Field(description="Of each user of whom an event was counted or known.")


class CancelledReservation(BaseModel):
    reservation_id: UUID
    status: Literal["cancelled", "confirmed", "expired"] = Field(description="As it is now.")
    released: bool = Field(description="By this call.")
    remaining: int | None = Field(description="Null: the project has no allowance any more.")
    resets_at: AwareDatetime | None = Field(description="Null as well then.")
