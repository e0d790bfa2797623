"""What the big lists can be narrowed by."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter, TextFilter

from jobs.handlers.registry import all_handlers
from jobs.states import JobState, Priority
from queueops.tenancy.models import Project

from .paging import as_uuid

MOST_PROJECTS = 500  # of a drop-down; beyond them a project's own page leads to its jobs


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


class ProjectFilter(DropdownFilter):  # type: ignore[misc]
    title = "project"
    parameter_name = "project"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(key, key) for key in Project.objects.values_list("pk", flat=True)[:MOST_PROJECTS]]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(project_id=self.value()) if self.value() else queryset


class ExactText(TextFilter):  # type: ignore[misc]
    """Typed in full: a part of a text would have to be looked for in every row."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        given = self.value()
        return queryset.filter(**{self.parameter_name: given.strip()}) if given else queryset


class ServiceFilter(ExactText):
    title = "service"
    parameter_name = "service"


class ErrorCodeFilter(ExactText):
    title = "error code"
    parameter_name = "error_code"


class FingerprintFilter(ExactText):
    title = "fingerprint"
    parameter_name = "fingerprint"


class ExactId(TextFilter):  # type: ignore[misc]
    """An id in full; anything else finds nothing."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        given = self.value()
        if not given:
            return queryset
        identifier: UUID | None = as_uuid(given)
        return queryset.filter(**{self.parameter_name: identifier}) if identifier else queryset.none()


class UserFilter(ExactId):
    title = "user id"
    parameter_name = "user_id"


class BatchFilter(ExactId):
    title = "batch id"
    parameter_name = "batch_id"
