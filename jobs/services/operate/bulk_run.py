"""
Carries out a bulk operation: short chunks, at a pace, until it ends or somebody ends it.

A chunk locks the operation's row, acts on the next rows by id, and moves the cursor in the same transaction. A killed
worker therefore leaves nothing half done. A second worker on the same operation waits and then does the next chunk. A
cancelled operation stops after the chunk in hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from jobs.classify import clean
from jobs.errors import UnknownBulkOperation
from jobs.models import BulkOperation, CanaryState
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.sealing import left_sealed
from queueops.core.values.reasons import clean_reason

from .bulk_actions import ACTIONS
from .bulk_outcome import Canary, canary_outcome, failed_too_often

logger = logging.getLogger(__name__)

BULK_CHUNK = 500
MAX_FAILURES_IN_A_ROW = 5  # minutes apart: in between, a worker of a newer version may succeed where this one fails
MAX_SAID = 500
PACE_SECONDS = 5.0  # the work of a paced operation's chunk; a cancel takes effect at most so much later
MAX_ROWS_PER_MINUTE = 30_000  # no operation is faster, because executors claim from the same tables meanwhile
CANARY_EVERY = timedelta(seconds=2)  # between two looks at the canary's jobs
STALLED_AFTER = timedelta(seconds=90)  # longer than a healthy task queue keeps a chunk waiting

Status = BulkOperation.Status


def _nobody(operation_id: UUID, turn: int) -> None:
    raise RuntimeError("jobs.cluster is not loaded")


hand_to_worker: Callable[[UUID, int], None] = _nobody
"""Hands the next chunk of an operation to a worker, by the operation's id and turn. jobs/cluster.py sets this."""


# `parameters` is never written back: reading it has decrypted the payload, which would be stored in plain text.
CHANGES = frozenset(field.name for field in BulkOperation._meta.fields) - {"id", "parameters"}  # noqa: SLF001 - documented


EDITED = "edited"


def begin(
    action: str,
    parameters: dict[str, Any],
    *,
    actor: str,
    reason: str,
    total: int,
    total_is_least: bool = False,
    rows_per_minute: float | None = None,
    stop_at_failed_percent: int | None = None,
    canary: Canary | None = None,
    cursor: UUID | None = None,
) -> BulkOperation:
    """
    Store an operation in the caller's transaction and hand it out once that transaction is committed.

    Args:
        rows_per_minute: A higher rate than MAX_ROWS_PER_MINUTE is lowered to it; None: MAX_ROWS_PER_MINUTE.
        stop_at_failed_percent: Stop when a higher percentage of the ended requeued jobs has failed; None: never.
        canary: How many rows go first. None: all rows go at once.
        cursor: Begin behind this row. None: begin with the first.

    Raises:
        InvalidPace
    """
    if canary is not None:
        canary.check()
    operation = BulkOperation(
        action=action,
        parameters=parameters,
        reason=reason,
        actor=actor,
        total=total,
        total_is_least=total_is_least,
        rows_per_minute=min(rows_per_minute or MAX_ROWS_PER_MINUTE, MAX_ROWS_PER_MINUTE),
        stop_at_failed_percent=stop_at_failed_percent,
        cursor=cursor,
        **(canary.columns() if canary else {}),
    )
    operation.save(force_insert=True)
    operation.refresh_from_db()
    _record(operation, "start", actor=actor, moved=0)
    transaction.on_commit(lambda: _hand_out(operation.pk))
    return operation


def run_bulk_chunk(operation_id: UUID, *, turn: int | None = None) -> bool:
    """
    Carry out the next chunk of an operation, in one transaction.

    An expected error, such as an edited payload that a kind's handler no longer takes, undoes the chunk and
    ends the operation as failed. Anything else, such as parameters that this version cannot read, leaves it as it was
    before the chunk. `restart_stalled_operations` tries again; MAX_FAILURES_IN_A_ROW failures in a row end it, too.
    An action that only a later version has waits for a worker of that version, however long that takes.

    Args:
        turn: The turn of the calling task; if the operation was handed out again since, nothing is done.

    Returns:
        Whether there may be more to do; `seconds_until_due` says when.

    Raises:
        UnknownBulkOperation
    """
    try:
        return _run_chunk(operation_id, turn)
    except UnknownBulkOperation:
        raise
    except Exception as error:
        logger.exception("bulk operation %s: its chunk failed", operation_id)
        _count_failure(operation_id, turn, error)
        return False


def _run_chunk(operation_id: UUID, turn: int | None) -> bool:
    with transaction.atomic():
        operation = _lock(operation_id)
        is_running = operation.status == Status.RUNNING and turn in (None, operation.turn)
        if not is_running or not _knows(operation):
            return False
        if fault := failed_too_often(operation):
            _end(operation, Status.FAILED, error=fault)
            return False
        is_tried = operation.canary_state == CanaryState.TRYING
        if is_tried and len(operation.canary_rows) >= (operation.canary or 0):
            return _judge_canary(operation)
        action = ACTIONS[operation.action]
        try:
            with transaction.atomic():
                chunk = action.choose(operation, _chunk_rows(operation))
                moved = action.carry_out(chunk.ids, operation) if chunk.ids else set()
        except QueueOpsError as error:
            _end(operation, Status.FAILED, error=error.message)
            return False
        operation.failures = 0
        if is_tried:
            operation.canary_rows = [*operation.canary_rows, *moved]
        operation.done += len(moved)
        operation.skipped += len(chunk.ids) - len(moved)
        operation.cursor = chunk.cursor or operation.cursor
        if chunk.is_last:
            _end(operation, Status.DONE)
            return False
        _pace(operation, len(moved))
        _save(operation)
        return True


def _knows(operation: BulkOperation) -> bool:
    """Whether this version has the operation's action. A later version's action waits for a worker of that version."""
    if operation.action not in ACTIONS:
        logger.warning("bulk operation %s: this version knows no %s", operation.pk, operation.action)
    return operation.action in ACTIONS


def _judge_canary(operation: BulkOperation) -> bool:
    """Judge the rows that went first: let the rest follow, end the operation, or look again later."""
    found = canary_outcome(operation)
    if fault := found.fault(operation):
        operation.canary_state = CanaryState.FAILED
        _end(operation, Status.FAILED, error=fault)
        return False
    if found.ended >= found.jobs:
        operation.canary_state = CanaryState.PASSED
    later: Any = Now() + CANARY_EVERY
    operation.next_at = None if found.ended >= found.jobs else later
    _save(operation)
    return True


def seconds_until_due(operation_id: UUID) -> float:
    """Return how long the next chunk has to wait; 0 if it is due, or if there is no such operation."""
    next_at = BulkOperation.objects.filter(pk=operation_id).values_list("next_at", flat=True).first()
    return max(0.0, (next_at - timezone.now()).total_seconds()) if next_at else 0.0


def cancel_bulk(operation_id: UUID, *, actor: str, reason: str = "") -> BulkOperation:
    """
    Stop an operation after the chunk in hand; finished chunks stay done. An operation that has ended is left alone.

    Raises:
        UnknownBulkOperation
    """
    with transaction.atomic():
        operation = _lock(operation_id)
        if operation.status == Status.RUNNING:
            _end(operation, Status.CANCELLED, actor=actor, reason=clean_reason(reason))
        return operation


@transaction.atomic
def go_on(operation_id: UUID, *, actor: str, reason: str = "") -> BulkOperation | None:
    """
    Start an operation for the rest of a cancelled or failed operation: same filter, same pace. A canary that was not
    judged yet begins anew with the rest.

    Returns:
        The new operation; None if the old one still runs, or is done.

    Raises:
        UnknownBulkOperation
    """
    with left_sealed():  # otherwise the new operation would store the payload in plain text
        stopped = _lock(operation_id)
    if stopped.status not in {Status.CANCELLED, Status.FAILED}:
        return None
    treated = stopped.done + stopped.skipped
    most = stopped.parameters.get("most")
    canary = None
    if stopped.canary is not None and stopped.canary_state == CanaryState.TRYING:
        canary = Canary(stopped.canary, stopped.canary_percent)
    return begin(
        stopped.action,
        {**stopped.parameters, **({} if most is None else {"most": max(0, most - treated)})},
        actor=actor,
        reason=clean_reason(reason) or stopped.reason,
        total=max(0, stopped.total - treated),
        total_is_least=stopped.total_is_least,
        rows_per_minute=stopped.rows_per_minute,
        stop_at_failed_percent=stopped.stop_at_failed_percent,
        canary=canary,
        cursor=stopped.cursor,  # else rows would be rescheduled a second time, or run before their retry is due
    )


def restart_stalled_operations(*, stalled_after: timedelta = STALLED_AFTER) -> list[UUID]:
    """
    Hand out again the operations whose chunk was due a while ago: their worker died.

    For house-keeping. Handing out an operation that is alive after all does no harm: its earlier tasks then do nothing.
    """
    due = Greatest(F("updated_at"), Coalesce(F("next_at"), F("updated_at")))
    stalled = BulkOperation.objects.alias(due=due).filter(status=Status.RUNNING, due__lte=Now() - stalled_after)
    ids = list(stalled.values_list("pk", flat=True))
    for operation_id in ids:
        _hand_out(operation_id)
    return ids


def _hand_out(operation_id: UUID) -> None:
    with transaction.atomic():
        operation = _lock(operation_id)
        operation.turn += 1
        _save(operation)
        hand_to_worker(operation_id, operation.turn)


@transaction.atomic
def _count_failure(operation_id: UUID, turn: int | None, error: Exception) -> None:
    operation = _lock(operation_id)
    if operation.status != Status.RUNNING or turn not in (None, operation.turn):
        return
    operation.failures += 1
    if operation.failures < MAX_FAILURES_IN_A_ROW:
        _save(operation)
        return
    said = clean(f"{type(error).__name__}: {error}")[:MAX_SAID]
    fault = f"Given up after {operation.failures} tries: {said}. What was done stays done."
    _end(operation, Status.FAILED, error=fault)


def _chunk_rows(operation: BulkOperation) -> int:
    if operation.canary_state == CanaryState.TRYING:
        return min(BULK_CHUNK, (operation.canary or 0) - len(operation.canary_rows))
    if operation.rows_per_minute is None:
        return BULK_CHUNK
    return max(1, min(BULK_CHUNK, int(operation.rows_per_minute * PACE_SECONDS / 60)))


def _pace(operation: BulkOperation, moved: int) -> None:
    """
    Set the time of the next chunk, counted from when this one was due, so that a late task does not slow the operation.

    If more than a chunk's time was missed, the next chunk is due now: the missed chunks would otherwise come in a
    burst.
    """
    if operation.rows_per_minute is None:
        return
    takes = timedelta(minutes=moved / operation.rows_per_minute)
    due: Any = Greatest(Coalesce(F("next_at"), Now()), Now() - takes) + takes
    operation.next_at = due


def _lock(operation_id: UUID) -> BulkOperation:
    operation = BulkOperation.objects.select_for_update().filter(pk=operation_id).first()
    if operation is None:
        raise UnknownBulkOperation(f"There is no bulk operation {operation_id}.", operation_id=str(operation_id))
    return operation


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
    operation.next_at = None
    operation.finished_at = Now()
    if status == Status.DONE:
        operation.total_is_least = False
        operation.total = operation.done + operation.skipped
    _save(operation)
    _record(operation, status.value, actor=actor or operation.actor, moved=operation.done, reason=reason)


def _save(operation: BulkOperation) -> None:
    operation.updated_at = Now()
    operation.save(update_fields=CHANGES)
    operation.refresh_from_db()


def _record(operation: BulkOperation, what: str, *, actor: str, moved: int, reason: str = "") -> None:
    parameters = operation.parameters if isinstance(operation.parameters, dict) else {}
    trail.record(
        actor=actor,
        action=f"bulk_{operation.action}",
        target=f"bulk operation {operation.pk}",
        after={"operation": what, "total": operation.total, **_told(parameters)},
        moved=moved,
        reason=reason or operation.reason,
        project_id=_project_of(parameters),
    )


def _told(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters for the audit trail, with EDITED for a payload, which could not be encrypted there."""
    return parameters if parameters.get("payload") is None else {**parameters, "payload": EDITED}


def _project_of(parameters: Mapping[str, Any]) -> str:
    wanted = parameters.get("filter")
    found = parameters.get("project_id") or (wanted.get("project_id") if isinstance(wanted, dict) else None)
    return str(found or "")
