"""Filters of the big lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from jobs.handlers.registry import all_handlers
from jobs.querysets import TaggedQuerySet
from jobs.states import Priority
from queueops.core.values.tags import split_tags
from queueops.screens.filters import Choice, ExactText


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
    choices_offered = Priority.choices


class ServiceFilter(ExactText):
    title = "service"
    parameter_name = "service"


class ErrorCodeFilter(ExactText):
    title = "error code"
    parameter_name = "error_code"


class FingerprintFilter(ExactText):
    title = "fingerprint"
    parameter_name = "fingerprint"


class TagFilter(ExactText):
    title = "tags (all of these)"
    parameter_name = "tags"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        given = self.value()
        return cast("TaggedQuerySet[Any]", queryset).tagged(split_tags(given)) if given else queryset


def tags_shown(screen: str, names: Iterable[str]) -> SafeString | None:
    """Return tags as links to the list of rows that have them; None: there are no tags."""
    href = reverse(f"admin:{screen}_changelist")
    links = ((href, urlencode({"tags": name}), name) for name in names)
    return format_html_join(" ", '<a class="qo-tag" href="{}?{}">{}</a>', links) or None
