"""Whoever has just written sees it: for as long as a replica may lag, their pages are read from the primary."""

from __future__ import annotations

import math
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from queueops.core.postgres.replica import Reader, off_primary, on_primary

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "queueops_wrote"
SPARE_SECONDS = 2  # browsers count in whole seconds


def reader_for(request: HttpRequest) -> Reader:
    """How a page may read what it shows: off the primary, unless it acts or its visitor did just now."""
    if request.method not in SAFE_METHODS or COOKIE in request.COOKIES:
        return on_primary
    # Who they are and what they may do is the primary's word, and kept with the request from here on.
    if request.user.is_authenticated and not request.user.is_superuser:
        request.user.get_all_permissions()
    return off_primary


class RecentWrites:
    """Marks a browser whose session sent something that may write, also one that was refused or failed."""

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
