"""What a claim of a pool reads beside 100,000 jobs of others, and that a claim without a pool is what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobs.executor import pump
from jobs.models import POOLED, Job
from queueops.core.sql import load_sql
from tests.support.plans import JOBS, assert_bounded, explain_file, nodes

pytestmark = pytest.mark.django_db

PROJECTS = 40
OWN = 30
# Half of the others' jobs, and of the pool's, stand in one lane; the pool's came last.
SEED = """
INSERT INTO tenancy_project (id, name) SELECT 'p' || i, 'p' || i FROM generate_series(1, {projects}) AS i;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      lane, pool)
SELECT gen_random_uuid(), 'p' || 1 + i % {projects}, 'quick', 'http', 'write',
       (ARRAY['urgent', 'normal', 'low'])[1 + i % 3], 'queued', '{{}}', i, now() - i * interval '1 second',
       CASE WHEN i % 2 = 0 THEN 'lane' END, CASE WHEN i <= {own} THEN 'slow' ELSE 'quick' END
  FROM generate_series(1, {jobs}) AS i;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      crash_count, pool)
SELECT gen_random_uuid(), 'p1', 'quick', 'http', 'write', 'normal', 'queued', '{{}}', i, now() - i * interval '1 s', 2,
       CASE WHEN i = 1 THEN 'slow' ELSE 'quick' END
  FROM generate_series(1, 10000) AS i;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      pool)
SELECT gen_random_uuid(), 'p1', 'quick', 'http', 'write', 'normal', 'queued', '{{}}', i, now(), 'one queue'
  FROM generate_series(1, {own}) AS i;
"""
TWO_POOLS = """
INSERT INTO jobs_pool (name, services, kinds, projects, place)
SELECT name, '{}', '{}', '{}', 1 FROM unnest(ARRAY['slow', 'quick']) AS name
"""
CLAIM: dict[str, Any] = {
    "wanted": 50, "starved_after": 9.0, "starved_every": 9.0, "turn_classes": [], "turn_projects": [],
    "turn_passes": [], "turn_nows": [], "lanes": ["lane"], "rooms": [60], "passes": [0.0], "resting": [],
    "flow_projects": [], "flow_passes": [], "strange": [], "known_projects": None, "known_priorities": None,
    "known_since": None, "everywhere": True, "most_bytes": 16_000_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def backlog(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(SEED.format(jobs=JOBS, projects=PROJECTS, own=OWN))
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job CASCADE")


@pytest.fixture
def as_executor(backlog: None) -> Iterator[None]:
    with transaction.atomic(), connection.cursor() as cursor:
        for name, value in pump.PLANNING:
            cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        cursor.execute("SELECT nextval('jobs_fencing_token')")  # a session's first reads catalogs, more or fewer
        yield
        transaction.set_rollback(True)


def test_a_pools_claim_reads_its_own_jobs_alone(as_executor):
    plan = explain_file("jobs", "choose_jobs", variant=POOLED, pool="slow", **CLAIM)
    assert plan["Actual Rows"] == OWN
    assert_bounded(plan, rows=10 * OWN, blocks=4_000)


def test_a_pool_without_jobs_reads_next_to_nothing(as_executor):
    plan = explain_file("jobs", "choose_jobs", variant=POOLED, pool="none", **CLAIM)
    assert plan["Actual Rows"] == 0
    assert_bounded(plan, rows=50, blocks=200)


def test_a_claim_of_a_pools_only_queue_reads_its_own_jobs_alone(as_executor):
    for pool, rows in (("one queue", OWN), ("slow", 0), ("none", 0)):
        plan = explain_file(
            "jobs", "choose_only_queue", variant=POOLED, pool=pool, wanted=50, strange=[], most_bytes=16_000_000
        )
        assert plan["Actual Rows"] == rows
        assert_bounded(plan, rows=10 * rows + 20, blocks=600)


@pytest.mark.parametrize("believed", [0, 1, 20])
def test_a_claim_reads_no_more_where_projects_are_newer_than_their_tables_statistics(as_executor, believed):
    with connection.cursor() as cursor:
        for table, rows in (("jobs_agingrule", 3), ("jobs_pauseswitch", 0), ("tenancy_project", believed)):
            cursor.execute("UPDATE pg_class SET reltuples = %s, relpages = 1 WHERE oid = %s::regclass", [rows, table])
    assert_bounded(explain_file("jobs", "choose_jobs", variant=POOLED, pool="none", **CLAIM), rows=50, blocks=200)


def test_lanes_of_a_pool_are_listed_without_reading_the_others_jobs(as_executor):
    for pool, lanes in (("slow", 1), ("none", 0)):
        plan = explain_file("jobs", "list_lanes", variant=POOLED, pool=pool, after="", most=2000)
        assert plan["Actual Rows"] == lanes
        assert_bounded(plan, rows=20, blocks=60)


def test_the_suspect_of_a_pool_is_found_behind_those_of_others(as_executor):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
    plan = explain_file("jobs", "choose_suspect", variant=POOLED, pool="slow", strange=[])
    assert plan["Actual Rows"] == 1
    assert_bounded(plan, rows=10, blocks=200)


def test_what_is_new_in_a_pool_is_found_behind_the_jobs_of_others(as_executor):
    plan = explain_file("jobs", "choose_new", variant=POOLED, pool="slow", strange=[])
    # What small tables take, such as that of switches, goes by the dead rows that earlier tests have left there.
    blocks = {node["Relation Name"]: 0 for node in nodes(plan) if "Relation Name" in node}
    for node in nodes(plan):
        if "Relation Name" in node:
            blocks[node["Relation Name"]] += node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    of_jobs = blocks.pop("jobs_job")
    assert of_jobs <= 20
    assert_bounded(plan, rows=20, blocks=30 + sum(blocks.values()))


def test_a_claim_without_a_pool_uses_no_index_of_pools(as_executor):
    given_to_new: dict[str, object] = {"strange": []}
    for name, given in (
        ("choose_jobs", CLAIM),
        ("choose_new", given_to_new),
        ("choose_only_queue", CLAIM),
        ("list_lanes", {"after": "", "most": 2000}),
    ):
        used = {node.get("Index Name", "") for node in nodes(explain_file("jobs", name, **given))}
        assert not {index for index in used if index.startswith("jobs_job_pool")}
        assert "%(pool)s" not in load_sql("jobs", name)


def test_a_part_that_follows_new_rules_looks_at_no_more_than_its_share(backlog):
    first = Job.objects.order_by("id").values_list("pk", flat=True)[0]
    plan = explain_file("jobs", "assign_pools", after=first, most=500)
    assert_bounded(plan, rows=1_100, blocks=20_000)


def test_depths_read_a_bounded_part_of_each_pool(backlog):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(TWO_POOLS)
        plan = explain_file("jobs", "count_pools", most=1000, most_heads=500)
        assert_bounded(plan, rows=3_500, blocks=9_000)
        assert_bounded(explain_file("jobs", "find_poolless", most=1000), rows=50, blocks=100)
        transaction.set_rollback(True)
