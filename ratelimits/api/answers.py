"""The answers of the limiter's addresses, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from datetime import date
from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, Field

from ratelimits.services.tuning.simulate import SimulatedOutcome


class BindingShown(BaseModel):
    """The limit that takes longest to have room, in its own unit."""

    limit: str
    key: str
    unit: Literal["requests", "tokens", "in_flight"]
    needed: float
    available: float
    capacity: float
    hard_reset: bool = Field(description="Room comes back only at the provider's daily reset.")
    cooling: bool = Field(description="The provider pushed back, or an operator did.")


class DecisionShown(BaseModel):
    kind: Literal["proceed", "defer", "retry", "reject"]
    retry_at: AwareDatetime | None = Field(description="Of defer and retry: the earliest time, if nothing else comes.")
    retry_after_seconds: float | None = Field(description="The same from now on; right whatever your clock says.")
    reason: str
    binding: BindingShown | None
    holder: str | None = Field(
        description="Settle the call under this name when it has ended; null: there is nothing to."
    )


class Decisions(BaseModel):
    decisions: list[DecisionShown] = Field(description="One a call, in order.")
    degraded: bool = Field(description="The limiter's database was out of reach: the calls go uncounted.")


class Settled(BaseModel):
    holder: str
    settled: bool = Field(description="False: it was settled before, or its time to settle was over.")


class Saved(BaseModel):
    id: int
    changed: list[str] = Field(description="The fields that have another value now.")
    warnings: list[str] = Field(description="What the figures mean, where that may surprise.")
    url: str


class Removed(BaseModel):
    removed: bool


class Simulated(BaseModel):
    """The same calls under today's figures and under the proposed ones."""

    hours: float
    calls: int
    keys: int
    waited_seconds: float
    today: SimulatedOutcome
    proposed: SimulatedOutcome
    played_in_groups_of: int
    cut: bool
    warnings: list[str]


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


class SpendSumShown(BaseModel):
    """The cost of some calls together."""

    calls: int
    money: int = Field(description="In millionths of the currency, of the calls that have a price.")
    unpriced: int = Field(description="Calls that had no price.")
    unknown: int = Field(description="Calls of which nobody knows what they cost; the most is counted.")
    unknown_money: int = Field(description="The part of `money` that is theirs.")
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class SpendGroupShown(SpendSumShown):
    key: str | None = Field(description="The day, project, user or batch, or `provider/model`; null: it had none.")
    provider: str | None = Field(default=None, description="By model alone, as `model` and `via` are.")
    model: str | None = None
    via: Literal["live", "batch"] | None = None


class SpendShown(BaseModel):
    currency: str
    first: date = Field(alias="from")
    last: date = Field(alias="to")
    total: SpendSumShown
    groups: list[SpendGroupShown]
