"""A stream: what a window admits spread over it, where it would otherwise leave in a burst."""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import Algorithm, State
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, seconds
from ratelimits.algorithms.sliding_window import BUCKETS, SlidingWindow

# A burst of fewer calls, in the limit's unit, or within a longer window's slack reaches its provider in time.
LEAST_UNITS = 20
LONGEST_WINDOW_SECONDS = 300
# In sub-buckets: what a stream that was kept waiting makes up for at once, how long it may rest before it starts anew,
# and the longest it waits after a large call.
LATE_BUCKETS = 3
REST_BUCKETS = 20
LONGEST_WAIT_BUCKETS = 5
# A little faster than the window, so that this stays what binds; much faster, and each window ends with a long gap.
EXCESS_PERCENT = 102


@dataclass(slots=True)
class Stream:
    """
    A virtual clock that each call moves on by its share of the window; the next leaves when time has come to it.

    A generic cell rate algorithm in whole microseconds and millionths of the limit's unit. It grants no burst to begin
    with, as that would come back with every window; what was only late catches up.

    Attributes:
        opens_at: When the next call may leave.
    """

    capacity: int
    width: int
    opens_at: int

    def calls(self, units: int, now: int) -> int:
        """Return how many calls of this size may go now: one of any size as soon as the stream is open."""
        return (now - self._begins(now)) // self._step(units) + 1 if self.opens_at <= now else 0

    def take(self, units: int, now: int) -> None:
        self.opens_at = min(self._begins(now) + self._step(units), self.latest(now))

    def give_back(self, units: int) -> None:
        """Let the next call leave sooner by what one that has left did not take."""
        if units:
            self.opens_at -= self._step(units)

    @property
    def seconds_a_unit(self) -> float:
        """How far calls that follow each other lie apart at least, by what they take in the limit's unit."""
        return seconds(self._step(MICRO))

    def latest(self, now: int) -> int:
        return now + LONGEST_WAIT_BUCKETS * self.width

    def _begins(self, now: int) -> int:
        if now - self.opens_at > REST_BUCKETS * self.width:
            return now
        return max(self.opens_at, now - LATE_BUCKETS * self.width)

    def _step(self, units: int) -> int:
        return max(1, -(-units * self.width * BUCKETS * 100 // (self.capacity * EXCESS_PERCENT)))


def stream_of(algorithm: Algorithm, state: State, now: int) -> Stream | None:
    """Return the stream of a counter at `now`, microseconds; None: its bursts do no harm, or it has none."""
    if not isinstance(algorithm, SlidingWindow) or algorithm.capacity < LEAST_UNITS:
        return None
    if algorithm.window_seconds > LONGEST_WINDOW_SECONDS:
        return None
    width = -(-microseconds(algorithm.window_seconds) // BUCKETS)
    stream = Stream(cost_units(algorithm.capacity), width, state.get("stream", 0))
    # No later than a call could have put it: the clock may have gone back, or the window been shortened.
    stream.opens_at = min(stream.opens_at, stream.latest(now))
    return stream


def is_in_demand(algorithm: Algorithm, state: State, now: int) -> bool:
    """Say whether a window was full of late: within two of its lengths, and at no lower a cap than it has now."""
    if not isinstance(algorithm, SlidingWindow) or not state.get("full"):
        return False
    full_at, capacity = state["full"]
    is_news = now - microseconds(full_at) <= 2 * microseconds(algorithm.window_seconds)
    return is_news and algorithm.capacity <= float(capacity)
