"""The ramp: its share, and what limits let through while it grows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from hypothesis import given
from hypothesis import strategies as st

from queueops.audit.models import AuditEntry
from queueops.core.clock import database_now
from queueops.core.database import connect_directly
from ratelimits.algorithms.modifiers.ramp import FIRST_SHARE, Ramp
from ratelimits.errors import InvalidRamp, NoRamp
from ratelimits.limiter.decide import Call, Settlement, decide, settle
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limiter.view.headroom import read_headroom
from ratelimits.limits import catalogue, ramps
from ratelimits.models import Charge, Counter, Limit, ResumeRamp
from ratelimits.subjects import Subject
from tests.support.cases import every_case
from tests.support.processes import wait_for

SUBJECT = Subject("svc", "write", "acme")
FREE = Subject("free", "write", "acme")
ACTOR = "user:1"
TIMES = st.floats(0, 1e5)
SHARES = st.floats(FIRST_SHARE, 1)


@pytest.fixture(autouse=True)
def _knows_of_none() -> Iterator[None]:
    catalogue.forget()
    yield
    catalogue.forget()


@st.composite
def any_ramp(draw: st.DrawFn) -> Ramp:
    held = draw(st.none() | SHARES)
    return Ramp(draw(st.none() | TIMES), draw(st.floats(1, 1e5)), held)


def amount(ramp: Ramp, since: float, until: float, pieces: int = 2000) -> float:
    """The integral of the share, summed."""
    width = (until - since) / pieces
    return sum(ramp.share(since + (n + 0.5) * width) for n in range(pieces)) * width


@given(any_ramp(), TIMES, TIMES)
def test_the_share_begins_at_its_first_value_never_falls_and_ends_at_all(ramp: Ramp, one: float, other: float):
    earlier, later = sorted((one, other))
    assert FIRST_SHARE <= ramp.share(earlier) <= ramp.share(later) <= 1
    if ramp.ends_at is None:
        assert ramp.share(earlier) == ramp.share(later)
    else:
        assert ramp.share(ramp.started_at or 0.0) == FIRST_SHARE
        assert ramp.share(ramp.ends_at) == pytest.approx(1)
        assert ramp.share(ramp.ends_at + 1) == 1


@given(any_ramp(), TIMES)
def test_a_ramp_that_is_held_and_continued_goes_on_where_it_stood_and_lasts_as_much_longer(ramp: Ramp, now: float):
    share = ramp.share(now)
    held = Ramp(ramp.started_at, ramp.over_seconds, share)
    assert held.share(now + 1e6) == share
    later = now + 500
    going = Ramp(held.start_for(share, later), ramp.over_seconds)
    assert going.share(later) == pytest.approx(share)
    assert (going.ends_at or 0) - later == pytest.approx((1 - share) / (1 - FIRST_SHARE) * ramp.over_seconds, abs=1e-6)


@given(any_ramp(), TIMES, st.floats(0, 1e5))
def test_what_would_come_at_the_present_share_comes_when_as_much_has_passed(ramp: Ramp, now: float, wait: float):
    now = max(now, ramp.started_at or 0.0)
    at = ramp.sooner(now + wait, now)
    assert now <= at <= now + wait + 1e-6
    assert amount(ramp, now, at) == pytest.approx(wait * ramp.share(now), rel=1e-2, abs=1e-3)


def test_a_clock_that_has_gone_back_behind_the_ramps_start_is_taken_to_stand_there():
    ramp = Ramp(100.0, 10.0)
    for wait in (10.0, 1000.0):
        assert ramp.sooner(40.0 + wait, 40.0) - 40.0 == pytest.approx(ramp.sooner(100.0 + wait, 100.0) - 100.0)


@pytest.fixture
def ramp(db: None):
    """One that is held at a tenth."""
    yield held_at(0.1)
    ResumeRamp.objects.all().delete()


def held_at(share: float | None, **figures: Any) -> ResumeRamp:
    found, _ = ResumeRamp.objects.update_or_create(
        pk=1,
        defaults={"started_at": Now(), "over_seconds": 600, "held_share": share, "slots": 20, "started_by": ACTOR}
        | figures,
    )
    catalogue.forget()
    return found


def limit(**figures: Any) -> Limit:
    made = Limit.objects.create(**{"name": "limit", "service": "svc", "capacity": 100, "slack_seconds": 0} | figures)
    catalogue.forget()
    return made


def granted(count: int, *, subject: Subject = SUBJECT, **more: Any) -> int:
    return sum(one.kind == "proceed" for one in decide([Call(subject, **more)] * count))


@every_case(
    ("figures", "let_through"),
    [
        ({}, 10),
        ({"algorithm": "fixed_window", "window_seconds": 3600, "guard_seconds": 0}, 10),
        ({"algorithm": "concurrency", "unit": "in_flight"}, 10),
        ({"algorithm": "token_bucket", "refill_per_second": 0.001}, 10),
        ({"capacity": 3}, 1),
        ({"capacity": 3, "algorithm": "concurrency", "unit": "in_flight"}, 1),
        ({"capacity": 3, "algorithm": "token_bucket", "refill_per_second": 0.001}, 1),
        ({"shadow": True}, 40),
        # A day's quota is no pace: a tenth of it would take the other calls away.
        ({"algorithm": "fixed_window", "window_seconds": None, "reset_zone": "UTC", "guard_seconds": 0}, 40),
    ],
    undone=True,
)
def test_a_limit_lets_the_share_of_its_cap_through_and_at_least_one(ramp, figures, let_through):
    limit(**figures)
    assert granted(40) == let_through
    assert not Counter.objects.filter(shadow_denials__gt=0), "a shadow tells what its whole cap would have refused"


@pytest.mark.django_db
def test_a_bucket_that_was_full_before_the_ramp_begins_with_the_share_of_it():
    limit(algorithm="token_bucket", refill_per_second=0.001)
    assert granted(1) == 1
    Counter.objects.update(updated_at=Now() - timedelta(days=1))
    held_at(0.1)
    assert granted(40) == 10


def test_a_call_above_the_share_waits_and_is_not_rejected(ramp):
    limit(unit="tokens", capacity=100)
    [first] = decide([Call(SUBJECT, cost=5)])
    [large] = decide([Call(SUBJECT, cost=40, known_cost=40)])
    assert (first.kind, large.kind) == ("proceed", "defer")
    assert large.retry_at is not None
    assert "paced by the ramp" in large.reason
    [above_all] = decide([Call(SUBJECT, cost=400, known_cost=400)])
    assert above_all.kind == "reject"


def test_a_call_above_the_share_goes_when_nothing_else_is_counted(ramp):
    limit(unit="tokens", capacity=100)
    assert [one.kind for one in decide([Call(SUBJECT, cost=40, known_cost=40)] * 2)] == ["proceed", "defer"]


def test_gauges_and_room_tell_the_share_and_hold_it_against_the_whole_cap(ramp):
    made = limit()
    assert granted(40) == 10
    [gauge] = gauges([made.pk])
    assert (gauge.share, gauge.capacity, round(gauge.percent), gauge.available) == (0.1, 100, 10, 0)
    assert read_headroom([SUBJECT])[SUBJECT].blocking[0].reason == "limit has no room, paced by the ramp"


def test_a_share_that_grows_brings_room_sooner_than_the_window_does(ramp):
    limit(window_seconds=600)
    held_at(None)
    assert granted(40) == 5
    [waiting] = decide([Call(SUBJECT)])
    assert 1 < (waiting.retry_at or 0) - waiting.now < 500, "without the growth it were ten minutes"


def test_calls_of_a_queue_that_no_limit_paces_are_as_many_in_flight_as_the_share_of_the_slots(ramp):
    limit(service="free", shadow=True)
    calls = [Call(FREE, holder=f"job:{n}", hold_seconds=60, paced=True) for n in range(5)]
    assert [one.kind for one in decide(calls)] == ["proceed", "proceed", "defer", "defer", "defer"]
    assert [one.kind for one in decide([calls[4]._replace(subject=Subject("other", "read"))])] == ["proceed"]
    assert read_headroom([FREE], paced=True)[FREE].calls == 0
    settle([Settlement("job:0")])
    assert read_headroom([FREE], paced=True)[FREE].calls == 1
    assert granted(5, subject=FREE) == 5, "programs that ask the limiter have no slots"


def test_what_a_call_held_of_the_slots_is_given_up_when_the_ramp_has_ended_before_it(ramp):
    decide([Call(FREE, holder="job:0", hold_seconds=60, paced=True)])
    ramps.end_ramp(actor=ACTOR)
    settle([Settlement("job:0")])
    assert not Charge.objects.exists()


@pytest.mark.django_db
def test_without_a_ramp_nothing_is_counted_that_no_limit_counts():
    catalogue.forget()
    assert granted(3, subject=FREE, paced=True, holder="job:1") == 3
    assert not Counter.objects.exists()


@pytest.mark.django_db
def test_a_ramp_that_has_reached_its_end_is_none():
    limit()
    held_at(None, started_at=Now() - timedelta(seconds=601))
    assert ramps.ramp_now() is None
    assert catalogue.rule_of_ramp() is None
    assert granted(101) == 100
    with pytest.raises(NoRamp):
        ramps.hold_ramp(actor=ACTOR)


@pytest.mark.django_db
def test_a_ramp_is_held_continued_and_ended_and_each_is_in_the_audit_trail():
    held_at(None, started_at=Now() - timedelta(seconds=200))
    held = ramps.hold_ramp(actor=ACTOR, reason="look")
    assert (held.is_held, held.percent, held.ends_at) == (True, 37, None)
    assert ramps.continue_ramp(actor=ACTOR).ends_at is not None
    assert ramps.continue_ramp(actor=ACTOR).percent == 37, "twice is once"
    found = catalogue.rules(), ResumeRamp.objects.get().figures
    assert (found[1].ends_at or 0) - database_now() == pytest.approx(400, abs=5)
    ramps.end_ramp(actor=ACTOR)
    assert ramps.ramp_now() is None
    entries = AuditEntry.objects.order_by("pk").values_list("action", "reason")
    assert list(entries) == [("hold_ramp", "look"), ("continue_ramp", ""), ("end_ramp", "")]


@pytest.mark.django_db
def test_a_ramp_that_was_held_for_long_goes_on_from_its_share():
    held_at(0.3, started_at=Now() - timedelta(seconds=500))
    assert ramps.continue_ramp(actor=ACTOR).percent == 30


@pytest.mark.django_db
def test_this_process_follows_each_change_at_once():
    def known() -> Ramp:
        rule = catalogue.rule_of_ramp()
        assert rule is not None
        assert rule.ramp is not None
        return rule.ramp

    assert catalogue.rule_of_ramp() is None
    ramps.prepare_ramp(over_seconds=600, slots=1, actor=ACTOR)
    assert known().started_at is None
    ramps.begin_ramp()
    assert known().started_at is not None
    ramps.hold_ramp(actor=ACTOR)
    assert known().held_share is not None
    ramps.continue_ramp(actor=ACTOR)
    assert known().held_share is None
    ramps.end_ramp(actor=ACTOR)
    assert catalogue.rule_of_ramp() is None


@pytest.mark.django_db
def test_a_ramp_that_waits_for_the_pause_to_end_is_shown_and_steered_by_nobody():
    ramps.prepare_ramp(over_seconds=600, slots=1, actor=ACTOR)
    assert ramps.ramp_now() is None
    for steer in (ramps.hold_ramp, ramps.continue_ramp, ramps.end_ramp):
        with pytest.raises(NoRamp):
            steer(actor=ACTOR)
    assert ResumeRamp.objects.exists()
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db
def test_a_ramp_begins_once():
    held_at(None, started_at=None)
    assert ramps.begin_ramp()
    before = ResumeRamp.objects.get().started_at
    assert not ramps.begin_ramp()
    assert ResumeRamp.objects.get().started_at == before


@pytest.mark.django_db
def test_a_new_ramp_has_nothing_of_one_that_came_with_a_restored_database():
    """That one was held, and its executors are gone with what they held of its slots."""
    held_at(0.5)
    assert granted(10, subject=FREE, paced=True, holder="job:1", hold_seconds=60) == 10
    ramps.prepare_ramp(over_seconds=600, slots=20, actor=ACTOR)
    assert ResumeRamp.objects.get().held_share is None
    assert granted(1, subject=FREE, paced=True, holder="job:2", hold_seconds=60) == 1


def test_only_all_of_it_is_a_hundred_per_cent():
    assert [ramps.ShownRamp(share, False, None).percent for share in (0.05, 0.996, 1.0)] == [5, 99, 100]


@pytest.mark.django_db
def test_a_ramp_that_ends_as_it_is_held_is_none(monkeypatch):
    held_at(None)
    monkeypatch.setattr(ramps, "ramp_now", lambda: None)
    with pytest.raises(NoRamp):
        ramps.hold_ramp(actor=ACTOR)


@pytest.mark.django_db(transaction=True)
def test_who_changes_a_ramp_waits_for_who_is_changing_it():
    held_at(0.3)
    continued = "UPDATE ratelimits_resumeramp SET held_share = NULL, started_at = now() - interval '300 seconds'"
    blocked = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"

    def go_on() -> int:
        try:
            return ramps.continue_ramp(actor=ACTOR).percent
        finally:
            connection.close()

    with connect_directly() as other, connect_directly() as looking, ThreadPoolExecutor(1) as beside:
        with other.transaction():
            other.execute(continued)
            going_on = beside.submit(go_on)
            wait_for(lambda: looking.execute(blocked, [other.info.backend_pid]).fetchone(), what="the second to wait")
        assert going_on.result(30) >= 52
    assert not AuditEntry.objects.exists()
    ResumeRamp.objects.all().delete()


@pytest.mark.django_db
@every_case("seconds", [0, 0.5, -1, 8 * 86_400, math.nan, math.inf])
def test_a_ramp_of_no_or_endless_time_is_refused(seconds):
    with pytest.raises(InvalidRamp):
        ramps.prepare_ramp(over_seconds=seconds, slots=1, actor=ACTOR)
    assert not ResumeRamp.objects.exists()
