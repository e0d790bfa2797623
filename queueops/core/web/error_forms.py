"""Errors in the form of the API that was called: QueueOps's own, or that of a door's provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

OPENAI_DOOR, ANTHROPIC_DOOR = "/openai/", "/anthropic/"
DOORS = (OPENAI_DOOR, ANTHROPIC_DOOR)

OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def in_form_of(path: str, status: int, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """
    Return the status and the body of an error in the form of the API at a path.

    Args:
        body: The error, in the one shape of core/errors.py.
    """
    form = next((form for root, form in _FORMS.items() if path.startswith(root)), None)
    error = body.get("error")
    if form is None or not isinstance(error, Mapping):
        return status, dict(body)
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:  # the providers answer 400 for invalid input
        status = HTTPStatus.BAD_REQUEST.value
    return status, form(status, error)


def _openai(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """Source: docs/reference/wire-facts.md."""
    fields = error.get("fields") or {}
    default = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    told = {
        "message": _message(error),
        "type": OPENAI_TYPES.get(status, default),
        "param": next(iter(fields), None) or None,
        "code": error["code"],
    }
    return {"error": {**told, **({"details": error["details"]} if error.get("details") else {})}}


def _anthropic(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """Source: docs/reference/wire-facts.md."""
    default = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    kind = ANTHROPIC_TYPES.get(status, default)
    return {"type": "error", "error": {"type": kind, "message": _message(error), "code": error["code"]}}


def _message(error: Mapping[str, Any]) -> str:
    """Return the message and each field's errors in one text: the providers' forms have no member for fields."""
    said = [f"{name}: {one}" for name, some in (error.get("fields") or {}).items() for one in some]
    message = str(error["message"])
    if all(one.partition(": ")[2] in message for one in said):
        return message
    return f"{message} {'; '.join(said)}"


_FORMS: dict[str, Callable[[int, Mapping[str, Any]], dict[str, Any]]] = {
    OPENAI_DOOR: _openai,
    ANTHROPIC_DOOR: _anthropic,
}
