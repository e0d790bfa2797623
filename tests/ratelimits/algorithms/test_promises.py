"""What each algorithm promises, over random arrivals, costs, clocks, restarts and edits, against a plain list."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.concurrency import Concurrency
from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.algorithms.token_bucket import TokenBucket
from tests.ratelimits.histories import MICRO, START, Step, live, steps
from tests.ratelimits.one_counter import admit, gauge

HOUR = 3600 * MICRO
DAY = 24 * HOUR

costs = st.integers(0, 8)
sizes = st.integers(1, 30)
rates = st.floats(0.01, 50) | st.sampled_from([4.85, 1.0, 1 / 3, 0.1])


def several(strategy):
    return st.lists(strategy, min_size=3, max_size=3)


# Sliding window


def within_capacity_together(grants, together_us):
    """Each grant, with all before it that are at most so old, is within the capacity it was granted under."""
    for place, last in enumerate(grants):
        total = 0
        for grant in reversed(grants[: place + 1]):
            if last.elapsed - grant.elapsed > together_us:
                break
            total += grant.cost_known(place)
        assert last.late or total <= last.algorithm.capacity


@given(
    limits=several(st.builds(SlidingWindow, capacity=sizes, window_seconds=st.just(60))),
    history=steps(costs=costs, longest=70 * MICRO, steps_back=2 * HOUR, edits=3, late=True, returns=True),
)
def test_no_interval_of_a_windows_length_holds_more_than_the_capacity(limits, history):
    life = live(limits, history)
    within_capacity_together(life.grants, 60 * MICRO)


@given(
    limit=st.builds(SlidingWindow, capacity=sizes, window_seconds=st.sampled_from([1, 7.5, 10, 60, 3600])),
    history=steps(costs=costs, longest=70 * MICRO, steps_back=2 * HOUR),
    delays=st.lists(st.floats(0, 1), min_size=300, max_size=300),
)
def test_nor_does_one_at_the_provider_where_calls_arrive_late_by_up_to_the_slack(limit, history, delays):
    slack = limit.window_seconds * MICRO / 120
    grants = live([limit], history).grants
    arrivals = sorted((g.elapsed + int(slack * late), g.cost) for g, late in zip(grants, delays, strict=False))
    for at, _ in arrivals:
        window = limit.window_seconds * MICRO
        assert sum(cost for time, cost in arrivals if at <= time <= at + window) <= limit.capacity


def test_calls_sent_a_minute_apart_that_arrive_sooner_do_not_share_a_provider_minute():
    limit = SlidingWindow(1)
    state = admit(limit, {}, 1000.999, [1]).state
    denied = admit(limit, state, 1060.999, [1])
    assert denied.retry_at == 1061.5
    assert denied.retry_at - 1000.999 > 60.5


@given(limit=st.builds(SlidingWindow, capacity=sizes), history=steps(costs=costs, longest=70 * MICRO))
def test_a_sliding_window_denies_only_what_a_window_one_bucket_and_the_slack_longer_would(limit, history):
    life = live([limit], history)
    for denial in life.denials:
        since = denial.elapsed - 61_500_000
        counted = sum(g.cost for g in life.grants[: denial.granted_before] if g.elapsed > since)
        waiting = sum(d.cost for d in life.denials if d.elapsed == denial.elapsed)
        assert counted + waiting > limit.capacity


# Token bucket


@given(
    buckets=several(st.builds(TokenBucket, capacity=sizes, rate=rates)),
    history=steps(costs=costs, longest=10 * MICRO, steps_back=2 * HOUR, edits=3, late=True, returns=True),
)
def test_no_interval_holds_more_than_the_burst_and_the_rate_allow(buckets, history):
    life = live(buckets, history)
    most, rate = max(b.capacity for b in buckets), max(Fraction(b.rate) for b in buckets)
    within_burst_and_rate(life.grants, most, rate)


@given(
    bucket=st.builds(TokenBucket, capacity=sizes, rate=rates),
    history=steps(costs=costs, longest=10 * MICRO, steps_back=2 * HOUR, late=True, returns=True),
)
def test_the_bound_of_an_unchanged_bucket_is_its_own(bucket, history):
    within_burst_and_rate(live([bucket], history).grants, bucket.capacity, Fraction(bucket.rate))


def within_burst_and_rate(grants, capacity, rate):
    for end, last in enumerate(grants):
        total = 0
        for first in reversed(grants[: end + 1]):
            total += first.cost_known(end)
            assert last.late or total <= capacity + rate * Fraction(last.elapsed - first.elapsed, MICRO)


@given(bucket=st.builds(TokenBucket, capacity=sizes, rate=rates), history=steps(costs=costs, longest=10 * MICRO))
def test_a_token_bucket_denies_only_without_tokens(bucket, history):
    life = live([bucket], history)
    for denial in life.denials:
        level, at = Fraction(bucket.capacity), 0
        for grant in life.grants[: denial.granted_before]:
            level = min(Fraction(bucket.capacity), level + Fraction(bucket.rate) * Fraction(grant.elapsed - at, MICRO))
            level, at = level - grant.cost, grant.elapsed
        level = min(Fraction(bucket.capacity), level + Fraction(bucket.rate) * Fraction(denial.elapsed - at, MICRO))
        waiting = sum(d.cost for d in life.denials if d.elapsed == denial.elapsed)
        assert level < waiting + Fraction(1, 10_000)


# Leaky bucket


@given(
    buckets=several(st.builds(LeakyBucket, capacity=sizes, rate=rates)),
    history=steps(costs=costs, longest=10 * MICRO, steps_back=2 * HOUR, edits=3, returns=True),
)
def test_calls_leave_in_order_and_apart_by_the_rate_in_force(buckets, history):
    counted = [grant for grant in live(buckets, history).grants if grant.cost]
    for ahead, behind in pairwise(counted):
        apart = Fraction(behind.leaves - ahead.leaves, MICRO)
        assert apart >= Fraction(ahead.cost) / Fraction(rate_of(behind))


@given(
    bucket=st.builds(LeakyBucket, capacity=sizes, rate=rates),
    history=steps(costs=costs, longest=10 * MICRO, steps_back=2 * HOUR, late=True),
)
def test_a_late_charge_takes_a_calls_place(bucket, history):
    grants = live([bucket], history).grants
    for place, behind in enumerate(grants):
        if not behind.late and place:
            ahead = [number for number in range(place) if not grants[number].late]
            since = ahead[-1] if ahead else 0
            owed = sum(Fraction(grant.cost) for grant in grants[since:place])
            assert Fraction(behind.leaves - grants[since].leaves, MICRO) >= owed / Fraction(bucket.rate)


def rate_of(grant):
    assert isinstance(grant.algorithm, LeakyBucket)
    return grant.algorithm.rate


@given(
    bucket=st.builds(LeakyBucket, capacity=sizes, rate=rates),
    history=steps(costs=costs, longest=10 * MICRO, steps_back=2 * HOUR),
)
def test_the_queue_is_bounded(bucket, history):
    for grant in live([bucket], history).grants:
        wait = Fraction(grant.leaves - grant.elapsed, MICRO)
        assert wait * Fraction(bucket.rate) <= bucket.capacity - grant.cost


# Fixed window


@given(
    limits=several(st.builds(FixedWindow, capacity=sizes, zone=st.just("America/Los_Angeles"))),
    history=steps(costs=costs, longest=30 * HOUR, steps_back=200 * DAY, edits=3, late=True),
)
def test_no_day_of_the_zone_holds_more_than_the_capacity_by_any_clock(limits, history):
    per_period(live(limits, history).grants, lambda at: local_date(at, "America/Los_Angeles"))


@given(
    limits=several(st.builds(FixedWindow, capacity=sizes, window_seconds=st.just(60))),
    history=steps(costs=costs, longest=70 * MICRO, steps_back=2 * HOUR, edits=3, late=True, returns=True),
)
def test_no_aligned_window_holds_more_than_the_capacity_by_any_clock(limits, history):
    per_period(live(limits, history).grants, lambda at: at // (60 * MICRO))


@given(
    limit=st.builds(FixedWindow, capacity=sizes, window_seconds=st.just(60), guard_seconds=st.just(2)),
    history=steps(costs=costs, longest=70 * MICRO, steps_back=2 * HOUR),
    skew=st.integers(-2 * MICRO, 2 * MICRO),
)
def test_nor_by_a_providers_clock_that_differs_by_up_to_the_guard(limit, history, skew):
    per_period(live([limit], history).grants, lambda at: (at + skew) // (60 * MICRO))


def per_period(grants, period_of):
    periods = [period_of(grant.observed) for grant in grants]
    for place, last in enumerate(grants):
        used = sum(grants[n].cost_known(place) for n in range(place + 1) if periods[n] == periods[place])
        assert last.late or used <= last.algorithm.capacity


def local_date(at, zone):
    return datetime.fromtimestamp(at // MICRO, ZoneInfo(zone)).date()


# Concurrency


@given(
    limits=several(st.builds(Concurrency, capacity=sizes, lease_seconds=st.just(30))),
    history=steps(costs=costs, longest=40 * MICRO, steps_back=2 * HOUR, edits=3, late=True, returns=True),
)
def test_running_leases_never_pass_the_capacity(limits, history):
    life = live(limits, history)
    within_capacity_together(life.grants, 30 * MICRO)


@given(limit=st.builds(Concurrency, capacity=sizes), history=steps(costs=costs, longest=40 * MICRO))
def test_a_lease_that_nobody_ends_ends_by_itself_within_a_second_of_its_time(limit, history):
    life = live([limit], history)
    end = START + sum(step.moves for step in history)
    assert gauge(limit, life.state, (end + 31 * MICRO) / MICRO).used == 0


# All of them

ALGORITHMS = [
    st.builds(SlidingWindow, capacity=sizes, window_seconds=st.sampled_from([10, 60])),
    st.builds(TokenBucket, capacity=sizes, rate=rates),
    st.builds(LeakyBucket, capacity=sizes, rate=rates),
    st.builds(
        FixedWindow, capacity=sizes, window_seconds=st.sampled_from([10, 60]), guard_seconds=st.sampled_from([0, 1])
    ),
    st.builds(FixedWindow, capacity=sizes, zone=st.sampled_from(["America/Los_Angeles", "Asia/Kathmandu"])),
    st.builds(Concurrency, capacity=sizes),
]
NAMES = ["sliding", "token", "leaky", "aligned", "daily", "concurrency"]


@pytest.mark.parametrize("limits", ALGORITHMS, ids=NAMES)
@given(data=st.data())
def test_a_denied_call_fits_at_the_time_it_was_told_and_not_a_microsecond_sooner(limits, data):
    limit = data.draw(limits)
    history = data.draw(steps(costs=costs, longest=70 * MICRO, steps_back=2 * HOUR, late=True))
    asked = data.draw(st.lists(st.integers(0, 40), max_size=20))
    _each_fits_when_it_was_told(limit, history, asked)


# All of them stand behind one that the window refuses for three seconds more, while its stream is five seconds ahead.
@pytest.mark.parametrize("asked", [[1, 0], [7, 0], [2, 0, 0, 1]])
def test_a_call_that_no_queue_sends_is_told_no_time_of_a_stream(asked):
    ahead = [Step(0, [8, 8, 8]), Step(58 * MICRO, [6])]
    _each_fits_when_it_was_told(SlidingWindow(30), ahead, asked)


def _each_fits_when_it_was_told(limit, history, asked):
    state = live([limit], history).state
    now = (START + sum(step.moves for step in history)) / MICRO
    answer = admit(limit, state, now, asked)
    state, latest = answer.state, now
    for cost, verdict in zip(asked, answer.verdicts, strict=True):
        assert verdict.rejected == (cost > limit.capacity)
        if verdict.granted or verdict.at is None:
            continue
        if verdict.at > latest:
            assert not admit(limit, state, (round(verdict.at * MICRO) - 1) / MICRO, [cost]).granted
        later = admit(limit, state, verdict.at, [cost])
        assert later.granted
        assert verdict.at >= latest
        state, latest = later.state, verdict.at


@pytest.mark.parametrize("limits", ALGORITHMS, ids=NAMES)
@given(data=st.data())
def test_one_decision_over_many_calls_is_the_same_as_one_decision_a_call(limits, data):
    limit = data.draw(limits)
    history = data.draw(steps(costs=costs, longest=70 * MICRO, steps_back=2 * HOUR, late=True))
    state = live([limit], history).state
    now = (START + sum(step.moves for step in history)) / MICRO
    asked = data.draw(st.lists(st.integers(1, 12), max_size=20))
    together = admit(limit, state, now, asked)
    waiting = False
    for cost, verdict in zip(asked, together.verdicts, strict=True):
        alone = admit(limit, state, now, [cost])
        assert verdict.granted == (bool(alone.granted) and not waiting)
        waiting = waiting or not (verdict.granted or verdict.rejected)
        state = alone.state if verdict.granted else state
    assert gauge(limit, together.state, now) == gauge(limit, state, now)


@pytest.mark.parametrize("limits", ALGORITHMS, ids=NAMES)
@given(data=st.data())
def test_a_call_above_the_slowed_capacity_but_within_the_full_one_goes_alone(limits, data):
    limit = data.draw(limits)
    twice = limit.capacity * 2
    slowed = replace(limit, ceiling=twice)
    history = data.draw(steps(costs=st.integers(0, 60), longest=70 * MICRO))
    life = live([slowed], history)
    if not isinstance(limit, TokenBucket | LeakyBucket | FixedWindow):
        for place, last in enumerate(life.grants):
            near = [g for g in life.grants[: place + 1] if last.elapsed - g.elapsed <= 10 * MICRO]
            assert sum(g.cost for g in near) <= max(limit.capacity, last.cost)
    assert all(grant.cost <= twice for grant in life.grants)
    assert admit(slowed, {}, START / MICRO, [twice]).granted
    assert admit(slowed, {}, START / MICRO, [twice + 1]).verdicts[0].rejected
