"""An operator's actions on jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse

from jobs.admin.forms import AgainForm, DelayForm, PriorityForm, RequeueForm, ResetForm
from jobs.features.dependencies.dependants import go_on
from jobs.models import DeadLetter, Dependency
from jobs.services.operate import dead_letters, job_actions
from jobs.services.operate.run_again import run_again
from jobs.services.submit.results import BulkResult
from jobs.states import RUNNING, TERMINAL, WAITING, JobState
from queueops.screens.forms import OptionalReasonForm, ReasonForm
from queueops.screens.verbs import Verb, VerbOutcome


def in_bulk(service: Callable[..., BulkResult], **fixed: Any) -> Callable[..., VerbOutcome]:
    """
    Return what carries out a verb by a service that moves many rows.

    Args:
        fixed: Arguments of the service that the verb's form does not ask for.
    """

    def carry_out(ids: Sequence[UUID], **options: Any) -> VerbOutcome:
        result = service(ids, **fixed, **options)
        return VerbOutcome(len(result.moved), len(result.unmoved))

    return carry_out


def _requeue(ids: Sequence[UUID], *, actor: str, **options: Any) -> VerbOutcome:
    letters = DeadLetter.objects.open().filter(job__in=ids).ids()
    moved = dead_letters.requeue_dead_letters(letters, actor=actor, **options).moved
    return VerbOutcome(len(moved), len(ids) - len(moved), goes_to=page_of_the_only(list(moved.values())))


def _run_again(ids: Sequence[UUID], *, actor: str, **options: Any) -> VerbOutcome:
    new = [job for job_id in ids if (job := run_again(job_id, actor=actor, **options))]
    return VerbOutcome(len(new), len(ids) - len(new), goes_to=page_of_the_only(new))


def page_of_the_only(jobs: Sequence[UUID]) -> str | None:
    """The page of the new job, if a requeue made exactly one job."""
    return reverse("admin:jobs_job_change", args=jobs) if len(jobs) == 1 else None


def _waiting(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.filter(status__in=WAITING)


CANCEL = Verb(
    name="cancel",
    permission="jobs.cancel_job",
    label="Cancel",
    done="cancelled",
    explains="Cancelled jobs never run again. A running job's handler is told at its next await; what it did at the"
    " provider until then is not undone. Jobs that have ended are left alone.",
    icon="block",
    applies=lambda rows: rows.exclude(status__in=TERMINAL),
    unfit="ended before",
    carry_out=in_bulk(job_actions.cancel_jobs),
    form=ReasonForm,
    overrides=True,
)
RUN_NOW = Verb(
    name="run-now",
    permission="jobs.reschedule_job",
    label="Run now",
    done="made due",
    explains="Waiting jobs lose their scheduled time and run as soon as their turn and the limits allow. Running and"
    " ended jobs are left alone.",
    icon="bolt",
    applies=_waiting,
    unfit="running or ended",
    carry_out=in_bulk(job_actions.schedule_jobs, delay=timedelta()),
    form=OptionalReasonForm,
)
SCHEDULE = Verb(
    name="schedule",
    permission="jobs.reschedule_job",
    label="Schedule",
    done="scheduled",
    explains="Waiting jobs do not run before the new time. Their age, and so their priority, counts on.",
    icon="event",
    applies=_waiting,
    unfit="running or ended",
    carry_out=in_bulk(job_actions.schedule_jobs),
    form=DelayForm,
)
RESET = Verb(
    name="reset",
    permission="jobs.reschedule_job",
    label="Reset to pending",
    done="taken back",
    explains="Running jobs are taken from their executors and run again. What they did at a provider until now is"
    " not undone, so its effect may happen twice.",
    icon="restart_alt",
    applies=lambda rows: rows.filter(status__in=RUNNING),
    unfit="not running",
    carry_out=in_bulk(job_actions.reset_to_pending),
    form=ResetForm,
    overrides=True,
)
PRIORITY = Verb(
    name="priority",
    permission="jobs.reprioritise_job",
    label="Change priority",
    done="changed",
    explains="Waiting jobs get another tier. Their age counts on. Jobs that have it already are left alone.",
    icon="swap_vert",
    applies=_waiting,
    unfit="running or ended",
    carry_out=in_bulk(job_actions.change_priority),
    form=PriorityForm,
)
REQUEUE = Verb(
    name="requeue",
    permission="jobs.requeue_deadletter",
    label="Requeue",
    done="requeued",
    explains="A new job with fresh retries does the work of each failed one, under the same effect key. The failed"
    " job stays as it is. Jobs whose dead letter was requeued or discarded before are left alone.",
    icon="replay",
    applies=lambda rows: rows.filter(status=JobState.FAILED, dead_letter__resolution=None, dead_letter__isnull=False),
    unfit="without an open dead letter",
    carry_out=_requeue,
    form=RequeueForm,
)
AGAIN = Verb(
    name="again",
    permission="jobs.run_again",
    label="Run again",
    done="submitted anew",
    explains="A new job of the same kind, project, user and tags, with the payload below. It has an effect key of its"
    " own: what the first one did at the provider is done once more. The first one stays as it is.",
    icon="forward_media",
    applies=lambda rows: rows.filter(status__in=TERMINAL),
    unfit="not ended yet",
    carry_out=_run_again,
    form=AgainForm,
    overrides=True,
)
GO_ON = Verb(
    name="go-on",
    permission="jobs.reschedule_job",
    label="Go on all the same",
    done="let go",
    explains="Jobs that wait for others wait for them no longer, however those end. Their own times, pauses and budgets"
    " count as before. A job whose batch waits goes on with its batch.",
    icon="double_arrow",
    applies=lambda rows: rows.filter(pk__in=Dependency.objects.filter(let_go=False, of_batch=False).values("owner_id")),
    unfit="waiting for no other work",
    carry_out=in_bulk(go_on, of_batch=False),
    form=ReasonForm,
)
