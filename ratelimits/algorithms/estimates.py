"""Estimates of what a call costs before anybody knows: arithmetic only, costs in a limit's unit."""

from __future__ import annotations

from collections.abc import Sequence

from queueops.core.values.numbers import nearest_rank

# The most that a call with a guessed part may reserve, as a part of the capacity: other calls need room, too.
MAX_GUESS = 0.5


def clamped(cost: float, known_cost: float | None, capacity: float) -> float:
    """
    Return the cost to reserve: at most half the capacity, unless the known part alone is larger.

    The result lies between the known cost and `cost`. A known cost above the capacity stays above it,
    so that the call is rejected rather than let through at too small a cost.

    Args:
        cost: The cost, with its known and guessed parts.
        known_cost: The part that is no guess; None: all of it.
        capacity: The capacity of the limit that the call asks.
    """
    if known_cost is None:
        return cost
    return max(known_cost, min(cost, capacity * MAX_GUESS))


def p10(samples: Sequence[float]) -> float:
    """The 10th percentile by `nearest_rank`."""
    return nearest_rank(samples, 10)


def p90(samples: Sequence[float]) -> float:
    """The 90th percentile by `nearest_rank`."""
    return nearest_rank(samples, 90)
