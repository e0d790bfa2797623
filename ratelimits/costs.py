"""The cost of one call, by unit: as estimated before the call, and as counted after it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

REQUESTS, IN_FLIGHT, TOKENS = "requests", "in_flight", "tokens"
INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = "input_tokens", "cached_tokens", "output_tokens"
WRITTEN_TOKENS, WRITTEN_1H_TOKENS = "written_tokens", "written_1h_tokens"
TOLD_OUTPUT = "max_output_tokens"  # the most output that a call allows, if it is expected to bring less
ENQUEUED_TOKENS = "enqueued_tokens"
# Not units of limits. A job of several calls in sequence has these two amounts; its other amounts are those of its
# largest call.
CALLS, INPUT_OF_CALLS = "calls", "input_of_calls"

PER_CALL = frozenset({REQUESTS, IN_FLIGHT})  # every call takes one of each, whatever it costs
UNTIL_THE_END = frozenset({IN_FLIGHT, ENQUEUED_TOKENS})  # the whole amount comes back when its call ends

Amounts = Mapping[str, float]
"""Amounts by unit; an amount that is left out follows from the cost."""

NO_AMOUNTS: Amounts = MappingProxyType({})

TIERS = frozenset({"flex", "priority", "batch"})  # service tiers whose prices are not the usual ones
MAX_TOKENS_OF_A_CALL = 1_000_000_000  # a larger number cannot be a real count, and its cost could not be stored


@dataclass(frozen=True, slots=True)
class Usage:
    """
    The real use of one call, as its provider counted it. None: the provider did not say.

    Attributes:
        input_tokens: All of the input, with the part that came from a cache.
        cached_tokens: The part of the input that was read from a cache.
        written_tokens: The part of the input that was put into a cache. None: nothing, as far as its provider says.
        written_1h_tokens: The part of `written_tokens` that the cache keeps for an hour, as Anthropic offers it.
        tier: The one of TIERS that the provider says it served the call by; empty: the usual one. A provider's project
            may have another tier by default, which no request names.
        output_tokens: All of the output, thoughts included.
        tokens: The sum as the provider sums it.
    """

    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int | None = None
    requests: int = 1
    written_tokens: int | None = None
    written_1h_tokens: int | None = None
    tier: str = ""

    @property
    def is_sound(self) -> bool:
        """
        Whether the counts are possible, and the tier is known. A program that answers in a provider's place may send
        any numbers.
        """
        counts = (self.requests, self.written_tokens or 0, self.written_1h_tokens or 0, *self.amounts().values())
        fits = all(type(count) is int and 0 <= count <= MAX_TOKENS_OF_A_CALL for count in counts)
        return fits and self.tier in ("", *TIERS)

    def amounts(self) -> dict[str, float]:
        """The amounts that are known, by unit."""
        found = {
            INPUT_TOKENS: self.input_tokens,
            CACHED_TOKENS: self.cached_tokens,
            OUTPUT_TOKENS: self.output_tokens,
            TOKENS: self.tokens,
        }
        return {unit: amount for unit, amount in found.items() if amount is not None}


def estimate(
    unit: str, cost: float, known_cost: float | None, amounts: Amounts, *, counts_cached: bool = True
) -> tuple[float, float | None]:
    """
    Return how much a call is expected to need of a unit that is not in PER_CALL, and how much of that is known.

    The second value is None if all of it is known.

    An amount that is not stated follows from the cost: its known part is input, the rest output. A cost without a
    `known_cost` may be input or output, so it counts as both. Stated output is an upper bound, and so a guess.
    """
    stated = amounts.get(unit)
    if unit == INPUT_TOKENS:
        if stated is None:
            return (cost if known_cost is None else known_cost), None
        return (stated if counts_cached else max(0.0, stated - amounts.get(CACHED_TOKENS, 0))), None
    if unit == OUTPUT_TOKENS:
        if stated is not None:
            return stated, 0.0
        return (cost, None) if known_cost is None else (max(0.0, cost - known_cost), 0.0)
    if unit == TOKENS and stated is None:
        return cost, known_cost
    return stated or 0.0, None


def reserved_whole(unit: str, cost: float, known_cost: float | None, amounts: Amounts) -> float | None:
    """
    Return how much a call takes of a limit whose provider counts all the output that it may bring.

    None: the call takes its usual estimate of this limit, too.
    """
    told = amounts.get(TOLD_OUTPUT, amounts.get(OUTPUT_TOKENS))
    if told is None or unit not in {TOKENS, OUTPUT_TOKENS} or (unit == TOKENS and known_cost is None):
        return None
    return told if unit == OUTPUT_TOKENS else max(cost, (known_cost or 0.0) + told)


def taken(cost: float, known_cost: float | None, amounts: Amounts) -> dict[str, float]:
    """Return how much a call is expected to need of each unit of tokens, for its record."""
    units = (TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, ENQUEUED_TOKENS)
    found = {unit: estimate(unit, cost, known_cost, amounts)[0] for unit in units}
    return {**found, CACHED_TOKENS: amounts.get(CACHED_TOKENS, 0.0) if INPUT_TOKENS in amounts else 0.0}


def counted(unit: str, actual: float | None, amounts: Amounts, *, counts_cached: bool = True) -> float | None:
    """
    Return how much a call that has ended took of a unit; None: unknown, so its estimate stays charged.

    Args:
        actual: The call's cost in tokens, as limits count it. With 0 and no amounts, the call took nothing.
    """
    if unit == TOKENS and actual is not None:
        return actual
    if actual == 0 and not amounts:
        return 0.0
    found = amounts.get(unit)
    if found is not None and unit == INPUT_TOKENS and not counts_cached:
        return max(0.0, found - amounts.get(CACHED_TOKENS, 0))
    return found


def read_amounts(text: str | None) -> Amounts:
    """Read amounts from JSON text, as a job's `costs` has them."""
    return NO_AMOUNTS if text is None else json.loads(text)
