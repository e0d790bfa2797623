"""Leaky bucket: calls leave at a fixed pace, from a bounded queue."""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, Self

from ratelimits.algorithms.admission import STATE_VERSION, Algorithm, State, require_sizes, stored
from ratelimits.algorithms.figures import NOUNS, Figures, Findings, figure, floored, window_of
from ratelimits.algorithms.measures import cost_units, microseconds, require_amount, steady
from ratelimits.costs import PER_CALL


@dataclass(frozen=True, slots=True)
class LeakyBucket(Algorithm):
    """
    Calls leave at least 1/rate apart: after a call of cost c the next leaves c/rate later or more.

    A granted call has its time to leave, at most (capacity - cost) / rate ahead; a call that finds the
    queue full is told when it will have a place. Refunds give nothing back: a time to leave that has been
    given out cannot be moved. Changed figures hold from the last call that was given its time.

    Args:
        capacity: The most cost in the queue, including the call about to leave; 1 with costs of 1 means no queue.
        rate: The cost that leaves in a second.
        ceiling: See `Algorithm`.
    """

    kind: ClassVar = "leaky_bucket"
    reads: ClassVar = frozenset({"refill_per_second", "window_seconds", "provider_quota"})
    is_bucket: ClassVar = True

    capacity: float
    rate: float
    ceiling: float | None = None

    def __post_init__(self) -> None:
        require_sizes(self)
        require_amount("rate", self.rate)

    def open(self, state: State, now: float) -> LeakyMeter:
        """Read a counter's state at `now`, seconds since 1970."""
        return LeakyMeter(self, state, microseconds(now))

    @classmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        # A limit's bucket has no queue of its own: a call that cannot leave now waits in its lane, in its turn.
        return cls(min(1.0, math.ceil(capacity)), rate * pressure)

    @property
    def rate_per_second(self) -> float:
        return self.rate

    @classmethod
    def in_words(cls, figures: Figures) -> str:
        return f"{figure(figures.refill_per_second or 0)} {NOUNS[figures.unit]} a second, evenly"

    @classmethod
    def check(cls, figures: Figures, found: Findings) -> None:
        window, rate, quota = window_of(figures), figures.refill_per_second or 0, figures.provider_quota
        if figures.unit not in PER_CALL:
            found.refuse("unit", "A leaky bucket spaces calls out; tokens take a window or a token bucket.")
        if figures.headroom_percent:
            found.refuse("headroom_percent", "A leaky bucket lets one call go at a time; lower its rate instead.")
        if quota is not None and rate * window > quota * (1 + 1e-9):
            found.refuse(
                "refill_per_second",
                f"{figure(rate)} a second makes {figure(rate * window)} in {figure(window)} s, but the provider allows"
                f" {figure(quota)}. Safe: {figure(floored(quota / window))} a second.",
            )

    @classmethod
    def safe(cls, figures: Figures, quota: float) -> dict[str, float | None]:
        return {"refill_per_second": quota / window_of(figures), "provider_quota": quota}

    @classmethod
    def missing(cls, figures: Figures, stated: AbstractSet[str]) -> dict[str, float | None]:
        """Return a capacity of one call: the rate alone sets the pace."""
        return {} if "capacity" in stated else {"capacity": 1}


class LeakyMeter:
    """
    State: `last`, when the last call leaves; `owed`, its cost, which delays the next call; `at`, the time of the last
    write.
    """

    __slots__ = ("_capacity", "_last", "_line", "_owed", "_per_den", "_per_num", "moved", "now")

    def __init__(self, bucket: LeakyBucket, state: State, now: int) -> None:
        self._capacity = cost_units(bucket.capacity)
        self._per_num, self._per_den = bucket.rate.as_integer_ratio()
        self._line: tuple[int, int, int] | None = None
        self._last, self._owed = now, 0
        self.moved = False
        if kept := stored(state, "leaky_bucket"):
            self._last, self._owed = kept["last"], kept["owed"]
            now, self.moved = steady(kept["at"], now)
            if self.moved:
                self._last -= kept["at"] - now
        self.now = now

    def _free_at(self, last: int, owed: int) -> int:
        """When the next call may leave, rounded up to the microsecond. Rounded down, calls would come ever closer."""
        return last + -(-owed * self._per_den // self._per_num)

    def _longest_wait(self, units: int) -> int:
        return (self._capacity - min(units, self._capacity)) * self._per_den // self._per_num

    def room_for(self, units: int) -> bool:
        return self._free_at(self._last, self._owed) - self.now <= self._longest_wait(units)

    def take(self, units: int) -> int:
        leaves = max(self.now, self._free_at(self._last, self._owed))
        if units:
            self._last, self._owed = leaves, units
        return leaves

    def line_up(self, units: int) -> int:
        last, owed, after = self._line or (self._last, self._owed, self.now)
        free_at = self._free_at(last, owed)
        enters = max(after, free_at - self._longest_wait(units))
        self._line = (max(enters, free_at), units, enters) if units else (last, owed, enters)
        return enters

    def give_back(self, units: int, granted_at: int) -> None:
        """Do nothing: see LeakyBucket."""

    def available(self) -> int:
        waiting = max(0, self._free_at(self._last, self._owed) - self.now)
        return self._capacity + -waiting * self._per_num // self._per_den

    def state(self) -> State:
        return {
            "v": STATE_VERSION,
            "kind": "leaky_bucket",
            "at": self.now,
            "last": self._last,
            "owed": self._owed,
        }
