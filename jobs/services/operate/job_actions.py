"""
Actions of an operator or producer on jobs by hand, by their ids.

Each function is one transaction and locks the jobs in id order. Jobs that it does not apply to are left alone and
reported, so that repeating a call is safe. The events name the actor; one audit entry tells of the call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs.errors import InvalidDelay, NeverRuns
from jobs.models import Job
from jobs.services.submit.results import BulkResult, distinct_ids
from jobs.services.submit.spec import MAX_DELAY_SECONDS
from jobs.states import RUNNING, WAITING, JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.audit import trail
from queueops.core.clock import TransactionNow
from queueops.core.notify import Channel, notify
from queueops.core.sql import run_sql
from queueops.core.values.reasons import clean_reason, required_reason

MAX_NAMED = 20  # jobs in one error


@transaction.atomic
def cancel_jobs(job_ids: Iterable[UUID], *, actor: str, reason: str) -> BulkResult:
    """
    Cancel jobs that have not ended.

    A running job's handler is told at its next await; whatever it still reports is refused.

    Args:
        job_ids: At most MAX_BULK_JOBS distinct ids.
        actor: `user:<pk>`, `key:<prefix>`, `executor:<id>` or `system`.

    Raises:
        TooManyJobs, ReasonRequired: No job was moved.
    """
    ids = distinct_ids(job_ids)
    reason = required_reason(reason)
    moved = carry_out_cancel(ids, actor=actor, reason=reason)
    return _audited("cancel_jobs", ids, moved, actor=actor, reason=reason)


@transaction.atomic
def schedule_jobs(job_ids: Iterable[UUID], *, delay: timedelta, actor: str, reason: str = "") -> BulkResult:
    """
    Let waiting jobs run after `delay`, counted by the database's clock; zero: as soon as limits allow.

    Their state stays; a `scheduling` event tells of the new time. A job keeps its age, as in deferrals and retries:
    postponing does not send it behind others. The age of a job that has not begun to wait counts from its new time.

    Raises:
        TooManyJobs, InvalidDelay, NeverRuns: No job was changed.
    """
    ids = distinct_ids(job_ids)
    reason = clean_reason(reason)
    seconds = seconds_of(delay)
    _refuse_beyond_expiry(ids, WAITING, seconds)
    moved = carry_out_schedule(ids, seconds=seconds, actor=actor, reason=reason)
    return _audited("schedule_jobs", ids, moved, actor=actor, reason=reason, after={"delay_seconds": seconds})


@transaction.atomic
def reset_to_pending(
    job_ids: Iterable[UUID], *, actor: str, delay: timedelta | None = None, reason: str | None = None
) -> BulkResult:
    """
    Take running jobs from their executors and let them run again after `delay`, without consuming an attempt.

    Async handlers are told at their next await, others when they check whether they are cancelled. Calls that they
    made at a provider until then are not undone.

    Raises:
        TooManyJobs, InvalidDelay, NeverRuns: No job was moved.
    """
    ids = distinct_ids(job_ids)
    reason = clean_reason(reason)
    seconds = seconds_of(delay or timedelta())
    _refuse_beyond_expiry(ids, RUNNING, seconds)
    data = json.dumps({"actor": actor})
    moved = move_jobs("reset", [Move(job_id, delay_seconds=seconds, data=data) for job_id in ids], message=reason)
    notify(Channel.CANCEL)
    notify(Channel.READY)
    return _audited("reset_to_pending", ids, moved, actor=actor, reason=reason, after={"delay_seconds": seconds})


@transaction.atomic
def change_priority(job_ids: Iterable[UUID], *, priority: Priority, actor: str, reason: str = "") -> BulkResult:
    """
    Give waiting jobs another priority; an `audit` event tells of it.

    Their age stays. A job that has this priority already is left alone.

    Raises:
        TooManyJobs: No job was changed.
    """
    ids = distinct_ids(job_ids)
    reason = clean_reason(reason)
    moved = carry_out_priority(ids, priority=priority, actor=actor, reason=reason)
    return _audited("change_priority", ids, moved, actor=actor, reason=reason, after={"priority": priority})


def carry_out_cancel(ids: Sequence[UUID], *, actor: str, reason: str) -> set[UUID]:
    """`cancel_jobs` in the caller's transaction, without its audit entry; returns the ids that moved."""
    data = json.dumps({"actor": actor})
    moved = move_jobs("cancel", [Move(job_id, data=data) for job_id in ids], message=reason)
    notify(Channel.CANCEL)
    return moved


def carry_out_priority(ids: Sequence[UUID], *, priority: Priority, actor: str, reason: str) -> set[UUID]:
    """`change_priority` in the caller's transaction, without its audit entry; returns the ids changed."""
    parameters = {"ids": list(ids), "priority": Priority(priority).value, "actor": actor, "message": reason}
    return {row[0] for row in run_sql("jobs", "change_priority", parameters)}


def carry_out_schedule(ids: Sequence[UUID], *, seconds: float, actor: str, reason: str) -> set[UUID]:
    """
    `schedule_jobs` in the caller's transaction, without its audit entry; returns the ids scheduled.

    Jobs that would expire before are left out.
    """
    expiring = set(_expiring(ids, WAITING, seconds))
    ids = [job_id for job_id in ids if job_id not in expiring]
    # The lane of a parked job ignores the job's time, which is a forecast. Taken out of the lane, the job goes by the
    # new time.
    parked = Job.objects.filter(pk__in=ids, status=JobState.RATE_LIMITED, lane__isnull=False).values_list(
        "pk", flat=True
    )
    move_jobs("release", [Move(job_id, delay_seconds=seconds or None) for job_id in parked], message=reason)
    parameters = {"ids": list(ids), "delay": seconds, "actor": actor, "message": reason}
    moved = {row[0] for row in run_sql("jobs", "schedule_jobs", parameters)}
    notify(Channel.READY)
    return moved


def _refuse_beyond_expiry(ids: Sequence[UUID], states: Collection[JobState], seconds: float) -> None:
    """
    Refuse a delay after which jobs would only end as expired.

    Raises:
        NeverRuns
    """
    if expiring := _expiring(ids, states, seconds):
        raise NeverRuns(
            f"{len(expiring)} of the jobs could never run: they expire before that time. Choose a shorter delay.",
            ids=[str(job_id) for job_id in expiring[:MAX_NAMED]],
        )


def _expiring(ids: Sequence[UUID], states: Collection[JobState], seconds: float) -> list[UUID]:
    """Return the jobs in these states that expire within the delay; none where there is no delay."""
    if not seconds:
        return []
    then = TransactionNow() + timedelta(seconds=seconds)
    rows = Job.objects.filter(pk__in=ids, status__in=states, expires_at__lte=then)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def seconds_of(delay: timedelta) -> float:
    """
    Return the delay in seconds.

    Raises:
        InvalidDelay
    """
    seconds = delay.total_seconds()
    if not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidDelay(
            f"A delay is between 0 and {MAX_DELAY_SECONDS:,} seconds.",
            fields={"delay": [f"{seconds:,.0f} seconds is out of range"]},
            given_seconds=seconds,
            limit_seconds=MAX_DELAY_SECONDS,
        )
    return seconds


def _audited(
    action: str,
    ids: list[UUID],
    moved: set[UUID],
    *,
    actor: str,
    reason: str,
    after: dict[str, Any] | None = None,
) -> BulkResult:
    if ids:
        trail.record(
            actor=actor,
            action=action,
            target=trail.target_of("job", ids),
            after=after,
            moved=len(moved),
            reason=reason,
            project_id=_projects_of(moved),
        )
    return BulkResult.of(ids, moved)


def _projects_of(ids: set[UUID]) -> list[str]:
    return list(Job.objects.filter(pk__in=ids).order_by().values_list("project_id", flat=True).distinct())
