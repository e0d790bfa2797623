"""Amounts that count for a fixed time after they were taken, kept in sub-buckets: windows and leases."""

from __future__ import annotations

from collections import deque

from ratelimits.algorithms.admission import STATE_VERSION, State, stored
from ratelimits.algorithms.measures import steady


class SpanMeter:
    """
    A counter whose amounts free themselves `hold` after the end of their sub-bucket.

    Counting from the bucket's end is the safe side: an amount counts for at least `hold` and at most
    `hold + width`.

    State:

    - `at`: the time of the last write;
    - `width`: the width of a bucket;
    - `first`: the number of the oldest bucket kept; bucket n covers [n * width, (n + 1) * width);
    - `costs`: one amount a bucket, from `first` on;
    - `blurred`: after a step back of the clock or an edit of the window, the time up to which a call's time no longer
      says in which bucket it counts. Refunds of calls granted by then are dropped.
    """

    __slots__ = (
        "_blurred",
        "_capacity",
        "_costs",
        "_first",
        "_hold",
        "_kind",
        "_line",
        "_line_at",
        "_line_next",
        "_line_used",
        "_used",
        "_width",
        "moved",
        "now",
    )

    def __init__(self, kind: str, state: State, now: int, *, capacity: int, width: int, hold: int) -> None:
        self._kind, self._capacity, self._width, self._hold = kind, capacity, width, hold
        self._costs: list[int] = []
        self._first = self._blurred = 0
        self.moved = False
        self._line: deque[tuple[int, int]] | None = None
        if kept := stored(state, kind):
            now, self.moved = steady(kept["at"], now)
            self._read(kept, now)
        self.now = now
        self._used = sum(self._costs)

    def _read(self, kept: State, now: int) -> None:
        first, costs, self._blurred = kept["first"], list(kept["costs"]), kept["blurred"]
        if self.moved:
            first, costs = now // self._width, [sum(costs)]
            self._blurred = max(self._blurred, kept["at"])
        elif kept["width"] != self._width:
            first, costs = _rewidened(first, costs, kept["width"], self._width)
            self._blurred = max(self._blurred, kept["at"])
        gone = (now - self._hold) // self._width - first
        if gone > 0:
            first, costs = first + gone, costs[gone:]
        self._first, self._costs = first, costs

    def room_for(self, units: int) -> bool:
        return self._used + min(units, self._capacity) <= self._capacity

    def take(self, units: int) -> int:
        if units:
            current = self.now // self._width
            if not self._costs:
                self._first = current
            missing = current - self._first + 1 - len(self._costs)
            if missing > 0:
                self._costs.extend([0] * missing)
            self._costs[-1] += units
            self._used += units
        return self.now

    def line_up(self, units: int) -> int:
        if self._line is None:
            self._line, self._line_next = deque(), 0
            self._line_used, self._line_at = self._used, self.now
        needed = min(units, self._capacity)
        while self._line_used + needed > self._capacity:
            free_at, cost = self._next_freed(self._line)
            if cost:
                self._line_used -= cost
                self._line_at = max(self._line_at, free_at)
        self._line_used += units
        self._line.append((self._free_at(self._line_at // self._width), units))
        return self._line_at

    def _next_freed(self, line: deque[tuple[int, int]]) -> tuple[int, int]:
        """
        Return when the next amount frees itself, and the amount. The buckets' amounts come before those of calls in
        line.
        """
        if self._line_next < len(self._costs):
            self._line_next += 1
            return self._free_at(self._first + self._line_next - 1), self._costs[self._line_next - 1]
        return line.popleft()

    def give_back(self, units: int, granted_at: int) -> None:
        place = granted_at // self._width - self._first
        if granted_at > self._blurred and 0 <= place < len(self._costs):
            back = min(units, self._costs[place])
            self._costs[place] -= back
            self._used -= back

    def available(self) -> int:
        return self._capacity - self._used

    def state(self) -> State:
        return {
            "v": STATE_VERSION,
            "kind": self._kind,
            "at": self.now,
            "width": self._width,
            "first": self._first,
            "costs": self._costs,
            "blurred": self._blurred,
        }

    def _free_at(self, bucket: int) -> int:
        return (bucket + 1) * self._width + self._hold


def _rewidened(first: int, costs: list[int], old: int, new: int) -> tuple[int, list[int]]:
    """Sort amounts into buckets of another width, each where its old bucket ends: none counts for too short a time."""
    places = [((first + n + 1) * old - 1) // new for n in range(len(costs))]
    if not places:
        return first, costs
    sorted_in = [0] * (places[-1] - places[0] + 1)
    for place, cost in zip(places, costs, strict=True):
        sorted_in[place - places[0]] += cost
    return places[0], sorted_in
