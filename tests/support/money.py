"""Prices of a provider's calls."""

from __future__ import annotations

from ratelimits.models import Price
from ratelimits.money import prices

INPUT, OUTPUT = 2_000_000, 8_000_000  # for a million: 2 and 8 of the currency


def set_prices(service: str) -> None:
    for unit, amount in (("input_tokens", INPUT), ("output_tokens", OUTPUT)):
        Price.objects.create(
            provider=service, model="small-1", unit=unit, amount=amount, valid_from="2026-01-01T00:00Z"
        )
    prices.forget()
