"""People see their own writes at once: while a replica may lag, their pages are read from the primary."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse

from queueops.core.postgres.replica import RowReader, off_primary, on_primary

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "queueops_wrote"
SPARE_SECONDS = 2  # browsers count in whole seconds

Given = ParamSpec("Given")


def reader_for(request: HttpRequest) -> RowReader:
    """Return `on_primary` for a request that may write or whose visitor just did, else `off_primary`."""
    if request.method not in SAFE_METHODS or COOKIE in request.COOKIES:
        return on_primary
    # Read the user and the permissions from the primary now; the request caches them.
    if request.user.is_authenticated and not request.user.is_superuser:
        request.user.get_all_permissions()
    return off_primary


def may_lag(view: Callable[Concatenate[Any, HttpRequest, Given], HttpResponse]) -> Any:
    """Decorate a view of a screen: its page's rows are read by the reader that `reader_for` returns."""

    @functools.wraps(view)
    def reading(screen: Any, request: HttpRequest, *args: Given.args, **kwargs: Given.kwargs) -> HttpResponse:
        def answered() -> HttpResponse:
            response = view(screen, request, *args, **kwargs)
            # Rendered here: otherwise its rows would be read while the answer is sent, from the primary.
            return response.render() if isinstance(response, SimpleTemplateResponse) else response

        return reader_for(request)(answered)

    return reading


class RecentWrites:
    """Sets a cookie after each request that has a session and may write, even if the request was refused or failed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if not settings.QUEUEOPS.replica_url:
            raise MiddlewareNotUsed
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        session = settings.SESSION_COOKIE_NAME
        if request.method not in SAFE_METHODS and (session in request.COOKIES or session in response.cookies):
            response.set_cookie(
                COOKIE,
                "1",
                max_age=math.ceil(settings.QUEUEOPS.replica_max_lag_seconds) + SPARE_SECONDS,
                secure=settings.SESSION_COOKIE_SECURE,
                httponly=True,
                samesite="Lax",
            )
        return response
