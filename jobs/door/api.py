"""Model routes by QueueOps' own API."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from pydantic import ConfigDict, Field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, inputs
from jobs.api.views.base import ApiListView, ApiView
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import as_changes
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

from . import routes
from .models import MAX_MODEL_NAME_LENGTH, ModelRoute, Protocol

READ_ROUTES = Need(Scope.READ, "door.view_modelroute")
ADD_ROUTES = Need(Scope.OPERATE, "door.add_modelroute")
CHANGE_ROUTES = Need(Scope.OPERATE, "door.change_modelroute")
DELETE_ROUTES = Need(Scope.OPERATE, "door.delete_modelroute")
EXAMPLE = {
    "id": "019383c7-d2e7-7b1a-9c54-0a4a1f0d2e13",
    "place": 0,
    "pattern": "gpt-*",
    "provider": "openai",
    "credential": "openai-main",
    "service": "",
    "created_at": "2026-11-28T09:30:00Z",
}
GIVEN = {name: EXAMPLE[name] for name in ("pattern", "provider", "credential")}


class NewModelRoute(inputs.WithReason):
    pattern: str = Field(
        min_length=1,
        max_length=MAX_MODEL_NAME_LENGTH,
        pattern=NO_NUL,
        description="A model's name; with * at its end every name that begins so.",
    )
    provider: Protocol = Field(default=Protocol.OPENAI, description="Whose protocol the server speaks.")
    credential: str = Field(
        min_length=1,
        max_length=100,
        pattern=NO_NUL,
        description="A credential, or a pool of credentials, that the project may use.",
    )
    service: str = Field(
        default="",
        max_length=64,
        pattern=NO_NUL,
        description="By which limits it goes. Empty: those of the provider's name.",
    )
    place: int = Field(
        strict=True, default=0, ge=0, le=32_767, description="The route with the lowest place that fits is taken."
    )


class ChangeModelRoute(NewModelRoute):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    pattern: str = Field(default="", min_length=1, max_length=MAX_MODEL_NAME_LENGTH, pattern=NO_NUL)
    credential: str = Field(default="", min_length=1, max_length=100, pattern=NO_NUL)


class ModelRouteSerializer(serializers.ModelSerializer[ModelRoute]):
    class Meta:
        model = ModelRoute
        fields = ("id", *routes.FIGURES, "created_at")
        read_only_fields = fields


class ModelRouteList(ApiListView[ModelRoute]):
    needs: ClassVar = {"GET": READ_ROUTES, "POST": ADD_ROUTES}
    serializer_class = ModelRouteSerializer

    @operation(
        "List model routes, newest first",
        operation_id="model_routes_list",
        answer=ModelRouteSerializer(many=True),
        example=EXAMPLE,
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(ModelRoute.objects.all()))

    @operation(
        "Create a model route",
        operation_id="model_routes_create",
        body=NewModelRoute,
        body_example=GIVEN,
        answer=ModelRouteSerializer,
        status=201,
        example=EXAMPLE,
        answers_once=True,
        description="Clients of OpenAI and Anthropic that call this model here go by it.",
    )
    def post(self, request: Request, body: NewModelRoute) -> Response:
        return self.answer(lambda: (201, saved(self, None, body.model_dump())))


class ModelRouteDetail(ApiView):
    needs: ClassVar = {"PATCH": CHANGE_ROUTES, "DELETE": DELETE_ROUTES}

    @operation(
        "Change a model route",
        operation_id="model_routes_change",
        body=ChangeModelRoute,
        body_example={"credential": "openai-second"},
        answer=ModelRouteSerializer,
        example=EXAMPLE,
        answers_once=True,
        description="A field that is left out stays as it is.",
    )
    def patch(self, request: Request, pk: UUID, body: ChangeModelRoute) -> Response:
        own = self.own(ModelRoute.objects.only("id"), pk)
        return self.answer(lambda: (200, saved(self, own.pk, body.model_dump(exclude_unset=True))))

    @operation(
        "Delete a model route",
        operation_id="model_routes_delete",
        answer=answers.DeletedInfo,
        example={"deleted": True},
        query=inputs.ReasonInQuery,
    )
    def delete(self, request: Request, pk: UUID, query: inputs.ReasonInQuery) -> Response:
        own = self.own(ModelRoute.objects.only("id"), pk)
        routes.delete_route(own.pk, **self.audited(query.reason))
        return Response({"deleted": True})


def saved(view: ApiView, pk: UUID | None, given: dict[str, Any]) -> dict[str, Any]:
    audited = view.audited(given.pop("reason", ""))
    route = routes.save_route(pk, given, **audited)
    route.refresh_from_db()
    return dict(ModelRouteSerializer(route).data)
