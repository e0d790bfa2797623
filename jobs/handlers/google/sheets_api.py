"""One call to the Google Sheets API, v4: the credential that it shows, and what a refusal means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import pydantic_core

from jobs.handlers.errors import ProviderError, retry_after_of, unanswered
from jobs.handlers.http.answers import error_document, excerpt_of, json_of, one_line, storable
from jobs.handlers.http.connections import shared_client
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.off_loop import off_loop
from queueops.core.outbound.client import OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import MAX_URL_CHARACTERS, OutboundRefused
from queueops.tenancy.secrets.credentials import OpenCredential

from . import auth as google_auth
from .payloads import SERVICE
from .refusals import parse_google

BASE_URL = "https://sheets.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/spreadsheets"
SHEETS_TIMEOUT_SECONDS = 175.0  # the service gives up after 180
MAX_SHEETS_ANSWER_BYTES = 10_000_000
OUTCOME_UNKNOWN = "outcome_unknown"

_STATUS_WORD = re.compile(r"[A-Z][A-Z_]{0,62}")
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,62}")


class AnswerTooLong(Exception):
    """The answer was cut off at MAX_SHEETS_ANSWER_BYTES."""


class AddressTooLong(Exception):
    """The ranges do not fit into one URL. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class SheetsRequest:
    """
    One call.

    Attributes:
        path: The URL's part after the spreadsheet's id, such as `:batchUpdate`; quoted.
        query: The parameters; a sequence is sent as one parameter for each entry.
        body: JSON-able; None: no body is sent.
        repeatable: Whether the call may be repeated after a broken connection, so that it may use a kept connection.
    """

    method: str
    spreadsheet_id: str
    path: str
    query: Mapping[str, str | Sequence[str]]
    body: Any = None
    repeatable: bool = True


async def call(credential: OpenCredential | None, request: SheetsRequest) -> dict[str, Any]:
    """
    Make one call and return its answer's object.

    Raises:
        ProviderError: The call failed. With a status of 429 the error says which quota had no room.
        AnswerTooLong: The call succeeded, but its answer has more than MAX_SHEETS_ANSWER_BYTES.
        AddressTooLong
    """
    opened = _checked(credential)
    url = f"{(opened.base_url or BASE_URL).rstrip('/')}/v4/spreadsheets/{request.spreadsheet_id}{request.path}"
    url += f"?{urlencode(request.query, doseq=True)}"
    if len(url) > MAX_URL_CHARACTERS:
        raise AddressTooLong
    response, secrets = await _send(opened, request, url)
    # A kept token may have been revoked meanwhile; a 401 means that nothing was done.
    if response.status == HTTPStatus.UNAUTHORIZED and google_auth.forget_token(opened, scope=SCOPE):
        response, secrets = await _send(opened, request, url)
    if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        raise _refusal(response, secrets)
    if response.is_truncated:
        raise AnswerTooLong
    try:
        answer = await off_loop(json_of, response.body, secrets, size=len(response.body))
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ProviderError(
            None, "Google Sheets answered with something else than JSON.", code="malformed_answer", outcome="unknown"
        )
    return answer


def for_unrepeatable(error: ProviderError) -> ProviderError:
    """
    Return what a failure means for work that may not be done twice.

    A 408 or 5xx may come after the write was applied, as may a broken connection: the outcome is unknown.
    """
    answered = error.status is not None and error.outcome == "answered"
    if error.outcome != "unknown" and not (answered and _may_hide_success(error.status or 0)):
        return error
    return ProviderError(
        error.status,
        f"{error.message} The write may have been applied.",
        code=OUTCOME_UNKNOWN,
        outcome="unknown",
        details={**error.details, "provider_code": error.code},
    )


def _may_hide_success(status: int) -> bool:
    return status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _checked(credential: OpenCredential | None) -> OpenCredential:
    if credential is None:
        raise ProviderError(None, "The job names no credential.", code="credential_missing", outcome="refused")
    if credential.service != SERVICE:
        message = f"The credential {credential.name!r} is for {credential.service}, not for {SERVICE}."
        raise ProviderError(None, message, code="credential_unusable", outcome="refused")
    return credential


async def _send(
    credential: OpenCredential, request: SheetsRequest, url: str
) -> tuple[OutboundResponse, tuple[str, ...]]:
    token = await google_auth.access_token(credential, scope=SCOPE)
    headers = {"Authorization": f"Bearer {token}"}
    body = None
    if request.body is not None:
        headers["Content-Type"] = "application/json"
        body = pydantic_core.to_json(request.body)
    try:
        response = await shared_client().send(
            request.method,
            url,
            policy=outbound_policy(),
            headers=headers,
            body=body,
            timeout_seconds=SHEETS_TIMEOUT_SECONDS,
            max_response_bytes=MAX_SHEETS_ANSWER_BYTES,
            reuse_connection=request.repeatable,
        )
    except (OutboundRefused, OutboundFailed) as error:
        raise unanswered(error) from error
    return response, (token,)


def _refusal(response: OutboundResponse, secrets: tuple[str, ...]) -> ProviderError:
    push_back = parse_google(response.status, response.headers, response.body)
    error = _error_of(response, secrets)
    message, word = error.get("message"), error.get("status")
    message = (one_line(message) if isinstance(message, str) else "") or excerpt_of(response, secrets)
    said = f": {message}" if message else "."
    details = {"status": word, "reason": _reason(error), "provider_message": message}
    return ProviderError(
        response.status,
        f"Google Sheets answered {response.status}{said}",
        code=word.lower() if isinstance(word, str) and _STATUS_WORD.fullmatch(word) else f"http_{response.status}",
        retry_after=retry_after_of(response, push_back),
        outcome="answered",
        details={name: value for name, value in details.items() if isinstance(value, str) and value},
        push_back=push_back,
    )


def _error_of(response: OutboundResponse, secrets: tuple[str, ...]) -> dict[str, Any]:
    try:
        parsed = storable(error_document(response), secrets)
    except ValueError:
        return {}
    error = parsed.get("error") if isinstance(parsed, dict) else None
    return error if isinstance(error, dict) else {}


def _reason(error: Mapping[str, Any]) -> str | None:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        reason = detail.get("reason") if isinstance(detail, dict) else None
        if isinstance(reason, str) and _REASON.fullmatch(reason):
            return reason
    return None
