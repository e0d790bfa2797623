"""The content of an installation that has worked for days, on which operators' pages are measured."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from bench.harness.seeding import indexes_built_after
from jobs.lanes import lane_name, subject_of
from jobs.models import Batch, Executor, new_id
from jobs.services.upkeep.partitions import EVENTS
from queueops.tenancy.models import Project
from ratelimits.limits.defaults import load_limits, names_of_defaults

DAYS = 5  # the jobs are spread over so many days
PROJECTS = 40
BATCHES = 200
USERS = 1000
OPERATOR = "bench-operator"
TO_CANCEL = "to be cancelled"
RARE_TAG = "rare"  # one job in 250,000 has it
LIMITED = "google-sheets"


def busy_installation(*, jobs: int, to_cancel: int) -> None:
    """
    Make a number of jobs with four events each, and their counts, dead letters, counters, executors and sums.

    Args:
        to_cancel: How many queued jobs one more batch has.
    """
    names = [f"project-{number:02}" for number in range(PROJECTS)]
    Project.objects.bulk_create(Project(pk=name, name=name.title()) for name in names)
    batches = [Batch(project_id=names[number % PROJECTS], name=f"batch {number}") for number in range(BATCHES)]
    for number, batch in enumerate(batches):
        batch.submitted_by, batch.total = "bench", jobs // BATCHES
        batch.finished_at = timezone.now() if number >= BATCHES // 5 else None
    Batch.objects.bulk_create(batches)
    doomed = Batch.objects.create(project_id=names[0], name=TO_CANCEL, total=to_cancel, submitted_by="bench")
    load_limits(names_of_defaults())
    lanes = [
        lane_name(
            subject_of(service=LIMITED, call_type="write", model=None, project=name, user=""), project=name, user=""
        )
        for name in names
    ]
    with transaction.atomic(), connection.cursor() as cursor:
        # Switch the trigger that guards jobs off: it refuses to insert ended jobs. Only superusers may.
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL work_mem = '256MB'; SET LOCAL maintenance_work_mem = '1GB'")
        for day in range(DAYS + 1):
            name, first, last = EVENTS.part_of(timezone.now().date() - timedelta(days=day))
            bounds = f"FROM ('{first}') TO ('{last}')"
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF jobs_jobevent FOR VALUES {bounds}")
        shared: dict[str, Any] = {
            "limited": LIMITED,
            "projects": names,
            "lanes": lanes,
            "users": USERS,
            "seconds": DAYS * 86_400,
        }
        with indexes_built_after(cursor):
            cursor.execute(
                _JOBS, {"count": jobs, "batches": [batch.pk for batch in batches], "doomed": False, **shared}
            )
            cursor.execute(_JOBS, {"count": to_cancel, "batches": [doomed.pk], "doomed": True, **shared})
        cursor.execute(_TAGS, {"rare": RARE_TAG})
        for statement in (_EVENTS, _COUNTS, _LETTERS, _COUNTERS, _TALLIES, _FLOW):
            cursor.execute(statement, {"limited": LIMITED})
    Executor.objects.bulk_create(
        Executor(pk=new_id(), host=f"worker-{n // 8}", pid=n, process_started_at=1.0, cluster_pid=n // 8, slots=200)
        for n in range(1, 33)
    )
    get_user_model().objects.create_superuser(OPERATOR)


def operators_session() -> str:
    """Sign the operator in; return the cookie of the new session, as a browser sends it."""
    client = Client()
    client.force_login(get_user_model().objects.get(username=OPERATOR))
    return "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())


# Every hundred jobs are 70 completed, 20 ready, 5 behind a limit, 2 to be retried, 2 failed and 1 cancelled.
_JOBS = """
INSERT INTO jobs_job (id, project_id, user_id, batch_id, kind, service, call_type, priority, status, payload_text,
                      effect_key, lane, eligible_since, scheduled_at, created_at, updated_at, started_at,
                      first_attempt_at, finished_at, progress, fencing_token, retry_count, deferral_count)
SELECT id, project, user_id, batch, 'bench.noop', service, 'write',
       (ARRAY['normal', 'normal', 'normal', 'urgent', 'low'])[1 + number %% 5], status,
       jsonb_build_object('row', number, 'text', 'a value of ordinary length')::text, id::text,
       CASE WHEN status = 'rate_limited' THEN (%(lanes)s::text[])[place] END,
       at, CASE WHEN status = 'retried' THEN now() + interval '1 day' END, at, at, ended, ended, ended,
       CASE WHEN status = 'completed' THEN 100 ELSE 0 END, 0, (status = 'retried')::int, (status = 'rate_limited')::int
  FROM (SELECT *, CASE WHEN status IN ('completed', 'failed', 'cancelled') THEN at + interval '1 second' END AS ended,
               (%(projects)s::text[])[place] AS project,
               -- Ready jobs need no limit's room, because claims of them are measured.
               CASE WHEN status = 'rate_limited' THEN %(limited)s
                    WHEN status = 'queued' THEN (ARRAY['http:api.example.com', 'bench'])[1 + number %% 2]
                    ELSE (ARRAY['http:api.example.com', 'gemini', 'bench', 'google-sheets'])[1 + number %% 4]
               END AS service,
               (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
                || lpad(to_hex(number %% 4096), 3, '0') || '8' || substr(md5(%(doomed)s::text || number), 1, 15))::uuid
               AS id,
               ('00000000-0000-4000-8000-' || lpad(to_hex(number %% %(users)s), 12, '0'))::uuid AS user_id,
               CASE WHEN %(doomed)s OR number %% 2 = 0
                    THEN (%(batches)s::uuid[])[1 + (number / 2) %% cardinality(%(batches)s::uuid[])] END AS batch
          FROM (SELECT number, now() - (%(seconds)s - number * %(seconds)s::float8 / %(count)s) * interval '1 second'
                       AS at,
                       CASE WHEN %(doomed)s THEN 1 ELSE 1 + number %% cardinality(%(projects)s::text[]) END AS place,
                       CASE WHEN %(doomed)s THEN 'queued'
                            WHEN number %% 100 < 70 THEN 'completed' WHEN number %% 100 < 90 THEN 'queued'
                            WHEN number %% 100 < 95 THEN 'rate_limited' WHEN number %% 100 < 97 THEN 'retried'
                            WHEN number %% 100 < 99 THEN 'failed' ELSE 'cancelled' END AS status
                  FROM generate_series(1, %(count)s) AS number) AS arrival) AS job
"""

# Half of the jobs have two tags; one job in 250,000 has a third.
_TAGS = """
INSERT INTO jobs_tag (owner_id, name, project_id)
SELECT id, tag, project_id
  FROM (SELECT id, project_id, row_number() OVER (ORDER BY id) AS number FROM jobs_job) AS job
 CROSS JOIN LATERAL (VALUES ('group-' || number %% 20, number %% 2 = 0), ('even', number %% 2 = 0),
                            (%(rare)s, number %% 250000 = 77)) AS given (tag, has)
 WHERE has
"""

_EVENTS = """
INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, from_status, to_status, message,
                           progress_percent, data, created_at)
SELECT job.id, project_id, user_id, batch_id, service, step.type, step.source, step.target, step.message, step.percent,
       step.data::jsonb, job.created_at + step.ms * interval '1 millisecond'
  FROM jobs_job AS job
 CROSS JOIN LATERAL (VALUES
       (true, 'state_change', NULL, 'queued', 'key:bench', NULL::int, NULL, 0),
       (status IN ('completed', 'failed', 'retried'), 'state_change', 'queued', 'dispatched', '', NULL,
        '{"executor": "00000000-0000-4000-8000-000000000000", "fencing_token": 1}', 100),
       (status IN ('completed', 'failed', 'retried'), 'state_change', 'dispatched', 'in_progress', '', NULL, NULL, 100),
       (status = 'completed', 'progress', NULL, NULL, 'half', 50, NULL, 500),
       (status = 'completed', 'state_change', 'in_progress', 'completed', '', NULL,
        '{"duration_ms": 900.0, "waited_ms": 100.0, "calls": [[200, 1234]]}', 1000),
       (status = 'failed', 'state_change', 'in_progress', 'failed', 'HTTP 404', NULL,
        '{"attempt": 1, "error_code": "http_404", "duration_ms": 900.0, "calls": [[404, 120]]}', 1000),
       (status = 'retried', 'state_change', 'in_progress', 'retried', 'HTTP 503', NULL,
        '{"attempt": 1, "retry_count": 1, "error_code": "http_503", "calls": [[503, 120]]}', 1000),
       (status = 'rate_limited', 'state_change', 'queued', 'rate_limited', 'waits for a limit', NULL, NULL, 10),
       (status = 'cancelled', 'state_change', 'queued', 'cancelled', 'user:1', NULL, NULL, 1000)
       ) AS step (happened, type, source, target, message, percent, data, ms)
 WHERE step.happened
"""

_COUNTS = """
INSERT INTO jobs_jobcount (project_id, batch_id, shard, queued, rate_limited, retried, completed, failed, cancelled)
SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), 0,
       count(*) FILTER (WHERE status = 'queued'), count(*) FILTER (WHERE status = 'rate_limited'),
       count(*) FILTER (WHERE status = 'retried'), count(*) FILTER (WHERE status = 'completed'),
       count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'cancelled')
  FROM jobs_job
 GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
"""

# A third of the dead letters is open, in fifty groups.
_LETTERS = """
INSERT INTO jobs_deadletter (id, job_id, project_id, batch_id, kind, service, payload_text, error_code, error_class,
                             error_message, http_status, remediation, attempts, retry_count, crash_count, fingerprint,
                             created_at, resolution, resolved_at)
SELECT id, id, project_id, batch_id, kind, service, payload_text, 'http_404', 'ProviderError', 'HTTP 404', 404,
       'Check the identifiers.', '[]', 0, 0, md5((number %% 50)::text), created_at,
       CASE WHEN number %% 3 > 0 THEN 'requeued' END, CASE WHEN number %% 3 > 0 THEN now() END
  FROM (SELECT *, row_number() OVER (ORDER BY id) AS number FROM jobs_job WHERE status = 'failed') AS job
"""

_COUNTERS = """
INSERT INTO ratelimits_counter (id, limit_id, key, state, updated_at)
SELECT lpad(one.id::text, 8, '0') || ':project:' || project.id, one.id, 'project:' || project.id, '{}', now()
  FROM ratelimits_limit AS one CROSS JOIN tenancy_project AS project
 WHERE one.service = %(limited)s AND one.scope = 'project'
"""

_TALLIES = """
INSERT INTO ratelimits_calltally (at, service, call_type, model, project, "user", kind, calls, tokens, waited_seconds)
SELECT now() - number * interval '0.8 seconds', %(limited)s, 'write', '',
       'project-' || lpad((number %% 40)::text, 2, '0'), '', 'google_sheets.batch_update', 5, 5, 1
  FROM generate_series(1, 100000) AS number
"""

_FLOW = """
INSERT INTO jobs_flowsample (span_seconds, at, service, submitted, completed, failed, retried, deferred, cancelled,
                             answers, sizes, size_bytes, latencies, latency_ms, delays, delay_ms, backlog)
SELECT span, date_bin(greatest(span, 10) * interval '1 second',
                      CASE span WHEN 0 THEN timestamptz 'epoch' ELSE now() - number * span * interval '1 second' END,
                      'epoch'),
       service, 900, 800, 5, 20, 30, 1, '{800,0,5,10,2,1}', '{0,700,100,0,0,0,0,0,0}', 1000000,
       '{0,0,0,0,0,0,100,500,150,30,10,8,2,0,0,0}', 300000, '{10,100,500,100,50,20,10,5,3,1,1,0,0,0,0,0}', 20000,
       CASE WHEN service = '' AND span > 0 THEN '{1000000,250000,20,180,100000,33000}'::bigint[] END
  FROM (VALUES (0, 0), (10, 389), (300, 575)) AS spans (span, most)
 CROSS JOIN LATERAL generate_series(0, most) AS number
 CROSS JOIN unnest(ARRAY['', 'http:api.example.com', 'gemini', 'bench', 'google-sheets']) AS service
"""
