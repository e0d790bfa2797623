"""Fallbacks: the other ways to do a job's work, in order, and the conditions to switch to each of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Condition = Literal["rate_limited", "unavailable", "context_too_long", "no_credit"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
CONTEXT_TOO_LONG = "context_too_long"  # also the code of the failure: the provider says that the input is too long
NO_QUOTA = "no_quota"  # the code of the failure: the provider's quota for the model is 0, and no wait helps
CREDIT_GONE = "credit_gone"  # the code of the failure: the provider wants to be paid


@dataclass(frozen=True, slots=True)
class Fallback:
    """
    One fallback: another way to do a job's work.

    Attributes:
        payload: The job's new payload; its service, model, credential and cost follow from it.
        when: `rate_limited`: the job waits for limits longer than `after_seconds`. `unavailable`: its target does not
            answer. `context_too_long`: its input is too long for the model. `no_credit`: the provider wants to be paid.
    """

    payload: Any
    when: frozenset[Condition]
    after_seconds: float = 300.0


def next_way(ways: Sequence[Fallback], step: int, condition: Condition) -> int | None:
    """Return the next step, counted from 1, of a job at `step`; None: no later fallback has that condition."""
    later = (number for number, way in enumerate(ways, 1) if number > step and condition in way.when)
    return next(later, None)


def after_wait(ways: Sequence[Fallback], step: int) -> float | None:
    """Return how many seconds a job at `step` waits for a limit before it switches; None: it has no such fallback."""
    following = next_way(ways, step, "rate_limited")
    return None if following is None else ways[following - 1].after_seconds
