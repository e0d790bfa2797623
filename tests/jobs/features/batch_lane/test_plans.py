"""What looking for groups and choosing jobs read, with 100,000 that wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection, transaction

from jobs.features.batch_lane.steps import rounds
from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.steps.rounds import COLLECT_SHARE, Rounds
from tests.support.plans import explain_file, nodes, rows_read

pytestmark = [pytest.mark.django_db, pytest.mark.matrix]  # tables are filled until plans matter

JOBS, OTHERS, GROUPS = 100_000, 100_000, 20
IN_BACKOFF = JOBS // 3

# Every third is in backoff. Half of them are of one group, the rest of the others.
SEED = """
INSERT INTO tenancy_project (id, name) VALUES ('acme', 'acme');
ALTER TABLE jobs_job DISABLE TRIGGER USER;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      model, credential, via, complete_by, scheduled_at, updated_at)
SELECT gen_random_uuid(), 'acme', 'llm.generate', 'openai', 'write', 'normal',
       CASE WHEN i % 3 = 0 THEN 'retried' ELSE 'queued' END, '{{}}', i, now(),
       'model-' || CASE WHEN i % 2 = 0 THEN 0 ELSE 1 + i % {groups} END, 'key', 'batch',
       now() + interval '30 hours',
       CASE WHEN i % 3 = 0 THEN now() + interval '5 minutes'
            ELSE now() + interval '30 hours' - {margin} * interval '1 second' END, now()
  FROM generate_series(1, {jobs}) AS i;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since)
SELECT gen_random_uuid(), 'acme', 'http.request', 'http', 'write', 'normal', 'queued', '{{}}', i, now()
  FROM generate_series(1, {others}) AS i;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
"""


@pytest.fixture(scope="module")
def waiting(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            margin = settings.QUEUEOPS.batch_margin_seconds
            cursor.execute(SEED.format(jobs=JOBS, others=OTHERS, groups=GROUPS - 1, margin=margin))
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE tenancy_project, jobs_job, jobs_jobcount, jobs_jobevent CASCADE")


def plan_of(name: str, **parameters: Any) -> dict[str, Any]:
    return explain_file("jobs", name, margin=settings.QUEUEOPS.batch_margin_seconds, **parameters)


def assert_by_index(plan: dict[str, Any], *, rows: int) -> None:
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "jobs_job"]
    assert {node.get("Index Name") for node in scans} == {"jobs_job_batch_lane_idx"}
    assert sum(map(rows_read, scans)) <= rows


def test_groups_are_found_without_reading_what_does_not_wait_for_a_batch(waiting: None) -> None:
    """Of each group no more is read than a batch may have, and what is in backoff before that."""
    most = 1_000
    assert_by_index(plan_of("find_batch_groups", most=most), rows=IN_BACKOFF + GROUPS * most + 2 * GROUPS)


def test_no_more_jobs_are_looked_at_than_a_batch_may_have_and_those_in_backoff(waiting: None) -> None:
    most = 1_000
    plan = plan_of(
        "choose_batch_jobs",
        project="acme",
        kind="llm.generate",
        service="openai",
        credential="key",
        model="model-0",
        most=most,
        most_bytes=10**9,
    )
    assert plan["Actual Rows"] == most
    assert_by_index(plan, rows=IN_BACKOFF // 2 + most + 1)


def test_looking_in_vain_takes_little_of_the_time(waiting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, now = [], [1000.0]

    def look(kinds: Collection[str]) -> list[UUID]:
        looks.append(now[0])
        now[0] += 0.05
        return []

    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))

    monkeypatch.setattr(rounds, "collect_waiting", look)
    calls = CallLoop()
    made = Rounds(calls, is_over=lambda kind: False)
    for _ in range(25):
        made.make(["llm.generate"])
        now[0] += 0.1
    calls.close()
    assert len(looks) == 3
    assert min(later - earlier for earlier, later in pairwise(looks)) >= 0.05 / COLLECT_SHARE
