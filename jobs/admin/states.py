"""A job's state in lists and pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobs.states import SHOWN, JobState
from queueops.screens import showing
from queueops.screens.filters import Choice


class JobStateFilter(Choice):
    title = "state"
    parameter_name = "state"
    column = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(state.value, SHOWN[state].words) for state in JobState]


def state_badge(state: str) -> SafeString:
    """The badge of a state, or of `states.OUTAGE`."""
    shown = SHOWN[state]
    return showing.badge(shown.tone, shown.sign, shown.words)
