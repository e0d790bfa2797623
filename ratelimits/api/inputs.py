"""The bodies and query parameters that the limiter's addresses take."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, RootModel, StringConstraints, ValidationInfo, field_validator, model_validator

from queueops.core.clock import database_moment
from queueops.core.values.moments import Moment, MomentInUTC
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import Input, as_changes
from ratelimits.models import (
    AllowancePolicy,
    AllowanceUnit,
    Budget,
    BudgetScope,
    Limit,
    LimitCallType,
    LimitScope,
    Unit,
)
from ratelimits.models.allowance import (
    MAX_IDEMPOTENCY_KEY_LENGTH,
    MAX_QUOTA,
    MAX_RESERVATION_SECONDS,
    MAX_SERVICE_LENGTH,
)
from ratelimits.models.money import MAX_MONEY
from ratelimits.services.limiter.answers import MAX_CALLS_ASKED
from ratelimits.services.limits.overrides import MAX_OVERRIDE
from ratelimits.services.money.reports import MAX_REPORT_DAYS, Grouping
from ratelimits.services.tuning.simulate import MAX_HOURS_PLAYED
from ratelimits.subjects import MAX_KEY_LENGTH, MAX_NAME_LENGTH

MAX_COST = 1e12
MAX_USE = 1_000_000_000  # units of one call: a month's sum stays far below what a bigint holds
MAX_EVENTS = 1000
MAX_HOLD_SECONDS = 86_400

Name = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH)]
Reason = Annotated[str, StringConstraints(max_length=500)]
# Without `strict` Pydantic would accept the text "7" and truth values as numbers.
Number = Annotated[float, Field(strict=True)]
WholeNumber = Annotated[int, Field(strict=True, ge=0, le=2_000_000_000)]
Amount = Annotated[Number, Field(ge=0, le=MAX_COST)]
Truth = Annotated[bool, Field(strict=True)]


class Amounts(Input):
    """The amounts that a call takes, by unit."""

    input_tokens: Amount | None = Field(default=None, description="All of the input, what a cache has included.")
    cached_tokens: Amount | None = Field(default=None, description="Of the input, what a cache has.")
    output_tokens: Amount | None = None
    tokens: Amount | None = Field(default=None, description="The sum, as the provider sums it.")
    enqueued_tokens: Amount | None = Field(default=None, description="Of a batch that the provider keeps.")

    def by_unit(self) -> dict[str, float]:
        return self.model_dump(exclude_none=True)


class AskedCall(Input):
    """One call that asks to go."""

    service: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    call_type: Literal["read", "write"]
    project: Name | None = Field(default=None, description="By default the key's own; it cannot be another.")
    user: Name = Field(default="", description="As the provider sees it. Empty: none.")
    model: Name = Field(default="", description="The service's model, where it has several.")
    cost: Annotated[Number, Field(le=MAX_COST)] = Field(
        default=1, description="Tokens, estimated. Of requests and of places in flight a call takes one each."
    )
    known_cost: Annotated[Number, Field(le=MAX_COST)] | None = Field(
        default=None, description="The part of the cost that is no guess. Null: all of it."
    )
    amounts: Amounts | None = Field(
        default=None,
        description="What it takes by unit, for limits of that unit; of output tokens the most there can be."
        " What is left out follows from the cost.",
    )


class Decide(Input):
    """Calls that want to go now, in the order in which they may."""

    calls: list[AskedCall] = Field(min_length=1, max_length=MAX_CALLS_ASKED)
    hold_seconds: Annotated[Number, Field(ge=1, le=MAX_HOLD_SECONDS)] = Field(
        default=600, description="What a call holds and nobody settles is given back after this."
    )


class Settle(Input):
    """The end of a call."""

    holder: Annotated[str, StringConstraints(min_length=1, max_length=300)] = Field(
        description="From the decision that let it go."
    )
    actual: Annotated[Number, Field(ge=0, le=MAX_COST)] | None = Field(
        default=None, description="The tokens that it cost. Null: not known, the estimate stands."
    )
    amounts: Amounts | None = Field(
        default=None, description="What it took by unit. Of a unit that is left out, the estimate stands."
    )


class LimitFigures(Input):
    """The figures of a limit; which of them an algorithm reads is in docs/how-to/set-limits.md."""

    call_type: LimitCallType = LimitCallType.ANY
    scope: LimitScope = LimitScope.PROJECT
    model: str = Field(default="", description="Only calls of this model. Empty: of every model.")
    project: str = Field(default="", description="Only calls of this project's jobs.")
    kind: str = Field(default="", description="Only calls in flight of jobs of this kind.")
    per_model: Truth = Field(default=False, description="Each model has counters of its own.")
    unit: Unit = Unit.REQUESTS
    counts_cached: Truth = Field(default=True, description="Of input tokens: those read from a cache count, too.")
    reserves: Limit.Reserves = Field(
        default=Limit.Reserves.USED,
        description="Of tokens and output tokens: whether the provider counts what a call uses, or all it may bring.",
    )
    algorithm: Limit.Algorithm = Limit.Algorithm.SLIDING_WINDOW
    capacity: Number | None = None
    refill_per_second: Number | None = None
    window_seconds: Number | None = 60
    provider_quota: Number | None = Field(default=None, description="What the provider allows in a window.")
    slack_seconds: Number | None = None
    reset_zone: str = ""
    guard_seconds: Number = 0.5
    lease_seconds: Number = 600
    headroom_percent: Number = 0
    notice_percent: WholeNumber = 60
    warning_percent: WholeNumber = 80
    clears_late_seconds: WholeNumber = 3600
    fail_open: Truth = Field(default=False, description="Calls proceed while the limiter's database is out of reach.")
    shadow: Truth = Field(default=False, description="Counts what it would refuse, but blocks nothing.")
    enabled: Truth = True
    learns_caps: Truth = Field(default=False, description="A cap that the provider states is taken over at once.")
    note: str = ""
    reason: Reason = Field(default="", description="For the audit trail.")

    def figures(self) -> dict[str, Any]:
        """The figures that were given, by the names of the limit's fields."""
        return self.model_dump(exclude_unset=True, exclude={"reason", "seen_at"})


class NewLimit(LimitFigures):
    name: str
    service: str = Field(default="", description="Empty: calls in flight to any, of a project or a kind.")


class ChangeLimit(LimitFigures):
    """Changes to a limit. A field that is left out stays as it is."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    name: str = ""
    service: str = ""
    seen_at: Moment | None = Field(
        default=None, description="The `updated_at` of what you looked at: refused if somebody changed it since."
    )


class NewBudget(Input):
    """Whose money it is, and how much; amounts in millionths of the currency."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    amount: Annotated[int, Field(strict=True, ge=0, le=MAX_MONEY)]
    policy: Budget.Policy = Budget.Policy.WAIT
    note: Reason = ""
    scope: BudgetScope = BudgetScope.PROJECT
    user_id: UUID | None = Field(default=None, description="Of scope `user`: who.")
    batch_id: UUID | None = Field(default=None, description="Of scope `batch`: which.")
    period: Budget.Period = Budget.Period.MONTH
    time_zone: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="UTC", description="Where a day or month begins at midnight."
    )
    reason: Reason = Field(default="", description="For the audit trail.")

    def figures(self) -> dict[str, Any]:
        """The figures that were given, by the names of the budget's fields."""
        return self.model_dump(exclude_unset=True, exclude={"reason"})


class ChangeBudget(NewBudget):
    """
    Changes to a budget. A field that is left out stays as it is.

    Scope, user, batch, period and time zone cannot be changed.
    """

    model_config = ConfigDict(json_schema_extra=as_changes)

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)] = ""
    amount: Annotated[int, Field(strict=True, ge=0, le=MAX_MONEY)] = 0


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


def _one_end_alone(schema: dict[str, Any]) -> None:
    """Describe that at most one of both is given."""
    schema["anyOf"] = [{"properties": {name: {"type": "null"}}} for name in ("ends_at", "for_seconds")]


class SetOverride(Input):
    model_config = ConfigDict(json_schema_extra=_one_end_alone)

    key: str = Field(description="As its counter shows it: `project:acme`, `project:acme/user:u`.")
    capacity: Number
    refill_per_second: Number | None = None
    ends_at: MomentInUTC | None = Field(
        default=None, description="From then on the key has again what it had. Null, and no `for_seconds`: it stays."
    )
    for_seconds: Annotated[Number, Field(gt=0, le=MAX_OVERRIDE.total_seconds())] | None = Field(
        default=None, description="In place of `ends_at`: from now on for so long."
    )
    note: Reason = ""
    reason: Reason = ""

    @model_validator(mode="after")
    def _one_end(self) -> SetOverride:
        if self.ends_at is not None and self.for_seconds is not None:
            raise ValueError("Give `ends_at` or `for_seconds`, not both.")
        return self

    def end(self) -> datetime | None:
        return self.ends_at if self.for_seconds is None else database_moment() + timedelta(seconds=self.for_seconds)


class Simulate(Input):
    changes: ChangeLimit = Field(description="As for changing the limit.")
    hours: Annotated[Number, Field(gt=0, le=MAX_HOURS_PLAYED)] = 1


class Reasoned(Input):
    """Query parameters of requests that take something away."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True, pattern=NO_NUL)]


class OfOverride(Input):
    """Query parameters that name one key of a limit."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_LENGTH, pattern=NO_NUL)]
    reason: Annotated[Reason, StringConstraints(pattern=NO_NUL)] = ""


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

    user_id: UUID | None = None


class SpendAsked(Input):
    """Query parameters of a report of spend."""

    group_by: Grouping = "day"
    first: date = Field(
        default_factory=lambda: datetime.now(UTC).date(), alias="from", description="By default today, in UTC."
    )
    last: date = Field(
        default_factory=lambda: datetime.now(UTC).date(),
        alias="to",
        description="Included. By default today, in UTC.",
        validate_default=True,
    )

    @field_validator("last")
    @classmethod
    def _is_a_span(cls, last: date, given: ValidationInfo) -> date:
        first = given.data.get("first")  # absent if invalid, which is reported already
        if first is not None and not 0 <= (last - first).days <= MAX_REPORT_DAYS:
            raise ValueError(f"must not be before from, nor more than {MAX_REPORT_DAYS} days after")
        return last
