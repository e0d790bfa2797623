"""Requests that no page of ours makes: answered 400, before or after the database has refused them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.core.exceptions import SuspiciousOperation, ValidationError
from django.db import DataError
from django.http import HttpRequest
from django.http.response import HttpResponseBase

logger = logging.getLogger(__name__)

# Parameters that every list of the admin reads besides its filters; `before` and `after` name pages by key.
OF_EVERY_LIST = frozenset({"q", "p", "o", "e", "all", "_popup", "_to_field", "_facets", "before", "after"})

OF_A_ROW = ("_change", "_history", "_delete")  # Django's own; verbs report a missing row themselves

MAX_TOLD_LENGTH = 100


class Unreadable(SuspiciousOperation):
    """Nobody made this request with our pages."""


class RefuseUnreadable:
    """
    A list of the admin refuses parameters that it does not offer, because Django would hand them to the database as
    lookups of any field. A value that the database cannot read is answered 400, too: it is an error of the request,
    not of ours.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, _: Any, parts: dict[str, Any]) -> HttpResponseBase | None:
        screen, place = getattr(view, "model_admin", None), request.resolver_match
        if screen is None or place is None:
            return None
        name = str(place.url_name)
        if name.endswith(OF_A_ROW) and "object_id" in parts and not _is_key(screen, parts["object_id"]):
            leads_back: HttpResponseBase = screen._get_obj_does_not_exist_redirect(  # noqa: SLF001 (as of a missing row)
                request, screen.opts, parts["object_id"][:MAX_TOLD_LENGTH]
            )
            return leads_back
        if name.endswith("_changelist"):
            unknown = set(request.GET) - set(_known_to(screen, request)) - OF_EVERY_LIST
            if unknown:
                raise Unreadable(f"not parameters of this list: {', '.join(sorted(unknown))[:MAX_TOLD_LENGTH]}")
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        if isinstance(error, (DataError, IncorrectLookupParameters)):
            logger.warning("The database could not read what came with %s %s: %s", request.method, request.path, error)
            raise Unreadable("data") from error


def _is_key(screen: ModelAdmin[Any], text: str) -> bool:
    try:
        screen.opts.pk.to_python(unquote(text))
    except (ValidationError, ValueError):
        return False
    return True


def _known_to(screen: ModelAdmin[Any], request: HttpRequest) -> Iterator[str]:
    """The parameters of a list's filters."""
    for one in screen.get_list_filter(request):
        if isinstance(one, tuple):
            yield from (f"{one[0]}_{end}_{part}" for end in ("from", "to") for part in (0, 1))
        elif isinstance(one, str):
            yield from (f"{one}{lookup}" for lookup in ("", "__exact", "__isnull", "__id__exact"))
        else:
            yield str(one.parameter_name)  # type: ignore[union-attr]
