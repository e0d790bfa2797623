"""The answers about limits, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ratelimits.tuning.simulate import SimulatedOutcome


class Saved(BaseModel):
    id: int
    changed: list[str] = Field(description="The fields that have another value now.")
    warnings: list[str] = Field(description="What the figures mean, where that may surprise.")
    url: str


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
