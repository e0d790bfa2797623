"""A stream: what a window admits spread over it, where it would otherwise leave in a burst."""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import Algorithm, State
from ratelimits.algorithms.measures import cost_units, microseconds
from ratelimits.algorithms.sliding_window import BUCKETS, SlidingWindow

# A burst of fewer calls, in the limit's unit, or within a longer window's slack reaches its provider in time.
LEAST_UNITS = 20
LONGEST_WINDOW_SECONDS = 300
# In sub-buckets: what a stream that was kept waiting makes up for at once, and the longest it waits after a large call.
AHEAD_BUCKETS = 2
LONGEST_WAIT_BUCKETS = 5
# A little faster than the window, so that this stays what binds; much faster, and each window ends with a long gap.
EXCESS_PERCENT = 102


@dataclass(slots=True)
class Stream:
    """
    A virtual clock that each call moves on by its share of the window; the next leaves when time has come near it.

    A generic cell rate algorithm, in whole microseconds and millionths of the limit's unit.

    Attributes:
        at: When everything so far would have left at an even pace.
    """

    capacity: int
    width: int
    at: int

    @property
    def opens_at(self) -> int:
        return self.at - AHEAD_BUCKETS * self.width

    def calls(self, units: int, now: int) -> int:
        """Return how many calls of this size may go now: one of any size as soon as the stream is open."""
        ahead = now - max(self.opens_at, now - AHEAD_BUCKETS * self.width)
        return ahead // self._step(units) + 1 if ahead >= 0 else 0

    def take(self, units: int, now: int) -> None:
        latest = now + (AHEAD_BUCKETS + LONGEST_WAIT_BUCKETS) * self.width
        self.at = min(max(self.at, now) + self._step(units), latest)

    def _step(self, units: int) -> int:
        return max(1, -(-units * self.width * BUCKETS * 100 // (self.capacity * EXCESS_PERCENT)))


def stream_of(algorithm: Algorithm, state: State, now: int) -> Stream | None:
    """Return the stream of a counter at `now`, microseconds; None: its bursts do no harm, or it has none."""
    if not isinstance(algorithm, SlidingWindow) or algorithm.capacity < LEAST_UNITS:
        return None
    if algorithm.window_seconds > LONGEST_WINDOW_SECONDS:
        return None
    width = -(-microseconds(algorithm.window_seconds) // BUCKETS)
    # No later than a call could have put it: the clock may have gone back, or the window been shortened.
    latest = now + (AHEAD_BUCKETS + LONGEST_WAIT_BUCKETS) * width
    return Stream(cost_units(algorithm.capacity), width, min(state.get("stream", 0), latest))


def is_in_demand(algorithm: Algorithm, state: State, now: int) -> bool:
    """Say whether a window was full of late: within two of its lengths, and at no lower a cap than it has now."""
    if not isinstance(algorithm, SlidingWindow) or not state.get("full"):
        return False
    full_at, capacity = state["full"]
    is_news = now - microseconds(full_at) <= 2 * microseconds(algorithm.window_seconds)
    return is_news and algorithm.capacity <= float(capacity)
