"""The filters of lists. Unknown, empty and repeated parameters are refused: if ignored, each would widen the list."""

from __future__ import annotations

from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django_filters.fields import BaseCSVField
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework.request import Request

from queueops.core.values import moments
from queueops.core.values.tags import entered_tags

from .errors import InvalidQuery
from .pagination import NewestFirst


class StrictFilterBackend(DjangoFilterBackend):
    """Refuses unknown filters: a misspelt one must not return every row."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        filterset = self.get_filterset(request, queryset, view)
        known = {"project", *NewestFirst.parameters, *(filterset.filters if filterset else ())}
        refuse_unknown(request, known)
        if filterset is None:
            return queryset
        if not filterset.is_valid():
            raise InvalidQuery(fields=_worded(filterset.form))
        found: QuerySet[Any] = filterset.qs
        return found


def _worded(form: forms.Form) -> dict[str, list[str]]:
    """Word the errors of a form; Django's own words for a wrong choice do not say which there are."""
    fields: dict[str, Any] = dict(form.fields)
    return {
        name: [
            f"{error.params['value']!r} is none of {', '.join(str(key) for key, _ in fields[name].choices if key)}"
            if error.code == "invalid_choice" and error.params
            else str(error.messages[0])
            for error in errors
        ]
        for name, errors in form.errors.as_data().items()
    }


def refuse_unknown(request: Request, known: set[str]) -> None:
    """
    Raises:
        InvalidQuery: A query parameter is unknown, given twice, empty, or holds a NUL character.
    """
    fields: dict[str, list[str]] = {}
    for name, values in request.query_params.lists():
        if name not in known:
            fields[name] = [f"unknown; known are {', '.join(sorted(known))}"]
        elif len(values) > 1:
            fields[name] = ["given more than once; where it takes several values, separate them by commas"]
        elif "\0" in values[0]:
            fields[name] = ["NUL characters are not allowed"]
        elif not values[0].strip():
            fields[name] = ["empty; leave it out, or say what to look for"]
    if fields:
        raise InvalidQuery(fields=fields)


class FilterSet(django_filters.FilterSet):
    """The base of every list's filters."""


class _ChoicesField(BaseCSVField):
    def clean(self, value: Any) -> Any:
        if value is not None and not all(value):
            raise forms.ValidationError("empty between commas")
        return super().clean(value)


class ChoicesFilter(django_filters.BaseInFilter, django_filters.ChoiceFilter):
    """One or more of the choices, separated by commas."""

    base_field_class = _ChoicesField


class _TagsField(forms.Field):
    def to_python(self, value: Any) -> list[str]:
        return entered_tags(value)


@extend_schema_field({"type": "string"})
class TagsFilter(django_filters.Filter):
    """Tags, separated by commas; `lookup_expr` is the queryset's method that takes them."""

    field_class = _TagsField

    def filter(self, qs: Any, value: list[str]) -> Any:
        return getattr(qs, str(self.lookup_expr))(value) if value else qs


class _MomentField(forms.Field):
    def to_python(self, value: Any) -> Any:
        try:
            return moments.parse_moment(value) if value else None
        except ValueError:
            raise forms.ValidationError(moments.RULE) from None


@extend_schema_field({"type": "string", "format": "date-time", "pattern": moments.PATTERN})
class MomentFilter(django_filters.Filter):
    """A date, a time and its offset."""

    field_class = _MomentField


class _TruthField(forms.Field):
    def to_python(self, value: Any) -> Any:
        if value in (None, ""):
            return None
        if value not in ("true", "false"):
            raise forms.ValidationError("true or false")
        return value == "true"


@extend_schema_field({"type": "boolean"})
class TruthFilter(django_filters.BooleanFilter):
    """Refuses unknown values, which Django's filter takes for no filter at all."""

    field_class = _TruthField
