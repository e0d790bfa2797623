"""Everything a producer's own page shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from dashboards.services.shared.wire import iso
from jobs.features.forecast.reasons import foresee
from jobs.features.outages.outages import Key, count_held, out_keys, shown_state
from jobs.models import Batch, DeadLetter, Job, JobEvent
from jobs.services.explain.snapshots import project_counts
from jobs.services.operate.scheduled_jobs import count_scheduled
from queueops.core.clock import database_now
from queueops.core.values.masking import masked_text

from .batches import batch_rows

if TYPE_CHECKING:
    from dashboards.live.viewer import Viewer

NEWEST_JOBS = 30
NEWEST_LETTERS = 10
NEWEST_EVENTS = 50
MAX_MESSAGE_LENGTH = 300


def me_snapshot(viewer: Viewer) -> dict[str, Any]:
    """
    Return a producer's page as JSON values: the counts, open batches, newest jobs and dead letters of its project.

    Its reads are bounded. A viewer without a project, such as staff, gets empty parts.
    """
    shown: dict[str, Any] = {
        "at": iso(datetime.fromtimestamp(database_now(), UTC)),
        "name": viewer.name,
        "project": viewer.project_id,
        "counts": None,
        "batches": [],
        "jobs": [],
        "dead_letters": [],
    }
    if viewer.project_id is None:
        return shown
    jobs, batches = Job.objects.of_project(viewer.project_id), Batch.objects.of_project(viewer.project_id)
    letters = DeadLetter.objects.of_project(viewer.project_id).order_by("-created_at")
    if viewer.user_id is None:
        # Jobs of a batch are counted at the batch, but a producer of single jobs has no other counts.
        shown["counts"] = project_counts(viewer.project_id)
        shown["held_by_outage"] = count_held(viewer.project_id)
        shown["scheduled"] = (later := count_scheduled(viewer.project_id)).jobs
        shown["scheduled_until"] = iso(later.last)
    else:
        jobs, batches = jobs.filter(user_id=viewer.user_id), batches.filter(user_id=viewer.user_id)
        letters = letters.filter(job__user_id=viewer.user_id)
    shown["batches"] = batch_rows(batches, links=False)
    out = out_keys()
    newest = list(jobs.defer("payload", "result").order_by("-pk")[:NEWEST_JOBS])
    foresee(newest)
    shown["jobs"] = [_job(job, out) for job in newest]
    shown["dead_letters"] = [_letter(letter) for letter in letters.defer("payload")[:NEWEST_LETTERS]]
    return shown


def job_of(viewer: Viewer, job_id: UUID) -> Job | None:
    """Return a job of the viewer's project, and of the viewer's user if there is one; None: there is no such job."""
    jobs = Job.objects.filter(pk=job_id)
    if viewer.project_id is not None or not viewer.is_staff:
        jobs = jobs.of_project(viewer.project_id or "")
    return jobs.filter(**({} if viewer.user_id is None else {"user_id": viewer.user_id})).first()


def about_job(job: Job) -> dict[str, Any]:
    """Return what a producer's page shows about a job besides its fields, as JSON values with secrets masked."""
    letter = DeadLetter.objects.filter(job_id=job.pk).defer("payload", "attempts").first()
    events = JobEvent.objects.filter(job_id=job.pk).order_by("-id")[:NEWEST_EVENTS]
    return {
        "shown_state": shown_state(job, out_keys()),
        "events": [_event(event) for event in events],
        "letter": None if letter is None else _letter(letter),
        "requeued_as": [str(pk) for pk in Job.objects.filter(origin_id=job.pk).order_by().ids()[:NEWEST_LETTERS]],
    }


def _event(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.pk,
        "type": event.event_type,
        "from": event.from_status,
        "to": event.to_status,
        "message": masked_text(event.message),
        "percent": event.progress_percent,
        "at": iso(event.created_at),
    }


def _job(job: Job, out: set[Key]) -> dict[str, Any]:
    return {
        "id": str(job.pk),
        "kind": job.kind,
        "state": job.status,
        "shown_state": shown_state(job, out),
        "priority": job.priority,
        "progress": job.progress,
        "progress_message": masked_text(job.progress_message),
        "error": masked_text(job.last_error_message)[:MAX_MESSAGE_LENGTH],
        "batch": None if job.batch_id is None else str(job.batch_id),
        "scheduled_at": iso(job.scheduled_at),
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
        "finished_at": iso(job.finished_at),
    }


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": str(letter.pk),
        "job": str(letter.job_id),
        "kind": letter.kind,
        "error_code": letter.error_code,
        "error": masked_text(letter.error_message)[:MAX_MESSAGE_LENGTH],
        "remediation": masked_text(letter.remediation),
        "resolution": letter.resolution,
        "created_at": iso(letter.created_at),
    }
