"""The knobs of one provider each, under its name; docs/how-to/sandbox.md explains them one by one."""

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from sandbox.knobs.parts import Capacity, Name, Names, QuotaKnobs, Rate, WindowSeconds

OutputTokens = Annotated[int, Field(ge=0, le=100_000)]
TokenFactor = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
RatelimitHeaders = Literal["true", "none", "minus_one", "zero"]


class GoogleSheetsKnobs(QuotaKnobs):
    reads_per_project: Capacity | None = 300
    writes_per_project: Capacity | None = 300
    reads_per_user: Capacity | None = 60
    writes_per_user: Capacity | None = 60
    writes_of_projects: Annotated[dict[Name, Capacity], Field(max_length=1_000)] = Field(default_factory=dict)
    error_details: Literal["full", "partial", "no_metadata", "none"] = "full"
    spreadsheets: Names | None = None
    forbidden_spreadsheets: Names = Field(default_factory=list)
    disabled_projects: Names = Field(default_factory=list)
    protected_ranges: Names = Field(default_factory=list)
    grid_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    grid_columns: Annotated[int, Field(ge=1, le=18_278)] = 26


class LlmKnobs(QuotaKnobs):
    requests_per_minute: Capacity | None
    quotas_per: Literal["project", "key"] = "project"
    models: Names | None = None
    context_tokens: Annotated[dict[Name, Capacity], Field(max_length=100)] = Field(default_factory=dict)
    bad_keys: Names = Field(default_factory=list)
    credit_gone: bool = False
    token_factor: TokenFactor = 1.0
    output_tokens: OutputTokens = 64
    schema_mismatch: bool = False
    missing_usage_rate: Rate = 0.0
    stream_chunks: Annotated[int, Field(ge=1, le=100)] = 3
    stream_chunk_milliseconds: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] = 0
    stream_cut_rate: Rate = 0.0


class GeminiKnobs(LlmKnobs):
    requests_per_minute: Capacity | None = 15
    tokens_per_minute: Capacity | None = 250_000
    requests_per_day: Capacity | None = 1_500
    reset_zone: Name = "America/Los_Angeles"
    day_seconds: WindowSeconds | None = None
    tier: Literal["free", "paid"] = "free"
    error_details: Literal["full", "shuffled", "none"] = "full"
    quota_values: bool = True
    retry_delay: Literal["seconds", "nanoseconds", "none"] = "nanoseconds"
    error_array: bool = True
    batch_bytes: Capacity = 20_000_000
    batch_file_bytes: Capacity = 1_000_000_000
    batch_keys: bool = True
    enqueued_tokens: Capacity | None = 3_000_000

    @field_validator("reset_zone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            raise ValueError(f"{name} is no time zone") from None
        return name


class OpenAiKnobs(LlmKnobs):
    requests_per_minute: Capacity | None = 60
    tokens_per_minute: Capacity | None = 30_000
    hidden_share: Rate = 0.0
    cached_share: Rate = 0.0
    reasoning_share: Rate = 0.0
    ratelimit_headers: RatelimitHeaders = "true"
    batch_lines: Capacity = 50_000
    batch_bytes: Capacity = 200_000_000
    enqueued_tokens: Capacity | None = 2_000_000


class AnthropicKnobs(LlmKnobs):
    requests_per_minute: Capacity | None = 50
    input_tokens_per_minute: Capacity | None = 30_000
    output_tokens_per_minute: Capacity | None = 8_000
    output_charged: Literal["actual", "max_tokens"] = "actual"
    hidden_share: Rate = 0.0
    ratelimit_headers: RatelimitHeaders = "true"
    rounded_remaining: bool = True
    retry_after: bool = True
    cache_minimum_tokens: Annotated[int, Field(ge=0, le=100_000)] = 1_024
    cache_seconds: WindowSeconds = 300
    stream_overloaded_rate: Rate = 0.0
    batch_requests: Capacity = 100_000
    batch_bytes: Capacity = 256_000_000
    queued_requests: Capacity | None = 100_000
    batch_calls_per_minute: Capacity | None = 1_000
