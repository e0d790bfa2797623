"""Concurrency: at most so many calls in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ratelimits.algorithms.admission import Algorithm, State, require_sizes
from ratelimits.algorithms.figures import NOUNS, Figures, figure
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, require_amount
from ratelimits.algorithms.spans import SpanMeter
from ratelimits.costs import ENQUEUED_TOKENS

BUCKETS = 60
MAX_BUCKETS = 3600  # longer leases get wider buckets; otherwise the state would grow without end
MAX_BATCH_SECONDS = 90 * 86_400.0


@dataclass(frozen=True, slots=True)
class Concurrency(Algorithm):
    """
    The cost of running leases is at most the capacity.

    A lease ends with its call (`give_back`), or by itself `lease_seconds` after it was granted. That time is rounded up
    by at most a second: below a minute by at most 1/60, above an hour by at most 1/3600 of it. Leases are kept as sums
    per sub-bucket, so the state doesn't grow with the capacity.

    Args:
        capacity: The most that may run at once, in calls or in the unit of a call's cost.
        lease_seconds: How long a lease lasts at most. If a call takes longer, it stops counting while it runs.
        ceiling: See `Algorithm`.
    """

    kind: ClassVar = "concurrency"
    reads: ClassVar = frozenset({"capacity", "lease_seconds"})
    counts_in_flight: ClassVar = True

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
            width=max(min(MICRO, -(-lease // BUCKETS)), lease // MAX_BUCKETS),
            hold=lease,
        )

    @classmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        lease = figures.lease_seconds
        if figures.unit == ENQUEUED_TOKENS:  # a batch holds its tokens until the batch ends or its charge expires
            lease = max(lease, MAX_BATCH_SECONDS)
        return cls(max(capacity * pressure, min(1.0, capacity)), lease, ceiling=capacity)

    @classmethod
    def in_words(cls, figures: Figures) -> str:
        return f"{figure(figures.capacity)} {NOUNS[figures.unit]}"

    @classmethod
    def safe(cls, figures: Figures, quota: float) -> dict[str, float | None]:
        return {"capacity": quota}
