"""The plans of *By cause* beside 100,000 open dead letters: indexes are counted, and one letter of each cause read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs.services.explain.causes import MAX_PROJECTS_OF_A_CAUSE, causes_of
from queueops.core.values.identifiers import time_of
from tests.support.plans import BATCH, blocks_touched, explain_reads, nodes, rows_read

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("letters")]

LETTERS = 100_000
CAUSES = 20
PROJECTS = 40
# The last project's letters are few, and older than all others: a walk along the ids finds them last.
SEED = """
INSERT INTO tenancy_project (id, name) SELECT 'p' || i, 'p' || i FROM generate_series(0, {projects}) AS i;
INSERT INTO jobs_batch (id, project_id, name, total, submitted_by) VALUES ('{batch}', 'p1', '', 1, 'key:test');
ALTER TABLE jobs_job DISABLE TRIGGER USER;
CREATE TEMPORARY TABLE made AS
SELECT i, lpad(to_hex(i), 32, '0')::uuid AS id,
       CASE WHEN i <= 40 THEN 'p0' ELSE 'p' || 1 + i % {projects} END AS project
  FROM generate_series(1, {letters}) AS i;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      finished_at)
SELECT id, project, 'http.request', 'http', 'write', 'normal', 'failed', '{{}}', i, now(), now() FROM made;
INSERT INTO jobs_deadletter (id, job_id, project_id, batch_id, kind, service, error_code, error_class, error_message,
                             remediation, attempts, retry_count, crash_count, fingerprint, payload_text)
SELECT id, id, project, CASE WHEN project = 'p1' THEN uuid '{batch}' END, 'http.request', 'http', 'timeout', 'Timeout',
       repeat('x', 300), '', '[{{}}]', 3, 0, md5((i % {causes})::text), repeat('x', 1200)
  FROM made;
DROP TABLE made;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
"""


@pytest.fixture(scope="module")
def letters(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for statement in SEED.format(letters=LETTERS, projects=PROJECTS, causes=CAUSES, batch=BATCH).split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_deadletter")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job, jobs_batch, jobs_deadletter, jobs_jobcount CASCADE")


@pytest.mark.parametrize("page_cost", [1, 8])
@pytest.mark.parametrize(
    ("narrowed", "rows", "blocks"),
    [
        ({}, LETTERS, 2_500),
        ({"project_id": "p1"}, LETTERS, 3_000),  # an index of all open letters, or its own
        ({"project_id": "p0"}, 100, 200),
        ({"batch_id": BATCH}, 2_600, 200),
    ],
)
def test_causes_are_counted_in_an_index_and_one_letter_of_each_is_read(narrowed, rows, blocks, page_cost):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL random_page_cost = {page_cost}")
        cursor.execute("SET LOCAL enable_hashagg = off")
        assert len(causes_of(narrowed)) in {1, CAUSES}
        plans = explain_reads(lambda: causes_of(narrowed))
        transaction.set_rollback(True)
    for plan in plans:
        for node in nodes(plan):
            assert "Seq Scan" not in node["Node Type"]
            assert rows_read(node) <= rows
            if node.get("Index Name") == "jobs_deadletter_pkey":
                assert rows_read(node) <= CAUSES
        assert blocks_touched(plan) <= blocks


def test_a_cause_names_the_projects_that_have_most_of_it():
    for cause in causes_of({}):
        assert len(cause.projects) <= MAX_PROJECTS_OF_A_CAUSE
        assert list(cause.projects.values()) == sorted(cause.projects.values(), reverse=True)
    [cause] = causes_of({"batch_id": BATCH})
    assert cause.projects == {"p1": cause.count}
    assert (time_of(cause.newest.pk), cause.first_at) == (time_of(UUID(int=LETTERS)), time_of(UUID(int=80)))
