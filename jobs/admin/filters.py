"""What the big lists can be narrowed by."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from jobs.handlers.registry import all_handlers
from jobs.states import Priority
from queueops.screens.filters import Choice, ExactId, ExactText


class KindFilter(Choice):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        known = [handler.kind for handler in all_handlers()]
        given = request.GET.get(self.parameter_name)
        return [(kind, kind) for kind in (known if not given or given in known else [*known, given])]


class PriorityFilter(Choice):
    title = "priority"
    parameter_name = "priority"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(Priority.choices)


class ServiceFilter(ExactText):
    title = "service"
    parameter_name = "service"


class ErrorCodeFilter(ExactText):
    title = "error code"
    parameter_name = "error_code"


class FingerprintFilter(ExactText):
    title = "fingerprint"
    parameter_name = "fingerprint"


class BatchFilter(ExactId):
    title = "batch id"
    parameter_name = "batch_id"
