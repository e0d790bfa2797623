"""Schedules: jobs that a project submits again and again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, inputs
from jobs.api.filters import TimeOrderedFilterSet
from jobs.api.views.base import ApiListView, ApiView
from jobs.features.schedules import schedules
from jobs.features.schedules.examples import FIRE, NEW_SCHEDULE, NEXT_DUE, SCHEDULE
from jobs.features.schedules.inputs import ChangeSchedule, NewSchedule
from jobs.features.schedules.serializers import FireSerializer, ScheduleSerializer
from jobs.models import Schedule, ScheduleFire
from queueops.rest.filtering import ChoicesFilter, TruthFilter
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

READ_SCHEDULES = Need(Scope.READ, "jobs.view_schedule")
ADD_SCHEDULES = Need(Scope.SUBMIT, "jobs.add_schedule")
CHANGE_SCHEDULES = Need(Scope.SUBMIT, "jobs.change_schedule")
DELETE_SCHEDULES = Need(Scope.SUBMIT, "jobs.delete_schedule")
STEER_SCHEDULES = Need(Scope.SUBMIT, "jobs.steer_schedule")


class SchedulePreview(BaseModel):
    next_due: list[datetime] = Field(description="The next five, without jitter.")


class ScheduleFilterSet(TimeOrderedFilterSet):
    paused = TruthFilter()

    class Meta:
        model = Schedule
        fields = ("name",)


class FireFilterSet(TimeOrderedFilterSet):
    outcome = ChoicesFilter(choices=ScheduleFire.Outcome.choices)


def _own(view: ApiView, pk: UUID) -> Schedule:
    return view.own(Schedule.objects.all(), pk)


def _shown(row: Schedule) -> dict[str, Any]:
    context = {"last_fires": schedules.last_fires([row.pk])}
    return dict(ScheduleSerializer(row, context=context).data)


def _saved(view: ApiView, pk: UUID | None, body: NewSchedule | ChangeSchedule) -> dict[str, Any]:
    return _shown(schedules.save_schedule(pk, body.figures(), **view.audited(body.reason)))


class ScheduleList(ApiListView[Schedule]):
    needs: ClassVar = {"GET": READ_SCHEDULES, "POST": ADD_SCHEDULES}
    serializer_class = ScheduleSerializer
    filterset_class = ScheduleFilterSet

    @operation(
        "List schedules, newest first",
        operation_id="schedules_list",
        answer=ScheduleSerializer(many=True),
        example=SCHEDULE,
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(Schedule.objects.all()))

    def shown(self, page: list[Schedule]) -> Any:
        context = {"last_fires": schedules.last_fires([row.pk for row in page])}
        return ScheduleSerializer(page, many=True, context=context).data

    @operation(
        "Create a schedule",
        operation_id="schedules_create",
        body=NewSchedule,
        body_example=NEW_SCHEDULE,
        answer=ScheduleSerializer,
        status=201,
        example=SCHEDULE,
        answers_once=True,
        description="Its jobs are checked as if they were submitted, now and at each fire.",
    )
    def post(self, request: Request, body: NewSchedule) -> Response:

        return self.answer(lambda: (201, _saved(self, None, body)))


class PreviewSchedule(ApiView):
    needs: ClassVar = {"POST": READ_SCHEDULES}

    @operation(
        "See when a schedule would fire",
        operation_id="schedules_preview",
        body=NewSchedule,
        body_example=NEW_SCHEDULE,
        answer=SchedulePreview,
        example={"next_due": NEXT_DUE},
        description="Refuses what its creation would refuse, but for a name that is taken, and stores nothing.",
    )
    def post(self, request: Request, body: NewSchedule) -> Response:
        fires = schedules.preview_schedule(body.figures(), project_id=self.caller.project_id)
        return Response({"next_due": [fire.due_at for fire in fires]})


class ScheduleDetail(ApiView):
    needs: ClassVar = {"GET": READ_SCHEDULES, "PATCH": CHANGE_SCHEDULES, "DELETE": DELETE_SCHEDULES}

    @operation(
        "Look at a schedule",
        operation_id="schedules_get",
        answer=ScheduleSerializer,
        example=SCHEDULE,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        return Response(_shown(_own(self, pk)))

    @operation(
        "Change a schedule",
        operation_id="schedules_change",
        body=ChangeSchedule,
        body_example={"cron": "0 4 * * *", "reason": "the export is ready later"},
        answer=ScheduleSerializer,
        example=SCHEDULE,
        answers_once=True,
        description="A field that is left out stays as it is. Other times count from now on.",
    )
    def patch(self, request: Request, pk: UUID, body: ChangeSchedule) -> Response:
        _own(self, pk)
        return self.answer(lambda: (200, _saved(self, pk, body)))

    @operation(
        "Delete a schedule",
        operation_id="schedules_delete",
        answer=answers.DeletedInfo,
        example={"deleted": True},
        query=inputs.ReasonInQuery,
        description="What it has submitted goes on.",
    )
    def delete(self, request: Request, pk: UUID, query: inputs.ReasonInQuery) -> Response:
        _own(self, pk)
        schedules.delete_schedule(pk, **self.audited(query.reason))
        return Response({"deleted": True})


class ScheduleFires(ApiListView[ScheduleFire]):
    needs: ClassVar = {"GET": READ_SCHEDULES}
    serializer_class = FireSerializer
    filterset_class = FireFilterSet

    @operation(
        "List what came of a schedule's fires, newest first",
        operation_id="schedules_fires",
        answer=FireSerializer(many=True),
        example=FIRE,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        return self.listed(_own(self, pk).fires.all())


class _Verb(ApiView):
    """A verb of one schedule, with a reason."""

    needs: ClassVar = {"POST": STEER_SCHEDULES}

    def carry_out(
        self, verb: Callable[..., Any], pk: UUID, reason: str, show: Callable[[Any], Any] = _shown
    ) -> Response:
        _own(self, pk)
        return self.answer(lambda: (200, show(verb(pk, **self.audited(reason)))))


def _steering(summary: str, name: str, description: str) -> Callable[[Any], Any]:
    return operation(
        summary,
        operation_id=f"schedules_{name}",
        body=inputs.WithReason,
        body_example={"reason": "holidays"},
        answer=ScheduleSerializer,
        example=SCHEDULE,
        answers_once=True,
        description=description,
    )


class PauseSchedule(_Verb):
    @_steering("Pause a schedule", "pause", "It does not fire until it is resumed. What it has submitted goes on.")
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        return self.carry_out(schedules.pause_schedule, pk, body.reason)


class ResumeSchedule(_Verb):
    @_steering("Resume a schedule", "resume", "It fires from now on; nothing is made up for.")
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        return self.carry_out(schedules.resume_schedule, pk, body.reason)


class RunSchedule(_Verb):
    @operation(
        "Run a schedule now",
        operation_id="schedules_run",
        body=inputs.WithReason,
        body_example={"reason": "the export came late"},
        answer=FireSerializer,
        example={**FIRE, "asked_by": "key:qo_5f2c"},
        answers_once=True,
        errors=[413],
        description="Submits its jobs at once, also while it is paused. Its next fire stays as it is.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        return self.carry_out(
            schedules.run_schedule, pk, body.reason, show=lambda fire: dict(FireSerializer(fire).data)
        )
