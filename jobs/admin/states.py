"""A job's state in lists and pages."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobs.services.operate.job_filter import held_by_outage
from jobs.states import OUTAGE, SHOWN, JobState
from queueops.screens import showing
from queueops.screens.filters import Choice


class JobStateFilter(Choice):
    title = "state"
    parameter_name = "state"
    column = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(state, SHOWN[state].words) for state in (*JobState.values, OUTAGE)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == OUTAGE:
            return queryset.filter(held_by_outage())
        if self.value() == JobState.RATE_LIMITED:  # as in badges and counts: jobs that an outage holds are apart
            return queryset.filter(status=JobState.RATE_LIMITED).exclude(held_by_outage())
        return super().queryset(request, queryset)


def state_badge(state: str) -> SafeString:
    """The badge of a state, or of `states.OUTAGE`."""
    shown = SHOWN[state]
    return showing.badge(shown.tone, shown.sign, shown.words)
