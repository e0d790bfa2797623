"""What budgets read at depth: a claim that begins a period, and the retention of periods and of holds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from jobs.services.upkeep.retention import rules
from ratelimits.models import Budget, BudgetHold, BudgetPeriod
from ratelimits.money import prices
from tests.support.plans import assert_bounded, at_depth, explain_file, explain_reads

pytestmark = pytest.mark.matrix  # tables are filled until plans matter

CALLS, DAYS, USERS, BATCHES = 200_000, 100, 2_000, 1_000
PERIODS, HOLDS = 100_000, 50_000
A_DAYS, A_USERS, A_BATCHES = CALLS // DAYS, CALLS // USERS, CALLS * 3 // 2 // BATCHES
BUDGETS = 8
SCOPES = ("project", "each_user", "user", "batch")

# Calls of a hundred days in one project, and half as many in another; each user's and batch's over all days. Of the
# periods of two budgets most are over; of the holds all but 100 are lost.
SEED = f"""
INSERT INTO tenancy_project (id, name) VALUES ('p', 'p'), ('q', 'q');
INSERT INTO ratelimits_spend (job_id, token, project_id, user_id, batch_id, provider, at, money)
SELECT lpad(to_hex(i), 32, '0')::uuid, 1, CASE WHEN i <= {CALLS} THEN 'p' ELSE 'q' END,
       lpad(to_hex(i / {DAYS} % {USERS}), 32, '0')::uuid, lpad(to_hex(i / {DAYS} % {BATCHES}), 32, '0')::uuid,
       'openai', date_trunc('day', now(), 'UTC') + interval '12 hours' - i % {DAYS} * interval '1 day', 1
  FROM generate_series(1, {CALLS * 3 // 2}) AS i ORDER BY md5(i::text);
INSERT INTO ratelimits_budget (id, project_id, name, scope, user_id, batch_id, amount, period, time_zone, policy, note)
SELECT scope.place * 10 + period.place, 'p', scope.name || period.name, scope.name,
       CASE scope.name WHEN 'user' THEN lpad(to_hex(7), 32, '0')::uuid END,
       CASE scope.name WHEN 'batch' THEN lpad(to_hex(7), 32, '0')::uuid END, 1000000, period.name, 'UTC', 'wait', ''
  FROM (VALUES (1, 'project'), (2, 'each_user'), (3, 'user'), (4, 'batch')) AS scope (place, name),
       (VALUES (1, 'day'), (2, 'total')) AS period (place, name);
INSERT INTO ratelimits_budgetperiod (budget_id, project_id, key, starts_at)
SELECT 1000 + i % 2, 'q', i, CASE WHEN i % 2 = 0 THEN now() - i % {DAYS} * interval '1 day' - interval '60 days'
                                  ELSE 'epoch'::timestamptz END
  FROM generate_series(1, {PERIODS}) AS i;
INSERT INTO ratelimits_budgethold (period_id, job_id, token, amount, lost, project_id, provider, at, expires_at)
SELECT 1, lpad(to_hex(i), 32, '0')::uuid, 1, 1, i > 100, 'q', 'openai', now(), now() - i * interval '1 minute'
  FROM generate_series(1, {HOLDS}) AS i;
"""  # noqa: S608 - constants


@pytest.fixture(scope="module")
def depth(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The tables at depth, for this module."""
    tables = "ratelimits_spend, ratelimits_budget, ratelimits_budgetperiod, ratelimits_budgethold"
    with at_depth(django_db_blocker, SEED, tables):
        yield


def begin(budget: Budget, *, days_on: int = 0) -> dict[str, Any]:
    key = "00000000-0000-0000-0000-000000000007" if budget.scope == "each_user" else ""
    at = (timezone.now() + timedelta(days=days_on)).timestamp()
    return explain_file("ratelimits", "add_budget_periods", budgets=[budget.pk], keys=[key], at=at)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_period_that_has_just_turned_reads_nothing_of_those_before(planned, scope):
    plan = begin(Budget.objects.get(project="p", scope=scope, period="day"), days_on=1)
    # A batch has no index by time: its own calls are looked through.
    assert_bounded(
        plan, rows=A_BATCHES if scope == "batch" else BUDGETS, blocks=A_BATCHES + 60 if scope == "batch" else 60
    )


@pytest.mark.parametrize(("scope", "rows"), [("each_user", A_USERS), ("user", A_USERS), ("batch", A_BATCHES)])
def test_one_that_never_ends_reads_the_calls_that_it_counts_and_no_others(planned, scope, rows):
    plan = begin(Budget.objects.get(project="p", scope=scope, period="total"))
    assert_bounded(plan, rows=rows, blocks=2 * rows + 60)


def test_a_day_of_a_project_reads_the_calls_of_that_day(planned):
    plan = begin(Budget.objects.get(project="p", scope="project", period="day"))
    assert_bounded(plan, rows=A_DAYS, blocks=2 * A_DAYS + 60)


def test_whether_a_project_is_served_by_the_priority_tier_is_known_without_reading_its_ledger(depth, db):
    prices.forget()
    [plan] = explain_reads(lambda: prices.is_served_by_priority("p", "openai"))
    assert_bounded(plan, rows=1, blocks=5)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("past periods of budgets", BudgetPeriod.objects.all()),
        ("what calls held that nobody heard of", BudgetHold.objects.all()),
    ],
)
def test_retention_at_depth_reads_a_chunk_and_leaves_what_goes_on(depth, db, name, rows):
    [rule] = [rule for rule in rules() if rule.name == name]
    total = rows.count()
    before = read_of(rows.model._meta.db_table)
    assert rule.oldest(rule.before()) is not None
    assert rule.forget(rule.before(), 500) == 500
    assert read_of(rows.model._meta.db_table) - before <= 4 * 500, "found, locked and deleted"
    assert rows.count() == total - 500


def read_of(table: str) -> int:
    """Rows of a table that this transaction has read, whether or not they were what was looked for."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid) FROM pg_class"
            " WHERE relname = %s",
            [table],
        )
        [(found,)] = cursor.fetchall()
    return int(found)
