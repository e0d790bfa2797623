"""Jobs that a person submits: from a form, or an ended job's work once more, with another payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs.models import Job, Tag
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import SubmittedJob, submit_job
from jobs.states import TERMINAL, Priority
from queueops.audit import trail
from queueops.core.values.reasons import clean_reason


@transaction.atomic
def run_again(
    job_id: UUID, *, payload: Mapping[str, Any], actor: str, reason: str, once: str, priority: Priority | None = None
) -> UUID | None:
    """
    Submit a new job with the kind, project, user, retry policy and tags of an ended job, but its own effect key.

    Args:
        once: A second call with the same text makes no second job. Empty: each call makes one.
        priority: Replaces the old job's priority; None: the old priority.

    Returns:
        The new job's id; None if the old job has not ended, or was deleted.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge, QueueFull: Nothing was stored.
        IdempotencyKeyReused: `once` came with other work before.
    """
    job = Job.objects.filter(pk=job_id, status__in=sorted(TERMINAL)).first()
    if job is None:
        return None
    given = {**kept_of(job), "priority": priority or Priority(job.priority)}
    key = f"again-{once}" if once else None
    spec = JobSpec(kind=job.kind, payload=dict(payload), idempotency_key=key, **given)
    return submit_by_hand(spec, project_id=job.project_id, actor=actor, reason=reason, again=job.pk).id


def kept_of(job: Job) -> dict[str, Any]:
    """Return the fields of JobSpec that a job's work keeps when it is done again, besides its kind and payload."""
    return {
        "priority": Priority(job.priority),
        "user_id": job.user_id,
        "retry_policy": job.retry_policy_id,
        "tags": tuple(Tag.objects.of([job.pk]).get(job.pk, ())),
    }


@transaction.atomic
def submit_by_hand(
    spec: JobSpec, *, project_id: str, actor: str, reason: str = "", again: UUID | None = None
) -> SubmittedJob:
    """
    Submit one job for a person, as `submit_job` does, with an entry of the audit trail where a job was made.

    Args:
        again: The job whose work it does once more.

    Raises:
        As `submit_job`: Nothing was stored.
    """
    submitted = submit_job(spec, project_id=project_id, actor=actor)
    if submitted.outcome in ("created", "replaced"):
        trail.record(
            actor=actor,
            action="run_again" if again else "submit_job",
            target=f"job {again or submitted.id}",
            after={"job": str(submitted.id)} if again else {"kind": spec.kind, "outcome": submitted.outcome},
            reason=clean_reason(reason),
            project_id=project_id,
        )
    return submitted
