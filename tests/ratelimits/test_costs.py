"""A call costs a vector: each limit takes its own unit of it before the call, and settles that unit after it."""

from __future__ import annotations

import pytest

from ratelimits.costs import Usage, counted, estimate
from ratelimits.limiter.decide import Call, Settlement, decide, reclaim, settle
from ratelimits.limiter.view.start_forecast import Asked, look_ahead
from ratelimits.models import CallTally, Charge
from tests.ratelimits.counting import ADA, START, binding, kinds, make_limit, used
from tests.support.cases import every_case

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]

VECTOR = {"input_tokens": 60, "cached_tokens": 20, "output_tokens": 30}
UNITS = ("tokens", "input_tokens", "output_tokens")


@pytest.fixture(autouse=True)
def at_the_start(clock):
    clock.at = START


@every_case(("unit", "known", "amounts", "expected"), [
    ("tokens", 60, {}, (90, 60)), ("tokens", 60, {"tokens": 70}, (70, None)), ("input_tokens", 60, {}, (60, None)),
    ("input_tokens", None, {}, (90, None)), ("input_tokens", 60, {"input_tokens": 50}, (50, None)),
    ("output_tokens", 60, {}, (30, 0)), ("output_tokens", None, {}, (90, None)),
    ("output_tokens", 60, {"output_tokens": 40}, (40, 0)), ("enqueued_tokens", 60, {}, (0, None)),
    ("enqueued_tokens", 60, {"enqueued_tokens": 500}, (500, None)),
])  # fmt: skip
def test_what_a_call_does_not_state_of_a_unit_follows_from_its_cost(unit, known, amounts, expected):
    assert estimate(unit, 90, known, amounts) == expected


@every_case(("unit", "actual", "amounts", "expected"), [
    ("tokens", 80, {"tokens": 90}, 80), ("tokens", None, {"tokens": 90}, 90),
    ("input_tokens", 80, {"input_tokens": 50}, 50), ("input_tokens", 80, {}, None), ("output_tokens", None, {}, None),
    ("output_tokens", 0, {}, 0), ("output_tokens", 0, {"output_tokens": 7}, 7),
])  # fmt: skip
def test_what_a_provider_does_not_tell_of_a_unit_is_not_known(unit, actual, amounts, expected):
    assert counted(unit, actual, amounts) == expected


@every_case(("unit", "known", "amounts", "takes"), [
    ("tokens", 20, {"output_tokens": 10, "max_output_tokens": 50}, 70), ("tokens", 20, {"output_tokens": 40}, 60),
    ("output_tokens", 20, {"output_tokens": 10, "max_output_tokens": 50}, 50), ("tokens", 20, {}, 30),
    ("tokens", 20, {"output_tokens": 10, "max_output_tokens": 500}, 100),
    ("input_tokens", 20, {"output_tokens": 10, "max_output_tokens": 50}, 20),
], undone=True)  # fmt: skip
def test_a_limit_that_reserves_all_that_a_call_may_bring_takes_it_and_gives_nothing_back(unit, known, amounts, takes):
    limit = make_limit(unit=unit, capacity=100, reserves="max")
    decide([Call(ADA, cost=30, known_cost=known, amounts=amounts, holder="h")])
    assert used(limit, now=START) == takes
    settle([Settlement("h", 25, {"input_tokens": 20, "output_tokens": 5})])
    assert used(limit, now=START) == (20 if unit == "input_tokens" else takes)


def test_an_input_above_a_limit_that_reserves_all_can_never_fit():
    make_limit(unit="tokens", capacity=100, reserves="max")
    amounts = {"input_tokens": 101, "output_tokens": 10}
    assert kinds(decide([Call(ADA, cost=111, known_cost=101, amounts=amounts)])) == "r"


def test_cached_tokens_count_only_where_the_limit_says_so():
    free, all_of_it = (
        make_limit(name, unit="input_tokens", capacity=100, counts_cached=counts)
        for name, counts in (("free", False), ("all", True))
    )
    decide([Call(ADA, amounts=VECTOR, holder="h")])
    assert (used(free, now=START), used(all_of_it, now=START)) == (40, 60)
    settle([Settlement("h", None, {"input_tokens": 70, "cached_tokens": 65})])
    assert (used(free, now=START), used(all_of_it, now=START)) == (5, 70)


def test_each_limit_takes_its_own_unit_and_settles_it_by_itself():
    limits = [make_limit(unit.replace("_", "-"), unit=unit, capacity=200) for unit in UNITS]
    requests = make_limit("requests")
    decide([Call(ADA, cost=90, known_cost=60, amounts=VECTOR, holder="h")])
    assert [used(one, now=START) for one in (*limits, requests)] == [90, 60, 30, 1]
    settle([Settlement("h", 75, Usage(55, 20, 12, 67).amounts())])
    assert [used(one, now=START) for one in (*limits, requests)] == [75, 55, 12, 1]
    assert not Charge.objects.exists()


def test_the_unit_without_room_is_the_one_that_binds():
    make_limit("in", unit="input_tokens", capacity=1000)
    make_limit("out", unit="output_tokens", capacity=50)
    calls = [Call(ADA, amounts={"input_tokens": 10, "output_tokens": 25})] * 3
    decisions = decide(calls)
    assert kinds(decisions) == "ppd"
    assert (binding(decisions[2]).limit, binding(decisions[2]).unit) == ("out", "output_tokens")


def test_a_guess_at_the_output_leaves_room_for_its_neighbours():
    out = make_limit(unit="output_tokens", capacity=100)
    decide([Call(ADA, amounts={"output_tokens": 4000})])
    assert used(out, now=START) == 50


def test_more_input_than_a_window_has_is_rejected_and_more_output_is_not():
    make_limit("in", unit="input_tokens", capacity=100)
    make_limit("out", unit="output_tokens", capacity=100)
    calls = [Call(ADA, amounts={"input_tokens": 101, "output_tokens": 1}), Call(ADA, amounts={"output_tokens": 101})]
    assert kinds(decide([calls[0]])) == "r"
    assert kinds(decide([calls[1]._replace(amounts={"input_tokens": 1, "output_tokens": 101})])) == "p"


def test_a_call_that_was_refused_gives_all_units_back():
    limits = [make_limit(unit.replace("_", "-"), unit=unit, capacity=200) for unit in UNITS]
    decide([Call(ADA, cost=90, known_cost=60, amounts=VECTOR, holder="h")])
    settle([Settlement("h", 0)])
    assert [used(one, now=START) for one in limits] == [0, 0, 0]


def test_a_crashed_holder_gives_all_units_back():
    limits = [make_limit(unit.replace("_", "-"), unit=unit, capacity=200) for unit in UNITS]
    decide([Call(ADA, cost=90, known_cost=60, amounts=VECTOR, holder="h")])
    assert reclaim(["h"]) == 1
    assert [used(one, now=START) for one in limits] == [0, 0, 0]


def test_tokens_are_enqueued_until_the_batch_ends_and_concern_no_other_call():
    limit = make_limit(unit="enqueued_tokens", algorithm="concurrency", capacity=1000, lease_seconds=86_400)
    batch = Call(ADA, amounts={"enqueued_tokens": 600}, holder="batch", hold_seconds=86_400)
    assert kinds(decide([batch, Call(ADA, cost=5000), batch._replace(holder="second"), Call(ADA)])) == "ppdp"
    assert used(limit, now=START) == 600
    settle([Settlement("batch", 123, {"input_tokens": 300})])
    assert used(limit, now=START) == 0


def test_what_a_batch_has_enqueued_stays_counted_however_short_the_limits_lease_is(clock):
    limit = make_limit(unit="enqueued_tokens", algorithm="concurrency", capacity=1000, lease_seconds=600)
    batch = Call(ADA, amounts={"enqueued_tokens": 600}, holder="batch", hold_seconds=86_400)
    decide([batch])
    clock.at = START + 20 * 3600
    assert kinds(decide([batch._replace(holder="second")])) == "d"
    settle([Settlement("batch", 123)])
    assert used(limit, now=clock.at) == 0


def test_a_cost_that_is_no_number_is_rejected_in_any_unit():
    make_limit(unit="output_tokens", capacity=100)
    assert kinds(decide([Call(ADA, amounts={"output_tokens": float("nan")})])) == "r"


def test_the_tally_keeps_what_calls_take_of_each_unit_stated_or_not():
    make_limit(unit="input_tokens", capacity=1000)
    decide([Call(ADA, amounts=VECTOR), Call(ADA, amounts={"input_tokens": 40})])
    said = {"input_tokens": 100, "cached_tokens": 20, "output_tokens": 30 + 1, "tokens": 1 + 1, "enqueued_tokens": 0}
    assert CallTally.objects.get().amounts == said


def test_the_forecast_of_a_call_goes_by_the_unit_of_each_limit():
    for unit in UNITS:
        make_limit(unit.replace("_", "-"), unit=unit, capacity=200)
    [found] = look_ahead([Asked(ADA, 90, 60, VECTOR)], now=START)
    assert {one.rule.unit: one.needed for one in found} == {"tokens": 90, "input_tokens": 60, "output_tokens": 30}
