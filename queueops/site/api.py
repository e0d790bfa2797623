"""The API's addresses, and the one place where errors become answers."""

from __future__ import annotations

import logging
import math
import sys
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import Resolver404, URLPattern, URLResolver, include, path, re_path, resolve
from django.views.decorators.cache import cache_page
from django.views.decorators.csrf import csrf_exempt
from django.views.defaults import bad_request, page_not_found, permission_denied, server_error
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework import exceptions
from rest_framework.response import Response

from jobs.door.urls import anthropic_patterns, api_patterns, openai_patterns
from queueops.core.errors import QueueOpsError, error_body
from queueops.core.postgres.conditions import ServerCondition
from queueops.core.web.error_forms import ANTHROPIC_DOOR, DOORS, OPENAI_DOOR, in_form_of
from queueops.core.web.refusals import CHALLENGE
from ratelimits.urls import functions

logger = logging.getLogger(__name__)

ROOTS = ("/api/", "/functions/", "/mcp", "/v1/", *DOORS)
# The base_url for an official client, by the beginning of where it asks: Anthropic's adds the version by itself.
DOORS_BASES = {
    ANTHROPIC_DOOR: "/anthropic",
    "/v1/messages": "/anthropic",
    OPENAI_DOOR: "/openai/v1",
    "/v1/": "/openai/v1",
}
DATABASE_RETRY_SECONDS = 5
SCHEMA_CACHE_SECONDS = 3600  # the document costs half a second to write and changes only with the code

CODES: dict[type[exceptions.APIException], str] = {
    exceptions.NotFound: "not_found",
    exceptions.MethodNotAllowed: "method_not_allowed",
    exceptions.UnsupportedMediaType: "unsupported_media_type",
    exceptions.ParseError: "malformed_json",
    exceptions.ValidationError: "invalid_input",
}

BAD_REQUEST = error_body("bad_request", "The request is not acceptable.")
NOT_ALLOWED = error_body("permission_denied", "This is not allowed.")
NOTHING_OF_THIS_ID = "The project has nothing with this id, or it was deleted when its time was over."
NOT_FOUND = error_body("not_found", "There is nothing here.")
INTERNAL_ERROR = error_body("internal_error", "Something went wrong here. It is in the server's log.")
NOTHING_STORED = "Nothing that was not acknowledged is stored; try again."
DATABASE_UNAVAILABLE = error_body("database_unavailable", f"The database does not answer. {NOTHING_STORED}")

OUT_OF_ORDER = (OperationalError, InterfaceError)
EXPECTED: dict[type[Exception], tuple[int, dict[str, Any]]] = {
    Http404: (404, NOT_FOUND),
    PermissionDenied: (403, NOT_ALLOWED),
    SuspiciousOperation: (400, BAD_REQUEST),
}


def handle_exception(error: Exception, context: dict[str, Any]) -> Response:
    """Turn any error of a view into the one error shape of core/errors.py."""
    status, body, headers = _answer_to(error)
    request = context.get("request")
    status, body = in_form_of("" if request is None else request.path, status, body)
    return Response(body, status, headers=headers)


def _answer_to(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    if isinstance(error, QueueOpsError):
        headers = {}
        if (seconds := error.details.get("retry_after")) is not None:
            headers["Retry-After"] = str(math.ceil(seconds))
        if error.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = f'{CHALLENGE}, error="invalid_token"'  # RFC 6750, for expired tokens, too
        return error.status, error.as_dict(), headers
    if isinstance(error, exceptions.APIException):
        return _answer_to_rest_framework(error)
    if isinstance(error, OUT_OF_ORDER):
        logger.warning("The database is out of order: %s", error)
        return 503, _database_fault(error), {"Retry-After": str(DATABASE_RETRY_SECONDS)}
    if isinstance(error, DataError):  # a number, a time or a text of the request that the database cannot read
        logger.warning("The database could not read what came with the request", exc_info=error)
        return 400, BAD_REQUEST, {}
    for expected, (status, body) in EXPECTED.items():
        if isinstance(error, expected):
            return status, body, {}
    logger.error("Unhandled error", exc_info=error)
    return 500, INTERNAL_ERROR, {}


def _database_fault(error: Exception) -> dict[str, Any]:
    if isinstance(error, ServerCondition):
        return error_body(error.code, f"{error.reason[0].upper()}{error.reason[1:]}. {NOTHING_STORED}")
    return DATABASE_UNAVAILABLE


def _answer_to_rest_framework(
    error: exceptions.APIException,
) -> tuple[int, dict[str, Any], dict[str, str]]:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    wait_seconds = getattr(error, "wait", None)
    if wait_seconds is not None:
        headers["Retry-After"] = str(math.ceil(wait_seconds))
    codes = error.get_codes()
    code = CODES.get(type(error)) or (codes if isinstance(codes, str) else error.default_code)
    detail = error.detail
    message = str(detail) if isinstance(detail, str) else str(error.default_detail)
    if isinstance(error, exceptions.NotFound):
        message = NOTHING_OF_THIS_ID
    if isinstance(error, exceptions.NotAuthenticated):
        message = "Send an API key, `Authorization: Bearer qo_…`, or a user's token in the same place."
    details = {"retry_after": math.ceil(wait_seconds)} if wait_seconds is not None else None
    return error.status_code, error_body(code, message, details=details), headers


@csrf_exempt
def unknown_address(request: HttpRequest) -> HttpResponse:
    """Answer 404 for unknown addresses below ROOTS, in the API's own shape and for any method."""
    message = f"There is no address {request.path}."
    if base := next((base for root, base in DOORS_BASES.items() if request.path.startswith(root)), None):
        message += f" For an official client: base_url={request.build_absolute_uri(base)}, and a producer key."
    if not request.path.endswith("/") and _is_known(f"{request.path}/"):
        message = f"Addresses end with a slash: {request.path}/"
    return _answer(request, 404, error_body("not_found", message))


def _answer(
    request: HttpRequest, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> JsonResponse:
    status, body = in_form_of(request.path, status, body)
    return JsonResponse(body, status=status, headers=headers)


def _is_known(address: str) -> bool:
    try:
        return resolve(address).func is not unknown_address
    except Resolver404:
        return False


def answer_400(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400 for errors raised outside the views, such as a Host header that is not ours."""
    if not request.path.startswith(ROOTS):
        return bad_request(request, exception)
    return _answer(request, 400, BAD_REQUEST)


def answer_403(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not request.path.startswith(ROOTS):
        return permission_denied(request, exception)
    return _answer(request, 403, NOT_ALLOWED)


def answer_404(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not request.path.startswith(ROOTS):
        return page_not_found(request, exception)
    return _answer(request, 404, NOT_FOUND)


def answer_500(request: HttpRequest) -> HttpResponse:
    error = sys.exc_info()[1]  # Django calls this function while it handles the exception
    if isinstance(error, OUT_OF_ORDER):
        return _answer_503(request, _database_fault(error))
    if not request.path.startswith(ROOTS):
        return server_error(request)
    return _answer(request, 500, INTERNAL_ERROR)


def _answer_503(request: HttpRequest, body: dict[str, Any]) -> HttpResponse:
    headers = {"Retry-After": str(DATABASE_RETRY_SECONDS)}
    if request.path.startswith(ROOTS):
        return _answer(request, 503, body, headers)
    return HttpResponse(body["error"]["message"], status=503, content_type="text/plain", headers=headers)


# Only GET and HEAD: the page's template cannot answer OPTIONS.
API_PAGE = SpectacularSwaggerSplitView.as_view(
    url_name="schema", http_method_names=["get", "head"], template_name="api/docs.html"
)

version_1: list[URLPattern | URLResolver] = [
    path("", include("jobs.api.urls")),
    path("", include(api_patterns)),
    path("", include("ratelimits.urls")),
    path("schema/", cache_page(SCHEMA_CACHE_SECONDS)(SpectacularAPIView.as_view()), name="schema"),
    path("docs/", API_PAGE, name="api-docs"),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", include([path("v1/", include(version_1)), re_path(r"", unknown_address)])),
    path("functions/", include([*functions, re_path(r"", unknown_address)])),
    path("openai/", include([path("v1/", include(openai_patterns)), re_path(r"", unknown_address)])),
    re_path(r"^anthropic/v1/v1/", unknown_address),
    path("anthropic/", include([path("v1/", include(anthropic_patterns)), re_path(r"", unknown_address)])),
    path("v1/", include([re_path(r"", unknown_address)])),
]
