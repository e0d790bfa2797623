"""Parts that the knobs of every provider are made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sandbox.quotas.windows import WindowMode, WindowRule

Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ErrorStatus = Annotated[int, Field(ge=400, le=599)]
WindowSeconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Capacity = Annotated[int, Field(ge=0, le=1_000_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=1_000)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class QuotaKnobs(Part):
    """How a provider counts; a quota that is null is not enforced."""

    window_mode: WindowMode = "aligned"
    window_seconds: WindowSeconds = 60
    rejected_calls_count: bool = False

    def rule(self) -> WindowRule:
        return WindowRule(self.window_mode, self.window_seconds)
