"""The knobs of batches, whichever provider has them; docs/how-to/sandbox.md explains them one by one."""

import random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sandbox.knobs.parts import ErrorStatus, Part, Rate

MAX_SECONDS = 86_400.0

Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]


class FixedTime(Part):
    mode: Literal["fixed"] = "fixed"
    seconds: Seconds

    def draw(self, dice: random.Random) -> float:
        return self.seconds


class UniformTime(Part):
    mode: Literal["uniform"]
    low_seconds: Seconds
    high_seconds: Seconds

    @model_validator(mode="after")
    def _low_is_lower(self) -> Self:
        if self.low_seconds > self.high_seconds:
            raise ValueError("low_seconds is above high_seconds")
        return self

    def draw(self, dice: random.Random) -> float:
        return dice.uniform(self.low_seconds, self.high_seconds)


class LognormalTime(Part):
    """Most batches near the median, a few far slower."""

    mode: Literal["lognormal"]
    median_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
    sigma: Annotated[float, Field(ge=0, le=3, allow_inf_nan=False)] = 0.5

    def draw(self, dice: random.Random) -> float:
        return min(self.median_seconds * dice.lognormvariate(0, self.sigma), MAX_SECONDS)


class BatchKnobs(Part):
    validation_seconds: Seconds = 0
    processing: Annotated[FixedTime | UniformTime | LognormalTime, Field(discriminator="mode")] = FixedTime(seconds=1)
    finalizing_seconds: Seconds = 0
    cancelling_seconds: Seconds = 0
    window_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)] = MAX_SECONDS
    expires_at_share: Rate | None = None
    failed_rate: Rate = 0.0
    line_error_rates: dict[ErrorStatus, Rate] = Field(default_factory=dict)
    lost_create_rate: Rate = 0.0
    lost_line_rate: Rate = 0.0
    repeated_line_rate: Rate = 0.0
    malformed_line_rate: Rate = 0.0
    results_in_order: bool = False
    status_error_rate: Rate = 0.0
    status_missing_rate: Rate = 0.0
    results_error_rate: Rate = 0.0
    results_cut_rate: Rate = 0.0

    @model_validator(mode="after")
    def _rates_fit(self) -> Self:
        if sum(self.line_error_rates.values()) > 1 + 1e-9:
            raise ValueError("line_error_rates add up to more than 1")
        return self
