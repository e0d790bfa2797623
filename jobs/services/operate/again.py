"""Does an ended job's work once more, with another payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs.models import Job, Tag
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import TERMINAL, Priority
from queueops.audit import trail
from queueops.core.values.reasons import clean_reason


@transaction.atomic
def run_again(
    job_id: UUID, *, payload: Mapping[str, Any], actor: str, reason: str, priority: Priority | None = None
) -> UUID | None:
    """
    Submit a new job of a job's kind, project, user, retry policy and tags; its effect key is its own.

    Args:
        priority: None: the old job's.

    Returns:
        The new job's id; None where the job has not ended, or is gone.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge, QueueFull: Nothing was stored.
    """
    job = Job.objects.filter(pk=job_id, status__in=sorted(TERMINAL)).first()
    if job is None:
        return None
    spec = JobSpec(
        kind=job.kind,
        payload=dict(payload),
        priority=priority or Priority(job.priority),
        user_id=job.user_id,
        retry_policy=job.retry_policy_id,
        tags=tuple(Tag.objects.of([job.pk]).get(job.pk, ())),
    )
    new = submit_job(spec, project_id=job.project_id, actor=actor)
    trail.record(
        actor=actor,
        action="run_again",
        target=f"job {job.pk}",
        after={"job": str(new.id)},
        reason=clean_reason(reason),
        project_id=job.project_id,
    )
    return new.id
