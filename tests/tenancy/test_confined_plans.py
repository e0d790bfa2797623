"""What the API reads of 100,000 jobs while the database confines it: the policies cost it no index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs.models import Batch, DeadLetter, Job, JobEvent
from jobs.services.explain.snapshots import batch_counts, project_counts
from queueops.audit.models import ProjectAuditEntry
from queueops.tenancy.scope import acting_for
from tests.support.plans import BATCH, JOBS, PROJECTS, backlog, explain_reads, nodes, rows_read  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db

PAGE = 51
OWN = JOBS // PROJECTS  # of one project
USER = UUID(int=3)
BIG_TABLES = ("jobs_job", "jobs_jobevent")


def newest_jobs(**filters: Any) -> list[Job]:
    return list(Job.objects.of_project("p1").filter(**filters).defer("payload", "result").order_by("-pk")[:PAGE])


def a_job() -> Job:
    return Job.objects.of_project("p1").order_by("pk")[:1].get()


READS: dict[str, Callable[[], object]] = {
    "the list of jobs": newest_jobs,
    "the list of failed jobs": lambda: newest_jobs(status="failed"),
    "a batch's jobs": lambda: newest_jobs(batch_id=BATCH),
    "a job": a_job,
    "a job's events": lambda: list(JobEvent.objects.filter(job_id=a_job().pk, project_id="p1").order_by("-id")[:PAGE]),
    "the job of an idempotency key": lambda: list(Job.objects.of_project("p1").filter(idempotency_key__in=["x"])),
    "the list of batches": lambda: list(Batch.objects.of_project("p1").order_by("-pk")[:PAGE]),
    "the newest dead letters": lambda: list(DeadLetter.objects.of_project("p1").order_by("-created_at")[:PAGE]),
    "the counts": lambda: (project_counts("p1"), batch_counts([BATCH])),
}


@pytest.mark.parametrize("read", READS)
def test_a_confined_read_goes_by_an_index_and_reads_no_more_than_its_page_needs(backlog, read):  # noqa: F811
    with acting_for("p1"):
        plans = explain_reads(READS[read])
    assert plans
    for plan in plans:
        for node in nodes(plan):
            if node.get("Relation Name", "").startswith(BIG_TABLES):
                assert rows_read(node) <= OWN, node


def test_a_page_of_jobs_is_read_from_its_beginning(backlog):  # noqa: F811
    with acting_for("p1"):
        [plan] = explain_reads(newest_jobs)
    assert max(rows_read(node) for node in nodes(plan)) <= PAGE * PROJECTS * 2


def test_a_users_jobs_are_found_among_the_projects(backlog):  # noqa: F811
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobs_job DISABLE TRIGGER USER")
        some = Job.objects.of_project("p1").order_by("pk").values("pk")[:20]
        Job.objects.filter(pk__in=some).update(user_id=USER)
        with acting_for("p1", USER):
            [plan] = explain_reads(lambda: newest_jobs(user_id=USER))
            assert len(newest_jobs()) == 20  # also where the view's own filter is missing
        assert max(rows_read(node) for node in nodes(plan)) <= OWN
        transaction.set_rollback(True)


AUDIT_READS = {
    "the newest": lambda: list(ProjectAuditEntry.objects.filter(project_id="p1").order_by("-pk")[:PAGE]),
    "the next of a collector": lambda: list(
        ProjectAuditEntry.objects.filter(project_id="p1", pk__gt=0, pk__lte=10**9).order_by("pk")[:PAGE]
    ),
    "what was done to one thing": lambda: list(ProjectAuditEntry.objects.filter(project_id="p1", target="job 7")),
}


@pytest.mark.parametrize("read", AUDIT_READS)
def test_the_audit_trail_is_read_by_an_index_through_its_view(read):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_auditentry (project_id, actor, action, target, moved, reason)"
            " SELECT 'p' || n % 50, 'user:1', 'x', 'job ' || n, 1, '' FROM generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE jobs_auditentry")
    with acting_for("p1"):
        [plan] = explain_reads(AUDIT_READS[read])
    assert max(rows_read(node) for node in nodes(plan)) <= PAGE + 1
