"""How long a denied call waits, what a provider's refusal does, and figures that fit a quota."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.services.claim.deferrals import MAX_DEFERRAL_SECONDS, deferral_delay
from ratelimits.algorithms.admission import State
from ratelimits.algorithms.measures import with_headroom
from ratelimits.algorithms.modifiers.pressure import Pressure, PressureRules, pressure_at, pushed_back
from ratelimits.algorithms.token_bucket import TokenBucket, safe_bucket
from tests.ratelimits.one_counter import admit
from tests.support.cases import every_case

chances = st.floats(0, 1, exclude_max=True)
deficits = st.floats(0, 100_000)
fullnesses = st.floats(0, 1)


@given(deficit=deficits, fullness=fullnesses, chance=chances)
def test_a_deferral_never_wakes_a_job_before_its_tokens_exist_nor_after_five_minutes(deficit, fullness, chance):
    delay = deferral_delay(deficit, fullness, chance)
    assert min(deficit, MAX_DEFERRAL_SECONDS * 0.8) <= delay <= MAX_DEFERRAL_SECONDS
    if deficit <= MAX_DEFERRAL_SECONDS:
        assert delay >= deficit


@given(deficit=deficits, fullness=fullnesses, chance=chances)
def test_the_spread_stays_within_a_fifth_of_the_factored_deficit(deficit, fullness, chance):
    middle = deficit * 3**fullness
    assert deferral_delay(deficit, fullness, chance) <= middle * 1.2 * (1 + 1e-9)
    if middle * 1.2 < MAX_DEFERRAL_SECONDS:
        assert deferral_delay(deficit, fullness, chance) >= middle * 0.8 * (1 - 1e-9)


@every_case(("deficit", "fullness", "chance", "delay"), [
    (10, 0.0, 0.0, 10), (10, 0.0, 0.5, 11), (10, 1.0, 0.0, 24), (10, 1.0, 0.5, 30), (10, 0.5, 0.5, 10 * 3**0.5),
    (10, 7.0, 0.5, 30), (-5, 1.0, 0.5, 0), (290, 1.0, 0.5, 295), (4000, 1.0, 0.0, 240), (4000, 1.0, 0.5, 270),
])  # fmt: skip
def test_delays_grow_from_one_to_three_times_the_deficit(deficit, fullness, chance, delay):
    assert deferral_delay(deficit, fullness, chance) == pytest.approx(delay)


@given(deficit=deficits, fullness=fullnesses, chance=chances)
def test_up_to_a_hard_reset_the_delay_is_the_time_to_it(deficit, fullness, chance):
    assert deferral_delay(deficit, fullness, chance, until_hard_reset=True) == deficit


def test_jobs_deferred_together_do_not_wake_together():
    delays = {deferral_delay(10, fullness, n / 100) for n in range(100) for fullness in [0.0]}
    assert len(delays) == 100


@every_case(("quota", "bucket"), [
    (300, TokenBucket(9, 291 / 60.25)), (60, TokenBucket(1, 59 / 60.25)), (30_000, TokenBucket(900, 29_100 / 60.25)),
    (2, TokenBucket(1, 1 / 60.25)),
])  # fmt: skip
def test_the_default_bucket_of_a_quota(quota, bucket):
    made = safe_bucket(quota)
    assert made.capacity == bucket.capacity
    assert made.rate == pytest.approx(bucket.rate, rel=1e-15)


@given(quota=st.floats(1.01, 1e7) | st.integers(2, 10**7), slack=st.floats(0, 5))
def test_a_safe_bucket_keeps_the_quota_in_every_minute_to_the_last_bit(quota, slack):
    bucket = safe_bucket(quota, slack_seconds=slack)
    assert Fraction(bucket.capacity) + (60 + Fraction(slack)) * Fraction(bucket.rate) <= Fraction(quota)
    assert bucket.capacity + 60 * bucket.rate >= quota * 60 / 66


def test_a_safe_bucket_lets_no_more_than_the_quota_through_in_a_saturated_minute():
    bucket, now = safe_bucket(300, slack_seconds=0), 0.0
    state: State = {}
    sent: list[float] = []
    while now < 180:
        answer = admit(bucket, state, now, [1] * 20)
        state = answer.state
        sent += [now] * answer.granted
        now = answer.retry_at or now
    assert 298 <= max(sum(start <= t <= start + 60 for t in sent) for start in sent) <= 300
    assert sum(60 <= t < 120 for t in sent) >= 0.96 * 300


@every_case("quota", [1, 0.5, 0, -3, float("nan"), True])
def test_a_quota_too_small_for_a_burst_and_a_rate_is_refused(quota):
    with pytest.raises(ValueError, match=r"quota"):
        safe_bucket(quota)


def test_a_bucket_for_large_calls_holds_one():
    assert safe_bucket(30_000, largest_cost=6_000, slack_seconds=0) == TokenBucket(6_000, 400.0)


@every_case(("percent", "left"), [(0, 300), (10, 270), (2.5, 292.5)])
def test_headroom_is_kept_off_the_quota(percent, left):
    assert with_headroom(300, percent) == left


@every_case("percent", [-1, 100, float("nan")])
def test_headroom_leaves_something(percent):
    with pytest.raises(ValueError, match="headroom"):
        with_headroom(300, percent)


# Pressure


def test_a_refusal_multiplies_and_time_adds():
    slowed = pushed_back(Pressure(), now=1000, sent_at=999)
    assert slowed == Pressure(0.7, 1000)
    assert pressure_at(slowed, 1060) == pytest.approx(0.8)
    assert pressure_at(slowed, 1180) == 1.0
    again = pushed_back(slowed, now=1060, sent_at=1059)
    assert again.factor == pytest.approx(0.56)


def test_a_burst_of_refusals_slows_a_limit_once():
    slowed = pushed_back(Pressure(), now=1000, sent_at=999)
    for n in range(50):
        assert pushed_back(slowed, now=1000 + n / 10, sent_at=999) is slowed


def test_one_refusal_of_many_calls_takes_a_few_per_cent():
    assert pushed_back(Pressure(), now=1000, sent_at=999, share=1 / 1700).factor == pytest.approx(0.97)
    assert pushed_back(Pressure(), now=1000, sent_at=999, share=1 / 10).factor == pytest.approx(0.7)


@given(
    shares=st.lists(st.floats(0, 0.2), min_size=1, max_size=20),
    factor=st.floats(0.1, 1),
    data=st.data(),
)
def test_refusals_of_one_pace_take_what_their_sum_says_in_any_order(shares, factor, data):
    rules = PressureRules(least=0)
    before = Pressure(factor, 1000)
    after = before
    for share in shares:
        after = pushed_back(after, 1000.5, 1000.25 if after is before else 999, share=share, rules=rules)
    base = pressure_at(before, 1000.5, rules)
    expected = max(rules.lowest, base * max(rules.decrease, 1 - rules.gain * sum(shares)))
    assert after.factor == pytest.approx(expected)
    assert (after.changed_at, after.before) == (1000.5, base)
    shuffled = before
    for share in data.draw(st.permutations(shares)):
        shuffled = pushed_back(shuffled, 1000.5, 1000.25 if shuffled is before else 999, share=share, rules=rules)
    assert shuffled.factor == pytest.approx(after.factor)


@given(share=st.floats(0, 1), more=st.floats(0, 1), factor=st.floats(0.1, 1))
def test_more_refusals_never_take_less_and_never_more_than_the_most(share, more, factor):
    rules, before = PressureRules(), Pressure(factor, 900)
    less, most = (
        pushed_back(before, 1000, 999, share=part, rules=rules).factor for part in sorted((share, min(1, share + more)))
    )
    base = pressure_at(before, 1000, rules)
    assert max(rules.lowest, base * rules.decrease) - 1e-9 <= most <= less
    assert less <= max(rules.lowest, base * (1 - rules.least)) + 1e-9


@given(
    events=st.lists(st.tuples(st.floats(-100, 200), st.floats(0, 100), st.floats(0, 1))),
    rules=st.builds(
        PressureRules,
        decrease=st.floats(0.01, 0.9),
        least=st.floats(0, 0.1),
        gain=st.floats(0.1, 10),
        recovery_per_minute=st.floats(0.01, 2),
        lowest=st.floats(0.01, 1),
    ),
)
def test_pressure_stays_between_its_floor_and_one_whatever_comes(events, rules):
    pressure, now = Pressure(), 1_000_000.0
    for moves, age, share in events:
        now += moves
        before = pressure_at(pressure, now, rules)
        pressure = pushed_back(pressure, now, now - age, share=share, rules=rules)
        after = pressure_at(pressure, now, rules)
        assert rules.lowest <= after <= 1
        assert after <= max(before, rules.lowest)
        recovers_from = max(now, pressure.changed_at or now)
        assert pressure_at(pressure, recovers_from + 60 / rules.recovery_per_minute, rules) == pytest.approx(1.0)


def test_a_clock_gone_back_recovers_nothing():
    assert pressure_at(Pressure(0.5, 1000), 400) == 0.5


@every_case("rules", [
    {"decrease": 1}, {"decrease": 0}, {"recovery_per_minute": 0}, {"lowest": 0}, {"lowest": 2}, {"least": 0.4},
    {"gain": 0},
])  # fmt: skip
def test_rules_that_could_stop_or_never_slow_are_refused(rules):
    with pytest.raises(ValueError, match="pressure"):
        PressureRules(**rules)
