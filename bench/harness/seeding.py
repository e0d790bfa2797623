"""The content of template databases."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from bench.harness.handlers import PAYLOAD_BYTES
from jobs.services.submit.submit import submit_batch
from queueops.core.telemetry import tracing
from queueops.tenancy.models import ProducerKey, Project

PROJECT = "bench"


def one_project() -> None:
    Project.objects.get_or_create(pk=PROJECT, defaults={"name": "Benchmarks", "guard_percent": 0})


def issue_key() -> str:
    """Return a key that may submit to the project."""
    return ProducerKey.issue(Project.objects.get(pk=PROJECT), name="benchmark")[1]


def noop_lines(count: int) -> Iterator[bytes]:
    """Yield a producer's lines, whose payloads are as small as for one API call."""
    for number in range(count):
        yield b'{"kind": "bench.noop", "payload": {"row": %d, "text": "a value of ordinary length"}}' % number


def echo_lines(count: int) -> Iterator[bytes]:
    """Yield lines with a payload of PAYLOAD_BYTES, whose jobs have a result of RESULT_BYTES."""
    for number in range(count):
        line = b'{"kind": "bench.echo", "payload": {"row": %d, "text": "' % number
        yield line + b"p" * (PAYLOAD_BYTES - len(b'{"row": 10000, "text": ""}')) + b'"}}'


def one_batch(count: int, *, echo: bool = False) -> None:
    """Submit a batch as producers do; none of its jobs has started."""
    one_project()
    submit_batch(echo_lines(count) if echo else noop_lines(count), project_id=PROJECT, actor="bench")


def sampled_batches(count: int, *, one_of: int, environ: Mapping[str, str]) -> None:
    """
    Submit batches of MAX_TRACED jobs; every `one_of`-th batch is submitted within a sampled trace.

    Args:
        environ: The variables that turn tracing on.
    """
    one_project()
    with mock.patch.dict(os.environ, {**environ, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}):
        tracing.tracer.cache_clear()
        for number in range(count // tracing.MAX_TRACED):
            headers = {"traceparent": f"00-{number + 1:032x}-{1:016x}-01"} if number % one_of == 0 else {}
            with tracing.from_caller(headers):
                submit_batch(noop_lines(tracing.MAX_TRACED), project_id=PROJECT, actor="bench")
    tracing.tracer.cache_clear()


@contextmanager
def indexes_built_after(cursor: CursorWrapper) -> Iterator[None]:
    """Drop the indexes that are not unique, and build them again at the block's end: jobs are then written faster."""
    cursor.execute(
        "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
        " WHERE indrelid = 'jobs_job'::regclass AND NOT indisunique"
    )
    indexes = cursor.fetchall()
    for name, _ in indexes:
        cursor.execute(f"DROP INDEX {name}")
    yield
    for _, definition in indexes:
        cursor.execute(definition)


def depth(*, pending: int, finished: int) -> None:
    """
    Make a backlog with its submit events, and finished jobs, by SQL: submitting millions would take long.

    Finished jobs have no events here: nothing reads or writes the events of a finished job.
    """
    one_project()
    with transaction.atomic(), connection.cursor() as cursor:
        # Switch the trigger that guards jobs off: it refuses to insert finished jobs. Only superusers may.
        cursor.execute("SET LOCAL session_replication_role = replica")
        with indexes_built_after(cursor):
            cursor.execute(_JOBS, {"count": finished, "status": "completed", "oldest": 2 * 3600})
            cursor.execute(_JOBS, {"count": pending, "status": "queued", "oldest": 600})
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, to_status, message, created_at)"
            " SELECT id, project_id, 'state_change', 'queued', 'bench', created_at FROM jobs_job"
            "  WHERE status = 'queued' ORDER BY id"
        )
        cursor.execute(
            "INSERT INTO jobs_jobcount (project_id, batch_id, shard, queued, completed)"
            " VALUES (%s, '00000000-0000-0000-0000-000000000000', 0, %s, %s)",
            [PROJECT, pending, finished],
        )


# Ids are UUIDv7 as Python makes them, in the order of arrival: PostgreSQL has a function for these only from 18 on.
_JOBS = f"""
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload_text, effect_key,
                      eligible_since, created_at, updated_at, started_at, first_attempt_at, finished_at, progress,
                      fencing_token)
SELECT id, '{PROJECT}', 'bench.noop', 'bench', 'write', 'normal', %(status)s,
       jsonb_build_object('row', number, 'text', 'a value of ordinary length')::text, id::text, at,
       at, at, ended, ended, ended, CASE WHEN ended IS NULL THEN 0 ELSE 100 END, 0
  FROM (SELECT number, at, CASE %(status)s WHEN 'completed' THEN at + interval '1 second' END AS ended,
               (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
                || lpad(to_hex(number %% 4096), 3, '0') || '8' || substr(md5(%(status)s || number), 1, 15))::uuid AS id
          FROM (SELECT number, now() - %(oldest)s * interval '1 second'
                                     + number * (%(oldest)s * interval '1 second' / %(count)s) AS at
                  FROM generate_series(1, %(count)s) AS number) AS arrival) AS job
"""  # noqa: S608 - a constant
