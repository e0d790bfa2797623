"""Maintenance windows: pauses of the project by calendar."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Q, QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, inputs
from jobs.api.filters import TimeOrderedFilterSet
from jobs.api.views.base import ApiListView, ApiView
from jobs.features.windows import windows
from jobs.features.windows.examples import NEW_WINDOW, WINDOW
from jobs.features.windows.inputs import ChangeWindow, NewWindow
from jobs.features.windows.serializers import WindowSerializer
from jobs.models import MaintenanceWindow
from queueops.rest.filtering import ChoicesFilter
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

READ_WINDOWS = Need(Scope.READ, "jobs.view_maintenancewindow")
ADD_WINDOWS = Need(Scope.OPERATE, "jobs.add_maintenancewindow")
CHANGE_WINDOWS = Need(Scope.OPERATE, "jobs.change_maintenancewindow")
DELETE_WINDOWS = Need(Scope.OPERATE, "jobs.delete_maintenancewindow")


class WindowFilterSet(TimeOrderedFilterSet):
    scope = ChoicesFilter(choices=MaintenanceWindow.Scope.choices)


def _seen(view: ApiView) -> QuerySet[MaintenanceWindow]:
    """The project's windows, and windows that hold work of other projects, too."""
    return MaintenanceWindow.objects.filter(~Q(scope=MaintenanceWindow.Scope.PROJECT) | Q(key=view.caller.project_id))


def _shown(window: MaintenanceWindow) -> dict[str, Any]:
    return dict(WindowSerializer(window).data)


def _own(view: ApiView, pk: UUID) -> MaintenanceWindow:
    """
    Raises:
        NotFound: Also for a window that holds work of other projects: operators change it in the admin.
    """
    window = MaintenanceWindow.objects.filter(
        pk=pk, scope=MaintenanceWindow.Scope.PROJECT, key=view.caller.project_id
    ).first()
    if window is None:
        raise NotFound
    return window


class WindowList(ApiListView[MaintenanceWindow]):
    needs: ClassVar = {"GET": READ_WINDOWS, "POST": ADD_WINDOWS}
    serializer_class = WindowSerializer
    filterset_class = WindowFilterSet

    @operation(
        "List maintenance windows, newest first",
        operation_id="maintenance_list",
        answer=WindowSerializer(many=True),
        example=WINDOW,
        description="Those of the project, and those of services, kinds and everything, which hold its work as well.",
    )
    def get(self, request: Request) -> Response:
        return self.listed(_seen(self))

    @operation(
        "Create a maintenance window",
        operation_id="maintenance_create",
        body=NewWindow,
        body_example=NEW_WINDOW,
        answer=WindowSerializer,
        status=201,
        example=WINDOW,
        answers_once=True,
        description="Of the whole project: once, with `begins_at` and `ends_at`, or weekly, with `weekdays`, `since` "
        "and `until`. Nothing of the project starts while it is open; running jobs go on.",
    )
    def post(self, request: Request, body: NewWindow) -> Response:
        figures = {**body.model_dump(), "scope": MaintenanceWindow.Scope.PROJECT, "key": self.caller.project_id}
        return self.answer(lambda: (201, _shown(windows.save_window(None, figures, actor=self.caller.actor))))


class WindowDetail(ApiView):
    needs: ClassVar = {"GET": READ_WINDOWS, "PATCH": CHANGE_WINDOWS, "DELETE": DELETE_WINDOWS}

    @operation(
        "Look at a maintenance window",
        operation_id="maintenance_get",
        answer=WindowSerializer,
        example=WINDOW,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        window = _seen(self).filter(pk=pk).first()
        if window is None:
            raise NotFound
        return Response(_shown(window))

    @operation(
        "Change a maintenance window",
        operation_id="maintenance_change",
        body=ChangeWindow,
        body_example={"until": "03:00", "reason": "it takes longer"},
        answer=WindowSerializer,
        example=WINDOW,
        answers_once=True,
        description="One of the project's own. A field that is left out stays as it is. One that is open ends or goes"
        " on by its new times within a second; one that is over can be given new times. From once to weekly and back:"
        " what does not belong to it any more is set to null, the weekdays to `[]`.",
    )
    def patch(self, request: Request, pk: UUID, body: ChangeWindow) -> Response:
        window, actor = _own(self, pk), self.caller.actor
        return self.answer(lambda: (200, _shown(windows.save_window(window.pk, body.figures(), actor=actor))))

    @operation(
        "Delete a maintenance window",
        operation_id="maintenance_delete",
        answer=answers.DeletedInfo,
        example={"deleted": True},
        query=inputs.ReasonInQuery,
        description="One of the project's own. What it holds may start again, unless something else holds it.",
    )
    def delete(self, request: Request, pk: UUID, query: inputs.ReasonInQuery) -> Response:
        windows.delete_window(_own(self, pk).pk, actor=self.caller.actor, reason=query.reason)
        return Response({"deleted": True})


class EndWindow(ApiView):
    needs: ClassVar = {"POST": CHANGE_WINDOWS}

    @operation(
        "End a maintenance window that is open",
        operation_id="maintenance_end",
        body=inputs.WithReason,
        body_example={"reason": "done early"},
        answer=WindowSerializer,
        example=WINDOW,
        answers_once=True,
        description="One of the project's own. A weekly one comes again; one that is not open stays as it is.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        window, actor = _own(self, pk), self.caller.actor
        return self.answer(lambda: (200, _shown(windows.end_window(window.pk, actor=actor, reason=body.reason))))
