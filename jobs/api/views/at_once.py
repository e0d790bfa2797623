"""`At most N at once`: a project's own caps of calls in flight."""

from __future__ import annotations

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.serializers.at_once import AtOnceCapsSerializer, AtOnceSerializer
from jobs.handlers.registry import UnknownKind, find_handler
from queueops.rest.errors import InvalidInput
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.errors import OperatorsCap
from ratelimits.tuning.concurrency_caps import at_once_of, remove_at_once, set_at_once

from .base import ApiView

SEE = Need(Scope.READ, "ratelimits.view_limit")
SET = Need(Scope.LIMITS, "ratelimits.change_limit")
REMOVE = Need(Scope.LIMITS, "ratelimits.delete_limit")

TAG = "limits"


class OperatorsView(ApiView):
    def _require_operator(self) -> None:
        """
        Raises:
            OperatorsCap: Callers must not lift an operator's cap that holds them back.
        """
        if self.caller.operator is None:
            raise OperatorsCap


class AtOnceCaps(OperatorsView):
    unconfined = frozenset({"PUT"})
    needs: ClassVar = {"GET": SEE, "PUT": SET}

    @operation(
        "List how many calls of the project may be in flight at once, and how many are",
        tag=TAG,
        operation_id="at_once_list",
        answer=AtOnceCapsSerializer,
        example={"results": [examples.AT_ONCE]},
    )
    def get(self, request: Request) -> Response:
        return Response(AtOnceCapsSerializer({"results": at_once_of(self.caller.project_id)}).data)

    @operation(
        "Say how many calls of the project may be in flight at once",
        tag=TAG,
        operation_id="at_once_set",
        body=inputs.SetAtOnce,
        body_example={"at_most": 10, "kind": "http.request"},
        answer=AtOnceSerializer,
        example=examples.AT_ONCE,
        description="Of all its jobs, of a kind, to a service, for each user. The same kind, service and `each_user`"
        " name the same cap, so that it is safe to repeat, and another number changes it. It holds within a second, in"
        " every process; calls already in flight continue and are not counted. A project's key is answered 403"
        " `operators_cap`.",
    )
    def put(self, request: Request, body: inputs.SetAtOnce) -> Response:
        self._require_operator()
        figures = body.model_dump()
        if body.kind:
            figures["kind"] = _known(body.kind)
        made = set_at_once(self.caller.project_id, actor=self.caller.actor, **figures)
        caps = at_once_of(self.caller.project_id)
        return Response(AtOnceSerializer(next(cap for cap in caps if cap.limit_id == made.limit_id)).data)


class AtOnceCap(OperatorsView):
    unconfined = frozenset({"DELETE"})
    needs: ClassVar = {"DELETE": REMOVE}

    @operation(
        "Remove a cap of calls in flight",
        tag=TAG,
        operation_id="at_once_remove",
        answer=answers.DeletedInfo,
        example={"deleted": True},
        query=inputs.GivenReasonInQuery,
        description="What it held back may go at once. For operators, as setting it.",
    )
    def delete(self, request: Request, pk: int, query: inputs.GivenReasonInQuery) -> Response:
        self._require_operator()
        remove_at_once(self.caller.project_id, pk, actor=self.caller.actor, reason=query.reason)
        return Response({"deleted": True})


def _known(kind: str) -> str:
    """The name under which jobs of a kind are stored: a cap by another name would hold nothing."""
    try:
        return find_handler(kind).kind
    except UnknownKind as error:
        raise InvalidInput(fields={"kind": [error.message]}) from None
