"""What it costs to count the jobs that wait for their time, beside a large backlog."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection, transaction

from tests.support.plans import BATCH, backlog, explain_file, nodes, rows_read  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


def test_counting_reads_scheduled_jobs_alone_and_stops_at_the_most_that_is_told(backlog):  # noqa: F811
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobs_job DISABLE TRIGGER USER")
            cursor.execute(
                "UPDATE jobs_job SET scheduled_at = now() + interval '1 day',"
                " batch_id = CASE WHEN mod(fencing_token, 2) = 0 THEN %s::uuid END"
                " WHERE status = 'queued' AND mod(fencing_token, 3) = 0",
                [BATCH],
            )
            cursor.execute("ANALYZE jobs_job")
        given = {"batches": [BATCH, uuid4()], "projects": ["p1", "p2"], "everybody": True, "most": 500}
        for name, parameters in (("count_scheduled", given), ("count_waiting", {"most": 500, "most_services": 50})):
            for node in nodes(explain_file("jobs", name, **parameters)):
                is_of_others = node["Node Type"] == "Seq Scan" and "scheduled_at >" not in node["Filter"]
                if node.get("Relation Name") == "jobs_job" and not is_of_others:  # ready ones are most of this table
                    assert "Seq Scan" not in node["Node Type"], node
                    assert rows_read(node) <= 2 * 1_000, node  # two projects of 833, or batches at their most
        transaction.set_rollback(True)
