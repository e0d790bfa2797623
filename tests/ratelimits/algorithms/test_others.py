"""Who shares a quota: what is kept free for them is enough, and nothing is where nobody does."""

from __future__ import annotations

import json
from collections import deque
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.admission import State
from ratelimits.algorithms.measures import MICRO
from ratelimits.algorithms.modifiers.external_usage import MIN_LEFT, NO_OTHERS, Others, shown
from ratelimits.limiter.counters import open_counter
from ratelimits.limits.catalogue import Rule, rule_of
from ratelimits.models import Limit
from sandbox.quotas.windows import WindowMode, WindowRule

CAPACITY, WINDOW, BEGIN = 60_000, 60.0, 1_800_000_000.0
STEP = 0.05
ROUNDED_TO = 1_000
WINDOWS = 6

amounts = st.floats(min_value=0, max_value=2 * CAPACITY)
spans = st.floats(min_value=0, max_value=3 * WINDOW)


def a_rule(**figures: Any) -> Rule:
    fields = {"service": "svc", "unit": "input_tokens", "capacity": CAPACITY, "window_seconds": WINDOW}
    return rule_of(Limit(name="limit", algorithm="sliding_window", **(fields | figures)))


@given(st.lists(st.tuples(spans, amounts), max_size=20), spans)
def test_the_most_seen_in_a_window_is_kept_and_nothing_after_two(answers, later):
    others, at, seen = NO_OTHERS, BEGIN, []
    for wait, amount in answers:
        at += wait
        others = others.seen(amount, at, WINDOW)
        seen.append((at, amount))
    now = at + later
    held = others.at(now, WINDOW).held
    lately = max((amount for when, amount in seen if now - when < WINDOW), default=0)
    at_all = max((amount for when, amount in seen if now - when <= 2 * WINDOW), default=0)
    assert lately <= held <= at_all
    assert Others(*json.loads(json.dumps(others.state() or [0, 0, 0]))).held == others.held


@given(amounts, st.floats(min_value=0, max_value=1_000), amounts, amounts)
def test_what_one_answer_shows_is_nothing_or_certain_and_at_most_twice_that(missing, rounded, freed, capacity):
    found = shown(missing, rounded=rounded, freed=freed)
    certain = missing - rounded - freed
    assert (found == 0) == (certain <= 0)
    assert max(certain, 0) <= found <= min(max(2 * certain, 0), missing + rounded)
    assert MIN_LEFT <= Others(BEGIN, found, 0).left(capacity) <= 1


def test_a_clock_that_goes_back_keeps_nothing_for_longer():
    others = NO_OTHERS.seen(10, BEGIN + 1_000, WINDOW)
    assert others.at(BEGIN, WINDOW).held == 10
    back = others.at(BEGIN, WINDOW).seen(1, BEGIN, WINDOW)
    assert back.at(BEGIN + 2 * WINDOW, WINDOW).held == 0


@given(
    st.lists(st.tuples(st.floats(min_value=0.01, max_value=90), st.integers(0, CAPACITY), st.booleans()), max_size=30)
)
def test_no_answer_lets_more_through_than_the_limit_without_it(answers):
    heard: State = {}
    deaf: State = {}
    now = BEGIN
    for wait, remaining, is_told in answers:
        now += wait
        counter, plain = (open_counter(a_rule(), "k", state, now) for state in (heard, deaf))
        room = plain.meter.available()
        if is_told:
            counter.hear(remaining)
            assert counter.meter.available() <= max(remaining, MIN_LEFT * CAPACITY) * MICRO
        assert counter.meter.available() <= room
        if counter.room_for(300 * MICRO):
            counter.take(300 * MICRO)
            plain.take(300 * MICRO)
        heard, deaf = counter.state(), plain.state()


def played(
    seed: int, share: float, *, mode: WindowMode = "sliding", latency: float = 0.3, windows: int = WINDOWS
) -> tuple[list[float], float, float]:
    """
    Play a long queue against a provider that rounds what it says, with another consumer of such a share.

    Returns:
        When calls were refused, the part of the quota that was ours in the last four windows, and what is kept free.
    """
    dice, rule = Random(seed), a_rule(slack_seconds=0.15)  # noqa: S311
    state: State = {}
    provider, refusals, used = WindowRule(mode, WINDOW).make(), [], 0
    arriving: deque[tuple[float, int]] = deque()
    told: deque[tuple[float, float]] = deque()
    size, begin = dice.randint(200, 400), BEGIN + dice.random() * WINDOW
    for step in range(int(windows * WINDOW / STEP)):
        now = begin + step * STEP
        counter = open_counter(rule, "k", state, now)
        while told and told[0][0] <= now:
            _, remaining = told.popleft()
            freed = counter.algorithm.capacity * latency / WINDOW
            counter.hear(remaining, rounded=ROUNDED_TO / 2, freed=freed)
        while counter.room_for(size * MICRO, paced=True, crowded=True):
            counter.take(size * MICRO)
            arriving.append((now + STEP, size))
            size = dice.randint(200, 400)
        state = json.loads(json.dumps(counter.state()))
        while arriving and arriving[0][0] <= now:
            _, cost = arriving.popleft()
            if provider.used(now) + share * CAPACITY * provider.elapsed(now) + cost > CAPACITY:
                refusals.append(now - begin)
                continue
            provider.add(cost, now)
            used += cost if step * STEP >= (windows - 4) * WINDOW else 0
            left = max(0.0, CAPACITY - provider.used(now) - share * CAPACITY * provider.elapsed(now))
            told.append((now + dice.uniform(0, latency), round(left / ROUNDED_TO) * ROUNDED_TO))
    return refusals, used / CAPACITY / 4, open_counter(rule, "k", state, now).others.held


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("mode", ["sliding", "aligned", "anchored"])
def test_beside_a_steady_consumer_few_calls_are_refused_and_little_is_left_unused(mode, share):
    refusals, used, _ = played(7, share, mode=mode)
    assert len(refusals) <= 1
    assert used >= 0.94 * (1 - share)


@pytest.mark.parametrize("seed", range(3))
def test_without_another_consumer_nothing_is_kept_free(seed):
    refusals, used, held = played(seed, 0.0)
    assert (refusals, held) == ([], 0.0)
    assert used >= 0.97
