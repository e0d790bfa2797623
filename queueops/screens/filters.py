"""Filters of lists: values typed in full, and the project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter, TextFilter

from .forms import ProjectField, ProjectSearch, projects_listed
from .paging import as_uuid


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
        return [(key, key) for key in projects_listed() or ()]

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        if self.lookup_choices:
            yield from super().choices(changelist)
            return
        form = forms.Form({self.parameter_name: self.value()})
        field = ProjectField(label=f"By {self.title}", required=False, empty_label="All")
        field.widget = ProjectSearch(field, {"class": "unfold-filter-autocomplete"})
        form.fields[self.parameter_name] = field
        yield {"form": form}


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
