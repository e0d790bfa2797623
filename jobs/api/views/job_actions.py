"""Actions on jobs: each for one job, and for many by their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.errors import WrongState
from jobs.features.dependencies.dependants import go_on
from jobs.models import DeadLetter, Job
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs, change_priority, reset_to_pending, schedule_jobs
from jobs.services.submit.results import BulkResult, distinct_ids
from jobs.states import JobState
from queueops.rest.schema import operation

from .base import CANCEL, REPRIORITISE, REQUEUE, RESCHEDULE, ApiView

DEFAULT_CANCEL_REASON = "cancelled through the API"

Action = Callable[[list[UUID]], BulkResult]


class JobAction(ApiView):
    """Acts on the job of the address; 409 when its state does not allow it."""

    def act_on_one(self, pk: UUID, action: Action) -> Response:
        self.own(Job.objects.only("id"), pk)

        def effect() -> tuple[int, dict[str, Any]]:
            result = action([pk])
            state = Job.objects.values_list("status", flat=True).get(pk=pk)
            if not result.moved:
                raise WrongState(f"The job is {JobState(state).label.lower()}; this does not apply.", state=state)
            return 200, {"id": str(pk), "state": state}

        return self.answer(effect)


class RowsAction(ApiView):
    """Acts on up to 10,000 rows; ids of another project are reported like unknown ones."""

    rows: ClassVar[QuerySet[Any]] = Job.objects.all()

    def own_ids(self, ids: list[UUID]) -> list[UUID]:
        own = set(self.own_rows(self.rows.filter(pk__in=ids)).values_list("pk", flat=True))
        return [row_id for row_id in ids if row_id in own]

    def act_on_many(self, ids: list[UUID], action: Action) -> Response:
        asked = distinct_ids(ids)

        def effect() -> tuple[int, dict[str, Any]]:
            moved = set(action(self.own_ids(asked)).moved)
            return 200, {
                "moved": [str(row_id) for row_id in asked if row_id in moved],
                "unmoved": [str(row_id) for row_id in asked if row_id not in moved],
            }

        return self.answer(effect)


def cancelling(view: ApiView, given: inputs.WithReason) -> Action:
    reason = given.reason or DEFAULT_CANCEL_REASON
    return lambda ids: cancel_jobs(ids, actor=view.caller.actor, reason=reason)


def scheduling(view: ApiView, given: inputs.Reschedule) -> Action:
    delay = timedelta(seconds=given.delay_seconds)
    return lambda ids: schedule_jobs(ids, delay=delay, actor=view.caller.actor, reason=given.reason)


def resetting(view: ApiView, given: inputs.Reset) -> Action:
    delay = None if given.delay_seconds is None else timedelta(seconds=given.delay_seconds)
    return lambda ids: reset_to_pending(ids, delay=delay, actor=view.caller.actor, reason=given.reason)


def reprioritising(view: ApiView, given: inputs.ChangePriority) -> Action:
    return lambda ids: change_priority(ids, priority=given.priority, actor=view.caller.actor, reason=given.reason)


def one(summary: str, name: str, body: Any, body_example: Any) -> Callable[[Any], Any]:
    """Describe an action on one job."""
    return operation(
        summary,
        operation_id=f"jobs_{name}",
        body=body,
        body_example=body_example,
        answer=answers.JobMoved,
        example={"id": examples.JOB_ID, "state": "cancelled" if name == "cancel" else "queued"},
        errors=[409],
        answers_once=True,
    )


def many(summary: str, name: str, body: Any, body_example: Any, *, errors: Sequence[int] = ()) -> Callable[[Any], Any]:
    """Describe an action on many jobs."""
    return operation(
        summary,
        operation_id=f"jobs_{name}_many",
        body=body,
        body_example={"ids": [examples.JOB_ID, examples.NEW_JOB_ID], **body_example},
        answer=answers.Moved,
        example=examples.MOVED,
        errors=errors,
        answers_once=True,
        description=f"{summary}. All or none of them at once; answers which ones moved.",
    )


class CancelJob(JobAction):
    needs: ClassVar = {"POST": CANCEL}
    for_users = True

    @one("Cancel a job that has not ended", "cancel", inputs.WithReason, {"reason": "not needed any more"})
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        return self.act_on_one(pk, cancelling(self, body))


class GoOnJob(JobAction):
    needs: ClassVar = {"POST": RESCHEDULE}

    @one("Let a job go on that waits for others", "go_on", inputs.WithReason, {"reason": "the report may be partial"})
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        return self.act_on_one(pk, lambda ids: go_on(ids, of_batch=False, actor=self.caller.actor, reason=body.reason))


class ScheduleJob(JobAction):
    needs: ClassVar = {"POST": RESCHEDULE}

    @one("Let a waiting job run later, or now", "schedule", inputs.Reschedule, {"delay_seconds": 3600})
    def post(self, request: Request, pk: UUID, body: inputs.Reschedule) -> Response:
        return self.act_on_one(pk, scheduling(self, body))


class ResetJob(JobAction):
    needs: ClassVar = {"POST": RESCHEDULE}

    @one("Take a running job back and run it again", "reset", inputs.Reset, {"reason": "hangs"})
    def post(self, request: Request, pk: UUID, body: inputs.Reset) -> Response:
        return self.act_on_one(pk, resetting(self, body))


class ChangeJobPriority(JobAction):
    needs: ClassVar = {"POST": REPRIORITISE}

    @one("Change the priority of a waiting job", "priority", inputs.ChangePriority, {"priority": "urgent"})
    def post(self, request: Request, pk: UUID, body: inputs.ChangePriority) -> Response:
        return self.act_on_one(pk, reprioritising(self, body))


class RetryJob(ApiView):
    needs: ClassVar = {"POST": REQUEUE}

    @operation(
        "Retry a failed job",
        operation_id="jobs_retry",
        body=inputs.Requeue,
        body_example={"note": "the table exists now"},
        answer=answers.RequeuedOne,
        status=201,
        example=examples.REQUEUED_ONE,
        errors=[409],
        answers_once=True,
        description="Requeues its dead letter: a new job with the same effect key and a fresh budget.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.Requeue) -> Response:
        job = self.own(Job.objects.only("id", "status"), pk)

        def effect() -> tuple[int, dict[str, Any]]:
            letter = DeadLetter.objects.of_project(self.caller.project_id).filter(job_id=job.pk).first()
            if letter is None:
                raise WrongState("The job has no dead letter; only failed jobs are retried.", state=job.status)
            return requeue_one(self, letter, body)

        return self.answer(effect)


def requeue_one(view: ApiView, letter: DeadLetter, given: inputs.Requeue) -> tuple[int, dict[str, Any]]:
    """
    Requeue one dead letter.

    Raises:
        WrongState: It was requeued or discarded before.
    """
    result = requeue_dead_letters([letter.pk], actor=view.caller.actor, **given.model_dump())
    new_job_id = result.moved.get(letter.pk)
    if new_job_id is None:
        raise WrongState(
            "It was requeued or discarded before, or its kind has no handler any more.",
            state=DeadLetter.objects.values_list("resolution", flat=True).get(pk=letter.pk),
        )
    return 201, {"id": str(new_job_id), "origin": str(letter.job_id), "url": f"/api/v1/jobs/{new_job_id}/"}


class CancelJobs(RowsAction):
    needs: ClassVar = {"POST": CANCEL}
    for_users = True

    @many("Cancel jobs", "cancel", inputs.CancelMany, {"reason": "not needed any more"})
    def post(self, request: Request, body: inputs.CancelMany) -> Response:
        return self.act_on_many(body.ids, cancelling(self, body))


class ScheduleJobs(RowsAction):
    needs: ClassVar = {"POST": RESCHEDULE}

    @many("Let waiting jobs run later, or now", "schedule", inputs.RescheduleMany, {"delay_seconds": 0}, errors=[409])
    def post(self, request: Request, body: inputs.RescheduleMany) -> Response:
        return self.act_on_many(body.ids, scheduling(self, body))


class ResetJobs(RowsAction):
    needs: ClassVar = {"POST": RESCHEDULE}

    @many("Take running jobs back and run them again", "reset", inputs.ResetMany, {"delay_seconds": 60}, errors=[409])
    def post(self, request: Request, body: inputs.ResetMany) -> Response:
        return self.act_on_many(body.ids, resetting(self, body))


class ChangeJobsPriority(RowsAction):
    needs: ClassVar = {"POST": REPRIORITISE}

    @many("Change the priority of waiting jobs", "priority", inputs.ChangePriorityMany, {"priority": "low"})
    def post(self, request: Request, body: inputs.ChangePriorityMany) -> Response:
        return self.act_on_many(body.ids, reprioritising(self, body))
