"""The amount that a call takes of a limit before anybody knows its cost."""

from __future__ import annotations

from typing import Protocol

from ratelimits.algorithms.estimates import clamped
from ratelimits.algorithms.measures import cost_units
from ratelimits.costs import TOKENS, Amounts, estimate, reserved_whole
from ratelimits.limits.catalogue import Rule


class Costly(Protocol):
    """A call that has a cost, as `decide.Call` has."""

    @property
    def cost(self) -> float: ...

    @property
    def known_cost(self) -> float | None: ...

    @property
    def amounts(self) -> Amounts: ...


def needed(rule: Rule, key: str, call: Costly) -> float:
    """
    Return what a call takes of a limit that does not count calls one by one, in the limit's unit.

    Raises:
        MalformedCost: An amount is not a finite number of zero or more.
    """
    if rule.reserves_whole:
        whole = reserved_whole(rule.unit, call.cost, call.known_cost, call.amounts)
        if whole is not None:
            cost_units(whole)
            # A call that may take more than the whole limit goes alone. It is unfit only if its input is too large.
            return max(call.known_cost or 0.0 if rule.unit == TOKENS else 0.0, min(whole, rule.algorithm(key).capacity))
    amount, known = estimate(rule.unit, call.cost, call.known_cost, call.amounts, counts_cached=rule.counts_cached)
    cost_units(amount)  # raises for a malformed cost, which `clamped` could replace by its known part
    return clamped(amount, known, rule.algorithm(key).capacity)
