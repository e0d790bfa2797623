"""A stream spreads the calls that a window admits over the window, where they would otherwise leave in a burst."""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import Algorithm, State
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, seconds
from ratelimits.algorithms.sliding_window import BUCKETS, SlidingWindow

# No stream is needed for a smaller capacity, in the limit's unit, or for a longer window: bursts reach the provider
# in time.
MIN_UNITS = 20
MAX_WINDOW_SECONDS = 300
# Numbers of sub-buckets. A delayed stream catches up at once by LATE_BUCKETS at most. After a rest of more than
# REST_BUCKETS it starts anew. The wait after a large call is at most MAX_WAIT_BUCKETS.
LATE_BUCKETS = 3
REST_BUCKETS = 20
MAX_WAIT_BUCKETS = 5
# The stream is a little faster than the window, so that the window stays the binding limit. If the stream were much
# faster, each window would end with a long gap.
EXCESS_PERCENT = 102


@dataclass(slots=True)
class Stream:
    """
    A virtual clock, which each call moves on by its share of the window. The next call leaves once time reaches it.

    The stream is a generic cell rate algorithm in whole microseconds and millionths of the limit's unit. It grants no
    burst at its start, as the burst would come back with every window. Calls that are only late catch up.

    Attributes:
        opens_at: When the next call may leave.
    """

    capacity: int
    width: int
    opens_at: int

    def calls(self, units: int, now: int) -> int:
        """Return how many calls of this size may go now: at least one, of any size, as soon as the stream is open."""
        return (now - self._begins(now)) // self._step(units) + 1 if self.opens_at <= now else 0

    def take(self, units: int, now: int) -> None:
        self.opens_at = min(self._begins(now) + self._step(units), self.latest(now))

    def give_back(self, units: int) -> None:
        """Let the next call leave sooner by the units that an earlier call did not take."""
        if units:
            self.opens_at -= self._step(units)

    @property
    def seconds_a_unit(self) -> float:
        """The least distance in seconds between calls that follow each other, for each unit that a call takes."""
        return seconds(self._step(MICRO))

    def latest(self, now: int) -> int:
        return now + MAX_WAIT_BUCKETS * self.width

    def _begins(self, now: int) -> int:
        if now - self.opens_at > REST_BUCKETS * self.width:
            return now
        return max(self.opens_at, now - LATE_BUCKETS * self.width)

    def _step(self, units: int) -> int:
        return max(1, -(-units * self.width * BUCKETS * 100 // (self.capacity * EXCESS_PERCENT)))


def stream_of(algorithm: Algorithm, state: State, now: int) -> Stream | None:
    """Return a counter's stream at `now`, microseconds; None: its bursts do no harm, or it admits nothing."""
    if not isinstance(algorithm, SlidingWindow) or algorithm.capacity < MIN_UNITS:
        return None
    if algorithm.window_seconds > MAX_WINDOW_SECONDS:
        return None
    width = -(-microseconds(algorithm.window_seconds) // BUCKETS)
    stream = Stream(cost_units(algorithm.capacity), width, state.get("stream", 0))
    # Keep `opens_at` no later than a call could set it now: the clock may have gone back, or the window may be shorter.
    stream.opens_at = min(stream.opens_at, stream.latest(now))
    return stream


def is_in_demand(algorithm: Algorithm, state: State, now: int) -> bool:
    """Say whether a window was full within the last two window lengths, at a cap that was no lower than today's."""
    if not isinstance(algorithm, SlidingWindow) or not state.get("full"):
        return False
    full_at, capacity = state["full"]
    is_news = now - microseconds(full_at) <= 2 * microseconds(algorithm.window_seconds)
    return is_news and algorithm.capacity <= float(capacity)
