"""What is known of an allowance, when a use goes ahead on it, and the server's time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueops_client.errors import BadConfiguration
from queueops_client.usage.cache import Cached, Heard, View, merge, view
from queueops_client.usage.clock import ServerClock, as_text, seconds_of
from queueops_client.usage.policies import Policy, Rules

HEARD = Heard(remaining=900, resets_at=1000.0, month="2026-11", quota=1000, unit="tokens", policy="strict")
CACHED = Cached(7, "tokens", "strict", "2026-11", 1000, 500, 1000.0)
SKEW = st.integers(-90 * 86400, 90 * 86400)  # seconds
VIEW = View("tokens", "strict", quota=1000, remaining=500, unsettled=0, month="2026-11", resets_at=1000.0)


def merged(cached: Cached | None, heard: Heard, *, version: int) -> Cached:
    known = merge(cached, heard, version=version)
    assert known is not None
    return known


@given(st.data())
def test_no_answer_raises_what_is_known_above_the_server_s_latest_word(data):
    """Requests begin, are answered by the server, and have their answers arrive, in every order."""
    known, latest = merged(None, HEARD, version=0), (0, HEARD.remaining)
    begun: list[int] = []  # versions at their begin
    answered: list[tuple[int, int, int]] = []  # version, the server's order, remainder
    order = 0
    for _ in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(["begin", "answer", "arrive"])):
            case "begin":
                begun.append(known.version)
            case "answer" if begun:
                order += 1
                version = begun.pop(data.draw(st.integers(0, len(begun) - 1)))
                answered.append((version, order, data.draw(st.integers(0, 1000))))
            case "arrive" if answered:
                version, at, remaining = answered.pop(data.draw(st.integers(0, len(answered) - 1)))
                known = merged(known, replace(HEARD, remaining=remaining), version=version)
                latest = max(latest, (at, remaining))
        assert known.remaining <= latest[1]


def test_an_answer_that_nothing_overlapped_is_taken_as_it_is():
    assert merge(CACHED, replace(HEARD, remaining=800, quota=2000), version=7) == replace(
        CACHED, version=8, remaining=800, quota=2000
    )


def test_an_answer_that_another_overlapped_only_lowers():
    assert merge(CACHED, replace(HEARD, remaining=800, quota=2000), version=6) == replace(CACHED, version=8)
    assert merged(CACHED, replace(HEARD, remaining=100), version=6).remaining == 100


def test_an_answer_of_the_next_month_replaces_and_one_of_the_last_is_dropped():
    december = replace(HEARD, month="2026-12", remaining=1000, resets_at=2000.0)
    assert merged(CACHED, december, version=2).remaining == 1000
    assert merge(CACHED, replace(HEARD, month="2026-10", remaining=999), version=7) == CACHED


def test_an_answer_to_a_reservation_changes_neither_quota_nor_unit():
    heard = Heard.of({"remaining": 5, "resets_at": "1970-01-01T00:16:40+00:00", "month": "2026-11"})
    assert merge(CACHED, heard, version=7) == replace(CACHED, version=8, remaining=5)
    assert merge(None, heard, version=0) is None


def test_after_the_month_s_end_nothing_is_known():
    assert view(CACHED, unsettled=100, now=999.9) == replace(VIEW, remaining=400, unsettled=100)
    assert view(CACHED, unsettled=100, now=1000.0) is None
    assert view(None, unsettled=0, now=0.0) is None


def test_hybrid_goes_ahead_with_the_threshold_left_and_within_its_credit():
    rules = Rules(Policy.HYBRID, threshold=100, credit=0.2)
    assert rules.goes_ahead(replace(VIEW, remaining=100, unsettled=0), 0)
    for last in (replace(VIEW, remaining=150), replace(VIEW, unsettled=150)):
        assert [rules.goes_ahead(last, cost) for cost in (50, 51)] == [True, False], last


def test_optimistic_always_goes_ahead_strict_never_and_hybrid_not_on_nothing():
    empty = replace(VIEW, remaining=-5)
    assert [Rules(Policy(name)).goes_ahead(empty, 1) for name in ("optimistic", "strict", "hybrid")] == [
        True,
        False,
        False,
    ]
    assert not Rules(Policy.HYBRID).goes_ahead(None, 0)
    assert Rules(Policy.OPTIMISTIC).goes_ahead(None, 0)


def test_a_threshold_that_is_no_amount_is_refused():
    for amount in (-1, -0.5, 1.5, float("nan")):
        with pytest.raises(BadConfiguration):
            Rules(Policy.HYBRID, threshold=amount)


def _heard_at(clock: ServerClock, server: float) -> None:
    clock.learn({"date": format_datetime(datetime.fromtimestamp(server, UTC), usegmt=True)}, began=clock.local())


@given(
    skews=st.tuples(SKEW, SKEW),
    waited=st.integers(0, 10 * 86400),
    heard_before=st.booleans(),
    heard_then=st.booleans(),
)
def test_an_event_s_time_lies_between_the_last_answer_before_it_and_now(skews, waited, heard_before, heard_then):
    """Whatever the local clock says, and if it is set while the event waits."""
    skew, later_skew = skews
    true = 1_800_000_000.0
    local = [true + skew]
    clock = ServerClock(lambda: local[0])
    floor = true - 3600 if heard_before else 0.0
    if heard_then:
        _heard_at(clock, true)
    at, offset = clock.local(), clock.offset
    local[0] = true + waited + later_skew
    _heard_at(clock, true + waited)
    shown = clock.time_of_event(at, offset=offset, floor=floor)
    assert shown <= true + waited + 1
    assert shown >= floor
    if heard_then or (skew == later_skew):
        assert abs(shown - true) <= 2


def test_a_clock_without_answers_is_the_local_one_and_no_date_teaches_nothing():
    clock = ServerClock(lambda: 5.0)
    clock.learn({}, began=5.0)
    clock.learn({"date": "yesterday"}, began=5.0)
    assert clock.offset is None
    assert clock.now() == 5.0
    assert seconds_of(as_text(5.5)) == 5.5
