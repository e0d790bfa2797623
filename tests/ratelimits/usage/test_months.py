"""Where months end: in every zone, also where clocks change over that midnight."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.usage.month_end import month_end
from ratelimits.usage.reserve import reserve
from ratelimits.usage.standings import standing
from tests.factories import make_allowance
from tests.ratelimits.usage.reports import month_of, report, send
from tests.support.cases import every_case

SECOND = timedelta(seconds=1)

# The end of the month in UTC, worked out by hand.
ENDS = [
    ("2026-11", "UTC", "2026-12-01T00:00"),
    ("2026-12", "UTC", "2027-01-01T00:00"),
    ("2028-02", "Asia/Tokyo", "2028-02-29T15:00"),
    ("2026-03", "Europe/Vienna", "2026-03-31T22:00"),  # summer time since the 29th
    ("2026-10", "Europe/Vienna", "2026-10-31T23:00"),  # and back since the 25th
    ("2026-09", "Pacific/Chatham", "2026-09-30T10:15"),  # +13:45 since the 27th
    ("2026-08", "Pacific/Chatham", "2026-08-31T11:15"),  # +12:45
    ("2026-10", "America/Havana", "2026-11-01T04:00"),  # at one o'clock of the 1st clocks go back to midnight
    ("2018-10", "America/Campo_Grande", "2018-11-01T04:00"),
    ("2018-03", "Asia/Amman", "2018-03-31T21:00"),
    ("1985-03", "America/Asuncion", "1985-04-01T04:00"),  # at that midnight clocks went back to eleven
    ("1994-09", "America/Asuncion", "1994-10-01T04:00"),  # and forward to one: it did not come
    ("2011-12", "Pacific/Apia", "2011-12-31T10:00"),  # the 30th did not come there
]


@every_case(("month", "zone", "end"), ENDS)
def test_a_month_ends_at_the_first_midnight_of_the_next(month, zone, end):
    assert month_end(month, zone) == datetime.fromisoformat(end).replace(tzinfo=UTC)


@pytest.mark.django_db
@every_case(("month", "zone", "end"), ENDS)
def test_the_database_begins_the_next_month_at_that_very_moment(month, zone, end):
    end = datetime.fromisoformat(end).replace(tzinfo=UTC)
    assert months_at(zone, end - SECOND, end)[0] == month
    assert months_at(zone, end - SECOND, end)[1] > month


@given(
    zone=st.sampled_from(
        ["Europe/Vienna", "America/Havana", "America/Sao_Paulo", "Asia/Beirut", "Africa/Cairo", "Pacific/Chatham"]
    ),
    year=st.integers(1985, 2035),
    number=st.integers(1, 12),
)
@pytest.mark.django_db
def test_python_and_the_database_agree_on_when_months_end(zone, year, number):
    month = f"{year}-{number:02}"
    end = month_end(month, zone)
    before, after = months_at(zone, end - SECOND, end)
    assert before == month < after


@pytest.mark.django_db
@every_case("ends", [ends for ends in ENDS if ends[0] >= "2026"], undone=True)
def test_a_quota_begins_anew_with_the_month(user, set_clock, ends):
    month, zone, end = ends
    make_allowance(quota=2, time_zone=zone)
    end = datetime.fromisoformat(end).replace(tzinfo=UTC)
    set_clock(end - SECOND)
    made = reserve(project_id="acme", user_id=user, amount=2)
    assert (made.month, made.resets_at, made.remaining) == (month, end, 0)
    set_clock(end)
    assert standing("acme", user).remaining == 2
    made = reserve(project_id="acme", user_id=user, amount=1)
    assert (made.month > month, made.remaining) == (True, 1)
    # Whatever is the month now: the first reservation's was the one before, and this one's is the next.
    send(report(user, reservation=made.reservation_id, at=end), report(user, at=end - SECOND))
    assert month_of(user, month) == (1, 2)
    assert month_of(user, made.month) == (1, 0)


@pytest.mark.django_db
@every_case("zone", ["Pacific/Chatham", "America/Havana", "UTC"], undone=True)
def test_an_event_counts_in_the_month_of_its_zone_in_which_it_happened(user, set_clock, zone):
    make_allowance(time_zone=zone)
    now = datetime(2026, 11, 3, tzinfo=UTC)
    set_clock(now)
    edge = datetime(2026, 11, 1, tzinfo=ZoneInfo(zone))
    send(report(user, at=edge), report(user, at=edge.astimezone(UTC) - SECOND), report(user, at=now))
    assert month_of(user, "2026-10") == (1, 0)
    assert month_of(user, "2026-11") == (2, 0)


def months_at(zone: str, *moments: datetime) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_char(unnest(%s::timestamptz[]) AT TIME ZONE %s, 'YYYY-MM')", [list(moments), zone])
        return [month for (month,) in cursor.fetchall()]
