"""What calls hold until their end: settled with the truth, once, or reclaimed; and what is forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from ratelimits.limiter.decide import Call, Settlement, decide, reclaim, reclaim_expired, settle
from ratelimits.models import CallTally, Charge, Counter
from ratelimits.tuning.upkeep import forget_old
from tests.ratelimits.counting import ADA, START, change, kinds, make_limit, used, versions
from tests.support.cases import every_case

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]


@pytest.fixture
def tokens(clock):
    """A limit of a hundred tokens a minute, of which the call `h` has estimated forty."""
    clock.at = START
    limit = make_limit(unit="tokens", capacity=100)
    decide([Call(ADA, cost=40, holder="h")])
    return limit


@every_case(("actual", "counted"), [(10, 10), (40, 40), (70, 70), (0, 0), (130, 130), (None, 40)], undone=True)
def test_a_call_is_settled_with_what_it_really_cost(tokens, actual, counted):
    settle([Settlement("h", actual)])
    assert used(tokens, now=START) == counted
    assert not Charge.objects.exists()


@every_case("actual", [10, 70, None], undone=True)
def test_settling_twice_is_settling_once(tokens, actual):
    settle([Settlement("h", actual), Settlement("h", actual)])
    before = versions()
    settle([Settlement("h", 99)])
    assert versions() == before


def test_settling_what_was_never_charged_changes_nothing(tokens):
    before = versions()
    settle([Settlement("unknown", 5)])
    assert versions() == before
    assert Charge.objects.count() == 1


def test_what_was_not_used_is_given_back_to_its_own_window_and_to_no_later_one(tokens, clock):
    clock.at = START + 62
    decide([Call(ADA, cost=30)])
    settle([Settlement("h", 10)])
    assert used(tokens, now=clock.at) == 30


def test_what_was_used_beyond_the_estimate_counts_however_late(tokens, clock):
    clock.at = START + 62
    settle([Settlement("h", 100)])
    assert used(tokens, now=clock.at) == 60


def test_a_late_actual_may_pass_the_cap_and_then_nothing_goes_until_there_is_room(tokens, clock):
    settle([Settlement("h", 130)])
    assert kinds(decide([Call(ADA, cost=1)])) == "d"
    clock.at = START + 62
    assert kinds(decide([Call(ADA, cost=100)])) == "p"


def test_a_limit_switched_off_meanwhile_has_nothing_to_settle(tokens):
    before = versions()
    change(tokens, enabled=False)
    settle([Settlement("h", 10)])
    assert versions() == before
    assert not Charge.objects.exists()


def test_a_place_in_flight_is_free_when_its_call_ends_whatever_it_cost(clock):
    clock.at = START
    limit = make_limit(unit="in_flight", algorithm="concurrency", capacity=2)
    assert kinds(decide([Call(ADA, holder="a"), Call(ADA, holder="b"), Call(ADA, holder="c")])) == "ppd"
    clock.at += 5
    settle([Settlement("a"), Settlement("b", 7)])
    assert used(limit, now=clock.at) == 0


def test_what_ends_makes_room_for_the_calls_of_the_same_decision(clock):
    clock.at = START
    make_limit(unit="in_flight", algorithm="concurrency", capacity=1)
    decide([Call(ADA, holder="a")])
    assert kinds(decide([Call(ADA, holder="b")], settlements=[Settlement("a")])) == "p"
    assert list(Charge.objects.values_list("holder", flat=True)) == ["b"]


def test_a_call_settles_each_of_its_limits(clock):
    clock.at = START
    limits = [
        make_limit("user", unit="tokens", scope="user", capacity=100),
        make_limit("all", unit="tokens", scope="global", algorithm="token_bucket", capacity=100, refill_per_second=1),
        make_limit("slots", unit="in_flight", algorithm="concurrency", scope="global"),
    ]
    decide([Call(ADA, cost=40, holder="h")])
    settle([Settlement("h", 15)])
    assert [used(one, key, now=START) for one, key in zip(limits, ["user:ada", "*", "*"], strict=True)] == [15, 15, 0]


# Crashed holders


def test_what_a_crashed_holder_held_is_reclaimed_once_its_time_has_passed(tokens):
    decide([Call(ADA, cost=20, holder="lives")])
    assert reclaim_expired() == 0
    Charge.objects.filter(holder="h").update(expires_at=F("granted_at") - timedelta(seconds=1))
    assert reclaim_expired() == 1
    assert used(tokens, now=START) == 20
    assert list(Charge.objects.values_list("holder", flat=True)) == ["lives"]
    assert reclaim_expired() == 0


def test_reclaiming_is_bounded_and_takes_the_oldest_first(tokens):
    decide([Call(ADA, cost=20, holder="later")])
    Charge.objects.filter(holder="later").update(expires_at=F("granted_at") - timedelta(seconds=1))
    Charge.objects.filter(holder="h").update(expires_at=F("granted_at") - timedelta(seconds=2))
    assert reclaim_expired(most=1) == 1
    assert list(Charge.objects.values_list("holder", flat=True)) == ["later"]


def test_what_a_holder_known_to_have_crashed_held_is_reclaimed_at_once(tokens):
    assert reclaim(["h", "unknown"]) == 1
    assert used(tokens, now=START) == 0
    assert reclaim([]) == 0


def test_a_call_that_ends_after_it_was_reclaimed_settles_nothing_twice(tokens):
    reclaim(["h"])
    settle([Settlement("h", 90)])
    assert used(tokens, now=START) == 0


def test_a_charge_is_kept_for_as_long_as_its_call_may_take():
    make_limit(unit="tokens", capacity=100)
    decide([Call(ADA, holder="h", hold_seconds=90)])
    charge = Charge.objects.get()
    assert (charge.expires_at - charge.granted_at).total_seconds() == 90


# What is forgotten


DAY = 86_400


def age(days: float) -> None:
    Counter.objects.update(updated_at=F("updated_at") - timedelta(days=days))
    CallTally.objects.update(at=F("at") - timedelta(days=days))


def test_a_counter_nobody_used_for_a_week_is_forgotten_and_made_again():
    limit = make_limit(capacity=2)
    decide([Call(ADA)])
    age(6.9)
    assert forget_old() == 1  # the tally
    age(0.2)
    assert forget_old() == 1
    assert not Counter.objects.exists()
    assert kinds(decide([Call(ADA)] * 3)) == "ppd"
    assert used(limit) == 2


@pytest.mark.parametrize(
    "kept",
    [{"alert_level": 80}, {"blocked_until": timezone.now() + timedelta(days=30)}],
)
def test_a_counter_that_says_something_is_kept_however_old(kept):
    make_limit()
    decide([Call(ADA)])
    Counter.objects.update(**kept)
    age(30)
    forget_old()
    assert Counter.objects.exists()


def test_a_counter_is_kept_for_as_long_as_its_limit_remembers():
    limit = make_limit(window_seconds=20 * DAY)
    decide([Call(ADA)])
    age(15)
    forget_old()
    assert Counter.objects.filter(limit=limit).exists()
    age(30)
    forget_old()
    assert not Counter.objects.exists()
