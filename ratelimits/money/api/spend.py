"""A project's spend."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from queueops.rest.schema import operation
from queueops.rest.views import CallerView
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.money.reports import SpendGroup, SpendSum, grouped, spent_between, total
from ratelimits.usage.api.usage import of_user

from . import answers, examples, inputs

SEE = Need(Scope.READ, "ratelimits.view_spend")


class SpendReport(CallerView):
    for_users = True
    needs: ClassVar = {"GET": SEE}

    @operation(
        "See what was spent",
        tag="money",
        operation_id="spend_report",
        answer=answers.SpendShown,
        example=examples.SPEND,
        errors=[422],
        query=inputs.SpendAsked,
        description=(
            "Of whole days in UTC, summed by `group_by`: days in order, all else the dearest first and at most 1,000. "
            "`money` is in millionths of `currency`. `unpriced` calls had no price: what they cost is in no sum. Of "
            "`unknown` calls nobody knows what they cost, and the most that they can is counted. A user's token sees "
            "its own alone."
        ),
    )
    def get(self, request: Request, query: inputs.SpendAsked) -> Response:
        days = spent_between(query.first, query.last).filter(project_id=self.caller.project_id)
        rows = of_user(days, self.caller.user_id)
        return Response(
            {
                "currency": settings.QUEUEOPS.currency,
                "from": query.first,
                "to": query.last,
                "total": _sum(total(rows)),
                "groups": [_group(one, query.group_by) for one in grouped(rows, query.group_by)],
            }
        )


def _sum(one: SpendSum) -> dict[str, Any]:
    return {name: getattr(one, name) for name in answers.SpendSumShown.model_fields}


def _group(one: SpendGroup, by: str) -> dict[str, Any]:
    more = {"provider": one.provider, "model": one.model, "via": one.via} if by == "model" else {}
    return {"key": one.key or None, **more, **_sum(one.sum)}
