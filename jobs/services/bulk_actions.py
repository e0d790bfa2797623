"""What a bulk operation may do: which rows it means, and what happens to a chunk of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from jobs.models import BulkOperation, Job
from jobs.states import Priority

from .dead_letter_filter import DeadLetterFilter
from .dead_letters import RequeueOptions, carry_out_discard, carry_out_requeue
from .operate import carry_out_cancel, carry_out_priority


@dataclass(frozen=True, slots=True)
class BulkAction:
    """
    Attributes:
        rows: Of an operation's parameters, those still to act on. A row that was acted on may stay among
            them: the operation's cursor has passed it.
        carry_out: Acts on a chunk in the caller's transaction; returns the ids that moved.
    """

    rows: Callable[[Mapping[str, Any]], QuerySet[Any]]
    carry_out: Callable[[list[UUID], BulkOperation], Collection[UUID]]


def _letters(parameters: Mapping[str, Any]) -> QuerySet[Any]:
    return DeadLetterFilter.model_validate(parameters["filter"]).letters()


def _unfinished_jobs(parameters: Mapping[str, Any]) -> QuerySet[Any]:
    return Job.objects.unfinished().filter(batch_id=parameters["batch_id"])


def _waiting_jobs(parameters: Mapping[str, Any]) -> QuerySet[Any]:
    return Job.objects.waiting().filter(batch_id=parameters["batch_id"])


def _requeue(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    parameters = operation.parameters
    options = RequeueOptions(
        payload=parameters["payload"],
        priority=Priority(parameters["priority"]) if parameters["priority"] else None,
        spread_seconds=parameters["spread_seconds"],
        note=operation.reason,
    )
    # Counted from each chunk's own time: after a stop the rest is still spread, where counting from the
    # operation's start would let all that is overdue go at once.
    return carry_out_requeue(
        ids,
        options,
        actor=operation.actor,
        total=operation.total,
        position=operation.done + operation.skipped,
    )


def _discard(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    return carry_out_discard(ids, actor=operation.actor, reason=operation.reason)


def _cancel(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    return carry_out_cancel(ids, actor=operation.actor, reason=operation.reason)


def _change_priority(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    priority = Priority(operation.parameters["priority"])
    return carry_out_priority(ids, priority=priority, actor=operation.actor, reason=operation.reason)


ACTIONS: dict[str, BulkAction] = {
    "requeue_dead_letters": BulkAction(_letters, _requeue),
    "discard_dead_letters": BulkAction(_letters, _discard),
    "cancel_jobs": BulkAction(_unfinished_jobs, _cancel),
    "change_priority": BulkAction(_waiting_jobs, _change_priority),
}
