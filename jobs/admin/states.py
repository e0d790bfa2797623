"""A job's state in lists and pages."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.services.operate.job_filter import held_by_outage
from jobs.services.operate.scheduled_jobs import Scheduled, scheduled
from jobs.states import OUTAGE, SCHEDULED, SHOWN, JobState
from queueops.screens import formatting
from queueops.screens.filters import Choice


class JobStateFilter(Choice):
    title = "state"
    parameter_name = "state"
    column = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(str(state), shown.words) for state, shown in SHOWN.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        state, parts = self.value(), {OUTAGE: held_by_outage(), SCHEDULED: scheduled()}
        if state in parts:
            return queryset.filter(parts[state])
        rows = super().queryset(request, queryset)
        # Leave out the jobs that people see as another state (held by an outage, scheduled), as badges and counts do.
        if state == JobState.RATE_LIMITED:
            return rows.exclude(parts[OUTAGE])
        return rows.exclude(parts[SCHEDULED]) if state == JobState.QUEUED else rows


def state_badge(state: str) -> SafeString:
    """Return the badge of a state, or of a part of a state that people see as a state of its own."""
    shown = SHOWN[state]
    return formatting.badge(shown.tone, shown.sign, shown.words)


def until_when(part: Scheduled) -> SafeString | str:
    """Say when the first and the last scheduled job may begin; empty: no job is scheduled."""
    if not part.jobs:
        return ""
    if part.first == part.last:
        return format_html("Scheduled: may begin {}.", formatting.ahead(part.last))
    return format_html(
        "Scheduled: the first may begin {}, the last {}.", formatting.ahead(part.first), formatting.ahead(part.last)
    )
