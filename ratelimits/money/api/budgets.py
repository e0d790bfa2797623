"""Budgets: list them with how they stand; show, create, change and delete one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import django_filters
from rest_framework.request import Request
from rest_framework.response import Response

from queueops.rest.filtering import ChoicesFilter, FilterSet
from queueops.rest.schema import operation
from queueops.rest.views import CallerListView, CallerView
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.api.answers import Removed
from ratelimits.api.inputs import Reasoned
from ratelimits.errors import UnknownBudget
from ratelimits.models import Budget
from ratelimits.money.save_budget import change_budget, create_budget, delete_budget
from ratelimits.money.standings import standings_of

from . import examples, inputs
from .serializers import BudgetSerializer

SEE = Need(Scope.READ, "ratelimits.view_budget")
ADD = Need(Scope.LIMITS, "ratelimits.add_budget")
CHANGE = Need(Scope.LIMITS, "ratelimits.change_budget")
DELETE = Need(Scope.LIMITS, "ratelimits.delete_budget")

TAG = "money"
OPERATORS = "Of one that an operator has set, the answer to a project's key is 403 `operators_budget`."


def _by(caller: Caller, reason: str) -> dict[str, Any]:
    return {"actor": caller.actor, "reason": reason, "by_operator": caller.operator is not None}


def _shown(rows: Sequence[Budget]) -> Any:
    return BudgetSerializer(rows, many=True, context={"standings": standings_of(rows)}).data


class BudgetFilterSet(FilterSet):
    scope = ChoicesFilter(choices=Budget.Scope.choices)
    period = ChoicesFilter(choices=Budget.Period.choices)
    policy = ChoicesFilter(choices=Budget.Policy.choices)
    user_id = django_filters.UUIDFilter()
    batch_id = django_filters.UUIDFilter()

    class Meta:
        model = Budget
        fields = ("name",)


class BudgetList(CallerListView[Budget]):
    needs: ClassVar = {"GET": SEE, "POST": ADD}
    serializer_class = BudgetSerializer
    filterset_class = BudgetFilterSet

    @operation(
        "List budgets and how they stand, newest first",
        tag=TAG,
        operation_id="budgets_list",
        answer=BudgetSerializer(many=True),
        example=examples.BUDGET,
    )
    def get(self, request: Request) -> Response:
        return self.listed(Budget.objects.filter(project_id=self.caller.project_id))

    def shown(self, page: Sequence[Budget]) -> Any:
        return _shown(page)

    @operation(
        "Create a budget",
        tag=TAG,
        operation_id="budgets_create",
        body=inputs.NewBudget,
        body_example=examples.BUDGET_FIGURES,
        answer=BudgetSerializer,
        status=201,
        example=examples.BUDGET,
        description="It counts what was spent in its period already, and holds half a second later everywhere.",
    )
    def post(self, request: Request, body: inputs.NewBudget) -> Response:
        made = create_budget(self.caller.project_id, body.figures(), **_by(self.caller, body.reason))
        [shown] = _shown([Budget.objects.get(pk=made.id)])
        return Response(shown, 201, headers={"Location": f"/api/v1/budgets/{made.id}/"})


class BudgetDetail(CallerView):
    needs: ClassVar = {"GET": SEE, "PATCH": CHANGE, "DELETE": DELETE}

    @operation(
        "Look at a budget",
        tag=TAG,
        operation_id="budgets_get",
        answer=BudgetSerializer,
        example=examples.BUDGET,
    )
    def get(self, request: Request, pk: int) -> Response:
        return Response(self._one(pk))

    @operation(
        "Change a budget's name, amount, policy or note",
        tag=TAG,
        operation_id="budgets_change",
        body=inputs.ChangeBudget,
        body_example={"amount": 150_000_000, "reason": "the pilot goes on"},
        answer=BudgetSerializer,
        example=examples.BUDGET,
        description="What is left out stays as it is. Of whom it is and its periods are fixed: make another. "
        + OPERATORS,
    )
    def patch(self, request: Request, pk: int, body: inputs.ChangeBudget) -> Response:
        change_budget(pk, body.figures(), project_id=self.caller.project_id, **_by(self.caller, body.reason))
        return Response(self._one(pk))

    @operation(
        "Delete a budget",
        tag=TAG,
        operation_id="budgets_delete",
        answer=Removed,
        example={"removed": True},
        query=Reasoned,
        description="Jobs that wait for it go on. What was spent stays in the ledger. " + OPERATORS,
    )
    def delete(self, request: Request, pk: int, query: Reasoned) -> Response:
        delete_budget(pk, project_id=self.caller.project_id, **_by(self.caller, query.reason))
        return Response({"removed": True})

    def _one(self, pk: int) -> Any:
        found = Budget.objects.filter(project_id=self.caller.project_id, pk=pk).first()
        if found is None:
            raise UnknownBudget
        return _shown([found])[0]
