"""The arithmetic of money: whole micro-units of one currency, rounded half up once for each call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from ratelimits.costs import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    WRITTEN_1H_TOKENS,
    WRITTEN_TOKENS,
    Usage,
)

MICRO = 1_000_000  # micro-units in one unit of the currency; also the number of tokens or requests that a price is for
MONEY_PLACES = 6  # decimals of an amount in the currency

Rates = Mapping[str, int]
"""The price of a million of each unit, in micro-units; a unit that is left out has no price."""


def cost_of(usage: Usage, rates: Rates) -> int | None:
    """
    Return the cost of a call in micro-units; None: a price that the call needs is missing, or its use is unknown.

    Input that came from a cache or was put into a cache costs as much as other input, unless it has a price of its own.
    Input that a cache keeps for an hour likewise costs as much as other input that was put into a cache.
    The call itself costs nothing, unless requests have a price.
    """
    counted = {OUTPUT_TOKENS: usage.output_tokens, **_input(usage, rates)}
    if not any(unit in rates for unit in (INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS)):
        return None
    if lacks_usage(usage, rates):
        return None
    if any(count and unit not in rates for unit, count in counted.items()):
        return None
    product = sum((count or 0) * rates.get(unit, 0) for unit, count in counted.items())
    return rounded(product + usage.requests * rates.get(REQUESTS, 0))


def lacks_usage(usage: Usage, rates: Rates) -> bool:
    """Whether a unit has a price, but the provider did not say how much of the unit was used."""
    counted = {OUTPUT_TOKENS: usage.output_tokens, **_input(usage, rates)}
    return any(count is None for unit, count in counted.items() if unit in rates)


def most_of(input_tokens: int, output_tokens: int, rates: Rates, *, requests: int = 1) -> int | None:
    """Return the highest cost of a call of at most so many tokens; None: a price that it needs is missing."""
    if unpriced(input_tokens, output_tokens, rates):
        return None
    dearest = max(rates.get(unit, 0) for unit in (INPUT_TOKENS, CACHED_TOKENS, WRITTEN_TOKENS, WRITTEN_1H_TOKENS))
    product = input_tokens * dearest + output_tokens * rates.get(OUTPUT_TOKENS, 0)
    return -(-(product + requests * rates.get(REQUESTS, 0)) // MICRO)  # rounded up: a bound must not be too low


def unpriced(input_tokens: int, output_tokens: int, rates: Rates) -> str:
    """
    Return a unit whose price a call of at most so many tokens needs and has not; empty: it has all prices.

    REQUESTS stands for a call without input: a price of requests or of input is enough.
    """
    if INPUT_TOKENS not in rates and (input_tokens or REQUESTS not in rates):
        return INPUT_TOKENS if input_tokens else REQUESTS
    return OUTPUT_TOKENS if output_tokens and OUTPUT_TOKENS not in rates else ""


def rounded(product: int) -> int:
    """Turn the sum of each count times its price for a million into micro-units, rounded half up."""
    return (2 * product + MICRO) // (2 * MICRO)


def per_million(per_one: Decimal) -> int:
    """Turn a price of one unit, in the currency, into the price of a million, in micro-units, rounded half up."""
    return int((per_one * MICRO * MICRO + Decimal("0.5")).to_integral_value("ROUND_FLOOR"))


def shown(micro: int | None, currency: str) -> str:
    """`12.34 USD`; small amounts with up to six places: `0.000125 USD`."""
    if micro is None:
        return "no price"
    if micro % 10_000 == 0 or abs(micro) >= 100 * MICRO:
        return f"{Decimal(micro) / MICRO:,.2f} {currency}"
    whole = f"{Decimal(micro) / MICRO:,.6f}".rstrip("0")
    return f"{whole} {currency}"


def _input(usage: Usage, rates: Rates) -> dict[str, int | None]:
    left = usage.input_tokens
    if left is None:
        return {INPUT_TOKENS: None}
    found: dict[str, int | None] = {}
    kept = usage.written_1h_tokens or 0 if WRITTEN_1H_TOKENS in rates else 0
    written = max(0, (usage.written_tokens or 0) - kept)
    parts = ((CACHED_TOKENS, usage.cached_tokens or 0), (WRITTEN_1H_TOKENS, kept), (WRITTEN_TOKENS, written))
    for unit, count in parts:
        if unit in rates:
            found[unit] = min(count, left)
            left -= min(count, left)
    return {INPUT_TOKENS: left, **found}
