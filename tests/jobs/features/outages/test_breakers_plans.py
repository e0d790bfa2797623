"""The plans of the outage breakers' statements beside 100,000 waiting jobs: they read what is out, in bounded parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from jobs.executor import pump
from jobs.features.outages.breaker import PART_BY_PART
from jobs.models import ServiceBreaker
from queueops.core.sql import run_sql
from tests.support.plans import blocks_touched, explain_file, nodes, rows_read

pytestmark = pytest.mark.django_db

JOBS = 100_000
PATHS = 500
RARE = 200  # targets

# A fifth waits for the one target that is out; the others wait for quota, or are ready, at another address of it.
SEED = """
INSERT INTO tenancy_project (id, name) VALUES ('p1', 'p1'), ('p2', 'p2');
ALTER TABLE jobs_job DISABLE TRIGGER USER;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      scheduled_at, lane, target, path)
SELECT gen_random_uuid(), CASE WHEN i % 5 < 4 THEN 'p1' ELSE 'p2' END, 'llm.generate', 'llm', 'write', 'normal',
       CASE WHEN i % 5 IN (0, 1) THEN 'rate_limited' ELSE 'queued' END, '{{}}', i, now() - i * interval '1 second',
       CASE WHEN i % 5 = 1 THEN now() + interval '1 hour' END, CASE WHEN i % 5 = 1 THEN 'lane' END,
       CASE WHEN i % 5 = 0 THEN 'https://dead:443' ELSE 'https://alive:443' END, i % {paths}
  FROM generate_series(1, {jobs}) AS i;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
INSERT INTO jobs_servicebreaker (service, target, project_id, failures, calls, paths, spared, probed, opened_at,
                                 next_probe_at)
SELECT 'llm', 'https://dead:443', 'p1', 10, '{{}}', '{{}}', '{{}}', '{{}}', now(), now();
INSERT INTO jobs_servicebreaker (service, target, project_id, failures, calls, paths, spared, probed)
SELECT 'llm', 'https://' || i, 'p' || i, 1, '{{}}', '{{}}', '{{}}', '{{}}' FROM generate_series(1, 2000) AS i;
"""


@pytest.fixture(scope="module")
def backlog(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(SEED.format(jobs=JOBS, paths=PATHS))
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job, jobs_servicebreaker")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job, jobs_servicebreaker, jobs_jobcount CASCADE")


@pytest.fixture(autouse=True)
def as_executor(backlog: None) -> Iterator[None]:
    """The settings of the executor's pump, which is where these statements run."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name, value in pump.PLANNING:
            cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        yield
        transaction.set_rollback(True)


def assert_reads(name: str, rows: int, blocks: int, **parameters: Any) -> dict[str, Any]:
    plan = explain_file("jobs", name, **parameters)
    for node in nodes(plan):
        what = f"{node['Node Type']} {node.get('Relation Name', '')} {node.get('Index Name', '')}"
        if node.get("Relation Name") == "jobs_job":
            assert "Seq Scan" not in node["Node Type"], what
        assert rows_read(node) <= rows, f"{what} read {rows_read(node):,.0f} rows"
    assert blocks_touched(plan) <= blocks, f"{blocks_touched(plan)} blocks"
    return plan


def test_a_probe_is_chosen_among_a_bounded_number(backlog):
    most = 1000
    plan = assert_reads(
        "choose_probes",
        3 * most,
        5000,
        first=2.0,
        longest=60.0,
        last_doubling=5,
        most_probed=100,
        most=most,
        pools=None,
    )
    assert plan["Actual Rows"] == 1


def test_parking_reads_the_ready_jobs_of_its_project_and_service_alone(backlog):
    assert_reads("choose_stranded", JOBS * 2 // 5, JOBS // 2, most=100)


def test_what_an_outage_holds_is_neither_sorted_nor_locked_while_it_lasts(backlog):
    with connection.cursor() as cursor:
        cursor.execute(PART_BY_PART)
    plan = assert_reads("choose_released", 2500, 5000, most=100)
    assert plan["Actual Rows"] == 0


def test_releasing_reads_no_more_than_it_releases(backlog):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(PART_BY_PART)
        cursor.execute("UPDATE jobs_servicebreaker SET opened_at = NULL")
        plan = assert_reads("choose_released", 2500, 5000, most=100)
        assert plan["Actual Rows"] == 100
        transaction.set_rollback(True)


def test_counting_what_waits_stops_at_the_most_that_is_told(backlog):
    assert_reads("count_held_by_outages", 3000, 5000, most=1000)


def test_forgetting_reads_the_waiting_jobs_of_a_breakers_project_and_not_the_table_once_a_breaker(backlog):
    assert_reads("forget_breakers", JOBS, JOBS, kept=600.0, most=100_000)


@pytest.mark.parametrize("failures", [1, 100])
def test_a_failing_flush_reads_its_own_breakers_and_no_jobs(backlog, failures):
    many = range(failures)
    plan = assert_reads(
        "count_outages", 10 * failures + 50, 60 * failures + 200,
        services=["llm"] * failures, targets=["https://dead:443"] * failures, projects=["p1"] * failures,
        jobs=[uuid4() for _ in many], calls=[uuid4() for _ in many], paths=list(many), errors=["x"] * failures,
        threshold=10, seconding=3, least_calls=3, most_calls=10, most_paths=500, first_probe=2.0,
    )  # fmt: skip
    assert plan["Actual Rows"] == failures


def test_an_answer_reads_the_breakers_of_its_target(backlog):
    assert_reads("close_breakers", 50, 200, services=["llm"], targets=["https://dead:443"], paths=[1], most_paths=500)


def test_forgetting_reads_a_bounded_number_and_keeps_the_breakers_of_a_project_with_more_jobs(backlog):
    plan = explain_file("jobs", "forget_breakers", kept=600.0, most=1000)
    read = [rows_read(node) for node in nodes(plan) if node.get("Relation Name") == "jobs_job"]
    assert max(read) <= 4 * 1000
    run_sql("jobs", "forget_breakers", {"kept": 600.0, "most": 1000})
    assert set(ServiceBreaker.objects.values_list("project_id", flat=True)) == {"p1", "p2"}


def test_forgetting_reads_a_projects_waiting_jobs_once_for_all_of_its_breakers(backlog):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL random_page_cost = 8")
        cursor.execute(
            "INSERT INTO jobs_servicebreaker (service, target, project_id, failures, calls, paths, spared, probed)"
            " SELECT 'llm', 'https://rare:' || i, 'p1', 1, '{}', '{}', '{}', '{}' FROM generate_series(1, %s) AS i",
            [RARE],
        )
        cursor.execute(  # each of these has one job, the last of its project
            "UPDATE jobs_job SET target = 'https://rare:' || last.number, eligible_since = now()"
            "  FROM (SELECT id, row_number() OVER () AS number FROM jobs_job"
            "         WHERE status = 'queued' AND project_id = 'p1' LIMIT %s) AS last WHERE jobs_job.id = last.id",
            [RARE],
        )
        plan = explain_file("jobs", "forget_breakers", kept=600.0, most=100_000)
        looked_at = [node for node in nodes(plan) if node.get("Relation Name") == "jobs_job"]
        assert sum(map(rows_read, looked_at)) <= JOBS + 2 * RARE
        assert blocks_touched(plan) <= JOBS
        run_sql("jobs", "forget_breakers", {"kept": 600.0, "most": 100_000})
        assert ServiceBreaker.objects.filter(target__startswith="https://rare:").count() == RARE
        transaction.set_rollback(True)


def test_a_look_for_a_breaker_that_no_job_needs_reads_a_bounded_number(backlog):
    ids = list(ServiceBreaker.objects.filter(opened_at__isnull=False).values_list("pk", flat=True))
    assert_reads("forget_unneeded_breakers", 2500, 5000, breakers=ids, most=1000)
