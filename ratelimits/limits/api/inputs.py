"""The bodies and query parameters of the addresses of limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from queueops.core.clock import database_moment
from queueops.core.values.moments import Moment, MomentInUTC
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import Input, as_changes
from ratelimits.api.inputs import Number, Reason
from ratelimits.limits.overrides import MAX_OVERRIDE
from ratelimits.models import Limit, LimitCallType, LimitScope, Unit
from ratelimits.subjects import MAX_KEY_LENGTH
from ratelimits.tuning.simulate import MAX_HOURS_PLAYED

WholeNumber = Annotated[int, Field(strict=True, ge=0, le=2_000_000_000)]
Truth = Annotated[bool, Field(strict=True)]


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


class OfOverride(Input):
    """Query parameters that name one key of a limit."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_LENGTH, pattern=NO_NUL)] = Field(
        description="As the override shows it."
    )
    reason: Annotated[Reason, StringConstraints(pattern=NO_NUL)] = Field(default="", description="For the audit trail.")
