"""The plans of the statements of allowances at depth, and updates of months that touch no index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ratelimits.models import UsageTracking
from ratelimits.usage.reserve import reserve
from tests.factories import make_allowance
from tests.ratelimits.usage.reports import report, send
from tests.support.plans import assert_bounded, at_depth, explain_file

EVENTS, MONTHS, RESERVATIONS = 100_000, 10_000, 40_000
ACTIVE = RESERVATIONS // 100
STALE = ACTIVE // 2
PROJECT = "p"
NOTHING = [None] * 500

# Users 1 to 2,500, each with four months; of the reservations one in a hundred is active, half of these stale.
SEED = f"""
INSERT INTO tenancy_project (id, name) VALUES ('p', 'p');
INSERT INTO ratelimits_allowance (project_id, unit, quota, policy, time_zone, reservation_seconds)
VALUES ('p', 'tokens', 1000000, 'strict', 'UTC', 300);
INSERT INTO ratelimits_usagetracking (project_id, user_id, month_year, quota, used, reserved)
SELECT 'p', lpad(to_hex(1 + i / 4), 32, '0')::uuid, to_char(now() - i % 4 * interval '1 month', 'YYYY-MM'), 1000000, 10,
       1000
  FROM generate_series(0, {MONTHS - 1}) AS i;
UPDATE ratelimits_usagetracking SET alerted_level = level;
INSERT INTO ratelimits_usagereservation (id, project_id, user_id, month_year, amount, expires_at, status,
                                         idempotency_key, remaining)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'p', lpad(to_hex(1 + i % 2500), 32, '0')::uuid, to_char(now(), 'YYYY-MM'), 1,
       now() + CASE WHEN i % 200 = 0 THEN interval '-1 hour' ELSE interval '1 hour' END,
       CASE WHEN i % 100 = 0 THEN 'active' ELSE 'confirmed' END, 'key-' || i, 1
  FROM generate_series(1, {RESERVATIONS}) AS i;
INSERT INTO ratelimits_usageevent (event_id, project_id, user_id, month_year, service, amount, occurred_at)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'p', lpad(to_hex(1 + i % 2500), 32, '0')::uuid, to_char(now(), 'YYYY-MM'), '', 1,
       now()
  FROM generate_series(1, {EVENTS}) AS i;
"""  # noqa: S608 - constants


@pytest.fixture(scope="module")
def depth(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The tables at depth, for this module."""
    tables = "ratelimits_usagetracking, ratelimits_usagereservation, ratelimits_usageevent"
    with at_depth(django_db_blocker, SEED, tables):
        yield


def ids(first: int, number: int) -> list[UUID]:
    return [UUID(int=first + one) for one in range(number)]


@pytest.mark.parametrize("key", [None, "new", "key-77"])
def test_a_reservation_reads_its_users_month_and_its_key(planned, key):
    asked = {"project_id": PROJECT, "user_id": UUID(int=77), "amount": 1, "id": uuid4(), "idempotency_key": key}
    plan = explain_file("ratelimits", "reserve_usage", **asked)
    assert_bounded(plan, rows=2, blocks=60)


def test_a_batch_of_events_reads_these_and_their_reservations(planned):
    given: dict[str, Any] = {
        "project_id": PROJECT, "max_age": "35 days", "tokens": [1] * 500, "occurred_at": [_now()] * 500,
        "reservations": ids(1000, 500), "services": [""] * 500, "user_ids": ids(1, 500),
    }  # fmt: skip
    for first in (1000, 10_000_000):  # known ones, and new ones
        plan = explain_file("ratelimits", "insert_usage_events", event_ids=ids(first, 500), **given)
        assert_bounded(plan, rows=1500, blocks=12_000)


def test_ending_reservations_reads_these(planned):
    named = {"ids": ids(100, 500), "user_ids": NOTHING, "project_id": PROJECT, "status": "cancelled"}
    assert_bounded(explain_file("ratelimits", "end_reservations", **named), rows=600, blocks=4_000)


def test_a_change_of_months_reads_these(planned):
    plan = explain_file(
        "ratelimits", "change_usage_months", project_ids=[PROJECT] * 50, user_ids=ids(1, 50), months=[_now()[:7]] * 50,
        used=[1] * 50, released=[0] * 50, expired=[0] * 50,
    )  # fmt: skip
    assert_bounded(plan, rows=50, blocks=1_500)


def test_standings_read_the_current_months_of_these_users(planned):
    plan = explain_file("ratelimits", "read_standings", project_id=PROJECT, user_ids=ids(1, 50))
    assert_bounded(plan, rows=60, blocks=600)


def test_marking_events_reads_these(planned):
    plan = explain_file("ratelimits", "mark_over_limit", project_id=PROJECT, event_ids=ids(1, 50))
    assert_bounded(plan, rows=50, blocks=1_500)


def test_an_expiry_reads_what_is_stale_alone(planned):
    broken = {"project_ids": [PROJECT] * 50, "user_ids": ids(5_000, 50), "months": [_now()[:7]] * 50}
    plan = explain_file("ratelimits", "expire_reservations", most=1000, **broken)
    assert plan["Actual Rows"] == STALE
    assert_bounded(plan, rows=2 * STALE, blocks=20 * STALE)


def test_a_sweep_of_alerts_reads_no_month_of_which_people_know(planned):
    assert_bounded(explain_file("ratelimits", "lock_untold_months", most=200), rows=1, blocks=20)


def test_a_recount_reads_the_events_of_the_month_and_the_active_reservations(planned):
    plan = explain_file("ratelimits", "recount_months", project_ids=[PROJECT], user_ids=ids(7, 1), months=[_now()[:7]])
    assert_bounded(plan, rows=ACTIVE, blocks=3_000)


@pytest.mark.django_db(transaction=True)
def test_uses_update_months_on_their_page_and_leave_the_indexes_alone():
    make_allowance(quota=10**9, unit="tokens")
    users = [uuid4() for _ in range(20)]
    send(*[report(user) for user in users])
    before = updates()
    for _ in range(20):
        held = [reserve(project_id="acme", user_id=user, amount=5).reservation_id for user in users]
        send(*[report(user, 3, reservation=one) for user, one in zip(users, held, strict=True)])
    assert UsageTracking.objects.filter(project="acme").count() == 20
    written, in_place = (after - earlier for after, earlier in zip(updates(), before, strict=True))
    assert written == 800
    # Nearly all where the server may prune at once; a long transaction, in whatever database, keeps it from that.
    assert in_place >= 0.6 * written


def updates() -> tuple[int, int]:
    """Of months, since the server began: all, and those on the page of what they replace (HOT)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'ratelimits_usagetracking'"
        )
        [(written, in_place)] = cursor.fetchall()
    return written, in_place


def _now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI\"Z\"')")
        [text] = cursor.fetchone()
    return str(text)
