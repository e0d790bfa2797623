"""Knobs that can be turned at run time: how slow, how strict and how unreliable the sandbox is."""

import json
import random
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sandbox.knobs.batches import BatchKnobs
from sandbox.knobs.parts import ErrorStatus, Part, Rate, WindowSeconds
from sandbox.knobs.providers import AnthropicKnobs, GeminiKnobs, GoogleSheetsKnobs, OpenAiKnobs

Milliseconds = Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False)]

MAX_LATENCY_MILLISECONDS = 60_000.0
SECTIONS = frozenset({"google_sheets", "gemini", "openai", "anthropic", "batches"})


class InvalidKnobs(Exception):
    """Some knobs were refused; none was changed. Holds one sentence per mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class FixedLatency(Part):
    mode: Literal["fixed"]
    milliseconds: Milliseconds

    def draw(self, dice: random.Random) -> float:
        return self.milliseconds


class UniformLatency(Part):
    mode: Literal["uniform"]
    low_milliseconds: Milliseconds
    high_milliseconds: Milliseconds

    @model_validator(mode="after")
    def _low_is_lower(self) -> Self:
        if self.low_milliseconds > self.high_milliseconds:
            raise ValueError("low_milliseconds is above high_milliseconds")
        return self

    def draw(self, dice: random.Random) -> float:
        return dice.uniform(self.low_milliseconds, self.high_milliseconds)


class LognormalLatency(Part):
    """Most answers near the median, a few far slower: how real providers behave."""

    mode: Literal["lognormal"]
    median_milliseconds: Annotated[float, Field(gt=0, le=60_000, allow_inf_nan=False)]
    sigma: Annotated[float, Field(ge=0, le=3, allow_inf_nan=False)] = 0.5

    def draw(self, dice: random.Random) -> float:
        return min(self.median_milliseconds * dice.lognormvariate(0, self.sigma), MAX_LATENCY_MILLISECONDS)


class CallsPerWindow(Part):
    """At most `calls` in any `window_seconds`."""

    calls: Annotated[int, Field(ge=1, le=100_000)]
    window_seconds: WindowSeconds
    rejected_calls_count: bool = False


class RowError(Part):
    """Rows whose name matches `pattern` (* and ? stand for anything) are answered with `status`."""

    pattern: Annotated[str, Field(min_length=1, max_length=200)]
    status: ErrorStatus = 400


class SimulatedOutage(Part):
    """An outage, from the moment when the knob is set; `close` breaks each connection without an answer."""

    seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
    mode: Literal["close", "503"] = "close"


class Knobs(Part):
    """All knobs; the defaults make a provider without faults."""

    seed: int = 0
    latency: Annotated[FixedLatency | UniformLatency | LognormalLatency, Field(discriminator="mode")] | None = None
    error_rates: dict[ErrorStatus, Rate] = Field(default_factory=dict)
    quota: CallsPerWindow | None = None
    rate_headers: Literal["none", "policy", "draft7", "draft6", "x"] = "none"
    retry_after: Literal["none", "seconds", "date", "garbage", "negative"] = "none"
    retry_after_seconds: Annotated[int, Field(ge=0, le=86_400)] = 1
    html_429: bool = False
    row_errors: Annotated[list[RowError], Field(max_length=100)] = Field(default_factory=list)
    apply_then_503_rate: Rate = 0.0
    outage: SimulatedOutage | None = None
    faulty_providers: list[Literal["plain", "google_sheets", "gemini", "openai", "anthropic"]] | None = None
    google_sheets: GoogleSheetsKnobs = Field(default_factory=GoogleSheetsKnobs)
    gemini: GeminiKnobs = Field(default_factory=GeminiKnobs)
    openai: OpenAiKnobs = Field(default_factory=OpenAiKnobs)
    anthropic: AnthropicKnobs = Field(default_factory=AnthropicKnobs)
    batches: BatchKnobs = Field(default_factory=BatchKnobs)

    @model_validator(mode="after")
    def _rates_fit(self) -> Self:
        if sum(self.error_rates.values()) > 1 + 1e-9:
            raise ValueError("error_rates add up to more than 1")
        return self

    def changed(self, changes: Any) -> "Knobs":
        """
        Return these knobs with some replaced.

        The knobs of one provider, or of batches, are replaced one by one; null returns all of them to their defaults.
        Any other nested knob is replaced as a whole.

        Raises:
            InvalidKnobs: An unknown knob or a value out of range.
        """
        if not isinstance(changes, dict):
            raise InvalidKnobs(["Send a JSON object of knobs."])
        present = self.model_dump(mode="json")
        merged = {**present, **changes}
        for section in SECTIONS & changes.keys():
            if isinstance(changes[section], dict):
                merged[section] = {**present[section], **changes[section]}
            elif changes[section] is None:
                del merged[section]
        try:
            return Knobs.model_validate_json(json.dumps(merged))
        except ValidationError as error:
            raise InvalidKnobs([_sentence(mistake) for mistake in error.errors()]) from None


def _sentence(mistake: Any) -> str:
    where = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return f"{where}: there is no such knob"
    message = str(mistake["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
