"""How much room limits have, read without locks; the decision says the same."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.headroom import WITHOUT_END, Headroom, read_headroom
from ratelimits.limits import catalogue
from ratelimits.models import Counter
from ratelimits.subjects import Subject, counter_id
from tests.ratelimits.counting import ADA, BOB, START, change, kinds, make_limit, override
from tests.support.cases import every_case
from tests.support.drawn_limits import histories, limits, subjects, with_limits

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]


def room(subject: Subject = ADA, *, tokens: float = 1, paced: bool = False) -> Headroom:
    return read_headroom([subject], tokens=tokens, paced=paced)[subject]


def test_calls_without_a_limit_have_room_without_end():
    found = room()
    assert (found.calls, found.opens_at, found.blocking, found.rate_per_second) == (WITHOUT_END, found.now, (), None)


def test_room_is_that_of_the_narrowest_limit_and_the_pace_of_the_slowest():
    make_limit("project", capacity=5)
    make_limit("user", scope="user", algorithm="token_bucket", capacity=8, refill_per_second=0.01)
    decide([Call(ADA)] * 2)
    found = room()
    assert (found.calls, found.calls_each) == (3, (3, 6))
    assert found.rate_per_second == 0.01
    assert list(found.paces) == pytest.approx([5 / 61, 0.01])
    assert read_headroom([ADA, BOB])[BOB].calls_each == (3, 8)


def test_limits_without_room_come_the_one_first_that_takes_longest(clock):
    clock.at = START
    make_limit("minute", capacity=1)
    make_limit("hour", capacity=1, window_seconds=3600)
    make_limit("free")
    decide([Call(ADA)])
    found = room()
    assert found.calls == 0
    assert [one.limit for one in found.blocking] == ["hour", "minute"]
    assert found.opens_at == found.blocking[0].retry_at == decide([Call(ADA)])[0].retry_at


def test_a_counter_nobody_used_has_its_whole_room_and_is_not_made():
    make_limit(capacity=4)
    assert room().calls == 4
    assert not Counter.objects.exists()


def test_a_limit_of_tokens_alone_has_room_or_none(clock):
    clock.at = START
    make_limit(unit="tokens", capacity=100)
    decide([Call(ADA, cost=80)])
    assert room(tokens=20).calls == WITHOUT_END
    assert room(tokens=21).calls == 0
    assert room(tokens=20).rate_per_second == pytest.approx(100 / 61 / 20)


def test_what_batches_have_enqueued_leaves_live_calls_their_room():
    make_limit(unit="enqueued_tokens", algorithm="concurrency", capacity=10)
    decide([Call(ADA, amounts={"enqueued_tokens": 10}, holder="batch")])
    assert room().calls == WITHOUT_END
    assert kinds(decide([Call(ADA)])) == "p"


@every_case("figures", [{"capacity": 0}, {"capacity": 0.9}], undone=True)
def test_a_cap_below_one_call_never_opens(figures):
    override(make_limit(), "project:acme", **figures)
    found = room()
    assert (found.calls, found.opens_at, found.blocking[0].retry_at) == (0, math.inf, None)


def test_a_cooling_counter_opens_when_it_has_cooled_down(clock):
    clock.at = START
    make_limit()
    decide([Call(ADA)])
    Counter.objects.update(blocked_until=datetime.fromtimestamp(START + 30, UTC), blocked_reason="refused")
    found = room()
    assert (found.calls, found.opens_at) == (0, START + 30)
    assert (found.blocking[0].cooling, found.blocking[0].reason) == (True, "refused")
    clock.at = START + 30
    assert room().calls == 9


def test_an_unused_counter_slowed_below_one_call_has_room_for_one(clock):
    clock.at = START
    limit = make_limit(capacity=1)
    pressed = {"pressure": 0.5, "pressure_changed_at": datetime.fromtimestamp(START, UTC)}
    Counter.objects.create(id=counter_id(limit.pk, "project:acme"), limit=limit, key="project:acme", **pressed)
    assert room().calls == 1
    assert kinds(decide([Call(ADA)] * 2)) == "pd"


def test_a_shadow_limit_narrows_no_room():
    limit = make_limit(capacity=1, shadow=True)
    decide([Call(ADA)] * 3)
    assert room().calls == WITHOUT_END
    change(limit, shadow=False)
    assert room().calls == 0


def test_the_room_of_a_queue_behind_a_full_window_is_that_of_its_stream(clock):
    clock.at = START
    make_limit(capacity=100)
    decide([Call(ADA, paced=True)] * 101)
    clock.at = START + 61.6
    assert (room(paced=True).calls, room().calls) == (1, 100)
    decide([Call(ADA, paced=True)])
    closed = room(paced=True)
    assert closed.calls == 0
    assert closed.opens_at == pytest.approx(clock.at + 60 / 102)
    assert room().calls == 99


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    drawn=st.lists(limits, min_size=1, max_size=3),
    history=histories,
    subject=subjects,
    wait=st.floats(0, 30),
    asked=st.integers(1, 12),
    paced=st.booleans(),
)
def test_the_decision_admits_what_the_room_says_and_refuses_where_there_is_none(
    *, clock, drawn, history, subject, wait, asked, paced
):
    with_limits(drawn)
    clock.at = START
    for moves, calls in history:
        clock.at += moves
        decide(calls)
    clock.at += wait
    found = room(subject, paced=paced)
    went = kinds(decide([Call(subject, paced=paced)] * asked)).count("p")
    if found.calls == 0:
        assert went == 0
        assert found.opens_at > clock.at
    elif not all(rule.per_call for rule in catalogue.rules_for(subject)):
        assert 1 <= went <= found.calls
    else:
        assert went == min(found.calls, asked)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(limits, min_size=1, max_size=3), history=histories, subject=subjects)
def test_a_closed_subject_opens_when_its_room_says_and_not_sooner(clock, drawn, history, subject):
    with_limits(drawn)
    clock.at = START
    for moves, calls in history:
        clock.at += moves
        decide(calls)
    found = room(subject)
    if found.calls or found.opens_at == math.inf:
        return
    clock.at = found.opens_at - 0.000_002
    assert kinds(decide([Call(subject)])) == "d"
    clock.at = found.opens_at
    assert kinds(decide([Call(subject)])) == "p"
