"""Filters of lists: values typed in full, and the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter, TextFilter

from .paging import as_uuid

MAX_PROJECTS_LISTED = 500  # in a drop-down; a project's own page leads to its jobs in any case


def projects_listed(chosen: str | None) -> list[str]:
    """
    Return the projects that a drop-down offers.

    Without the chosen one among them, sending the form again would take the project out of the filters, and an action
    on all that match would touch every project.
    """
    projects = list(apps.get_model("tenancy", "Project").objects.values_list("pk", flat=True)[:MAX_PROJECTS_LISTED])
    return [chosen, *projects] if chosen and chosen not in projects else projects


class Choice(DropdownFilter):
    """
    Filters by one value of the column `column` or, if that is empty, of the column named like `parameter_name`.

    Attributes:
        choices_offered: Values with their labels; a filter that reads its choices overrides `lookups`.
        conditions: For values that stand for conditions on other columns; another value then finds nothing.
    """

    column = ""
    choices_offered: Sequence[tuple[Any, Any]] = ()
    conditions: Mapping[str, Mapping[str, Any]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        return list(self.choices_offered)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if not chosen:
            return queryset
        if self.conditions:
            return queryset.filter(**self.conditions[chosen]) if chosen in self.conditions else queryset.none()
        try:
            return queryset.filter(**{self.column or self.parameter_name: chosen})
        except ValidationError as error:  # the value does not fit the column's type
            raise IncorrectLookupParameters(error) from error


class ProjectFilter(Choice):
    title = "project"
    parameter_name = "project"
    column = "project_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(key, key) for key in projects_listed(self.value())]

    def has_output(self) -> bool:
        return True


class ExactText(TextFilter):
    """A text that is typed in full: a search for a part of a text would read every row."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        given = self.value()
        return queryset.filter(**{self.parameter_name: given.strip()}) if given else queryset


class ExactId(TextFilter):
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
