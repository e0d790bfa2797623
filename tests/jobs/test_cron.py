"""When schedules fire: every policy, in zones whose clocks are moved, over hours that nobody looked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.times.cron import MAX_COUNTED, MISSED_AFTER, BadTimes, Missed, Times, check_zone
from queueops.core.postgres.zones import OF_THE_HOST, zone_names
from tests.support.cases import every_case
from tests.support.examples import examples

# Europe, both Americas, Australia: in winter and summer; Cairo and Santiago move their clocks at midnight;
# Lord Howe's go forward and back by half an hour; no change.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Cairo",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Asia/Tokyo",
    "UTC",
)
CRONS = (
    "* * * * *", "*/7 * * * *", "0 * * * *", "15,45 */2 * * *", "30 2 * * *", "0,30 1,2,3 * * *", "0 0 * * *",
    "59 23 * * MON-FRI", "0 3 L * *", "0 9 * * MON#1", "30 1 29 2 *", "5 4 1,15 * FRI",
)  # fmt: skip
MINUTE = timedelta(minutes=1)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
crons, zones = st.sampled_from(CRONS), st.sampled_from(ZONES)
fast = settings(max_examples=examples(150))


def dues(times: Times, moment: datetime, count: int) -> list[datetime]:
    return [fire.due_at for fire in islice(times.after(moment), count)]


def local(times: Times, moment: datetime, count: int) -> list[str]:
    zone = ZoneInfo(times.time_zone)
    return [f"{due.astimezone(zone):%m-%d %H:%M %Z}" for due in dues(times, moment, count)]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_day_of_either_field_fires_and_one_of_both_where_a_field_begins_with_a_star():
    begin = at("2026-10-31 23:59")
    assert local(Times("0 0 13 * FRI", "UTC"), begin, 3) == ["11-06 00:00 UTC", "11-13 00:00 UTC", "11-20 00:00 UTC"]
    assert local(Times("0 0 */2 * FRI", "UTC"), begin, 2) == ["11-13 00:00 UTC", "11-27 00:00 UTC"]


@fast
@given(crons, zones, moments, st.integers(0, 3600))
def test_fires_follow_each_other_and_jitter_makes_none_late_for_the_next(cron, zone, moment, jitter):
    times = Times(cron, zone, jitter, seed="x")
    fires = list(islice(times.after(moment), 6))
    assert fires[0].due_at > moment
    for fire, following in pairwise(fires):
        assert fire.due_at <= fire.fire_at < following.due_at
        assert fire.fire_at - fire.due_at <= timedelta(seconds=max(0, jitter - 1))
    assert list(islice(times.after(moment), 6)) == fires


@fast
@given(crons, zones, moments, moments)
@example("* * * * *", "America/New_York", at("2027-11-05 00:00"), at("2027-11-08 00:00"))
def test_where_one_begins_to_look_changes_nothing(cron, zone, first, second):
    """So that a fire is neither made twice nor lost by whoever looks next, and when."""
    first, second = min(first, second), max(first, second)
    first = max(first, second - timedelta(days=3))
    times = Times(cron, zone)
    found = []
    for fire in times.after(first):
        if fire.due_at > second:
            break
        found.append(fire.due_at)
    following = dues(times, second, 2)
    assert dues(times, first, len(found) + 2) == found + following
    for due in found:
        assert dues(times, due, 1) == [next(later for later in found + following if later > due)]


@fast
@given(zones, moments)
def test_every_minute_is_every_minute_whatever_the_clocks_do(zone, moment):
    start = moment.replace(second=0, microsecond=0)
    assert dues(Times("* * * * *", zone), moment, 200) == [start + number * MINUTE for number in range(1, 201)]


@fast
@given(
    zones, st.sampled_from(["2025-10-04", "2026-04-04", "2026-03-28", "2026-10-24", "2026-09-05", "2026-11-01"]),
    st.sampled_from([1, 7, 15, 30]), st.sampled_from([range(24), range(0, 24, 2), range(1, 4)]),
)  # fmt: skip
def test_what_goes_by_time_fires_in_each_minute_that_a_clock_on_the_wall_shows(zone, day, step, hours):
    times = Times(f"*/{step} {','.join(map(str, hours))} * * *", zone)
    moment = at(f"{day} 11:59")
    minutes = [moment + number * MINUTE for number in range(1, 24 * 60)]
    shown = [(minute, minute.astimezone(ZoneInfo(zone))) for minute in minutes]
    wanted = [minute for minute, clock in shown if clock.hour in hours and clock.minute % step == 0]
    assert dues(times, moment, len(wanted)) == wanted


@settings(max_examples=examples(60))
@given(zones, st.integers(0, 23), st.integers(0, 59), moments)
def test_a_time_of_the_day_fires_once_a_day(zone, hour, minute, moment):
    found = dues(Times(f"{minute} {hour} * * *", zone), moment, 400)
    days = [due.astimezone(ZoneInfo(zone)).date() for due in found]
    assert days == [days[0] + timedelta(days=number) for number in range(400)]


@settings(max_examples=examples(60))
@given(
    crons, zones, moments, st.integers(0, 3 * 60 * 60), st.sampled_from(Missed), st.integers(1, 20),
    st.integers(0, 900), st.none() | st.integers(-7200, 7200),
)  # fmt: skip
def test_what_is_done_after_a_time_away_is_what_a_plain_reading_says(  # noqa: PLR0917
    cron, zone, moment, away, missed, most, jitter, ends
):
    unended = Times(cron, zone, jitter, seed="s")
    first = next(unended.after(moment))
    now = first.fire_at + timedelta(seconds=away)
    ends_at = None if ends is None else max(first.due_at, now + timedelta(seconds=ends))
    times = Times(cron, zone, jitter, ends_at, seed="s")
    due = times.due(since=first.due_at, now=now, missed=missed, most=most)

    everything, following = [], None
    for fire in times.after(moment):
        if fire.fire_at > now:
            following = fire
            break
        everything.append(fire)
    newest = everything[-1]
    wanted = {
        Missed.SKIP: [newest] if now - newest.fire_at < MISSED_AFTER else [],
        Missed.ONCE: [newest],
        Missed.ALL: everything[-most:],
    }[missed]
    assert due.fires == wanted
    assert due.left_out == len(everything) - len(wanted)
    assert (due.last_due_at, due.following) == (newest.due_at, following)


def test_nothing_is_due_before_its_time():
    times = Times("0 * * * *", jitter_seconds=600, seed="s")
    [first] = islice(times.after(at("2026-01-01 00:30")), 1)
    assert first.fire_at > first.due_at
    due = times.due(since=first.due_at, now=first.fire_at - timedelta(seconds=1), missed=Missed.ALL, most=9)
    assert (due.fires, due.left_out, due.following) == ([], 0, first)


def test_months_away_cost_no_more_than_what_is_wanted():
    now = at("2026-06-01 12:00:30")
    due = Times("* * * * *").due(since=now - timedelta(days=90), now=now, missed=Missed.ALL, most=3)
    assert [f"{fire.due_at:%H:%M}" for fire in due.fires] == ["11:58", "11:59", "12:00"]
    assert due.left_out == MAX_COUNTED


def test_three_hours_down_over_the_night_in_which_clocks_go_forward():
    times = Times("30 * * * *", "Europe/Berlin")
    due = times.due(since=at("2026-03-28 23:30"), now=at("2026-03-29 02:30:10"), missed=Missed.ALL, most=9)
    shown = [f"{fire.due_at.astimezone(ZoneInfo('Europe/Berlin')):%H:%M}" for fire in due.fires]
    assert shown == ["00:30", "01:30", "03:30", "04:30"]


# 2026-03-29 02:00 becomes 03:00 in Berlin, 2026-10-25 03:00 becomes 02:00; Santiago loses 00:00 to 01:00 on 09-06.
CHANGES = {
    "in the gap: at its end": (
        "30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["03-29 03:00 CEST", "03-30 02:30 CEST"],
    ),
    "several in the gap: once": (
        "0,20,40 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["03-29 03:00 CEST", "03-30 02:00 CEST"],
    ),
    "in the overlap: the first of both": (
        "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", ["10-25 02:30 CEST", "10-26 02:30 CET"],
    ),
    "looked at between both": (
        "30 2 * * *", "Europe/Berlin", "2026-10-25 01:10", ["10-26 02:30 CET", "10-27 02:30 CET"],
    ),
    "every hour: both hours": (
        "0 * * * *", "Europe/Berlin", "2026-10-24 23:30", ["10-25 02:00 CEST", "10-25 02:00 CET", "10-25 03:00 CET"],
    ),
    "every hour: no hour that is not there": (
        "0 * * * *", "Europe/Berlin", "2026-03-29 00:30", ["03-29 03:00 CEST", "03-29 04:00 CEST"],
    ),
    "midnight that is not there": (
        "0 0 * * *", "America/Santiago", "2026-09-05 12:00", ["09-06 01:00 -03", "09-07 00:00 -03"],
    ),
    "half an hour in the gap: at its end": (
        "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", ["10-04 02:30 +11", "10-05 02:15 +11"],
    ),
    "half an hour twice: the first of both": (
        "45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", ["04-05 01:45 +11", "04-06 01:45 +1030"],
    ),
    "every hour beside half an hour that is not there": (
        "45 * * * *", "Australia/Lord_Howe", "2026-10-03 15:00",
        ["10-04 01:45 +1030", "10-04 02:45 +11", "10-04 03:45 +11"],
    ),
    "every hour with half an hour twice": (
        "45 * * * *", "Australia/Lord_Howe", "2026-04-04 14:00",
        ["04-05 01:45 +11", "04-05 01:45 +1030", "04-05 02:45 +1030"],
    ),
    "every quarter of an hour that follows half an hour twice": (
        "*/15 2 * * *", "Australia/Lord_Howe", "2026-04-04 12:00",
        ["04-05 02:00 +1030", "04-05 02:15 +1030", "04-05 02:30 +1030", "04-05 02:45 +1030", "04-06 02:00 +1030"],
    ),
    "a zone without changes": ("30 2 * * *", "Asia/Tokyo", "2026-03-28 00:00", ["03-29 02:30 JST", "03-30 02:30 JST"]),
}  # fmt: skip


@every_case("case", CHANGES)
def test_clocks_that_are_moved(case):
    cron, zone, moment, wanted = CHANGES[case]
    assert local(Times(cron, zone), at(moment), len(wanted)) == wanted


def test_the_end_is_the_last_moment():
    times = Times("0 * * * *", ends_at=at("2026-01-01 03:00"))
    assert [f"{due:%H}" for due in dues(times, at("2026-01-01 00:30"), 9)] == ["01", "02", "03"]


REFUSED = {
    "0 0 30 2 *": "cron", "0 0 31 4,6 *": "cron", "* * * *": "cron", "* * * * * *": "cron", "61 * * * *": "cron",
    "x": "cron", "": "cron", "0 0 * * 5-2": "cron", "@daily": "cron", "*/0 * * * *": "cron",
    "0 0 * * " + "1," * 60 + "1": "cron", "*/61 * * * *": "cron", "5,10-50/90 * * * *": "cron", "0 */25 * * *": "cron",
    "0 0 */32 * *": "cron", "0 0 1 */13 *": "cron", "0 0 * * */8": "cron",
}  # fmt: skip


@every_case("cron", REFUSED)
def test_what_never_fires_or_cannot_be_read_is_refused(cron):
    with pytest.raises(BadTimes) as refused:
        Times(cron).check(at("2026-01-01 00:00"))
    assert refused.value.field == REFUSED[cron]


@every_case("cron", ["*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7"])
def test_a_step_may_be_as_long_as_its_field(cron):
    Times(cron).check(at("2026-01-01 00:00"))


def test_what_cannot_be_read_is_named_with_its_field_and_what_may_be_meant():
    said = {}
    for cron in ("@daily", "0 0 ? * MON", "0 0 * * fri-mon", "61 * * * *", "*/90 * * * *", "0 0 31 4 *", "* * * *"):
        with pytest.raises(BadTimes) as refused:
            Times(cron).check(at("2026-01-01 00:00"))
        said[cron] = str(refused.value)
    assert said == {
        "@daily": "In place of @daily write 0 0 * * *.",
        "0 0 ? * MON": "It cannot be read: write * in place of ? for the day of the month.",
        "0 0 * * fri-mon": (
            "It cannot be read: fri-mon is no day of the week; a range goes upwards, and commas stand between several."
        ),
        "61 * * * *": "It cannot be read: 61 is no minute.",
        "*/90 * * * *": "It would not go every 90: steps of the minute begin anew after 60.",
        "0 0 31 4 *": "It never fires: there is no such day.",
        "* * * *": "Write five fields: minute, hour, day of the month, month, day of the week.",
    }


def test_a_zone_that_is_not_there_and_an_end_before_the_next_fire_are_refused():
    for times, field in (
        (Times("0 * * * *", "Mars/Olympus"), "time_zone"),
        (Times("0 * * * *", "../UTC"), "time_zone"),
        (Times("0 * * * *", ends_at=at("2026-01-01 00:59")), "ends_at"),
    ):
        with pytest.raises(BadTimes) as refused:
            times.check(at("2026-01-01 00:00"))
        assert refused.value.field == field
    assert Times("30 1 29 2 *").check(at("2026-01-01 00:00")).due_at == at("2028-02-29 01:30")


def test_a_name_that_is_another_clock_on_each_host_is_no_zone():
    for name in OF_THE_HOST:
        with pytest.raises(BadTimes, match="no such time zone"):
            check_zone(name)
    assert {"UTC", "Europe/Berlin", "EST5EDT"} <= zone_names()
