"""How lists are narrowed. Parameters that are not known, or given twice, are refused."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.request import Request

from .errors import InvalidQuery
from .pagination import NewestFirst


class StrictFilterBackend(DjangoFilterBackend):  # type: ignore[misc]  # untyped package
    """A misspelt filter must not answer with everything."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        filterset = self.get_filterset(request, queryset, view)
        known = {"project", *NewestFirst.parameters, *(filterset.filters if filterset else ())}
        refuse_unknown(request, known)
        if filterset is None:
            return queryset
        if not filterset.is_valid():
            raise InvalidQuery(fields={name: list(map(str, errors)) for name, errors in filterset.errors.items()})
        found: QuerySet[Any] = filterset.qs
        return found


def refuse_unknown(request: Request, known: set[str]) -> None:
    """
    Raises:
        InvalidQuery: A query parameter is unknown, given twice, or holds a NUL character.
    """
    fields: dict[str, list[str]] = {}
    for name, values in request.query_params.lists():
        if name not in known:
            fields[name] = [f"unknown; known are {', '.join(sorted(known))}"]
        elif len(values) > 1:
            fields[name] = ["given more than once"]
        elif "\0" in values[0]:
            fields[name] = ["NUL characters are not allowed"]
    if fields:
        raise InvalidQuery(fields=fields)


class ChoicesFilter(django_filters.BaseInFilter, django_filters.ChoiceFilter):  # type: ignore[misc]
    """One or more of the choices, separated by commas."""
