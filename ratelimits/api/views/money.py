"""What a project spent, and its budgets."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from queueops.rest.parsers import parse_query_as
from queueops.rest.schema import operation
from queueops.rest.views import CallerView
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.api import answers, examples, inputs
from ratelimits.models import Budget
from ratelimits.services.money.reports import SpendGroup, SpendSum, grouped, spent_between, total
from ratelimits.services.money.standings import BudgetStanding, standings_of

from .usage import of_user

SEE = Need(Scope.READ, "ratelimits.view_spend")
SEE_BUDGETS = Need(Scope.READ, "ratelimits.view_budget")
MOST_BUDGETS = 200


class SpendReport(CallerView):
    for_users = True
    needs: ClassVar = {"GET": SEE}
    query: ClassVar = {"GET": ("group_by", "from", "to", "project")}

    @operation(
        "See what was spent",
        tag="money",
        operation_id="spend_report",
        answer=answers.SpendShown,
        example=examples.SPEND,
        errors=[422],
        description=(
            "Of whole days in UTC, summed by `group_by`: days in order, all else the dearest first and at most 1,000. "
            "`money` is in millionths of `currency`. `unpriced` calls had no price: what they cost is in no sum. Of "
            "`unknown` calls nobody knows what they cost, and the most that they can is counted. A user's token sees "
            "its own alone."
        ),
    )
    def get(self, request: Request) -> Response:
        given = parse_query_as(inputs.SpendAsked, request.query_params.dict())
        days = spent_between(given.first, given.last).filter(project_id=self.caller.project_id)
        rows = of_user(days, self.caller.user_id)
        return Response(
            {
                "currency": settings.QUEUEOPS.currency,
                "from": given.first,
                "to": given.last,
                "total": _sum(total(rows)),
                "groups": [_group(one, given.group_by) for one in grouped(rows, given.group_by)],
            }
        )


def _sum(one: SpendSum) -> dict[str, Any]:
    return {name: getattr(one, name) for name in answers.SpendSumShown.model_fields}


def _group(one: SpendGroup, by: str) -> dict[str, Any]:
    more = {"provider": one.provider, "model": one.model, "via": one.via} if by == "model" else {}
    return {"key": one.key or None, **more, **_sum(one.sum)}


class BudgetList(CallerView):
    needs: ClassVar = {"GET": SEE_BUDGETS}

    @operation(
        "List budgets and how they stand",
        tag="money",
        operation_id="budgets_list",
        answer=answers.BudgetsShown,
        example=examples.BUDGETS,
        description=f"By name, at most {MOST_BUDGETS:,}. Operators make and change them in the admin.",
    )
    def get(self, request: Request) -> Response:
        rows = list(Budget.objects.filter(project_id=self.caller.project_id).order_by("name")[:MOST_BUDGETS])
        standings = standings_of(rows)
        return Response({"budgets": [_budget(row, standings[row.pk]) for row in rows]})


def _budget(row: Budget, now: BudgetStanding) -> dict[str, Any]:
    stated = ("id", "name", "scope", "user_id", "batch_id", "period", "time_zone", "policy", "note", "amount")
    return {
        **{name: getattr(row, name) for name in stated},
        "currency": settings.QUEUEOPS.currency,
        "key": now.key,
        "spent": now.spent,
        "held": now.held,
        "left": now.left,
        "ends_at": now.ends_at,
    }
