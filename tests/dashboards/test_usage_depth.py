"""The screens of usage with 500,000 months: what they read stays bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from queueops.screens.paging import MAX_LISTED_COUNTED
from ratelimits.usage.admin import ledger_check
from ratelimits.usage.reports import months_until
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.matrix]  # tables are filled until plans matter

MONTHS = 500_000
EVENTS = 100_000
PROJECTS = 5
MAX_SECONDS = 1.0  # a half on a machine that does nothing else
MAX_READ = 2_000  # rows of a page, where an index gives the order
USAGE = "/admin/ratelimits/usagetracking/"
EVENT_LIST = "/admin/ratelimits/usageevent/"
RESERVATIONS = "/admin/ratelimits/usagereservation/"
USER = UUID("00000000-0000-7000-8000-000000000007")
NOW, OLD = months_until(f"{timezone.now():%Y-%m}", 12)[-1], months_until(f"{timezone.now():%Y-%m}", 12)[0]

# Twelve months, the oldest first; of this month one user in 397 is near or over the quota.
SEED = """
INSERT INTO tenancy_project (id, name) SELECT 'p' || i, 'p' || i FROM generate_series(1, {projects}) AS i;
INSERT INTO ratelimits_allowance (project_id, unit, quota, policy, time_zone, reservation_seconds)
SELECT id, 'tokens', 1000, 'strict', 'UTC', 300 FROM tenancy_project WHERE id LIKE 'p_';
INSERT INTO ratelimits_usagetracking (project_id, user_id, month_year, quota, used, alerted_level)
SELECT 'p' || 1 + i % {projects}, lpad(to_hex(i % ({months} / 12)), 32, '0')::uuid,
       to_char(now() AT TIME ZONE 'UTC' - make_interval(months => 11 - i / ({months} / 12 + 1)), 'YYYY-MM'), 1000,
       CASE WHEN i % 397 = 0 THEN 800 + i % 300 ELSE i % 700 END, 0
  FROM generate_series(1, {months}) AS i
ON CONFLICT DO NOTHING;
INSERT INTO ratelimits_usagetracking (project_id, user_id, month_year, quota, used)
VALUES ('p1', '{user}', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM'), 1000, 20);
INSERT INTO ratelimits_usageevent (event_id, project_id, user_id, month_year, service, tokens, amount, occurred_at)
SELECT gen_random_uuid(), 'p' || 1 + i % {projects},
       CASE WHEN i % 10000 = 0 THEN '{user}' ELSE lpad(to_hex(i % 5000), 32, '0')::uuid END,
       to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM'), '', 1, 1, now()
  FROM generate_series(1, {events}) AS i;
INSERT INTO ratelimits_usagereservation (id, project_id, user_id, month_year, amount, expires_at, status, remaining)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'p1', gen_random_uuid(), '2026-01', 1, now() + i * interval '1 second',
       CASE WHEN i % 1000 = 0 THEN 'active' ELSE 'confirmed' END, 0
  FROM generate_series(1, {events}) AS i;
"""


@pytest.fixture(scope="module")
def depth(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The tables at depth, for this module."""
    tables = "ratelimits_usagetracking, ratelimits_usageevent, ratelimits_usagereservation"
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(SEED.format(months=MONTHS, events=EVENTS, projects=PROJECTS, user=USER))
        cursor.execute(f"VACUUM ANALYZE {tables}")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {tables}, ratelimits_allowance, ratelimits_allowanceoverride")
            cursor.execute("DELETE FROM tenancy_project WHERE id LIKE 'p_'")


def statements(address: str) -> tuple[Any, float, list[str]]:
    """The page, how long it took at best, and its statements about usage."""
    client = signed_in("administrator")
    took = []
    for _ in range(4):  # this machine may do other things meanwhile
        begun = time.monotonic()
        response = client.get(address)
        took.append(time.monotonic() - begun)
        assert response.status_code == 200
    with CaptureQueriesContext(connection) as captured:
        client.get(address)
    about = [query["sql"] for query in captured.captured_queries if "ratelimits_usage" in query["sql"]]
    return response, min(took), about


def rows_read(sql: str) -> int:
    """What the plan's scans gave or threw away, over all their rounds."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        [[tree]] = cursor.fetchone()

    def count(node: dict[str, Any]) -> int:
        own = 0
        if node["Node Type"].endswith("Scan") and not node.get("Plans"):
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            own = int((node["Actual Rows"] + removed) * node["Actual Loops"])
        return own + sum(count(child) for child in node.get("Plans", ()))

    return count(tree["Plan"])


IN_ORDER = [
    USAGE,
    f"{USAGE}?project=p3",
    f"{USAGE}?month={OLD}",
    f"{USAGE}?month={OLD}&project=p2",
    f"{USAGE}?q={UUID(int=77)}",
    f"{USAGE}?level=near&project=p3",
    f"{USAGE}?level=over&month={OLD}",
    f"{EVENT_LIST}?project=p1&user_id={USER}&month={NOW}",
    RESERVATIONS,
]


@pytest.mark.parametrize("address", IN_ORDER)
def test_a_page_reads_little_more_than_it_shows(depth, address):
    response, took, about = statements(address)
    assert rows_of(response)
    # But for the number that stands above a list without filters: entries of an index, and at most so many.
    assert max(rows_read(sql) for sql in about if f"LIMIT {MAX_LISTED_COUNTED + 1}" not in sql) < MAX_READ
    assert took < MAX_SECONDS


@pytest.mark.parametrize(
    "address",
    [
        f"{USAGE}?month=any",
        f"{USAGE}?month=any&project=p3",
        f"{USAGE}?month=any&level=over",
        EVENT_LIST,
        f"{EVENT_LIST}?marked=over",
        f"{EVENT_LIST}?user_id={USER}",
        f"{RESERVATIONS}?status=expired",
        f"{RESERVATIONS}?status=any&user_id={UUID(int=404)}",
        f"{USAGE}top/?project=p1",
        "/admin/ratelimits/allowance/",
    ],
)
def test_a_page_that_looks_for_its_rows_ends_in_time_and_counts_no_table(depth, address):
    _, took, about = statements(address)
    assert took < 2 * MAX_SECONDS
    assert not [sql for sql in about if "COUNT(*)" in sql and " LIMIT " not in sql]


def test_the_page_of_a_month_is_quick(depth):
    client = signed_in("viewer")
    [pk] = rows_of(client.get(f"{USAGE}?q={USER}"))
    response, took, _ = statements(f"{USAGE}{pk}/change/")
    assert response.context["events"]
    assert took < MAX_SECONDS


def test_a_filter_without_an_index_looks_back_and_says_how_far(depth, monkeypatch):
    monkeypatch.setattr("queueops.screens.paging.WINDOW", 100)
    monkeypatch.setattr("queueops.screens.paging.MAX_WINDOWS_OF_A_PAGE", 2)
    client = signed_in("viewer")
    response = client.get(f"{USAGE}?month=any&project=nobody")
    assert f"looked back to {timezone.now():%Y-%m}-01" in response.content.decode()
    response = client.get(f"{EVENT_LIST}?marked=over")
    assert "Look further back" in response.content.decode()


def test_a_ledger_too_large_for_a_page_says_so_and_changes_nothing(depth, monkeypatch):
    monkeypatch.setattr(ledger_check, "MAX_CHECK_SECONDS", 0.005)
    client = signed_in("administrator")
    response = client.post("/admin/ratelimits/allowance/check-ledger/", {"project": ""})
    assert "longer than a page may" in response.content.decode()
    response = client.post("/admin/ratelimits/allowance/repair-ledger/", {"reason": "x"})
    assert "longer than a page may" in response.content.decode()


def rows_of(response: Any) -> list[Any]:
    return [row.pk for row in response.context["cl"].result_list]
