"""Plans of the statements in `<app>/sql/`, as a prepared statement gets them, and what they read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg import sql

from queueops.core.sql import load_sql

JOBS = 100_000
PROJECTS = 40
BATCH = UUID(int=7)
BIG_TABLES = re.compile(r"jobs_job$|jobs_jobevent")
SCOPES_OF_SETTINGS = ("SET LOCAL", "SAVEPOINT", "ROLLBACK TO", "RELEASE")
# Of every 20 jobs 12 are ready, and one or two each of the others.
SEED = """
INSERT INTO tenancy_project (id, name) SELECT 'p' || i, 'p' || i FROM generate_series(1, {projects}) AS i;
INSERT INTO jobs_batch (id, project_id, name, total, submitted_by) VALUES ('{batch}', 'p1', '', 1, 'key:test');
ALTER TABLE jobs_job DISABLE TRIGGER USER;
INSERT INTO jobs_job (id, project_id, batch_id, kind, service, call_type, priority, status, payload, effect_key,
                      eligible_since, scheduled_at, lease_expires_at, finished_at, expires_at, held, crash_count,
                      fencing_token)
SELECT gen_random_uuid(), 'p' || 1 + i % {projects}, CASE WHEN i % 40 = 0 THEN uuid '{batch}' END,
       'http.request', 'http', 'write', (ARRAY['urgent', 'normal', 'low'])[1 + i % 3], state, '{{}}', i,
       now() - i * interval '1 second',
       CASE WHEN state = 'retried' OR i % 20 = 13 THEN now() + (i - 2000) * interval '1 second' END,
       CASE WHEN state = 'in_progress' THEN now() + (i - 500) * interval '1 second' END,
       CASE WHEN state IN ('completed', 'failed') THEN now() - i * interval '1 minute' END,
       CASE WHEN i % 20 IN (1, 2) THEN now() + (i - 500) * interval '1 second' END,
       i % 20 = 12, CASE WHEN i % 20 = 11 THEN 2 ELSE 0 END, i
  FROM generate_series(1, {jobs}) AS i,
       LATERAL (SELECT CASE i % 20 WHEN 14 THEN 'rate_limited' WHEN 15 THEN 'retried' WHEN 16 THEN 'in_progress'
                       WHEN 17 THEN 'completed' WHEN 18 THEN 'completed' WHEN 19 THEN 'failed'
                       ELSE 'queued' END AS state) AS chosen;
SELECT setval('jobs_fencing_token', greatest({jobs}, last_value)) FROM jobs_fencing_token;
INSERT INTO jobs_jobevent (job_id, project_id, event_type, to_status)
SELECT id, project_id, 'state_change', 'queued' FROM jobs_job LIMIT {jobs} / 4;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
"""


def explain_file(package: str, name: str, **parameters: Any) -> dict[str, Any]:
    """Plan and run a statement of `<package>/sql/` as a prepared one, as run_sql does; its changes are undone."""
    text = load_sql(package, name, parameters.pop("variant", ""))
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, parameter in enumerate(names, 1):
        text = text.replace(f"%({parameter})s", f"${number}")
    values = sql.SQL(", ").join(sql.Literal(parameters[parameter]) for parameter in names)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"PREPARE hot AS {text.replace('%%', '%')}")
        call = sql.SQL("EXECUTE hot ({})").format(values) if names else sql.SQL("EXECUTE hot")
        plan = explain(call.as_string(connection.connection))
        cursor.execute("DEALLOCATE hot")
        transaction.set_rollback(True)
    return plan


def explain(statement: str) -> dict[str, Any]:
    """Run a statement, undo it, and return its plan with what each node has read."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement)
        [found] = cursor.fetchone()
        transaction.set_rollback(True)
    [plan] = json.loads(found) if isinstance(found, str) else found
    return dict(plan["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def rows_read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def blocks_touched(plan: dict[str, Any]) -> int:
    """8 kB pages, read or found in memory, of the whole statement."""
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture(scope="module")
def backlog(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The tables at depth, for this module."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(SEED.format(jobs=JOBS, projects=PROJECTS, batch=BATCH))
        # Index scans count dead entries too. Other tests leave some, and where they are few VACUUM keeps them unasked.
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job, jobs_pauseswitch")
        cursor.execute("VACUUM (INDEX_CLEANUP ON) jobs_deadletter, jobs_webhookdelivery")
        cursor.execute("ANALYZE jobs_jobevent")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job, jobs_batch, jobs_jobcount, jobs_jobevent CASCADE")


@contextmanager
def at_depth(blocker: Any, seed: str, tables: str) -> Iterator[None]:
    """Tables with the rows of `seed`, committed; they are empty afterwards, and so are the projects."""
    with blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(seed)
        cursor.execute(f"VACUUM ANALYZE {tables}")
    try:
        yield
    finally:
        with blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {tables}, tenancy_project CASCADE")


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def planned(request: pytest.FixtureRequest, depth: None, db: None) -> None:
    """Both ways in which a prepared statement is planned: for its parameters, and after some runs for any."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = {request.param}")


def explain_reads(call: Callable[[], object]) -> list[dict[str, Any]]:
    """The plans of the SELECTs that a service makes, each under the settings that it makes for it."""
    with transaction.atomic():
        with CaptureQueriesContext(connection) as made:
            call()
        transaction.set_rollback(True)
    found = []
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in [query["sql"] for query in made.captured_queries]:
            if statement.startswith(("SELECT", "(SELECT")):
                found.append(explain(statement))
            elif statement.startswith(SCOPES_OF_SETTINGS):
                cursor.execute(statement)
        transaction.set_rollback(True)
    return found


def assert_bounded(plan: dict[str, Any], *, rows: int, blocks: int) -> None:
    """
    No sequential scan of the jobs or the log, and no node that reads, sorts or passes on more than `rows` rows.

    Args:
        blocks: Most 8 kB pages touched by the whole statement.
    """
    for node in nodes(plan):
        name = f"{node['Node Type']} {node.get('Relation Name', '')} {node.get('Index Name', '')}"
        if BIG_TABLES.match(node.get("Relation Name", "")):
            assert "Seq Scan" not in node["Node Type"] or not rows_read(node), name  # the log's future days are empty
        assert rows_read(node) <= rows, f"{name} read {rows_read(node):,.0f} rows"
    touched = blocks_touched(plan)
    assert touched <= blocks, f"{touched} blocks"
