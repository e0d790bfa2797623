"""Whether deletion, in its share of the time, keeps pace with the queue at its fastest, beside many dead letters."""

from __future__ import annotations

import time
from functools import partial

from django.conf import settings
from django.db import connection, transaction

from bench.harness.claims import claim_milliseconds
from bench.harness.report import percentile
from bench.harness.seeding import PROJECT, depth
from bench.harness.session import Session, run
from jobs.services.upkeep.retention import DELETING_SHARE, ROWS_OF_A_DELETE, apply_retention

FINISHED = 400_000
LETTERS = 50_000
PENDING = 10_000
SECONDS = 20.0
FULL_SECONDS = 60.0
CLAIMS = 90
WANTED = 100
TARGET = 7_500  # jobs/s that `bench.drain` finishes


def measure(session: Session) -> None:
    report = session.report
    with session.databases.copy("deletion", partial(_old, pending=PENDING, finished=FINISHED)):
        quiet = claim_milliseconds(claims=CLAIMS, wanted=WANTED)
        begun = time.monotonic()
        deleted = apply_retention(seconds=FULL_SECONDS if session.full else SECONDS).rows["finished jobs"]
        took = time.monotonic() - begun
    report.metric("jobs_per_second", deleted / took, "jobs deleted a second", f"target: at least {TARGET:,}")
    report.figure("share of the time", f"{DELETING_SHARE:.0%}", f"in transactions of {ROWS_OF_A_DELETE:,} jobs")
    report.figure("while it deletes", f"{deleted / took / DELETING_SHARE:,.0f} jobs/s")
    report.figure(f"a claim of {WANTED}, p99", f"{percentile(quiet, 0.99):.2f} ms", "for reference, before")
    report.figure("dead letters beside", f"{LETTERS:,}")


def _old(*, pending: int, finished: int) -> None:
    depth(pending=pending, finished=finished)
    days = settings.QUEUEOPS.retention_days + 1
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE jobs_job SET finished_at = finished_at - %s * interval '1 day' WHERE finished_at IS NOT NULL",
            [days],
        )
        cursor.execute(
            "INSERT INTO jobs_deadletter (id, job_id, project_id, kind, service, payload_text, error_code, error_class,"
            " error_message, remediation, attempts, retry_count, crash_count, fingerprint)"
            " SELECT id, id, %s, kind, service, payload_text, 'x', 'x', 'x', '', '[]', 0, 0, 'f' FROM jobs_job"
            "  WHERE finished_at IS NOT NULL ORDER BY id DESC LIMIT %s",
            [PROJECT, LETTERS],
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE jobs_job, jobs_deadletter")


if __name__ == "__main__":
    run("deletion", measure)
