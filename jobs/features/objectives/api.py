"""A project's service level objectives, and how they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.features.objectives.answers import OBJECTIVES, Objectives
from jobs.features.objectives.objectives import MAX_OBJECTIVES, ObjectiveStanding, span_words, standings_of, words_of
from jobs.models import Objective
from queueops.rest.pagination import NewestFirst
from queueops.rest.schema import operation
from queueops.rest.views import CallerListView
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

CURSOR = OpenApiParameter("cursor", str, description="`next_cursor` of the page before.")
PAGE_SIZE = OpenApiParameter("page_size", int, description=f"1 to {MAX_OBJECTIVES}, and {MAX_OBJECTIVES} if left out.")
READ_OBJECTIVES = Need(Scope.READ, "jobs.view_objective")


class ObjectivePages(NewestFirst):
    """By name, in the form of an answer that has more than the rows."""

    default_size = max_size = MAX_OBJECTIVES

    def ordered(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.order_by("name")

    def place_of(self, row: Any) -> Any:
        return row.name

    def behind(self, rows: QuerySet[Any], place: Any) -> QuerySet[Any]:
        return rows.filter(name__gt=place)

    def read(self, text: str, queryset: QuerySet[Any]) -> Any:
        return text

    def get_paginated_response(self, data: Sequence[Any]) -> Response:
        page = super().get_paginated_response(data)
        page.data = {"objectives": page.data.pop("results"), **page.data}
        return page


class ObjectiveList(CallerListView[Objective]):
    needs: ClassVar = {"GET": READ_OBJECTIVES}
    queryset = Objective.objects.none()
    pagination_class = ObjectivePages

    @operation(
        "List objectives and how they stand",
        operation_id="objectives_list",
        answer=Objectives,
        example=OBJECTIVES,
        parameters=[CURSOR, PAGE_SIZE],
        description=(
            f"Those of the project, by name, at most {MAX_OBJECTIVES} a page. A job counts when its deadline has "
            "passed. Operators make and change them in the admin."
        ),
    )
    def get(self, request: Request) -> Response:
        return self.listed(Objective.objects.filter(project_id=self.caller.project_id))

    def shown(self, page: Any) -> Any:
        standings = standings_of(page)
        return [_shown(standings[row.pk]) for row in page]


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
