"""What one call costs, by unit: as it is estimated before, and as it was counted after. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

REQUESTS, IN_FLIGHT, TOKENS = "requests", "in_flight", "tokens"
INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = "input_tokens", "cached_tokens", "output_tokens"
WRITTEN_TOKENS = "written_tokens"
TOLD_OUTPUT = "max_output_tokens"  # what a call tells its provider to bring at most, where less is expected of it
ENQUEUED_TOKENS = "enqueued_tokens"
# No units: of a job that takes several calls, one after the other. The other amounts are those of its largest call.
CALLS, INPUT_OF_CALLS = "calls", "input_of_calls"

PER_CALL = frozenset({REQUESTS, IN_FLIGHT})  # of which every call takes one, whatever it costs
UNTIL_THE_END = frozenset({IN_FLIGHT, ENQUEUED_TOKENS})  # of which all comes back when a call ends

Amounts = Mapping[str, float]
"""By unit; one that is left out follows from the cost."""

NO_AMOUNTS: Amounts = MappingProxyType({})

MOST_TOKENS = 1_000_000_000  # of one call: what is told beyond it is no count, and could not be stored with its price


@dataclass(frozen=True, slots=True)
class Usage:
    """
    What one call really used, as its provider counted it. None: it did not say.

    Attributes:
        input_tokens: All of the input, what came from a cache included.
        cached_tokens: Of the input, what was read from a cache.
        written_tokens: Of the input, what was put into a cache. None: nothing, as far as its provider says.
        output_tokens: All of the output, thoughts included.
        tokens: The sum as the provider sums it.
    """

    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int | None = None
    requests: int = 1
    written_tokens: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether its counts can be: who answers in a provider's place may say anything."""
        counts = (self.requests, self.written_tokens or 0, *self.amounts().values())
        return all(type(count) is int and 0 <= count <= MOST_TOKENS for count in counts)

    def amounts(self) -> dict[str, float]:
        """What is known, by unit."""
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
    Return what a call is taken to need of a unit that is not per call, and the part of it that is no guess; None: all.

    What is not stated follows from the cost: what is known of it is input, the rest output. Of a cost that is one
    figure nobody knows which it is, so that it counts as both. Output that is stated is a bound, and so a guess.
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
    Return what a call takes of a limit whose provider counts all the output that it may bring; None: as of any other.
    """
    told = amounts.get(TOLD_OUTPUT, amounts.get(OUTPUT_TOKENS))
    if told is None or unit not in {TOKENS, OUTPUT_TOKENS} or (unit == TOKENS and known_cost is None):
        return None
    return told if unit == OUTPUT_TOKENS else max(cost, (known_cost or 0.0) + told)


def taken(cost: float, known_cost: float | None, amounts: Amounts) -> dict[str, float]:
    """Return what a call is taken to need of each unit of tokens, for the record of it."""
    units = (TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, ENQUEUED_TOKENS)
    found = {unit: estimate(unit, cost, known_cost, amounts)[0] for unit in units}
    return {**found, CACHED_TOKENS: amounts.get(CACHED_TOKENS, 0.0) if INPUT_TOKENS in amounts else 0.0}


def counted(unit: str, actual: float | None, amounts: Amounts, *, counts_cached: bool = True) -> float | None:
    """
    Return what a call that has ended took of a unit; None: nobody knows, its estimate stands.

    Args:
        actual: Its cost in tokens as its limits count them; 0 and no amounts: it took nothing.
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
