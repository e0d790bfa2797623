"""The algorithms at their edges: tables of small cases, one line of sight each."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ratelimits.algorithms.admission import UnreadableState
from ratelimits.algorithms.concurrency import Concurrency
from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.measures import MalformedCost, cost_units, microseconds, seconds
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.algorithms.token_bucket import TokenBucket
from tests.ratelimits.one_counter import admit, charge, gauge, refund
from tests.support.cases import every_case

T = 1_732_118_400.0

EACH: dict[str, Any] = {
    "sliding": SlidingWindow(10),
    "token": TokenBucket(10, rate=1.0),
    "leaky": LeakyBucket(10, rate=1.0),
    "fixed": FixedWindow(10, window_seconds=60),
    "concurrency": Concurrency(10),
}
each = every_case("limit", EACH.values())
windowed = every_case("limit", [EACH["sliding"], EACH["fixed"], EACH["concurrency"]])


@each
@every_case("cost", [-1, -0.5, float("nan"), float("inf"), True, False, None, "1", [1]])
def test_a_malformed_cost_is_rejected_and_holds_nobody_up(limit, cost):
    answer = admit(limit, {}, T, [cost, 1])
    assert [v.granted for v in answer.verdicts] == [False, True]
    assert answer.verdicts[0].rejected
    assert "finite number" in answer.verdicts[0].reason
    if cost is None:  # nobody knows: the estimate stands, which was nothing
        assert charge(limit, answer.state, T, cost) is answer.state
    else:
        with pytest.raises(MalformedCost):
            charge(limit, answer.state, T, cost)
    with pytest.raises(MalformedCost):
        refund(limit, answer.state, T, cost, granted_at=T)


@each
def test_a_cost_above_the_capacity_is_rejected_and_never_deferred(limit):
    answer = admit(limit, {}, T, [11, 10, 11])
    assert [(v.granted, v.rejected) for v in answer.verdicts] == [(False, True), (True, False), (False, True)]
    assert answer.verdicts[0].reason == "the cost of 11 is above the limit's capacity of 10"
    assert answer.retry_at is None


@each
def test_a_limit_of_nothing_rejects_even_a_call_that_costs_nothing(limit):
    answer = admit(replace(limit, capacity=0), {}, T, [0, 1])
    assert [v.reason for v in answer.verdicts] == ["the limit's capacity is 0"] * 2


@each
def test_a_denial_leaves_the_state_as_the_very_object(limit):
    full = admit(limit, {}, T, [10]).state
    assert admit(limit, full, T, [10, 5]).state is full
    empty: dict[str, object] = {}
    assert admit(limit, empty, T, [11]).state is empty
    assert admit(limit, empty, T, []).state is empty


@each
def test_calls_of_no_cost_pass_while_the_limit_is_not_overdrawn(limit):
    full = admit(limit, {}, T, [10]).state
    assert admit(limit, full, T, [0] * 100).granted == 100
    overdrawn = charge(limit, full, T, 5)
    assert admit(limit, overdrawn, T, [0]).granted == 0


@windowed
def test_thirty_seven_of_fifty_go_now_and_the_rest_get_their_time(limit):
    limit = replace(limit, capacity=37)
    answer = admit(limit, {}, T, [1] * 50)
    assert answer.granted == 37
    assert [v.granted for v in answer.verdicts] == [True] * 37 + [False] * 13
    assert {v.at for v in answer.verdicts[:37]} == {T}
    assert {v.at for v in answer.verdicts[37:]} == {answer.retry_at}
    later = admit(limit, answer.state, answer.retry_at or 0, [1] * 13)
    assert later.granted == 13


def test_each_denied_call_of_a_token_bucket_has_a_time_of_its_own():
    answer = admit(TokenBucket(2, rate=4.0), {}, T, [1] * 6)
    assert [v.at for v in answer.verdicts] == [T, T, T + 0.25, T + 0.5, T + 0.75, T + 1]


def test_a_call_of_no_cost_ahead_in_the_line_delays_nobody():
    bucket = TokenBucket(1, rate=0.328125)
    overdrawn = charge(bucket, {}, T, 2)
    behind = admit(bucket, overdrawn, T, [0, 1]).verdicts[1].at
    assert behind == admit(bucket, overdrawn, T, [1]).retry_at


def test_a_queue_gives_each_call_its_time_to_leave_and_the_rest_a_time_to_enter():
    answer = admit(LeakyBucket(3, rate=2.0), {}, T, [1] * 5)
    assert [v.granted for v in answer.verdicts] == [True, True, True, False, False]
    assert [v.at for v in answer.verdicts] == [T, T + 0.5, T + 1, T + 0.5, T + 1]


def test_times_go_on_over_as_many_windows_as_the_line_is_long():
    answer = admit(SlidingWindow(2), {}, T, [1] * 7)
    assert [v.at for v in answer.verdicts] == [T, T, *[T + 61.5] * 2, *[T + 122.5] * 2, T + 183.5]


def test_a_small_call_does_not_overtake_a_large_one_that_waits():
    half = admit(SlidingWindow(10), {}, T, [6]).state
    answer = admit(SlidingWindow(10), half, T, [5, 1])
    assert answer.granted == 0
    assert [v.at for v in answer.verdicts] == [T + 61.5] * 2


@each
def test_a_late_charge_passes_the_capacity_and_blocks_until_it_has_room(limit):
    state = charge(limit, admit(limit, {}, T, [10]).state, T, 15)
    figures = gauge(limit, state, T)
    assert (figures.used >= 15, figures.available, figures.capacity) == (True, 0.0, 10)
    denied = admit(limit, state, T + 0.001, [1])
    assert denied.granted == 0
    assert admit(limit, state, denied.retry_at or 0, [1]).granted == 1


@windowed
def test_a_refund_into_the_same_window_makes_room_at_once(limit):
    answer = admit(limit, {}, T, [10])
    state = refund(limit, answer.state, T + 2, 4, granted_at=answer.booked_at)
    assert gauge(limit, state, T + 2).available == 4
    assert admit(limit, state, T + 2, [4]).granted == 1


@windowed
def test_a_refund_into_a_window_that_has_passed_gives_the_present_one_nothing(limit):
    old = admit(limit, {}, T, [10])
    full = admit(limit, old.state, T + 100, [10]).state
    state = refund(limit, full, T + 100, 10, granted_at=old.booked_at)
    assert gauge(limit, state, T + 100).available == 0


@windowed
def test_a_refund_never_gives_back_more_than_was_granted_then(limit):
    answer = admit(limit, {}, T, [3])
    later = admit(limit, answer.state, T + 5, [7])
    state = refund(limit, later.state, T + 5, 100, granted_at=answer.booked_at)
    assert gauge(limit, state, T + 5).available <= 10


def test_a_bucket_gets_back_what_would_not_have_run_over_since():
    bucket = TokenBucket(10, rate=1.0)
    spent = admit(bucket, {}, T, [8])
    assert gauge(bucket, refund(bucket, spent.state, T + 2, 6, granted_at=T), T + 2).available == 10
    again = admit(bucket, spent.state, T + 5, [7])
    assert gauge(bucket, refund(bucket, again.state, T + 5, 6, granted_at=T), T + 5).available == 3
    assert gauge(bucket, refund(bucket, again.state, T + 5, 6, granted_at=T + 5), T + 5).available == 6


def test_many_grants_leave_a_bucket_with_a_small_state_and_its_refunds_safe():
    bucket = TokenBucket(1000, rate=1.0)
    state, first = admit(bucket, {}, T, [30]).state, T
    for second in range(1, 30):
        state = admit(bucket, state, T + second, [30]).state
    assert len(json.dumps(state)) < 500
    assert gauge(bucket, refund(bucket, state, T + 30, 30, granted_at=first), T + 30).available <= 130 + 30


def test_a_leaky_bucket_gives_no_time_back_that_it_gave_out():
    bucket = LeakyBucket(3, rate=1.0)
    answer = admit(bucket, {}, T, [1, 1])
    assert refund(bucket, answer.state, T, 1, granted_at=T)["last"] == answer.state["last"]


@each
def test_a_capacity_raised_or_lowered_in_mid_flight_leaves_no_negative_figures(limit):
    full = admit(limit, {}, T, [10]).state
    lowered = replace(limit, capacity=4)
    figures = gauge(lowered, full, T)
    assert (figures.available, figures.capacity) == (0.0, 4)
    denied = admit(lowered, full, T, [1])
    assert denied.granted == 0
    assert admit(lowered, full, T + 62, [4]).granted == 1


@windowed
def test_a_raised_capacity_counts_at_once(limit):
    full = admit(limit, {}, T, [10]).state
    assert admit(replace(limit, capacity=25), full, T, [15]).granted == 1
    assert admit(replace(limit, capacity=25), full, T, [16]).granted == 0


@every_case("limit", [TokenBucket(10, rate=0.001), LeakyBucket(1, rate=0.001)])
def test_a_raised_rate_counts_at_once(limit):
    full = admit(limit, {}, T, [limit.capacity]).state
    assert (admit(limit, full, T, [1]).retry_at or 0) >= T + 1000
    assert admit(replace(limit, rate=5.0), full, T, [1]).retry_at == T + 0.2


def test_caps_moved_to_and_fro_mint_no_tokens():
    state = admit(TokenBucket(10, rate=1.0), {}, T, [10]).state
    for capacity in [20, 10, 20, 10]:
        state = admit(TokenBucket(capacity, rate=1.0), state, T, [1]).state
    assert gauge(TokenBucket(20, rate=1.0), state, T).available == 0


@every_case("seconds_long", [7, 30, 90, 600])
def test_an_edited_window_forgets_nothing_that_is_still_in_it(seconds_long):
    state = admit(SlidingWindow(10), {}, T, [4]).state
    state = admit(SlidingWindow(10), state, T + 3, [6]).state
    edited = SlidingWindow(10, window_seconds=seconds_long)
    assert gauge(edited, state, T + 3).used == 10
    assert admit(edited, state, T + seconds_long, [5]).granted == 0


@each
def test_a_clock_that_swings_earns_nothing(limit):
    state = admit(limit, {}, T, [10]).state
    for swing in [-1, 0, -30, 0, -59, 0]:
        answer = admit(limit, state, T + swing, [1])
        assert answer.granted == 0 or isinstance(limit, FixedWindow)
        state = answer.state


@every_case("name", ["token", "leaky"])
def test_grants_on_a_clock_that_swings_get_no_refill_twice(name):
    limit = EACH[name]
    state = admit(limit, {}, T, [4]).state
    for swing in [-30, 0, -30, 0, -30, 0]:
        answer = admit(limit, state, T + swing, [1])
        assert answer.granted == 1
        state = answer.state
    assert gauge(limit, state, T).available <= 6
    assert admit(limit, state, T, [7]).granted == 0


@every_case("limit", [EACH["sliding"], EACH["concurrency"], EACH["token"]])
def test_a_refund_for_a_time_the_clock_has_since_gone_back_over_takes_from_nobody_else(limit):
    before = admit(limit, {}, T, [5])
    state = admit(limit, before.state, T - 100, [1]).state
    state = admit(limit, state, T, [3]).state
    used = gauge(limit, state, T).used
    assert gauge(limit, refund(limit, state, T, 3, granted_at=before.booked_at), T).used == used


@every_case("limit", [EACH["sliding"], EACH["concurrency"], EACH["token"]])
def test_nor_after_the_clock_has_gone_back_twice(limit):
    first = admit(limit, {}, T, [5])
    state = admit(limit, first.state, T + 5, [5]).state
    state = admit(limit, state, T - 60, []).state
    state = admit(limit, state, T - 130, []).state
    used = gauge(limit, state, T - 130).used
    assert gauge(limit, refund(limit, state, T - 130, 5, granted_at=first.booked_at), T - 130).used == used


@every_case("limit", [limit for name, limit in EACH.items() if name != "fixed"])
def test_a_clock_set_right_after_running_a_year_ahead_does_not_stop_a_limit(limit):
    year = 365 * 86_400
    state = admit(limit, {}, T + year, [10]).state
    answer = admit(limit, state, T, [1])
    assert (answer.granted, answer.state is state) == (0, False)
    assert T < (answer.retry_at or 0) <= T + 62
    assert admit(limit, answer.state, answer.retry_at or 0, [1]).granted == 1


@each
def test_another_algorithms_state_counts_as_unused(limit):
    for other in EACH.values():
        state = admit(other, {}, T, [10]).state
        assert admit(limit, state, T, [10]).granted == (0 if other is limit else 1)


@each
def test_a_newer_programs_state_is_refused(limit):
    state = admit(limit, {}, T, [1]).state | {"v": 2}
    with pytest.raises(UnreadableState):
        admit(limit, state, T, [1])


@each
def test_a_state_survives_json_to_the_last_digit_and_stays_small(limit):
    busy = replace(limit, capacity=1_000_000)
    state: dict[str, object] = {}
    for second in range(200):
        state = admit(busy, state, T + second * 0.9, [1, 2.5]).state
    assert json.loads(json.dumps(state)) == state
    assert len(json.dumps(state)) < 1000


def test_a_completion_after_the_lease_lapsed_frees_nobody_elses():
    limit = Concurrency(1, lease_seconds=30)
    first = admit(limit, {}, T, [1])
    second = admit(limit, first.state, T + 40, [1])
    state = refund(limit, second.state, T + 41, 1, granted_at=first.booked_at)
    assert gauge(limit, state, T + 41).used == 1


@every_case(
    ("cost", "units"), [(0, 0), (0.0, 0), (1, 1_000_000), (2.5, 2_500_000), (1e-9, 1), (0.07, 70_000), (10**12, 10**18)]
)
def test_costs_are_kept_in_millionths_and_something_is_never_nothing(cost, units):
    assert cost_units(cost) == units


@every_case("time", [0, 1, 1_732_118_400_123_457, 4_000_000_000_999_999])
def test_a_float_of_seconds_holds_every_microsecond(time):
    assert microseconds(seconds(time)) == time


@every_case("make", [
    lambda: SlidingWindow(-1), lambda: SlidingWindow(True), lambda: SlidingWindow(float("nan")),
    lambda: SlidingWindow(1, window_seconds=0), lambda: SlidingWindow(1, slack_seconds=-1),
    lambda: SlidingWindow(1, ceiling=float("inf")), lambda: TokenBucket(1, rate=0),
    lambda: TokenBucket(1, rate=float("inf")), lambda: LeakyBucket(1, rate=-1),
    lambda: Concurrency(1, lease_seconds=0), lambda: FixedWindow(1),
    lambda: FixedWindow(1, window_seconds=60, zone="UTC"), lambda: FixedWindow(1, window_seconds=0),
    lambda: FixedWindow(1, window_seconds=2, guard_seconds=1), lambda: FixedWindow(1, zone="UTC", guard_seconds=-1),
    lambda: FixedWindow(1, zone="../etc/passwd"),
])  # fmt: skip
def test_figures_that_mean_nothing_are_refused(make):
    with pytest.raises(ValueError, match=r"."):
        make()
