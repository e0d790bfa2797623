"""
Units of the limiter: everything inside is counted in whole millionths, so sums and times are exact.

Times cross the boundary as seconds since 1970 in a float, as `extract(epoch FROM clock_timestamp())`
gives them: a float holds microseconds, PostgreSQL's own resolution, without loss until the year 2112.
Costs cross the boundary in the limit's unit (requests, tokens, calls in flight) and are kept to a millionth of it.
"""

from __future__ import annotations

import math
from typing import Any

from queueops.core.errors import QueueOpsError

MICRO = 1_000_000

# If the clock goes back by at most this much, time stands still until the clock has caught up. If it goes back further,
# its earlier time is taken as wrong.
PATIENCE_SECONDS = 60


class MalformedCost(QueueOpsError):
    """A cost is a finite number, zero or more."""

    code = "malformed_cost"
    detail_fields = ("cost",)


def cost_units(cost: Any) -> int:
    """
    Return a cost in millionths; a cost above zero is never rounded to zero.

    Raises:
        MalformedCost: Negative, infinite, not a number, or not an int or a float (a bool is neither).
    """
    if type(cost) is int and cost >= 0:
        return cost * MICRO
    if type(cost) is float and 0 <= cost < math.inf:
        return max(round(cost * MICRO), 1) if cost else 0
    raise MalformedCost(f"A cost is a finite number, zero or more, not {cost!r}.", cost=repr(cost))


def microseconds(seconds: float) -> int:
    """Return the nearest microsecond."""
    return round(seconds * MICRO)


def seconds(micro: int) -> float:
    """Return the float that `microseconds` turns back into the same number."""
    return micro / MICRO


def steady(seen: int, now: int) -> tuple[int, bool]:
    """
    Return the time to count with, and whether history must be moved to that time.

    If the clock falls back by at most PATIENCE_SECONDS, time stands still until the clock has caught up.
    A clock that swings therefore earns no extra room. After a larger step back, counting goes on from the new
    time, and no time counts as passed. Otherwise a wrong clock, once set right, would stop a limit for days.

    Args:
        seen: The latest time on record, microseconds.
        now: What the clock says, microseconds.
    """
    if now >= seen:
        return now, False
    if seen - now <= PATIENCE_SECONDS * MICRO:
        return seen, False
    return now, True


def with_headroom(quota: float, percent: float) -> float:
    """
    Return the part of a provider's quota that we use, in the quota's unit.

    Raises:
        ValueError: The percentage is negative, or 100 or more. With 0, we use the whole quota.
    """
    if not 0 <= percent < 100:  # noqa: PLR2004 (a percentage)
        raise ValueError(f"headroom percent: at least 0 and below 100, not {percent!r}")
    return quota * (100 - percent) / 100


def require_amount(name: str, amount: Any, *, above_zero: bool = True) -> None:
    """
    Check a number of a limit's configuration.

    Raises:
        ValueError: Not a finite number, a bool, negative, or zero where `above_zero`.
    """
    if type(amount) not in (int, float) or not math.isfinite(amount) or amount < 0 or (above_zero and not amount):
        raise ValueError(f"{name}: a finite number {'above zero' if above_zero else 'of zero or more'}, not {amount!r}")
