"""How long a denied call waits before it asks again: arithmetic only, all durations in seconds."""

from __future__ import annotations

import math

LONGEST_SECONDS = 300.0
LARGEST_FACTOR = 3.0
JITTER = 0.2


def deferral_delay(deficit_seconds: float, fullness: float, chance: float, *, until_hard_reset: bool = False) -> float:
    """
    Return the delay of a call denied at dispatch.

    The deficit times 3**fullness (1x in an idle limit, 3x in a full one), spread by +-20 %. The part of
    the spread that lies before the deficit is cut off and the rest drawn from evenly, so nothing wakes
    before its tokens exist and nothing piles up on the instant they do. At most 300 s (spread over
    the last 20 % of it), even where the tokens take longer. Up to a hard reset the delay is the deficit.

    Args:
        deficit_seconds: Until the call would fit: deficit / refill rate, or `retry_at` - now.
        fullness: Used part of the limit, clipped to 0..1.
        chance: Uniform in [0, 1), drawn by the caller.
    """
    deficit = max(deficit_seconds, 0.0)
    if until_hard_reset:
        return deficit
    middle = deficit * math.pow(LARGEST_FACTOR, min(max(fullness, 0.0), 1.0))
    latest = min(middle * (1 + JITTER), LONGEST_SECONDS)
    earliest = max(deficit, min(middle, LONGEST_SECONDS) * (1 - JITTER))
    if earliest > latest:
        earliest = latest * (1 - JITTER)
    return min(earliest + chance * (latest - earliest), latest)
