"""
Starts operators' actions over many rows: their filter is fixed, the rows are counted, and `bulk_run` carries them out.

Rows that match only after the start are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction

from jobs.errors import InvalidPace, UnknownBatch
from jobs.handlers.registry import find_handler
from jobs.models import Batch, BulkOperation
from jobs.services.submit.prepare import Rules, prepare_job
from jobs.services.submit.spec import JobSpec
from jobs.states import Priority
from queueops.core.clock import database_moment
from queueops.core.sealing import seal_value
from queueops.core.values.reasons import clean_reason, required_reason
from queueops.tenancy.secrets.encryption import is_encrypted

from .bulk_outcome import Canary
from .bulk_run import begin
from .dead_letter_filter import DeadLetterFilter, parse_filter
from .dead_letters import checked_spread
from .job_actions import seconds_of
from .job_filter import STATES_OF, JobFilter, count_jobs, parse_job_filter

Filter = TypeVar("Filter", JobFilter, DeadLetterFilter)


def start_bulk_requeue(
    wanted: DeadLetterFilter | Mapping[str, Any],
    *,
    actor: str,
    payload: dict[str, Any] | None = None,
    priority: Priority | None = None,
    spread_seconds: float = 0.0,
    rows_per_minute: float | None = None,
    stop_at_failed_percent: int | None = None,
    most: int | None = None,
    note: str = "",
    canary: Canary | None = None,
) -> BulkOperation:
    """
    Requeue every dead letter that fits the filter now. Later dead letters, also of the new jobs, are not touched.

    Args:
        payload, priority, note: See `dead_letters.RequeueOptions`.
        spread_seconds: Spreads the requeues themselves evenly over this time, so that the rest can still be stopped.
        rows_per_minute: Requeue at most so many dead letters a minute.
        stop_at_failed_percent: End the operation when a higher percentage of the ended requeued jobs has failed again.
        most: Requeue only so many dead letters, the oldest; None: all.
        canary: How many are requeued first; the rest follow once the new jobs of the first have ended well.

    Raises:
        InvalidFilter, InvalidDelay, InvalidPace, UnknownKind, InvalidJob, PayloadTooLarge, CredentialNotAllowed:
            Nothing was started.
    """
    checked_spread(spread_seconds)
    _check_pace(rows_per_minute, stop_at_failed_percent)
    with transaction.atomic():
        until_now = _until_now(parse_filter(wanted))
        if payload is not None:
            for kind, project_id in until_now.letters().order_by().values_list("kind", "project_id").distinct():
                prepare_job(JobSpec(kind=find_handler(kind).kind, payload=payload), rules=Rules(project_id))
        total = until_now.letters()[:most].count()
        spread_rate = total * 60 / spread_seconds if spread_seconds and total else None
        rates = [rate for rate in (rows_per_minute, spread_rate) if rate is not None]
        parameters = {
            "filter": until_now.model_dump(mode="json", exclude_none=True),
            "payload": payload if payload is None or not _is_encrypted(until_now) else seal_value(payload),
            "priority": None if priority is None else Priority(priority).value,
            "spread_seconds": spread_seconds,
            "most": most,
        }
        return begin(
            "requeue_dead_letters",
            parameters,
            actor=actor,
            reason=clean_reason(note),
            total=total,
            rows_per_minute=min(rates, default=None),
            stop_at_failed_percent=stop_at_failed_percent,
            canary=canary,
        )


def _is_encrypted(wanted: DeadLetterFilter) -> bool:
    """Whether any project of the fitting dead letters is encrypted."""
    projects = wanted.letters().order_by().values_list("project_id", flat=True).distinct()
    return any(is_encrypted(project) for project in projects)


def start_bulk_discard(
    wanted: DeadLetterFilter | Mapping[str, Any], *, actor: str, reason: str, rows_per_minute: float | None = None
) -> BulkOperation:
    """
    Discard every dead letter that fits the filter now.

    Raises:
        InvalidFilter, InvalidPace, ReasonRequired: Nothing was started.
    """
    reason = required_reason(reason)
    _check_pace(rows_per_minute)
    with transaction.atomic():
        until_now = _until_now(parse_filter(wanted))
        return begin(
            "discard_dead_letters",
            {"filter": until_now.model_dump(mode="json", exclude_none=True)},
            actor=actor,
            reason=reason,
            total=until_now.letters().count(),
            rows_per_minute=rows_per_minute,
        )


def start_bulk_cancel(
    wanted: JobFilter | Mapping[str, Any], *, actor: str, reason: str, rows_per_minute: float | None = None
) -> BulkOperation:
    """
    Cancel every job that fits the filter now and has not ended.

    Raises:
        InvalidFilter, InvalidPace, ReasonRequired: Nothing was started.
    """
    reason = required_reason(reason)
    return _start_over_jobs("cancel_jobs", wanted, {}, actor=actor, reason=reason, rows_per_minute=rows_per_minute)


def start_bulk_schedule(
    wanted: JobFilter | Mapping[str, Any],
    *,
    delay: timedelta,
    actor: str,
    reason: str = "",
    rows_per_minute: float | None = None,
    canary: Canary | None = None,
) -> BulkOperation:
    """
    Let every waiting job that fits the filter now run `delay` after its chunk is done; see `job_actions.schedule_jobs`.

    Raises:
        InvalidFilter, InvalidPace, InvalidDelay: Nothing was started.
    """
    told = {"delay_seconds": seconds_of(delay)}
    return _start_over_jobs(
        "schedule_jobs",
        wanted,
        told,
        actor=actor,
        reason=clean_reason(reason),
        rows_per_minute=rows_per_minute,
        canary=canary,
    )


def start_bulk_priority(
    wanted: JobFilter | Mapping[str, Any],
    *,
    priority: Priority,
    actor: str,
    reason: str = "",
    rows_per_minute: float | None = None,
    canary: Canary | None = None,
) -> BulkOperation:
    """
    Give every waiting job that fits the filter now another priority.

    Raises:
        InvalidFilter, InvalidPace: Nothing was started.
    """
    told = {"priority": Priority(priority).value}
    return _start_over_jobs(
        "change_priority",
        wanted,
        told,
        actor=actor,
        reason=clean_reason(reason),
        rows_per_minute=rows_per_minute,
        canary=canary,
    )


def cancel_batch(batch_id: UUID, *, actor: str, reason: str) -> BulkOperation:
    """
    Cancel every job of a batch that has not ended, in chunks.

    Raises:
        UnknownBatch, ReasonRequired: Nothing was started.
    """
    return start_bulk_cancel(_batch_filter(batch_id), actor=actor, reason=reason)


def change_batch_priority(
    batch_id: UUID, *, priority: Priority, actor: str, reason: str = "", canary: Canary | None = None
) -> BulkOperation:
    """
    Give every waiting job of a batch another priority, in chunks.

    Raises:
        UnknownBatch: Nothing was started.
    """
    return start_bulk_priority(_batch_filter(batch_id), priority=priority, actor=actor, reason=reason, canary=canary)


def retry_failed(batch_id: UUID, *, actor: str, **options: Any) -> BulkOperation:
    """
    Requeue every open dead letter of a batch.

    Args:
        options: The options of `start_bulk_requeue`.

    Raises:
        UnknownBatch, InvalidDelay, InvalidPace: Nothing was started.
    """
    return start_bulk_requeue(_batch_filter(batch_id), actor=actor, **options)


def _start_over_jobs(
    action: str,
    wanted: JobFilter | Mapping[str, Any],
    told: dict[str, Any],
    *,
    actor: str,
    reason: str,
    rows_per_minute: float | None,
    canary: Canary | None = None,
) -> BulkOperation:
    _check_pace(rows_per_minute)
    given = parse_job_filter(wanted)
    with transaction.atomic():
        counted = count_jobs(given, STATES_OF[action])
        return begin(
            action,
            {"filter": _until_now(given).model_dump(mode="json", exclude_none=True), **told},
            actor=actor,
            reason=reason,
            total=counted.count,
            total_is_least=counted.is_least,
            rows_per_minute=rows_per_minute,
            canary=canary,
        )


def _check_pace(rows_per_minute: float | None, stop_at_failed_percent: int | None = None) -> None:
    if rows_per_minute is not None and not rows_per_minute > 0:
        raise InvalidPace(fields={"rows_per_minute": ["more than 0"]})
    if stop_at_failed_percent is not None and not 0 <= stop_at_failed_percent < 100:  # noqa: PLR2004 - percent
        raise InvalidPace(fields={"stop_at_failed_percent": ["from 0 to 99"]})


def _until_now(wanted: Filter) -> Filter:
    """
    The filter, bounded by this moment.

    Without the bound, a requeue whose jobs fail again would requeue their dead letters too, for ever.
    """
    now = database_moment()
    return wanted.model_copy(update={"created_until": min(wanted.created_until or now, now)})


def _batch_filter(batch_id: UUID) -> dict[str, str]:
    project_id = Batch.objects.filter(pk=batch_id).values_list("project_id", flat=True).first()
    if project_id is None:
        raise UnknownBatch(f"There is no batch {batch_id}.", batch_id=str(batch_id))
    return {"project_id": project_id, "batch_id": str(batch_id)}
