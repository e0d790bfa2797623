"""The answers of the API about a forecast."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from jobs.api.answers import RefusedLine

FORECAST: dict[str, Any] = {
    "accepted": True,
    "jobs": {
        "count": 500,
        "duplicates": 0,
        "by_batch": 0,
        "by_model": [{"kind": "llm.generate", "service": "openai", "model": "gpt-5-mini", "jobs": 500}],
    },
    "tokens": {
        "input_tokens": {"known": 200_000, "expected": 204_000, "reserved": 200_000},
        "output_tokens": {"known": 0, "expected": 60_000, "reserved": 110_000},
        "tokens": {"known": 200_000, "expected": 264_000, "reserved": 310_000},
    },
    "learned": True,
    "currency": "USD",
    "live": {"price": 171_000, "price_range": None, "finish_at": "2026-03-02T10:21:40Z", "seconds": 1300.0, "why": ""},
    "batch": {
        "price": 85_500,
        "price_range": None,
        "finish_at": "2026-03-03T10:00:00Z",
        "seconds": 86_400.0,
        "why": "",
    },
    "missing_prices": [],
    "budgets": [{"budget": "march", "user_id": None, "policy": "wait", "needed": 171_000, "left": 150_000}],
    "binding": [
        {
            "limit": "openai-tokens",
            "key": "project=acme",
            "unit": "tokens",
            "needed": 264_000.0,
            "ahead": 40_000.0,
            "seconds": 1295.0,
            "share": 0.996,
        }
    ],
    "rejected": {"count": 0, "jobs": []},
}


class JobsOfModel(BaseModel):
    kind: str
    service: str
    model: str | None
    jobs: int


class ForecastJobs(BaseModel):
    count: int = Field(description="That would be made.")
    duplicates: int = Field(description="Lines whose idempotency_key stands for the same work already.")
    by_batch: int = Field(description="Of the count: that would go by a batch of their provider, as they are.")
    by_model: list[JobsOfModel]


class ForecastTokens(BaseModel):
    known: int = Field(description="What is no guess: the input as it is estimated.")
    expected: int = Field(description="As calls of the kind and model have lately had on average; else the most.")
    reserved: int = Field(description="What limits keep free for them until their answers tell.")


class PriceRange(BaseModel):
    at_least: int = Field(description="With no output of the calls of whose like too little is known.")
    at_most: int | None = Field(description="With all that they can bring. Null: nothing bounds the output of some.")


class ForecastWay(BaseModel):
    price: int | None = Field(description="In millionths of the currency. Null: a price is missing.")
    price_range: PriceRange | None = Field(
        description="Between which it lies, where calls like these are too few yet. Null: `learned`, or no price."
    )
    finish_at: datetime | None = Field(description="When the last would have ended. Null: nobody knows, see `why`.")
    seconds: float | None = Field(description="Until then.")
    why: str = Field(description="Why nobody knows when; else empty.")


class UnpricedModel(BaseModel):
    service: str
    model: str
    via: Literal["live", "batch"]


class ShortBudget(BaseModel):
    budget: str
    user_id: UUID | None = Field(description="Whose it is; null: the project's.")
    policy: Literal["wait", "reject"] = Field(description="What becomes of the jobs beyond it.")
    needed: int | None = Field(description="What the work should cost, in millionths. Null: a price is missing.")
    left: int


class BindingLimit(BaseModel):
    limit: str
    key: str = Field(description="Under which the limit counts it: the quota's owner.")
    unit: str
    needed: float = Field(description="By the batch, in the unit.")
    ahead: float = Field(description="By the work before it.")
    seconds: float | None = Field(description="Until the last of it has passed. Null: it never does.")
    share: float = Field(description="Of the whole time; 1: this limit sets the pace.")


class Rejections(BaseModel):
    count: int
    jobs: list[RefusedLine] = Field(description="The first 100.")


class ForecastAnswer(BaseModel):
    accepted: bool = Field(description="False: its submission would be refused because of what is rejected.")
    jobs: ForecastJobs
    tokens: dict[str, ForecastTokens] = Field(description="By unit; empty where no job counts tokens.")
    learned: bool | None = Field(
        description="Whether all follow from earlier calls of the project. False: some are only bounds; null: none."
    )
    currency: str
    live: ForecastWay = Field(description="All of them live.")
    batch: ForecastWay = Field(description="By batches of their providers all that can go so; the rest live.")
    missing_prices: list[UnpricedModel]
    budgets: list[ShortBudget] = Field(description="Those that would not suffice, if all goes live.")
    binding: list[BindingLimit] = Field(description="The slowest limit first, at most ten.")
    rejected: Rejections
