"""
Operators' actions over many rows: counted at the start, then carried out in short chunks.

A chunk locks the operation's row, acts on the next rows by id, and moves the cursor in the same transaction.
So a killed worker leaves nothing half done, a second worker on the same operation waits and then does the
next chunk, and a cancelled operation stops after the chunk in hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from jobs.handlers.registry import find_handler
from jobs.models import Batch, BulkOperation
from jobs.states import Priority
from queueops.core.errors import QueueOpsError
from queueops.core.reasons import clean_reason, required_reason

from . import audit
from .bulk_actions import ACTIONS, BulkAction
from .dead_letter_filter import DeadLetterFilter, parse_filter
from .dead_letters import checked_spread
from .errors import UnknownBatch, UnknownBulkOperation
from .prepare import JobSpec, Rules, prepare_job

BULK_CHUNK = 500
STALLED_AFTER = timedelta(minutes=10)  # beyond the longest a task queue keeps a chunk waiting in good health

Status = BulkOperation.Status


def start_bulk_requeue(
    wanted: DeadLetterFilter | Mapping[str, Any],
    *,
    actor: str,
    payload: dict[str, Any] | None = None,
    priority: Priority | None = None,
    spread_seconds: float = 0.0,
    note: str = "",
) -> BulkOperation:
    """
    Requeue every dead letter that fits the filter now; those that come later, of the new jobs too, are not
    touched.

    Args:
        payload, priority, spread_seconds, note: See `dead_letters.RequeueOptions`. The spread is over all of
            them.

    Raises:
        InvalidFilter, InvalidDelay, UnknownKind, InvalidJob, PayloadTooLarge, CredentialNotAllowed: Nothing was
            started.
    """
    checked_spread(spread_seconds)
    with transaction.atomic():
        until_now = _until_now(parse_filter(wanted))
        if payload is not None:
            for kind, project_id in until_now.letters().order_by().values_list("kind", "project_id").distinct():
                prepare_job(JobSpec(kind=find_handler(kind).kind, payload=payload), rules=Rules(project_id))
        parameters = {
            "filter": until_now.model_dump(mode="json", exclude_none=True),
            "payload": payload,
            "priority": None if priority is None else Priority(priority).value,
            "spread_seconds": spread_seconds,
        }
        return _start("requeue_dead_letters", parameters, actor=actor, reason=clean_reason(note))


def start_bulk_discard(wanted: DeadLetterFilter | Mapping[str, Any], *, actor: str, reason: str) -> BulkOperation:
    """
    Discard every dead letter that fits the filter now.

    Raises:
        InvalidFilter, ReasonRequired: Nothing was started.
    """
    reason = required_reason(reason)
    with transaction.atomic():
        until_now = _until_now(parse_filter(wanted))
        parameters = {"filter": until_now.model_dump(mode="json", exclude_none=True)}
        return _start("discard_dead_letters", parameters, actor=actor, reason=reason)


def cancel_batch(batch_id: UUID, *, actor: str, reason: str) -> BulkOperation:
    """
    Cancel every job of a batch that has not ended, in chunks.

    Raises:
        UnknownBatch, ReasonRequired: Nothing was started.
    """
    reason = required_reason(reason)
    with transaction.atomic():
        return _start("cancel_jobs", _batch_parameters(batch_id), actor=actor, reason=reason)


def change_batch_priority(batch_id: UUID, *, priority: Priority, actor: str, reason: str = "") -> BulkOperation:
    """
    Give every waiting job of a batch another priority, in chunks.

    Raises:
        UnknownBatch: Nothing was started.
    """
    with transaction.atomic():
        parameters = {**_batch_parameters(batch_id), "priority": Priority(priority).value}
        return _start("change_priority", parameters, actor=actor, reason=clean_reason(reason))


def retry_failed(
    batch_id: UUID,
    *,
    actor: str,
    priority: Priority | None = None,
    spread_seconds: float = 0.0,
    note: str = "",
) -> BulkOperation:
    """
    Requeue every open dead letter of a batch.

    Raises:
        UnknownBatch, InvalidDelay: Nothing was started.
    """
    return start_bulk_requeue(
        _batch_parameters(batch_id),
        actor=actor,
        priority=priority,
        spread_seconds=spread_seconds,
        note=note,
    )


def run_bulk_chunk(operation_id: UUID) -> bool:
    """
    Carry out the next chunk of an operation, in one transaction.

    An expected error, such as an edited payload that a kind's handler no longer takes, undoes the chunk and
    ends the operation as failed; anything else leaves it as it was before the chunk.

    Returns:
        Whether there may be more to do.

    Raises:
        UnknownBulkOperation
    """
    with transaction.atomic():
        operation = _lock(operation_id)
        if operation.status != Status.RUNNING:
            return False
        action = ACTIONS[operation.action]
        ids = _next_ids(action, operation)
        try:
            with transaction.atomic():
                moved = action.carry_out(ids, operation) if ids else set()
        except QueueOpsError as error:
            _end(operation, Status.FAILED, error=error.message)
            return False
        operation.done += len(moved)
        operation.skipped += len(ids) - len(moved)
        operation.cursor = ids[-1] if ids else operation.cursor
        if len(ids) < BULK_CHUNK:
            _end(operation, Status.DONE)
            return False
        _save(operation)
        return True


def cancel_bulk(operation_id: UUID, *, actor: str, reason: str = "") -> BulkOperation:
    """
    Stop an operation after the chunk in hand; what was done stays done. One that has ended is left alone.

    Raises:
        UnknownBulkOperation
    """
    with transaction.atomic():
        operation = _lock(operation_id)
        if operation.status == Status.RUNNING:
            _end(operation, Status.CANCELLED, actor=actor, reason=clean_reason(reason))
        return operation


def restart_stalled_operations(*, stalled_after: timedelta = STALLED_AFTER) -> list[UUID]:
    """
    Hand out again the operations of which nothing was heard for a while: their worker died between two
    chunks.

    For house-keeping. Handing out one that is alive after all does no harm.
    """
    stalled = BulkOperation.objects.filter(status=Status.RUNNING, updated_at__lt=Now() - stalled_after)
    ids = list(stalled.values_list("pk", flat=True))
    for operation_id in ids:
        _hand_out(operation_id)
    return ids


def _start(action: str, parameters: dict[str, Any], *, actor: str, reason: str) -> BulkOperation:
    operation = BulkOperation(action=action, parameters=parameters, reason=reason, actor=actor)
    operation.total = ACTIONS[action].rows(parameters).count()
    operation.save(force_insert=True)
    operation.refresh_from_db()
    _record(operation, "start", actor=actor, moved=0)
    transaction.on_commit(lambda: _hand_out(operation.pk))
    return operation


def _hand_out(operation_id: UUID) -> None:
    from jobs.cluster import enqueue_operation  # django-q2 itself is loaded only where an operation starts

    enqueue_operation(operation_id)


def _until_now(wanted: DeadLetterFilter) -> DeadLetterFilter:
    """
    The filter, bounded by this moment.

    Without the bound, a requeue whose jobs fail again would requeue their dead letters too, for ever.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [now] = cursor.fetchone()
    until = min(wanted.created_until or now, now)
    return wanted.model_copy(update={"created_until": until})


def _batch_parameters(batch_id: UUID) -> dict[str, str]:
    project_id = Batch.objects.filter(pk=batch_id).values_list("project_id", flat=True).first()
    if project_id is None:
        raise UnknownBatch(f"There is no batch {batch_id}.", batch_id=str(batch_id))
    return {"project_id": project_id, "batch_id": str(batch_id)}


def _lock(operation_id: UUID) -> BulkOperation:
    operation = BulkOperation.objects.select_for_update().filter(pk=operation_id).first()
    if operation is None:
        raise UnknownBulkOperation(f"There is no bulk operation {operation_id}.", operation_id=str(operation_id))
    return operation


def _next_ids(action: BulkAction, operation: BulkOperation) -> list[UUID]:
    rows = action.rows(operation.parameters)
    if operation.cursor is not None:
        rows = rows.filter(pk__gt=operation.cursor)
    return list(rows.order_by("pk").values_list("pk", flat=True)[:BULK_CHUNK])


def _end(
    operation: BulkOperation,
    status: BulkOperation.Status,
    *,
    error: str = "",
    actor: str = "",
    reason: str = "",
) -> None:
    operation.status = status
    operation.error = error
    operation.finished_at = Now()
    _save(operation)
    _record(operation, status.value, actor=actor or operation.actor, moved=operation.done, reason=reason)


def _save(operation: BulkOperation) -> None:
    operation.updated_at = Now()
    operation.save()
    operation.refresh_from_db()


def _record(operation: BulkOperation, what: str, *, actor: str, moved: int, reason: str = "") -> None:
    parameters = operation.parameters
    audit.record(
        actor=actor,
        action=f"bulk_{operation.action}",
        target=f"bulk operation {operation.pk}",
        after={"operation": what, "total": operation.total, **parameters},
        moved=moved,
        reason=reason or operation.reason,
        project_id=parameters.get("project_id") or parameters.get("filter", {}).get("project_id") or "",
    )
