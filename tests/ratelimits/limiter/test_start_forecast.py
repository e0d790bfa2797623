"""What is foreseen of limits, against what they then do on a clock of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.admission import State
from ratelimits.algorithms.measures import MICRO, seconds
from ratelimits.limiter.counters import open_counter
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.start_forecast import Asked, forecast_of, look_ahead
from ratelimits.limits import catalogue
from ratelimits.limits.catalogue import Rule, rule_of
from ratelimits.models import Counter, Limit
from ratelimits.subjects import Subject
from tests.ratelimits.one_counter import admit

SHEETS = Subject("google-sheets", "write", "acme", "u-1")
BEGIN = 1_800_000_000.0
WINDOW = 60.0
ALLOWED = 0.15

FIGURES: dict[str, dict[str, Any]] = {
    "sliding_window": {},
    "token_bucket": {"refill_per_second": 5.0},
    "leaky_bucket": {"refill_per_second": 5.0},
    "fixed_window": {},
}


def rule(algorithm: str, *, capacity: float = 30, **figures: Any) -> Rule:
    made = Limit(name="l", service="s", algorithm=algorithm, capacity=capacity, **(FIGURES[algorithm] | figures))
    made.pk = 1
    return rule_of(made)


def drained(one: Rule, state: State, calls: int) -> float:
    """When the last of some calls leaves its lane if it is asked again as soon as something may go: the truth."""
    now, crowded = BEGIN, calls > one.capacity
    while True:
        counter = open_counter(one, "*", state, now)
        while calls and counter.room_for(MICRO, paced=True, crowded=crowded):
            counter.take(MICRO)
            calls -= 1
        if not calls:
            return now
        counter.closed = True
        state = counter.state()
        opens_at = counter.meter.line_up(MICRO)
        if counter.stream and counter.is_streamed(crowded=crowded):
            opens_at = max(opens_at, counter.stream.opens_at)
        now = max(now + 0.001, seconds(opens_at))


def foreseen(one: Rule, state: State, calls: int) -> float:
    counter = Counter(id="x", limit_id=1, key="*", state=state)
    at = forecast_of(one, Asked(SHEETS), counter, BEGIN).passed_at([(1.0, calls)])
    assert at is not None
    return at


@pytest.mark.parametrize("capacity", [10, 30])
@pytest.mark.parametrize("algorithm", FIGURES)
@given(used=st.integers(0, 30), calls=st.integers(1, 300))
def test_a_queue_is_through_when_it_was_foreseen(algorithm: str, capacity: int, used: int, calls: int):
    """Within ALLOWED of how long it takes, or a few sub-buckets of a window."""
    one = rule(algorithm, capacity=capacity)
    state = admit(one.algorithm("*"), {}, BEGIN - 1, [1] * used).state
    truth = drained(one, state, calls) - BEGIN
    assert foreseen(one, state, calls) - BEGIN == pytest.approx(truth, rel=ALLOWED, abs=ALLOWED * WINDOW)


def sheets_limit(name: str = "writes", **figures: Any) -> Limit:
    made = Limit.objects.create(
        name=name, service="google-sheets", **({"call_type": "write", "scope": "project", "capacity": 2} | figures)
    )
    catalogue.forget()
    return made


@pytest.mark.django_db
def test_looking_changes_nothing_and_foresees_when_a_call_has_room():
    sheets_limit()
    decide([Call(SHEETS)] * 2)
    before = list(Counter.objects.values())
    now = decide([Call(SHEETS)])[0].now
    [[seen]] = look_ahead([Asked(SHEETS)], now=now)
    assert (seen.is_closed, seen.needed, seen.available, seen.capacity) == (True, 1, 0, 2)
    assert seen.free_at == pytest.approx(now + WINDOW, abs=2)
    assert list(Counter.objects.values()) == before


@pytest.mark.django_db
def test_a_limit_nobody_has_used_is_open():
    sheets_limit()
    [[seen]] = look_ahead([Asked(SHEETS)], now=BEGIN)
    assert (seen.is_closed, seen.available, seen.free_at) == (False, 2, BEGIN)


@pytest.mark.django_db
def test_shadow_limits_and_limits_of_other_calls_are_left_out():
    sheets_limit("shadow", shadow=True)
    sheets_limit("reads", call_type="read")
    sheets_limit("off", enabled=False)
    assert look_ahead([Asked(SHEETS)], now=BEGIN) == [()]


@pytest.mark.django_db
def test_a_call_that_never_fits_and_one_in_flight_are_free_at_no_known_time():
    sheets_limit("tokens", unit="tokens", capacity=100)
    sheets_limit("places", unit="in_flight", algorithm="concurrency", capacity=1)
    now = decide([Call(SHEETS, holder="h")])[0].now
    tokens, places = look_ahead([Asked(SHEETS, cost=101)], now=now)[0]
    assert (tokens.is_closed, tokens.free_at) == (True, None)
    assert "101" in tokens.why
    assert (places.is_closed, places.free_at, places.passed_at([(1.0, 5)])) == (True, None, None)


@pytest.mark.django_db
def test_a_guess_is_foreseen_as_it_will_be_charged():
    sheets_limit("tokens", unit="tokens", capacity=100)
    [[seen]] = look_ahead([Asked(SHEETS, cost=500, known_cost=10)], now=BEGIN)
    assert (seen.needed, seen.is_closed) == (50, False)


@pytest.mark.django_db
def test_a_cool_down_comes_before_all_else():
    limit = sheets_limit()
    now = decide([Call(SHEETS)])[0].now
    Counter.objects.filter(limit=limit).update(blocked_until="2100-01-01T00:00Z", blocked_reason="asked to")
    [[seen]] = look_ahead([Asked(SHEETS)], now=now)
    assert seen.is_closed
    assert seen.free_at == seen.cooled_until
    assert seen.why == "asked to"
    assert seen.passed_at([(1.0, 1)]) == seen.cooled_until


@pytest.mark.django_db
def test_a_shadow_limit_holds_a_queue_no_longer_than_its_cool_down():
    limit = sheets_limit(shadow=True)
    now = decide([Call(SHEETS)])[0].now
    Counter.objects.filter(limit=limit).update(blocked_until="2100-01-01T00:00Z", blocked_reason="refused")
    [[seen]] = look_ahead([Asked(SHEETS)], now=now)
    assert seen.passed_at([(1.0, 151)]) == seen.cooled_until
