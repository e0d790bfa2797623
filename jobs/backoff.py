"""When a failed call is tried again: pure functions, all durations in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from queueops.core.values.retry_after import spread

LIMITED_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Policy:
    """Truncated exponential backoff. `window`: seconds in which retries may begin; None: not bounded in time."""

    initial: float
    multiplier: float
    max_delay: float
    max_retries: int
    jitter: Literal["full", "limited", "none"]
    window: float | None


A_DAY = 86_400.0

# The first two are templates A and B of the product's specification; RetryPolicy rows start as these. `receiver` is for
# our messages to receivers. It retries after 5 s, 15 s, 45 s and so on up to 6 h, for three days, as is common among
# senders (wire-facts.md).
TEMPLATES: dict[str, Policy] = {
    "moderate": Policy(initial=1, multiplier=3, max_delay=60, max_retries=5, jitter="full", window=500),
    "aggressive": Policy(initial=1, multiplier=2, max_delay=64, max_retries=10, jitter="limited", window=None),
    "receiver": Policy(
        initial=5, multiplier=3, max_delay=A_DAY / 4, max_retries=40, jitter="limited", window=3 * A_DAY
    ),
}


def ceiling(policy: Policy, retries_done: int) -> float:
    """The longest delay before retry number `retries_done + 1`: min(max_delay, initial * multiplier**retries_done)."""
    try:
        return min(policy.max_delay, policy.initial * policy.multiplier**retries_done)
    except OverflowError:
        return policy.max_delay


def delay(policy: Policy, retries_done: int, *, chance: float, retry_after: float | None = None) -> float:
    """
    The delay before the next retry.

    Args:
        chance: Uniform in [0, 1): the jitter's randomness, drawn by the caller.
        retry_after: Seconds that the provider asked for; the delay is at least that long, see `spread`.
    """
    longest = ceiling(policy, retries_done)
    match policy.jitter:
        case "full":
            chosen = longest * chance
        case "limited":
            chosen = longest * (1 - LIMITED_JITTER * chance)
        case "none":
            chosen = longest
    return max(chosen, spread(retry_after or 0.0, chance))


def exhausted(policy: Policy, retries_done: int, *, window_used: float, next_delay: float) -> str | None:
    """
    Return why no retry is left, or None if a retry is left.

    Args:
        window_used: Seconds since the first attempt, less the time spent waiting for limits.
    """
    if retries_done >= policy.max_retries:
        return f"all {policy.max_retries} retries are used"
    if policy.window is not None and window_used + next_delay > policy.window:
        return f"the retry window of {policy.window:g} s would be passed"
    return None
