"""When a failed call is tried again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jobs.backoff import LIMITED_JITTER, TEMPLATES, Policy, ceiling, delay, exhausted
from queueops.core.values.retry_after import spread
from tests.support.cases import every_case

MODERATE, AGGRESSIVE = TEMPLATES["moderate"], TEMPLATES["aggressive"]

policies = st.builds(
    Policy,
    initial=st.floats(0.01, 1000),
    multiplier=st.floats(1, 100),
    max_delay=st.floats(0.01, 100_000),
    max_retries=st.integers(0, 1000),
    jitter=st.sampled_from(["full", "limited", "none"]),
    window=st.none() | st.floats(1, 1_000_000),
)
retries = st.integers(0, 1000)
chances = st.floats(0, 1, exclude_max=True)
askings = st.none() | st.floats(0, 86_400)


@every_case(
    ("policy", "ceilings"),
    [(MODERATE, [1, 3, 9, 27, 60, 60]), (AGGRESSIVE, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64])],
)
def test_the_templates_grow_as_specified(policy, ceilings):
    assert [ceiling(policy, done) for done in range(len(ceilings))] == ceilings


def test_the_templates_are_the_specifications():
    assert Policy(1, 3, 60, max_retries=5, jitter="full", window=500) == MODERATE
    assert Policy(1, 2, 64, max_retries=10, jitter="limited", window=None) == AGGRESSIVE


@given(policy=policies, done=retries)
def test_the_ceiling_grows_and_is_truncated(policy, done):
    assert 0 < ceiling(policy, done) <= ceiling(policy, done + 1) <= policy.max_delay


@given(policy=policies, done=retries, chance=chances)
def test_jitter_only_shortens_a_delay_and_by_its_own_measure(policy, done, chance):
    longest = ceiling(policy, done)
    shares = {"full": 0.0, "limited": 1 - LIMITED_JITTER, "none": 1.0}
    assert longest * shares[policy.jitter] <= delay(policy, done, chance=chance) <= longest


@given(policy=policies, done=retries)
def test_full_jitter_spreads_over_the_whole_delay(policy, done):
    full = replace(policy, jitter="full")
    assert delay(full, done, chance=0.0) == 0
    assert delay(full, done, chance=0.5) == ceiling(policy, done) / 2


@given(policy=policies, done=retries, chance=chances, asked=askings)
def test_a_longer_retry_after_wins_and_a_shorter_one_does_not(policy, done, chance, asked):
    own = delay(policy, done, chance=chance)
    assert delay(policy, done, chance=chance, retry_after=asked) == max(own, spread(asked or 0.0, chance))


@given(policy=policies, done=retries, used=st.floats(0, 2_000_000), coming=st.floats(0, 100_000))
def test_a_retry_is_left_exactly_while_both_bounds_hold(policy, done, used, coming):
    left = done < policy.max_retries and (policy.window is None or used + coming <= policy.window)
    assert (exhausted(policy, done, window_used=used, next_delay=coming) is None) is left


def test_what_ended_the_retries_is_named():
    assert exhausted(MODERATE, 5, window_used=0, next_delay=1) == "all 5 retries are used"
    assert exhausted(MODERATE, 4, window_used=441, next_delay=60) == "the retry window of 500 s would be passed"
    assert exhausted(MODERATE, 4, window_used=440, next_delay=60) is None
    assert exhausted(AGGRESSIVE, 9, window_used=1e9, next_delay=64) is None


def test_a_huge_exponent_is_the_maximum_and_no_error():
    assert ceiling(replace(AGGRESSIVE, multiplier=1e6), 10_000) == 64


@given(seconds=st.floats(0, 1e6), chance=st.floats(0, 1, exclude_max=True))
def test_what_is_told_one_time_is_spread_upwards_alone(seconds, chance):
    assert seconds <= spread(seconds, chance) <= seconds + min(seconds, max(1.0, seconds / 10), 60.0)
