"""The bodies of decisions and of settling."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from queueops.rest.inputs import Input
from ratelimits.api.inputs import Number
from ratelimits.limiter.answers import MAX_CALLS_ASKED
from ratelimits.subjects import MAX_NAME_LENGTH

MAX_COST = 1e12
MAX_HOLD_SECONDS = 86_400
Name = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH)]
Amount = Annotated[Number, Field(ge=0, le=MAX_COST)]


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
        default=1, description="Tokens, estimated. Each call takes one request and one place in flight besides."
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
        default=None, description="What it took by unit. A unit that is left out keeps its estimate."
    )
