"""What the big lists can be narrowed by."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from queueops.screens.filters import ExactId, ExactText
from unfold.contrib.filters.admin import DropdownFilter

from jobs.handlers.registry import all_handlers
from jobs.states import JobState, Priority


class StateFilter(DropdownFilter):  # type: ignore[misc]  # unfold has no types
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(JobState.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class KindFilter(DropdownFilter):  # type: ignore[misc]
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        known = [handler.kind for handler in all_handlers()]
        given = request.GET.get(self.parameter_name)
        return [(kind, kind) for kind in (known if not given or given in known else [*known, given])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class PriorityFilter(DropdownFilter):  # type: ignore[misc]
    title = "priority"
    parameter_name = "priority"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(Priority.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(priority=self.value()) if self.value() else queryset


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
