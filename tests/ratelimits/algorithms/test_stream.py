"""A stream: a window's calls spread over it, and what a claimer that is late loses by it."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.admission import State
from ratelimits.algorithms.measures import MICRO, seconds
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.algorithms.stream import Stream, stream_of

BEGIN = 1_000_000_000
MINUTE = 60
WINDOWS = 10


def sent(capacity: int, *, most_late: float, seed: int = 1) -> list[float]:
    """Times in seconds at which a queue without end leaves, looked at when it is due and up to so much later."""
    late = random.Random(seed)  # noqa: S311 - drawn lateness
    window, at = SlidingWindow(capacity, MINUTE), float(BEGIN)
    state: State = {}
    left: list[float] = []
    while at < BEGIN + WINDOWS * MINUTE:
        meter = window.open(state, at)
        stream = stream_of(window, state, meter.now)
        assert stream is not None
        while meter.room_for(MICRO) and stream.opens_at <= meter.now:
            meter.take(MICRO)
            stream.take(MICRO, meter.now)
            left.append(at - BEGIN)
        due = seconds(max(meter.line_up(MICRO), stream.opens_at))
        state = meter.state() | {"stream": stream.opens_at}
        at = due + late.uniform(0.005, most_late)
    return left


@pytest.mark.parametrize("capacity", [20, 60, 300])
@pytest.mark.parametrize("most_late", [0.02, 0.2, 0.4])
def test_a_claimer_that_is_late_loses_little_of_a_minute_wherever_it_begins(capacity, most_late):
    left = sent(capacity, most_late=most_late)
    used = [bisect_left(left, begin + 3 * MINUTE) - bisect_left(left, begin) for begin in range(MINUTE, 7 * MINUTE)]
    assert min(used) >= 0.97 * 3 * capacity - 1


@pytest.mark.parametrize("capacity", [60, 300])
def test_no_two_sub_buckets_get_more_than_their_share_and_what_a_late_look_makes_up(capacity):
    left = sent(capacity, most_late=0.4)
    for begin in range(WINDOWS * MINUTE - 2):
        assert bisect_left(left, begin + 2) - bisect_left(left, begin) <= (2 + 0.4) * capacity / MINUTE * 1.02 + 2


def test_what_was_late_by_more_than_three_sub_buckets_is_made_up_in_part_and_a_rest_leaves_no_burst():
    stream = Stream(60 * MICRO, MICRO, BEGIN * MICRO)
    late = [stream.calls(MICRO, round((BEGIN + seconds) * MICRO)) for seconds in (0, 1, 2, 3, 10, 20, 20.1, 500)]
    assert late == [1, 2, 3, 4, 4, 4, 1, 1]


@given(
    capacity=st.integers(20, 5000),
    steps=st.lists(st.tuples(st.integers(0, 20 * MICRO), st.integers(1, 30), st.integers(1, 40)), max_size=30),
)
def test_it_says_beforehand_how_many_calls_it_lets_go(capacity, steps):
    now, stream = BEGIN * MICRO, Stream(capacity * MICRO, MICRO, 0)
    for moves, units, asked in steps:
        now += moves
        foretold, went = stream.calls(units * MICRO, now), 0
        while went < asked and stream.opens_at <= now:
            stream.take(units * MICRO, now)
            went += 1
        assert went == min(asked, foretold)
        assert stream.opens_at - now <= 5 * MICRO  # a large call holds up the next for five sub-buckets at most


def test_a_clock_that_went_back_stops_no_stream():
    window = SlidingWindow(60, MINUTE)
    stream = stream_of(window, {"stream": (BEGIN + 3600) * MICRO}, BEGIN * MICRO)
    assert stream is not None
    assert 0 < stream.opens_at - BEGIN * MICRO <= 5 * MICRO


@pytest.mark.parametrize("window", [SlidingWindow(19, MINUTE), SlidingWindow(5000, 3600)])
def test_small_and_long_windows_have_none(window):
    assert stream_of(window, {}, BEGIN * MICRO) is None
