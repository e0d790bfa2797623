"""Rows for tests, made the way real ones are: the database's guard and the counts see nothing odd."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import F
from django.utils import timezone

from jobs.features.schedules.schedules import save_schedule
from jobs.handlers.registry import find_handler
from jobs.models import Batch, DeadLetter, Job, MaintenanceWindow, ProviderBatch, Schedule, Webhook, new_id
from jobs.services.explain.snapshots import BatchSnapshot, batch_snapshot
from jobs.services.submit.prepare import PreparedJob
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import insert_prepared
from jobs.services.upkeep import batches
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.signing import seal_signing_secret
from ratelimits.models import AlertRoute, Allowance, UsageEvent, UsageReservation, UsageTracking

KIND = "http.request"
SERVICE = "http"
SIGNING_SECRET = "whsec_c2l4dGVlbiBieXRlIGtleQ=="
PAYLOAD = '{"method": "GET", "url": "http://127.0.0.1:9/"}'
SPEC_FIELDS = frozenset(JobSpec.model_fields) - {"kind", "payload", "cost"}

# The edges from queued to each state; `dispatch` stands for a claim.
WAYS: dict[JobState, tuple[str, ...]] = {
    JobState.QUEUED: (),
    JobState.RATE_LIMITED: ("park",),
    JobState.RETRIED: ("back_off",),
    JobState.DISPATCHED: ("dispatch",),
    JobState.IN_PROGRESS: ("dispatch", "start"),
    JobState.COMPLETED: ("dispatch", "start", "complete"),
    JobState.FAILED: ("dispatch", "start", "fail"),
    JobState.CANCELLED: ("cancel",),
}


# A window of this day is not open now, in whatever time zone: on a Saturday night one of Saturdays would be.
FAR_WEEKDAY = (datetime.now(UTC).weekday() + 3) % 7


def make_project(project_id: str = "acme", **fields: Any) -> Project:
    """The project of that id, made if there is none. None of its batches stops itself."""
    given = {"name": project_id, "guard_percent": 0, **fields}
    return Project.objects.get_or_create(pk=project_id, defaults=given)[0]


def make_batch(*, project: str = "acme", **fields: Any) -> Batch:
    return Batch.objects.create(project=make_project(project), **{"submitted_by": "key:test", **fields})


def make_job(**fields: Any) -> Job:
    """One job; see `make_jobs`."""
    return make_jobs(1, **fields)[0]


def make_jobs(
    count: int,
    *,
    state: JobState = JobState.QUEUED,
    project: str = "acme",
    batch: Batch | None = None,
    kind: str = KIND,
    service: str = SERVICE,
    payload: str = PAYLOAD,
    cost: int = 1,
    **fields: Any,
) -> list[Job]:
    """
    Insert jobs and move them along legal edges to `state`.

    Args:
        payload: JSON text; by default one that http.request takes.
        fields: Those of JobSpec; others are columns, written afterwards.
    """
    make_project(project)
    handler = replace(find_handler(KIND), kind=kind)
    spec = JobSpec(kind=kind, **{name: value for name, value in fields.items() if name in SPEC_FIELDS})
    prepared = [
        PreparedJob(id=new_id(), handler=handler, spec=spec, payload=payload, service=service, cost=cost)
        for _ in range(count)
    ]
    ids = [job.id for job in prepared]
    inserted = insert_prepared(prepared, project_id=project, actor="key:test", batch=batch)
    assert inserted == set(ids)
    for edge in WAYS[state]:
        move_along(edge, ids)
    columns = {name: value for name, value in fields.items() if name not in SPEC_FIELDS}
    if columns:
        Job.objects.filter(pk__in=ids).update(**columns)
    return list(Job.objects.filter(pk__in=ids).order_by("pk"))


def make_provider_batch(project: str = "acme", **fields: Any) -> ProviderBatch:
    """One that its provider works on, without lines."""
    make_project(project)
    later = timezone.now() + timedelta(hours=1)
    figures: dict[str, Any] = {
        "kind": "llm.generate",
        "service": "openai",
        "provider": "openai",
        "model": "small",
        "credential": "key",
        "state": ProviderBatch.State.OPEN,
        "lines": 1,
        "complete_by": later,
        "live_at": later,
        "create_before": later,
    }
    return ProviderBatch.objects.create(project_id=project, **{**figures, **fields})


def make_schedule(name: str = "nightly", *, project: str = "acme", **figures: Any) -> Schedule:
    """One of every full hour that submits one job of KIND."""
    make_project(project)
    given = {"name": name, "cron": "0 * * * *", "jobs": [{"kind": KIND, "payload": json.loads(PAYLOAD)}]}
    return save_schedule(None, {**given, **figures}, project_id=project, actor="user:1")


def make_window(project: str = "acme", **figures: Any) -> MaintenanceWindow:
    """An hour in which the project pauses, by default far off, so that it holds nothing."""
    make_project(project)
    begins_at = timezone.now() + timedelta(days=300)
    times = {"begins_at": begins_at, "ends_at": begins_at + timedelta(hours=1), "next_change_at": begins_at}
    given = {"scope": "project", "key": project, "created_by": "user:1", **times, **figures}
    return MaintenanceWindow.objects.create(**given)


def make_dead_letter(**fields: Any) -> DeadLetter:
    """One open dead letter; see `make_dead_letters`."""
    return make_dead_letters(1, **fields)[0]


def make_dead_letters(count: int, **fields: Any) -> list[DeadLetter]:
    """
    Failed jobs with their open dead letters.

    Args:
        fields: Columns of DeadLetter where it has them, else those of `make_jobs`.
    """
    shared = {"kind", "project", "payload", "batch_id", "service"}
    own = {field.name for field in DeadLetter._meta.get_fields()} - shared
    jobs = make_jobs(count, state=JobState.FAILED, **{name: value for name, value in fields.items() if name not in own})
    return bury(jobs, **{name: value for name, value in fields.items() if name in own})


def bury(jobs: list[Job], **fields: Any) -> list[DeadLetter]:
    """The open dead letters of failed jobs."""
    letters = [
        DeadLetter(
            job=job,
            project_id=job.project_id,
            batch_id=job.batch_id,
            kind=job.kind,
            service=job.service,
            payload=job.payload,
            **{
                "error_code": "not_found",
                "error_class": "ProviderError",
                "error_message": "HTTP 404",
                "http_status": 404,
                "remediation": "check the identifiers",
                "attempts": [],
                "retry_count": job.retry_count,
                "crash_count": job.crash_count,
                "fingerprint": "f" * 32,
                **fields,
            },
        )
        for job in jobs
    ]
    DeadLetter.objects.bulk_create(letters)
    return list(DeadLetter.objects.filter(job__in=jobs).order_by("pk"))


def make_allowance(project: str = "acme", **fields: Any) -> Allowance:
    """The project's allowance: 1,000 requests a month, strict, UTC, unless `fields` says otherwise."""
    defaults = {"unit": "requests", "quota": 1_000, **fields}
    return Allowance.objects.update_or_create(project=make_project(project), defaults=defaults)[0]


def make_usage_month(user_id: UUID, *, project: str = "acme", month: str | None = None, **fields: Any) -> UsageTracking:
    """The user's row of a month, by default the allowance's present one; made with its quota if there is none."""
    allowance = Allowance.objects.filter(project_id=project).first() or make_allowance(project)
    row, _ = UsageTracking.objects.get_or_create(
        project_id=project,
        user_id=user_id,
        month_year=month or f"{timezone.now().astimezone(ZoneInfo(allowance.time_zone)):%Y-%m}",
        defaults={"quota": allowance.quota, **fields},
    )
    row.refresh_from_db()
    return row


def make_reservation(
    user_id: UUID, *, project: str = "acme", amount: int = 1, status: str = "active", **fields: Any
) -> UsageReservation:
    """One reservation; while it is active, its month's row holds it."""
    month = make_usage_month(user_id, project=project, month=fields.pop("month_year", None))
    if status == "active":
        UsageTracking.objects.filter(pk=month.pk).update(reserved=F("reserved") + amount)
    columns = {"expires_at": timezone.now() + timedelta(minutes=5), "remaining": month.quota - amount, **fields}
    return UsageReservation.objects.create(
        project_id=project, user_id=user_id, month_year=month.month_year, amount=amount, status=status, **columns
    )


def make_usage_event(user_id: UUID, *, project: str = "acme", amount: int = 1, **fields: Any) -> UsageEvent:
    """One event; its month's row has it in `used`."""
    month = make_usage_month(user_id, project=project, month=fields.pop("month_year", None))
    UsageTracking.objects.filter(pk=month.pk).update(used=F("used") + amount)
    columns = {"event_id": uuid4(), "occurred_at": timezone.now(), **fields}
    return UsageEvent.objects.create(
        project_id=project, user_id=user_id, month_year=month.month_year, amount=amount, **columns
    )


def move_along(edge: str, ids: list[UUID]) -> None:
    """Move every one of the jobs along an edge, with the lease that it needs."""
    if edge == "dispatch":
        _dispatch(ids)
        return
    tokens = dict(Job.objects.filter(pk__in=ids).values_list("pk", "fencing_token"))
    delay = 60.0 if edge in {"park", "back_off", "retry", "hand_back"} else None
    moved = move_jobs(edge, [Move(one, token=tokens[one], delay_seconds=delay) for one in ids])
    assert moved == set(ids), f"{edge} moved {len(moved)} of {len(ids)} jobs"


def _dispatch(ids: list[UUID]) -> None:
    """What choose_jobs.sql does, but to given jobs: a claim chooses by priority and age."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH moved AS (
                UPDATE jobs_job SET status = 'dispatched', executor = %(executor)s, updated_at = now(),
                       fencing_token = nextval('jobs_fencing_token'),
                       lease_expires_at = now() + interval '1 minute'
                 WHERE id = ANY(%(ids)s) RETURNING *
            ), logged AS (
                INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type,
                                           from_status, to_status)
                SELECT id, project_id, user_id, batch_id, 'state_change', 'queued', 'dispatched' FROM moved
            )
            INSERT INTO jobs_jobcount AS total (project_id, batch_id, shard, queued, dispatched)
            SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), pg_backend_pid(),
                   -count(*), count(*)
              FROM moved
             GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
            HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
             ORDER BY 1, 2
            ON CONFLICT (project_id, batch_id, shard) DO UPDATE
               SET queued = total.queued + excluded.queued,
                   dispatched = total.dispatched + excluded.dispatched
            """,
            {"ids": ids, "executor": uuid4()},
        )


def make_webhook(project: Project, *, secret: str = SIGNING_SECRET, **fields: Any) -> Webhook:
    return Webhook.objects.create(
        project=project, **{"url": "http://127.0.0.1:9/", "secret": seal_signing_secret(secret), **fields}
    )


def make_route(*, secret: str = SIGNING_SECRET, **fields: Any) -> AlertRoute:
    """One to a webhook; without a secret, as one by e-mail is, when that is empty."""
    given = {"name": "pager", "channel": "webhook", "target": "http://127.0.0.1:9/"}
    sealed = seal_signing_secret(secret) if secret else None
    return AlertRoute.objects.create(**{**given, "secret": sealed, **fields})


def foreseen(batch: Batch) -> BatchSnapshot:
    """What is told of a batch once the duty has looked at it."""
    with patch.object(batches, "FORESEE_SECONDS", 60.0):  # or on a busy machine it would look at some of several only
        batches.foresee_batches()
    batch.refresh_from_db()
    return batch_snapshot(batch)
