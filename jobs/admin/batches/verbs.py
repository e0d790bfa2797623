"""An operator's actions on batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse

from jobs.admin.forms import BatchPriorityForm, BulkRequeueForm, ResumeBatchForm
from jobs.admin.jobs.verbs import in_bulk
from jobs.features.dependencies.dependants import go_on
from jobs.models import Batch, BulkOperation, DeadLetter, Dependency, Job
from jobs.services.explain.snapshots import batch_counts
from jobs.services.operate import bulk, pauses
from jobs.services.operate.bulk_outcome import Canary
from jobs.states import UNFINISHED, WAITING, GuardState, JobState
from queueops.core.values.numbers import numbered
from queueops.screens.forms import ReasonForm
from queueops.screens.verbs import Verb, VerbOutcome


def started(operations: Sequence[BulkOperation]) -> VerbOutcome:
    """Say where people can watch the operations that were just started."""
    rows = sum(operation.total for operation in operations)
    one = len(operations) == 1
    return VerbOutcome(
        moved=len(operations),
        report=f"Started in the background over {numbered(rows, 'row')}; they change while you watch.",
        goes_to=reverse("admin:jobs_bulkoperation_change", args=[operations[0].pk])
        if one
        else reverse("admin:jobs_bulkoperation_changelist"),
    )


def _jobs_in(states: Collection[JobState]) -> Callable[[QuerySet[Batch]], str]:
    """Return a function that counts the batches' jobs in these states, for the words of a confirmation."""

    def amount(batches: QuerySet[Batch]) -> str:
        counts = batch_counts(batches.values_list("pk", flat=True)).values()
        return _of_batches(sum(of[state] for of in counts for state in states), "job", len(counts))

    return amount


def _open_letters(batches: QuerySet[Batch]) -> str:
    ids = list(batches.values_list("pk", flat=True))
    return _of_batches(DeadLetter.objects.open().filter(batch_id__in=ids).count(), "dead letter", len(ids))


def _of_batches(count: int, noun: str, batches: int) -> str:
    return f"{numbered(count, noun)} of {numbered(batches, 'batch', 'batches')}" if count else ""


def _each(start: Callable[..., BulkOperation]) -> Callable[..., VerbOutcome]:
    def carry_out(ids: Sequence[UUID], **options: Any) -> VerbOutcome:
        return started([start(batch_id, **options) for batch_id in ids])

    return carry_out


def _pause(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    held = sum(pauses.pause_batch(batch_id, actor=actor, reason=reason) for batch_id in ids)
    return VerbOutcome(len(ids), report=f"{len(ids):,} paused; {numbered(held, 'job')} held. Running jobs go on.")


def _resume(ids: Sequence[UUID], *, actor: str, reason: str, canary: Canary | None = None) -> VerbOutcome:
    released = 0
    for batch_id in ids:
        if canary is None:
            released += pauses.resume_batch(batch_id, actor=actor, reason=reason)
        else:
            released += pauses.resume_batch_by_canary(batch_id, canary=canary, actor=actor, reason=reason)
    return VerbOutcome(len(ids), report=f"{len(ids):,} resumed; {numbered(released, 'job')} may run again.")


PAUSE = Verb(
    name="pause",
    permission="jobs.pause_work",
    label="Pause",
    done="paused",
    explains="No job of a paused batch starts until it is resumed. Running jobs go on.",
    icon="pause",
    applies=lambda rows: rows.filter(paused=False, finished_at=None),
    unfit="paused before, or ended",
    carry_out=_pause,
    form=ReasonForm,
)
RESUME = Verb(
    name="resume",
    permission="jobs.pause_work",
    label="Resume",
    done="resumed",
    explains="Its jobs may start again, unless another pause covers them.",
    icon="play_arrow",
    applies=lambda rows: rows.filter(paused=True),
    unfit="not paused",
    carry_out=_resume,
    form=ResumeBatchForm,
)
CANCEL = Verb(
    name="cancel",
    permission="jobs.cancel_job",
    label="Cancel",
    done="cancelled in the background",
    explains="Every job that has not ended is cancelled, running ones too. This cannot be taken back.",
    icon="block",
    applies=lambda rows: rows.filter(finished_at=None),
    unfit="ended before",
    carry_out=_each(bulk.cancel_batch),
    form=ReasonForm,
    overrides=True,
    amount=_jobs_in(UNFINISHED),
)
PRIORITY = Verb(
    name="priority",
    permission="jobs.reprioritise_job",
    label="Change priority",
    done="changed in the background",
    explains="Waiting jobs get another tier. Running and ended ones are left alone.",
    icon="swap_vert",
    applies=lambda rows: rows.filter(finished_at=None),
    unfit="ended before",
    carry_out=_each(bulk.change_batch_priority),
    form=BatchPriorityForm,
    amount=_jobs_in(WAITING),
)
_failed = Job.objects.filter(status=JobState.FAILED, dead_letter__isnull=False, dead_letter__resolution=None)
RETRY_FAILED = Verb(
    name="retry-failed",
    permission="jobs.requeue_deadletter",
    label="Retry failed",
    done="gone through in the background",
    explains="Every open dead letter of the batch gets a new job with fresh retries.",
    icon="replay",
    # Begin with the jobs, which have an index on (batch, status): dead letters have no index on the batch.
    applies=lambda rows: rows.filter(Exists(_failed.filter(batch_id=OuterRef("pk")))),
    unfit="without open dead letters",
    carry_out=_each(bulk.retry_failed),
    form=BulkRequeueForm,
    amount=_open_letters,
)
GO_ON = Verb(
    name="go-on",
    permission="jobs.reschedule_job",
    label="Go on all the same",
    done="let go",
    explains="The batch waits no longer for other jobs and batches, nor for its own first jobs,"
    " however those end. Pauses and budgets count as"
    " before; jobs that wait for others by themselves still do.",
    icon="double_arrow",
    applies=lambda rows: rows.filter(
        Q(pk__in=Dependency.objects.filter(let_go=False, of_batch=True).values("owner_id"))
        | Q(guard_state=GuardState.TRIAL)
    ),
    unfit="waiting for nothing",
    carry_out=in_bulk(go_on, of_batch=True),
    form=ReasonForm,
)
