"""Allowances: look at the project's, create, change and delete it."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from queueops.rest.schema import operation
from queueops.rest.views import CallerListView, CallerView
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.api.answers import Removed
from ratelimits.api.inputs import Reasoned
from ratelimits.errors import NoAllowance
from ratelimits.models import Allowance
from ratelimits.usage.allowances import SavedAllowance, change_allowance, create_allowance, delete_allowance

from . import examples, inputs
from .serializers import AllowanceSerializer, SavedAllowanceSerializer

SEE = Need(Scope.READ, "ratelimits.view_allowance")
ADD = Need(Scope.LIMITS, "ratelimits.add_allowance")
CHANGE = Need(Scope.LIMITS, "ratelimits.change_allowance")
DELETE = Need(Scope.LIMITS, "ratelimits.delete_allowance")

# A change of an allowance also changes months' quotas, which no key may write. Each write names the caller's project.
WRITES = frozenset({"POST", "PATCH", "DELETE"})
TAG = "usage"
OPERATORS = "Of one that an operator has set, the answer to a project's key is 403 `operators_allowance`."


def _by(caller: Caller, reason: str) -> dict[str, Any]:
    return {"actor": caller.actor, "reason": reason, "by_operator": caller.operator is not None}


def _find(project_id: str) -> Allowance:
    """
    Raises:
        NoAllowance
    """
    found = Allowance.objects.filter(pk=project_id).first()
    if found is None:
        raise NoAllowance
    return found


def _shown(project_id: str, saved: SavedAllowance) -> Any:
    return SavedAllowanceSerializer(_find(project_id), context={"saved": saved}).data


class AllowanceList(CallerListView[Allowance]):
    unconfined = WRITES
    needs: ClassVar = {"GET": SEE, "POST": ADD}
    serializer_class = AllowanceSerializer

    @operation(
        "List the project's allowance: one, or none",
        tag=TAG,
        operation_id="allowances_list",
        answer=AllowanceSerializer(many=True),
        example=examples.ALLOWANCE,
    )
    def get(self, request: Request) -> Response:
        return self.listed(Allowance.objects.filter(pk=self.caller.project_id))

    @operation(
        "Give the project an allowance",
        tag=TAG,
        operation_id="allowances_create",
        body=inputs.NewAllowance,
        body_example=examples.ALLOWANCE_FIGURES,
        answer=SavedAllowanceSerializer,
        status=201,
        example=examples.SAVED_ALLOWANCE,
        errors=[409],
        description="For each of its users, from now on. 409 `allowance_exists`: it has one.",
    )
    def post(self, request: Request, body: inputs.NewAllowance) -> Response:
        project = self.caller.project_id
        saved = create_allowance(project, body.figures(), **_by(self.caller, body.reason))
        return Response(_shown(project, saved), 201, headers={"Location": f"/api/v1/allowances/{project}/"})


class AllowanceDetail(CallerView):
    unconfined = WRITES
    needs: ClassVar = {"GET": SEE, "PATCH": CHANGE, "DELETE": DELETE}

    @operation(
        "Look at the project's allowance",
        tag=TAG,
        operation_id="allowances_get",
        answer=AllowanceSerializer,
        example=examples.ALLOWANCE,
    )
    def get(self, request: Request, pk: str) -> Response:
        return Response(AllowanceSerializer(_find(self._own(pk))).data)

    @operation(
        "Change the project's allowance",
        tag=TAG,
        operation_id="allowances_change",
        body=inputs.ChangeAllowance,
        body_example={"quota": 750_000, "reason": "the new plan"},
        answer=SavedAllowanceSerializer,
        example=examples.SAVED_ALLOWANCE,
        description="From the next request on, and in the current month. `warnings` say what may surprise. Another "
        "unit converts nothing. " + OPERATORS,
    )
    def patch(self, request: Request, pk: str, body: inputs.ChangeAllowance) -> Response:
        own = self._own(pk)
        return Response(_shown(own, change_allowance(own, body.figures(), **_by(self.caller, body.reason))))

    @operation(
        "Delete the project's allowance",
        tag=TAG,
        operation_id="allowances_delete",
        answer=Removed,
        example={"removed": True},
        query=Reasoned,
        errors=[409],
        description="409 `allowance_in_use`: somebody has used or reserved some of it this month; a quota of 0 ends it "
        "at once. Earlier months stay, and so do quotas of single users, for the next allowance. " + OPERATORS,
    )
    def delete(self, request: Request, pk: str, query: Reasoned) -> Response:
        delete_allowance(self._own(pk), **_by(self.caller, query.reason))
        return Response({"removed": True})

    def _own(self, project: str) -> str:
        """
        Raises:
            NoAllowance: The allowance is another project's, which the caller may not know of.
        """
        if project != self.caller.project_id:
            raise NoAllowance
        return project
