"""What the watch reads with 60,000 jobs in one lane and as many dead letters: a bounded part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobs.features.watches.watch_letters import watch_dead_letters
from jobs.lanes import lane_name
from jobs.services.claim.ready import oldest_ready
from ratelimits.subjects import Subject
from tests.support.plans import assert_bounded, explain_file, explain_reads

pytestmark = [pytest.mark.django_db, pytest.mark.matrix]  # tables are filled until plans matter

JOBS = 60_000
LANE = lane_name(Subject("google-sheets", "write", "p1"), project="p1", user="")

SEED = """
INSERT INTO tenancy_project (id, name) SELECT 'p' || i, 'p' || i FROM generate_series(1, 3) AS i;
ALTER TABLE jobs_job DISABLE TRIGGER USER;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      lane, scheduled_at, finished_at, coalesce_key)
SELECT gen_random_uuid(), 'p1', 'http.request', 'google-sheets', 'write', 'normal',
       CASE WHEN i % 4 = 0 THEN 'queued' WHEN i % 2 = 0 THEN 'rate_limited' ELSE 'failed' END, '{{}}', i,
       now() - i * interval '1 second',
       CASE WHEN i % 2 = 0 THEN '{lane}' END, CASE WHEN i % 4 = 2 THEN now() + interval '1 hour' END,
       CASE WHEN i % 2 = 1 THEN now() END, CASE WHEN i % 10 = 0 THEN 'sheet' || i % 100 END
  FROM generate_series(1, 2 * {jobs}) AS i;
INSERT INTO jobs_deadletter (id, job_id, project_id, kind, service, payload, error_code, error_class, error_message,
                             remediation, attempts, retry_count, crash_count, fingerprint, created_at)
SELECT gen_random_uuid(), id, 'p1', kind, service, '{{}}', 'not_found', 'x', 'x', 'x', '[]', 0, 0, 'f',
       now() - row_number() OVER () * interval '0.1 second'
  FROM jobs_job WHERE status = 'failed';
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
"""


@pytest.fixture(scope="module")
def backlog(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(SEED.format(jobs=JOBS, lane=LANE))
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job, jobs_deadletter")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job, jobs_deadletter CASCADE")


def test_a_lane_is_counted_to_its_bound_and_no_further(backlog):
    plan = explain_file("jobs", "count_lanes", lanes=[LANE], most=1000, sampled=50)
    assert_bounded(plan, rows=1001, blocks=1500)


def test_the_oldest_ready_job_is_found_without_reading_those_in_lanes(backlog):
    [plan] = explain_reads(lambda: oldest_ready(["p1"]))
    assert_bounded(plan, rows=10, blocks=100)


def test_causes_are_read_of_a_bounded_part_of_the_dead_letters(backlog):
    for name, given in (("list_recent_causes", {"seconds": 3600.0}), ("count_open_causes", {})):
        assert_bounded(explain_file("jobs", name, most=1000, **given), rows=1001, blocks=2000)
    for plan in explain_reads(watch_dead_letters):
        assert_bounded(plan, rows=1001, blocks=2000)
