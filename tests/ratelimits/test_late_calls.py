"""Calls that leave late after their grant: limits count them from when they left, as their provider does."""

from __future__ import annotations

import pytest

from ratelimits.models import Charge
from ratelimits.services.catalogue import Lateness, lateness_of
from ratelimits.services.decide import Call, Decision, LateCall, Settlement, charge_late, decide, settle
from ratelimits.subjects import Subject
from tests.ratelimits.counting import ADA, START, kinds, make_limit, used, versions

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]

OF_KEY = "project:acme"


def granted(calls: int, *, of: Subject = ADA) -> list[Decision]:
    return [one for one in decide([Call(of) for _ in range(calls)]) if one.kind == "proceed"]


def leave(clock, calls: list[Decision], *, at: float) -> None:
    clock.at = at
    charge_late([LateCall(Call(ADA), one.now, at - one.now) for one in calls])


def test_a_window_counts_a_late_call_from_its_sending(clock):
    clock.at = START
    make_limit(capacity=10, algorithm="sliding_window", window_seconds=60)
    late = granted(10)
    leave(clock, late[:6], at=START + 7)
    clock.at = START + 62  # the places of those that left at once are free again, those of the others are not
    assert len(granted(10)) == 4
    clock.at = START + 69
    assert len(granted(10)) == 6


def test_no_window_of_the_provider_sees_more_than_a_buckets_quota_after_a_stall(clock):
    """What was granted during a stall of ten seconds leaves at its end, a part of it at a time."""
    clock.at = START
    make_limit(capacity=6, algorithm="token_bucket", refill_per_second=4, window_seconds=60)
    held: list[Decision] = []
    while clock.at < START + 10:
        held += granted(6)
        clock.at += 0.25
    assert len(held) == 6 + 39
    for part in range(0, len(held), 7):
        leave(clock, held[part : part + 7], at=START + 10 + part / 1000)
    sent = len(held)
    clock.at = START + 10
    while clock.at < START + 70:
        sent += len(granted(6))
        clock.at += 0.25
    assert 6 + 4 * 59 <= sent <= 6 + 4 * 60


def test_a_bucket_loses_nothing_by_calls_that_are_all_equally_late(clock):
    clock.at = START
    make_limit(capacity=6, algorithm="token_bucket", refill_per_second=4, window_seconds=60)
    under_way: list[Decision] = []
    sent = []
    for step in range(400):
        clock.at = START + step / 20
        under_way += granted(1)
        while under_way and under_way[0].now <= clock.at - 1:
            leave(clock, [under_way.pop(0)], at=clock.at)
            sent.append(clock.at)
    assert sum(at >= START + 10 for at in sent) == 4 * 10


def test_a_leaky_bucket_takes_a_late_call_again(clock):
    clock.at = START
    make_limit(capacity=1, algorithm="leaky_bucket", refill_per_second=0.1)
    leave(clock, granted(1), at=START + 12)
    clock.at = START + 15
    assert granted(1) == []
    clock.at = START + 22
    assert len(granted(1)) == 1


def test_a_call_within_the_slack_of_a_limit_stays_where_it_is(clock):
    clock.at = START + 50
    minute = make_limit("minute", capacity=10, window_seconds=60)
    hour = make_limit("hour", capacity=10, window_seconds=3600)
    late = granted(10)
    leave(clock, late, at=START + 70)  # an hour has 30 s of slack, a minute half a second
    assert used(minute, now=START + 115) == 10
    assert used(hour, now=START + 3600 + 60 + 31) == 0


def test_estimates_move_with_their_call_and_are_settled_where_they_lie(clock):
    clock.at = START
    tokens = make_limit(unit="tokens", capacity=100, window_seconds=60)
    call = Call(ADA, cost=40, holder="h")
    [decision] = decide([call])
    clock.at = START + 7
    # Twice: it started late, and its headers left later still.
    charge_late([LateCall(call, decision.now, 7), LateCall(call, decision.now + 5, 2)])
    assert used(tokens, now=clock.at) == 40
    settle([Settlement("h", 10)])
    assert used(tokens, now=clock.at) == 10
    assert used(tokens, now=START + 63) == 10
    assert not Charge.objects.exists()


def test_what_was_settled_before_its_lateness_was_known_stays_where_it_is(clock):
    clock.at = START
    tokens = make_limit(unit="tokens", capacity=100)
    call = Call(ADA, cost=40, holder="h")
    [decision] = decide([call])
    settle([Settlement("h", 10)])
    clock.at = START + 7
    before = versions()
    charge_late([LateCall(call, decision.now, 7)])
    assert versions() == before
    assert used(tokens, now=clock.at) == 10
    assert not Charge.objects.exists()


def test_places_in_flight_and_daily_quotas_count_no_lateness(clock):
    clock.at = START
    make_limit("slots", unit="in_flight", algorithm="concurrency", capacity=1)
    make_limit("day", algorithm="fixed_window", window_seconds=None, reset_zone="UTC")
    call = Call(ADA, holder="h")
    [decision] = decide([call])
    assert lateness_of(ADA) is None
    before = versions()
    charge_late([LateCall(call, decision.now, 7)])
    assert versions() == before
    assert kinds(decide([Call(ADA, holder="i")], settlements=[Settlement("h")])) == "p"


def test_the_tightest_limit_says_how_late_a_call_may_be():
    make_limit("minute", window_seconds=60)
    assert lateness_of(ADA) == Lateness(counts=0.5, stale=15)
    make_limit("bucket", algorithm="token_bucket", refill_per_second=1, window_seconds=24, slack_seconds=0.1)
    assert lateness_of(ADA) == Lateness(counts=0.1, stale=6)
    make_limit("second", window_seconds=1)
    assert lateness_of(ADA) == Lateness(counts=1 / 120, stale=1)
