"""Writing events as other processes do, each writer in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg

from jobs.models import Job
from tests.support.processes import database_url

Writer = psycopg.Connection[tuple[int]]


@contextmanager
def writer() -> Iterator[Writer]:
    """A connection that commits when it is told to."""
    with psycopg.connect(database_url()) as connection:
        yield connection


def log_event(writer: Writer, job: Job, message: str = "") -> int:
    """Write one event without committing it; returns its id."""
    row = writer.execute(
        "INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type, message)"
        " VALUES (%s, %s, %s, %s, 'audit', %s) RETURNING id",
        [UUID(str(job.pk)), job.project_id, job.user_id, job.batch_id, message],
    ).fetchone()
    assert row is not None
    return row[0]


def terminate_relays() -> int:
    """Cut the relays' connections; returns how many there were."""
    with psycopg.connect(database_url(), autocommit=True) as connection:
        return connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'queueops relay' AND datname = current_database()"
        ).rowcount
