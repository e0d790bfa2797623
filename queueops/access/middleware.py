"""Ends sessions that are too old, too idle, or owe a second factor."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .services import sessions


class SessionLimits:
    """Middleware, after AuthenticationMiddleware. It skips requests without a session cookie."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            if sessions.stands(request.session, request.user):
                sessions.touch(request.session)
            else:
                request.session.flush()
                request.user = AnonymousUser()
        return self._get_response(request)
