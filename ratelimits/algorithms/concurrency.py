"""Concurrency: at most so many calls in flight."""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import State, require_sizes
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, require_amount
from ratelimits.algorithms.spans import SpanMeter

BUCKETS = 60


@dataclass(frozen=True, slots=True)
class Concurrency:
    """
    The cost of running leases is at most the capacity.

    A lease ends with its call (`give_back`), or by itself `lease_seconds` after it was granted, rounded up by
    at most a second (a sixtieth of a lease below a minute). Leases are kept as sums per sub-bucket, so the
    state doesn't grow with the capacity.

    Args:
        capacity: Calls, or what a call's cost is measured in.
        lease_seconds: Longer than any call takes, or it stops counting while it runs.
        ceiling: See `Algorithm`.
    """

    capacity: float
    lease_seconds: float = 30
    ceiling: float | None = None

    def __post_init__(self) -> None:
        require_sizes(self)
        require_amount("lease_seconds", self.lease_seconds)

    def open(self, state: State, now: float) -> SpanMeter:
        """Read a counter's state at `now`, seconds since 1970."""
        lease = microseconds(self.lease_seconds)
        return SpanMeter(
            "concurrency",
            state,
            microseconds(now),
            capacity=cost_units(self.capacity),
            width=min(MICRO, -(-lease // BUCKETS)),
            hold=lease,
        )
