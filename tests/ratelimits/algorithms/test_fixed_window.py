"""Resets: a zone's midnights, days on which clocks change, aligned windows, clocks that go back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from queueops.core.postgres.zones import known_zone
from ratelimits.algorithms import fixed_window
from ratelimits.algorithms.fixed_window import KEPT_WINDOWS, FixedWindow
from ratelimits.algorithms.measures import cost_units
from tests.ratelimits.one_counter import admit, gauge, refund
from tests.support.cases import every_case

PACIFIC = "America/Los_Angeles"


def at(text):
    return datetime.fromisoformat(text).timestamp()


@every_case(
    ("zone", "now", "reset"),
    [
        (PACIFIC, "2026-01-15T12:00:00+00:00", "2026-01-16T08:00:00+00:00"),
        (PACIFIC, "2026-07-15T12:00:00+00:00", "2026-07-16T07:00:00+00:00"),
        # 23 hours, 25 hours
        (PACIFIC, "2026-03-08T08:00:00+00:00", "2026-03-09T07:00:00+00:00"),
        (PACIFIC, "2026-11-01T07:00:00+00:00", "2026-11-02T08:00:00+00:00"),
        (PACIFIC, "2026-11-01T09:30:00+00:00", "2026-11-02T08:00:00+00:00"),
        # at the very midnight the next one counts, a microsecond before it this one
        (PACIFIC, "2026-01-16T08:00:00+00:00", "2026-01-17T08:00:00+00:00"),
        (PACIFIC, "2026-01-16T07:59:59.999999+00:00", "2026-01-16T08:00:00+00:00"),
        ("Asia/Kathmandu", "2026-01-15T12:00:00+00:00", "2026-01-15T18:15:00+00:00"),
        # the zone skips midnight: the day begins at 01:00
        ("Africa/Cairo", "2026-04-23T12:00:00+00:00", "2026-04-23T22:00:00+00:00"),
        ("America/Havana", "2026-03-07T12:00:00+00:00", "2026-03-08T05:00:00+00:00"),
        # 23:00 comes twice before midnight
        ("Africa/Cairo", "2026-10-29T20:30:00+00:00", "2026-10-29T22:00:00+00:00"),
        ("Africa/Cairo", "2026-10-29T21:30:00+00:00", "2026-10-29T22:00:00+00:00"),
        # midnight comes twice: the day begins at the first
        ("America/Havana", "2026-10-31T12:00:00+00:00", "2026-11-01T04:00:00+00:00"),
        # Samoa had no 30 December 2011
        ("Pacific/Apia", "2011-12-30T09:00:00+00:00", "2011-12-30T10:00:00+00:00"),
        ("Pacific/Apia", "2011-12-30T10:00:00+00:00", "2011-12-31T10:00:00+00:00"),
    ],
)
def test_a_daily_denial_is_parked_until_the_zones_midnight(zone, now, reset):
    limit = FixedWindow(1, zone=zone)
    full = admit(limit, {}, at(now), [1]).state
    assert admit(limit, full, at(now), [1]).retry_at == at(reset)
    assert admit(limit, full, at(reset), [1]).granted == 1


@given(
    zone=st.sampled_from([PACIFIC, "Africa/Cairo", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
    now=st.datetimes(datetime(2015, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 (hypothesis wants naive bounds)
)
def test_a_reset_is_the_first_instant_of_another_local_date(zone, now):
    reset = datetime.fromtimestamp(FixedWindow(1, zone=zone).reset_after(round(now.timestamp() * 1e6)) / 1e6, UTC)
    local = ZoneInfo(zone)
    assert now < reset <= now + timedelta(hours=25)
    assert (reset - timedelta(microseconds=1)).astimezone(local).date() == now.astimezone(local).date()
    assert reset.astimezone(local).date() == now.astimezone(local).date() + timedelta(days=1)


@every_case(("n", "now", "reset"), [(60, 1000, 1020), (60, 1019.999999, 1020), (60, 1020, 1080), (7, 0, 7)])
def test_aligned_windows_reset_at_whole_multiples_since_1970(n, now, reset):
    limit = FixedWindow(3, window_seconds=n)
    full = admit(limit, {}, now, [3]).state
    assert admit(limit, full, now, [1]).retry_at == reset


def test_the_thirteen_behind_wait_for_tomorrow_and_those_behind_them_for_the_day_after():
    limit = FixedWindow(2, zone=PACIFIC)
    answer = admit(limit, {}, at("2026-03-07T12:00:00-08:00"), [1] * 6)
    assert [v.at for v in answer.verdicts[2:]] == [at("2026-03-08T00:00:00-08:00")] * 2 + [
        at("2026-03-09T00:00:00-07:00")
    ] * 2


def test_a_clock_that_goes_back_over_the_reset_finds_the_day_it_left():
    limit = FixedWindow(5, zone=PACIFIC)
    midnight = at("2026-01-16T00:00:00-08:00")
    state = admit(limit, {}, midnight - 10, [5]).state
    state = admit(limit, state, midnight + 1, [2]).state
    assert admit(limit, state, midnight - 5, [1]).retry_at == midnight
    assert gauge(limit, state, midnight + 2).used == 2


def test_before_the_windows_it_remembers_nothing_is_granted():
    limit = FixedWindow(5, window_seconds=60)
    state: dict[str, object] = {}
    for minute in range(KEPT_WINDOWS + 2):
        state = admit(limit, state, minute * 60, [1]).state
    assert len(state["windows"]) == KEPT_WINDOWS  # type: ignore[arg-type]
    assert admit(limit, state, 30, [1]).retry_at == 120
    assert gauge(limit, state, 30).available == 0


def test_a_call_near_the_reset_counts_on_both_sides_of_it():
    limit = FixedWindow(2, window_seconds=60, guard_seconds=1)
    state = admit(limit, {}, 59.5, [1]).state
    assert gauge(limit, state, 62).used == 1
    state = admit(limit, state, 62, [1]).state
    assert admit(limit, state, 62, [1]).retry_at == 121
    late = refund(limit, state, 62, 1, granted_at=59.5)
    assert gauge(limit, late, 62).used == 1


def test_a_changed_rule_forgets_nothing_of_a_window_still_open():
    now = at("2026-01-15T12:00:00-08:00")
    state = admit(FixedWindow(5, zone=PACIFIC), {}, now, [5]).state
    for edited in [FixedWindow(5, zone="UTC"), FixedWindow(5, window_seconds=86_400)]:
        tomorrow = at("2026-01-16T00:00:00+00:00")
        assert admit(edited, state, tomorrow, [1]).granted == 0


def test_a_host_that_does_not_know_the_zone_grants_nothing_and_counts_for_those_that_do(monkeypatch):
    limit, now = FixedWindow(5, zone=PACIFIC), at("2026-01-15T12:00:00+00:00")
    state = admit(limit, {}, now, [2]).state
    monkeypatch.setattr(fixed_window, "known_zone", lambda name: None if name == PACIFIC else known_zone(name))
    asked = admit(limit, state, now, [1])
    assert (asked.granted, asked.retry_at) == (0, now + fixed_window.LOST_SECONDS)
    assert gauge(limit, state, now).available == 0
    late = limit.open(state, now)
    late.take(cost_units(2))  # what a call took beyond its estimate
    monkeypatch.undo()
    assert gauge(limit, late.state(), now).available == 1
