"""A project's service level objectives, and how they stand."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.features.objectives.answers import OBJECTIVES, Objectives
from jobs.features.objectives.objectives import MAX_OBJECTIVES, ObjectiveStanding, span_words, standings_of, words_of
from jobs.models import Objective
from queueops.rest.schema import operation
from queueops.rest.views import CallerView
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

READ_OBJECTIVES = Need(Scope.READ, "jobs.view_objective")


class ObjectiveList(CallerView):
    needs: ClassVar = {"GET": READ_OBJECTIVES}

    @operation(
        "List objectives and how they stand",
        operation_id="objectives_list",
        answer=Objectives,
        example=OBJECTIVES,
        description=(
            f"Those of the project, by name, at most {MAX_OBJECTIVES}. A job counts when its deadline has passed. "
            "Operators make and change them in the admin."
        ),
    )
    def get(self, request: Request) -> Response:
        rows = list(Objective.objects.filter(project_id=self.caller.project_id).order_by("name")[:MAX_OBJECTIVES])
        standings = standings_of(rows)
        return Response({"objectives": [_shown(standings[row.pk]) for row in rows]})


def _shown(one: ObjectiveStanding) -> dict[str, Any]:
    row, share, left = one.objective, one.whole.share, one.budget_left
    stated = ("id", "name", "aim", "within_seconds", "kind", "service", "window_days", "note")
    return {
        **{name: getattr(row, name) for name in stated},
        "percent": float(row.percent),
        "words": words_of(row),
        "jobs": one.whole.due,
        "missed": one.whole.missed,
        "attained_percent": None if share is None else round(100 * share, 3),
        "budget_left_percent": None if left is None else round(100 * left, 1),
        "burn": [
            {
                "window": span_words(seconds),
                "jobs": lately.due,
                "missed": lately.missed,
                "rate": round(one.burn(seconds), 2),
            }
            for seconds, lately in one.recent.items()
        ],
    }
