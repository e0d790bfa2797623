"""Actions on a whole batch."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.errors import WrongState
from jobs.features.dependencies.dependants import go_on
from jobs.models import Batch
from jobs.services.operate.bulk import cancel_batch, change_batch_priority, retry_failed
from jobs.services.operate.pauses import pause_batch, resume_batch, resume_batch_by_canary
from queueops.rest.schema import operation

from .base import CANCEL, PAUSE, REPRIORITISE, REQUEUE, RESCHEDULE, ApiView
from .job_actions import DEFAULT_CANCEL_REASON
from .operations import start, starting


class CancelBatch(ApiView):
    needs: ClassVar = {"POST": CANCEL}
    for_users = True

    @starting(
        "Cancel the jobs of a batch that have not ended",
        operation_id="batches_cancel",
        body=inputs.WithReason,
        body_example={"reason": "the import was wrong"},
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        reason = body.reason or DEFAULT_CANCEL_REASON
        batch = self.own(Batch.objects.only("id"), pk)
        return start(self, lambda: cancel_batch(batch.pk, actor=self.caller.actor, reason=reason))


class ChangeBatchPriority(ApiView):
    needs: ClassVar = {"POST": REPRIORITISE}

    @starting(
        "Change the priority of a batch's waiting jobs",
        operation_id="batches_priority",
        body=inputs.ChangeBatchPriorityInput,
        body_example={"priority": "low"},
    )
    def post(self, request: Request, pk: UUID, body: inputs.ChangeBatchPriorityInput) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        return start(
            self,
            lambda: change_batch_priority(batch.pk, actor=self.caller.actor, **body.figures("priority", "reason")),
        )


class RetryBatch(ApiView):
    needs: ClassVar = {"POST": REQUEUE}

    @starting(
        "Retry the failed jobs of a batch",
        operation_id="batches_retry",
        body=inputs.RequeueBatch,
        body_example={"spread_seconds": 600, "note": "the quota was raised"},
    )
    def post(self, request: Request, pk: UUID, body: inputs.RequeueBatch) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        return start(
            self,
            lambda: retry_failed(
                batch.pk, actor=self.caller.actor, **body.figures("priority", "spread_seconds", "note")
            ),
        )


class GoOnBatch(ApiView):
    needs: ClassVar = {"POST": RESCHEDULE}

    @operation(
        "Let a batch go on that waits for others",
        operation_id="batches_go_on",
        body=inputs.WithReason,
        body_example={"reason": "the report may be partial"},
        answer=answers.GoesOn,
        example={"id": examples.BATCH_ID, "goes_on": True},
        description="Also one whose first jobs are tried. One that its guard has stopped goes on by resume.",
        errors=[409],
        answers_once=True,
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)

        def effect() -> tuple[int, dict[str, Any]]:
            if not go_on([batch.pk], of_batch=True, actor=self.caller.actor, reason=body.reason).moved:
                raise WrongState("The batch waits for no other work.", state="")
            return 200, {"id": str(batch.pk), "goes_on": True}

        return self.answer(effect)


class PauseBatch(ApiView):
    needs: ClassVar = {"POST": PAUSE}

    @operation(
        "Pause a batch",
        operation_id="batches_pause",
        body=inputs.WithReason,
        body_example={"reason": "the provider has an outage"},
        answer=answers.Paused,
        example={"paused": True, "changed_jobs": 525},
        description="Running jobs go on. Safe to repeat.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        held = pause_batch(batch.pk, actor=self.caller.actor, reason=body.reason)
        return Response({"paused": True, "changed_jobs": held})


class ResumeBatch(ApiView):
    needs: ClassVar = {"POST": PAUSE}

    @operation(
        "Resume a batch",
        operation_id="batches_resume",
        body=inputs.ResumeBatchInput,
        body_example={"canary": 20},
        answer=answers.Paused,
        example={"paused": False, "changed_jobs": 20},
        description="Safe to repeat. Jobs that another pause covers stay held. With `canary` its `guard` tells how far "
        "that is: it goes on by itself, or is paused again.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.ResumeBatchInput) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        figures = body.figures("reason")
        canary, about = figures.pop("canary"), {**figures, "actor": self.caller.actor}
        if canary is None:
            released = resume_batch(batch.pk, **about)
        else:
            released = resume_batch_by_canary(batch.pk, canary=canary, **about)
        return Response({"paused": False, "changed_jobs": released})
