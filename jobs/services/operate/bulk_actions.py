"""The actions of bulk operations: which rows they mean, and what they do to a chunk of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobs.models import BulkOperation, DeadLetter, Job
from jobs.states import Priority
from queueops.tenancy.moves import ids_that_stay

from .dead_letter_filter import DeadLetterFilter
from .dead_letters import RequeueOptions, carry_out_discard, carry_out_requeue
from .job_actions import carry_out_cancel, carry_out_priority, carry_out_schedule
from .job_filter import STATES_OF, Chunk, JobFilter, choose_jobs


@dataclass(frozen=True, slots=True)
class BulkAction:
    """
    Attributes:
        choose: Chooses the next rows of an operation, at most as many as asked for. A row that was acted on may still
            fit the filter, but the operation's cursor has passed it.
        carry_out: Acts on a chunk in the caller's transaction, but not on rows of projects that move; returns the ids
            acted on.
    """

    choose: Callable[[BulkOperation, int], Chunk]
    carry_out: Callable[[list[UUID], BulkOperation], Collection[UUID]]


def letters_of(parameters: Mapping[str, Any]) -> DeadLetterFilter:
    return DeadLetterFilter.model_validate(parameters["filter"])


def jobs_of(parameters: Mapping[str, Any]) -> JobFilter:
    return JobFilter.model_validate(parameters["filter"])


def _choose_letters(operation: BulkOperation, most: int) -> Chunk:
    letters = letters_of(operation.parameters).letters()
    if operation.cursor is not None:
        letters = letters.filter(pk__gt=operation.cursor)
    wanted = operation.parameters.get("most")
    left = most if wanted is None else max(0, wanted - operation.done - operation.skipped)
    ids = list(letters.order_by("pk").values_list("pk", flat=True)[: min(most, left)])
    return Chunk(ids, ids[-1] if ids else None, is_last=len(ids) < most)


def _choose_jobs(operation: BulkOperation, most: int) -> Chunk:
    states = STATES_OF[operation.action]
    return choose_jobs(jobs_of(operation.parameters), states, after=operation.cursor, most=most)


def _requeue(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    parameters = operation.parameters
    options = RequeueOptions(
        payload=parameters["payload"],
        priority=Priority(parameters["priority"]) if parameters["priority"] else None,
        note=operation.reason,
    )
    # The later chunks of a spread are still open dead letters, so a cancel or a failure rate keeps them from being
    # requeued. Within a chunk the jobs start one by one; otherwise each chunk would be a burst.
    spread = parameters["spread_seconds"] and operation.rows_per_minute
    gap = 60 / operation.rows_per_minute if spread and operation.rows_per_minute else 0.0
    return carry_out_requeue(ids, options, actor=operation.actor, gap_seconds=gap, operation_id=operation.pk)


def _discard(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    staying = ids_that_stay(DeadLetter.objects.all(), ids)
    return carry_out_discard(staying, actor=operation.actor, reason=operation.reason, operation_id=operation.pk)


def _cancel(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    return carry_out_cancel(ids_that_stay(Job.objects.all(), ids), actor=operation.actor, reason=operation.reason)


def _schedule(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    seconds = float(operation.parameters["delay_seconds"])
    staying = ids_that_stay(Job.objects.all(), ids)
    return carry_out_schedule(staying, seconds=seconds, actor=operation.actor, reason=operation.reason)


def _change_priority(ids: list[UUID], operation: BulkOperation) -> Collection[UUID]:
    priority = Priority(operation.parameters["priority"])
    staying = ids_that_stay(Job.objects.all(), ids)
    return carry_out_priority(staying, priority=priority, actor=operation.actor, reason=operation.reason)


ACTIONS: dict[str, BulkAction] = {
    "requeue_dead_letters": BulkAction(_choose_letters, _requeue),
    "discard_dead_letters": BulkAction(_choose_letters, _discard),
    "cancel_jobs": BulkAction(_choose_jobs, _cancel),
    "schedule_jobs": BulkAction(_choose_jobs, _schedule),
    "change_priority": BulkAction(_choose_jobs, _change_priority),
}
