"""Lets the API's own views answer tools, so that the API's scopes, confinement, filters and errors apply to tools."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from queueops.rest.views import CallerView
from queueops.tenancy.callers.authentication import Caller

from .errors import ApiRefused


class _Known(BaseAuthentication):
    """Returns the caller that the tool's own request was authenticated as."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def authenticate(self, request: Request) -> tuple[Any, Caller]:
        return self._caller.operator or self._caller, self._caller


def ask(
    caller: Caller,
    view: type[CallerView],
    method: str = "GET",
    *,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
    **address: Any,
) -> Any:
    """
    Let a view of the API answer this caller. Return the answer's JSON as a client would read it.

    Args:
        query: Parameters; those that are None are left out.
        address: The parameters of the view's address.

    Raises:
        ApiRefused: The view answered with an error.
    """
    known: Callable[[], _Known] = lambda: _Known(caller)  # noqa: E731 - instantiated as a class would be
    # No throttle: the tool's own request was throttled already.
    answer = view.as_view(authentication_classes=[known], throttle_classes=[])
    response = answer(_request(method, query or {}, body), **address)
    told = json.loads(JSONRenderer().render(response.data))
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        raise ApiRefused(response.status_code, told)
    return told


def _request(method: str, query: Mapping[str, Any], body: Mapping[str, Any] | None) -> WSGIRequest:
    raw = b"" if body is None else json.dumps(body).encode()
    return WSGIRequest(
        {
            "REQUEST_METHOD": method,
            "PATH_INFO": "/mcp/",
            "QUERY_STRING": urlencode({name: value for name, value in query.items() if value is not None}),
            "SERVER_NAME": _own_host(),
            "SERVER_PORT": "443",
            "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(raw),
            "CONTENT_LENGTH": str(len(raw)),
            "CONTENT_TYPE": "application/json",
        }
    )


def _own_host() -> str:
    """Return one of our own hosts, for the links of lists, which nobody follows here."""
    named = next((host for host in settings.ALLOWED_HOSTS if host != "*"), "localhost")
    return named.removeprefix(".")
