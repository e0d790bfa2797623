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
                if node.get("Relation Name") == "jobs_job":
                    # A part of the table is no worse where half of it is asked for, as what is ready is here.
                    assert "Seq Scan" not in node["Node Type"] or "IS NULL" in node["Filter"], node
                    assert rows_read(node) <= 2 * 501, node  # of two projects or batches
        transaction.set_rollback(True)
