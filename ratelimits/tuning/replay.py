"""Replaying one queue before one limit: when each call would have left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ratelimits.algorithms.admission import Algorithm, State, never_fits
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.measures import MICRO, cost_units, seconds

ENDLESS_QUEUE = 1e12


class Ask(NamedTuple):
    """Calls of equal cost that asked at the same time, `at` (seconds since 1970), and leave together."""

    at: float
    cost: float
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Replay:
    """
    The outcome for the calls of one key.

    Attributes:
        departures: (when, calls), in order.
        waits: (seconds, calls), in the order of asking.
        cost: The cost of all calls that left, in the limit's unit.
        rejected: Calls that could never fit.
    """

    departures: list[tuple[float, int]]
    waits: list[tuple[float, int]]
    cost: float
    rejected: int

    def after(self, end: float) -> int:
        """How many calls left later than `end`."""
        return sum(calls for at, calls in self.departures if at > end)


def replay(algorithm: Algorithm, asks: Sequence[Ask]) -> Replay:
    """
    Play calls through one limit, first come first served, from an unused counter.

    A call leaves at the first instant at which the limit admits it and all calls before it. A higher capacity or rate
    therefore never delays a call: every departure is a rising function of the departures before.

    Args:
        asks: The calls, in the order of asking.
    """
    played = Replay([], [], 0.0, 0)
    state: State = {}
    if isinstance(algorithm, LeakyBucket) and algorithm.capacity:
        # A leaky bucket tells each call in its queue when to leave. In a replay all waiting calls are in that queue.
        algorithm = replace(algorithm, capacity=ENDLESS_QUEUE)
    place, clock, cost, rejected = 0, float("-inf"), 0, 0
    while place < len(asks):
        ask = asks[place]
        units = cost_units(float(ask.cost)) * ask.calls
        if _can_never_fit(algorithm, ask):
            rejected += ask.calls
            place += 1
            continue
        clock = max(clock, ask.at)
        meter = algorithm.open(state, clock)
        if not meter.room_for(units):
            clock = max(seconds(meter.line_up(units)), clock + 1 / MICRO)
            continue
        # Take as many as fit at this instant, so that the counter is opened once for all of them.
        while True:
            left = max(ask.at, seconds(meter.take(units)))
            cost += units
            played.departures.append((left, ask.calls))
            played.waits.append((left - ask.at, ask.calls))
            place += 1
            if place == len(asks) or asks[place].at > clock:
                break
            ask = asks[place]
            units = cost_units(float(ask.cost)) * ask.calls
            if _can_never_fit(algorithm, ask) or not meter.room_for(units):
                break
        state = meter.state()
    return replace(played, cost=cost / MICRO, rejected=rejected)


def _can_never_fit(algorithm: Algorithm, ask: Ask) -> bool:
    return never_fits(algorithm, cost_units(float(ask.cost))) is not None
