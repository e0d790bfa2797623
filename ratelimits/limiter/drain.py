"""Forecasting when a queue has passed a limit: one answer for forecasts, gauges and alerts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, islice, repeat

from ratelimits.algorithms.measures import cost_units, seconds

from .counters import OpenCounter

LARGE_SHARE = 0.05  # a part of a limit; calls below this part fill the limit in any order
MAX_LINED = 2000

Calls = Sequence[tuple[float, float]]
"""Calls in order, in groups: the amount that each call takes, in the limit's unit, and the number of such calls."""


def passed_at(counter: OpenCounter, calls: Calls, *, crowded: bool = False) -> float | None:
    """
    Return when the last of the calls has gone through, if nothing else comes; None: no rate is known.

    The calls are lined up as the limiter would admit them. Large calls are lined up one by one, because each leaves
    room into which the next does not fit; small calls in pieces of LARGE_SHARE. At most MAX_LINED are lined up, and
    the rest go at the same pace. In a stream (docs/adr/0018) a piece follows the piece before it no sooner than
    the stream allows. All calls wait until a cool-down has ended; a shadow limit makes them wait for nothing else.

    Args:
        crowded: More calls wait in their lane than a window admits, even if `calls` are fewer.
    """
    rate, capacity = counter.algorithm.rate_per_second, counter.algorithm.capacity
    begins = max(counter.now, counter.cooled_until or 0.0)
    whole = sum(amount * times for amount, times in calls)
    if counter.rule.shadow or (rate and not whole):
        return begins
    if not rate:
        return None
    meter = counter.algorithm.open(counter.stored, begins)
    if max(amount for amount, _ in calls) > LARGE_SHARE * capacity:
        copies = chain.from_iterable(repeat(amount, max(1, int(times))) for amount, times in calls)
        lined, stream = list(islice(copies, MAX_LINED)), None
    else:
        whole = sum(_share_of(capacity, amount) * times for amount, times in calls)
        lined, stream = _pieces(whole, LARGE_SHARE * capacity), counter.stream
    left, apart, passed = sum(lined), 0.0, begins
    share = whole / left
    if stream and counter.is_streamed(crowded=crowded or whole > capacity):
        apart = stream.seconds_a_unit
        passed = max(begins, seconds(stream.opens_at)) + left * apart
    for amount in lined:
        has_room_at = seconds(meter.line_up(cost_units(min(amount, capacity))))
        if stream and has_room_at > begins:
            apart = stream.seconds_a_unit  # by then the window has been full
        left -= amount
        passed = max(passed, has_room_at + left * apart)
    return max(begins, counter.sooner(begins + (passed - begins) * max(1.0, share)))


def _share_of(capacity: float, amount: float) -> float:
    """Return what a small call takes of a full limit, including its part of the room that such calls leave unused."""
    together = capacity // amount if amount else 0
    return capacity / together if together else amount


def _pieces(whole: float, piece: float) -> list[float]:
    full = min(MAX_LINED, math.ceil(whole / piece)) - 1
    return [*repeat(piece, full), min(piece, whole - full * piece)]
