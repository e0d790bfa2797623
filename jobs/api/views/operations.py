"""Operations in the background: how far they are, and stopping them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Q, QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.filters import OperationFilterSet
from jobs.api.serializers.operations import OperationSerializer
from jobs.models import BulkOperation
from jobs.services.operate.bulk_run import cancel_bulk
from queueops.rest.schema import operation
from queueops.tenancy.callers.authentication import Caller

from .base import OPERATE_BULK, READ_OPERATIONS, ApiListView, ApiView

OPERATION_RECHECK_SECONDS = 2


def operations_of(caller: Caller) -> QuerySet[BulkOperation]:
    """
    Operations within the caller's project; operations over several projects belong to none. End users see their own.
    """
    rows = BulkOperation.objects.filter(
        Q(parameters__project_id=caller.project_id) | Q(parameters__filter__project_id=caller.project_id)
    )
    return rows if caller.user_id is None else rows.filter(actor=caller.actor)


def own_operation(view: ApiView, pk: UUID) -> BulkOperation:
    """
    Raises:
        NotFound
    """
    found = operations_of(view.caller).filter(pk=pk).first()
    if found is None:
        raise NotFound
    return found


def start(view: ApiView, begin: Callable[[], BulkOperation]) -> Response:
    """Begin an operation and answer 202 with its address."""

    def effect() -> tuple[int, dict[str, Any]]:
        begun = begin()
        return 202, {
            "id": str(begun.pk),
            "status": begun.status,
            "total": begun.total,
            "url": f"/api/v1/operations/{begun.pk}/",
        }

    response = view.answer(effect)
    response["Location"] = response.data["url"]
    return response


class OperationList(ApiListView[BulkOperation]):
    needs: ClassVar = {"GET": READ_OPERATIONS}
    for_users = True
    serializer_class = OperationSerializer
    filterset_class = OperationFilterSet

    @operation(
        "List operations, newest first",
        operation_id="operations_list",
        answer=OperationSerializer(many=True),
        example=examples.OPERATION,
    )
    def get(self, request: Request) -> Response:
        return self.listed(operations_of(self.caller))


class OperationDetail(ApiView):
    needs: ClassVar = {"GET": READ_OPERATIONS}
    for_users = True

    @operation(
        "Look at an operation",
        operation_id="operations_get",
        answer=OperationSerializer,
        example=examples.OPERATION,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        found = own_operation(self, pk)
        runs = found.status == BulkOperation.Status.RUNNING
        headers = {"Retry-After": str(OPERATION_RECHECK_SECONDS)} if runs else None
        return Response(OperationSerializer(found).data, headers=headers)


class CancelOperation(ApiView):
    needs: ClassVar = {"POST": OPERATE_BULK}

    @operation(
        "Stop an operation",
        operation_id="operations_cancel",
        body=inputs.WithReason,
        body_example={"reason": "wrong filter"},
        answer=OperationSerializer,
        example={**examples.OPERATION, "status": "cancelled", "finished_at": examples.LATER},
        description="It stops after the chunk in hand; what was done stays done. An ended one is left alone.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        found = own_operation(self, pk)
        return Response(OperationSerializer(cancel_bulk(found.pk, actor=self.caller.actor, reason=body.reason)).data)


def starting(summary: str, *, operation_id: str, body: Any, body_example: Any) -> Callable[[Any], Any]:
    """Describe an action that begins an operation."""
    return operation(
        summary,
        operation_id=operation_id,
        body=body,
        body_example=body_example,
        answer=answers.Started,
        status=202,
        example=examples.STARTED,
        answers_once=True,
        description=f"{summary}, in the background: the answer names the operation to follow.",
    )
