"""The answers of decisions, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field


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
