"""The answers about spend, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import BaseModel, Field


class SpendSumShown(BaseModel):
    """The cost of some calls together."""

    calls: int
    money: int = Field(description="In millionths of the currency, of the calls that have a price.")
    unpriced: int = Field(description="Calls that had no price.")
    unknown: int = Field(description="Calls of which nobody knows what they cost; the most is counted.")
    unknown_money: int = Field(description="The part of `money` that is theirs.")
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class SpendGroupShown(SpendSumShown):
    key: str | None = Field(description="The day, project, user or batch, or `provider/model`; null: it had none.")
    provider: str | None = Field(default=None, description="By model alone, as `model` and `via` are.")
    model: str | None = None
    via: Literal["live", "batch", "flex", "priority"] | None = None


class SpendShown(BaseModel):
    currency: str
    first: date = Field(alias="from")
    last: date = Field(alias="to")
    total: SpendSumShown
    groups: list[SpendGroupShown]
