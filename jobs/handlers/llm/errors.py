"""Errors that a language model's provider gives instead of an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from jobs.handlers.errors import (
    ANSWER_BLOCKED,
    SCHEMA_MISMATCH,
    UNTOLD,
    ProviderError,
    Used,
    asks_again,
    retry_after_of,
)
from jobs.handlers.fallback import CONTEXT_TOO_LONG, CREDIT_GONE, NO_QUOTA
from jobs.handlers.http.answers import MAX_JSON_DEPTH, error_document, excerpt_of, one_line, storable
from queueops.core.outbound.client import OutboundResponse
from ratelimits.feedback import MESSAGES, objects_of, unwrapped

from .dialect import ACCOUNT_DEACTIVATED, Dialect, ErrorWords, codes_of

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_STATUSES = range(400, 600)
_IFLOWS_QUOTA = 449
# MiniMax's own API says with these codes, under status 200, what others say with a status.
_OF_MINIMAX = {
    1001: 504,
    1002: 429,
    1004: 401,
    1008: 402,
    1026: 400,
    1027: 400,
    1039: 429,
    1041: 429,
    1042: 400,
    2045: 429,
    2049: 401,
    2056: 429,
}
_OF_ITS_SERVERS = range(2_000)  # its other codes: below, its servers failed; above, the request is wrong
# Inside a stream, a 429 has such names: OpenAI's, Anthropic's, Mistral's, Cerebras', Bedrock's, Moonshot's.
_REFUSED = re.compile(
    r"rate_limit(?:ed|_.*)?|too_many_(?:requests|tokens).*|throttling.*|(?:token|request)_quota_exceeded|engine_overloaded.*",
    re.IGNORECASE,
)
_REFUSED_WORDS = re.compile(
    r"\brate limit (?:is )?(?:reached|exceeded)|\brequest limit reached|\btoo many requests\b", re.IGNORECASE
)
# Anthropic and OpenAI say with these that their servers fail, for minutes, under status 200.
_OUTAGES = {
    "api_error": 500,
    "server_error": 500,
    "server_is_overloaded": 503,
    "service_unavailable_error": 503,
    "overloaded_error": 529,
}
# llama.cpp used to answer 500 for an input that is too long.
_TOO_LONG_STATUSES = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
    }
)


def refusal(response: OutboundResponse, *, dialect: Dialect, service: str, secrets: tuple[str, ...]) -> ProviderError:
    """Read an answer whose status is no success; its body may be JSON, an array of it, HTML or nothing."""
    error = refusal_in(error_document(response))
    excerpt = excerpt_of(response, secrets)
    push_back = dialect.push_back(response.status, response.headers, response.body)
    said = _said(error, secrets) or excerpt
    words = dialect.words
    if response.status == HTTPStatus.PAYMENT_REQUIRED or words.has_no_credit(codes_of(error), said):
        # OpenAI says this with a 429, Anthropic with a 400; no wait brings the credit back.
        return _credit_gone(service, said, status=response.status)
    if _says(error, words.no_quota):
        return _no_quota(service, said, status=response.status)
    if _says(error, words.closed):
        return _account_closed(service, said, status=response.status)
    error = unwrapped(error)  # not before: what it passes on says nothing of this account
    said = _said(error, secrets) or excerpt
    code = _failure_code(response.status, error, words)
    return ProviderError(
        _status_of_refusal(response.status, code),
        f"{service} answered {response.status}: {said}" if said else f"{service} answered {response.status}.",
        code=code,
        retry_after=retry_after_of(response, push_back),
        outcome="answered",
        details={**({} if error else {"excerpt": excerpt}), **asks_again(response)},
        push_back=push_back,
        repeat=True if _says(error, words.passing) else _repeat(code, response.status),
    )


def _failure_code(status: int, error: dict[str, Any], words: ErrorWords) -> str:
    """Return the code of a fault of the input, else the provider's own, else `http_` and the status."""
    fault = "" if status == HTTPStatus.TOO_MANY_REQUESTS else _fault_of_input(error, words)
    if fault == ANSWER_BLOCKED or (fault and status in _TOO_LONG_STATUSES):
        return fault
    return _code(error, words) or f"http_{status}"


def _fault_of_input(error: dict[str, Any], words: ErrorWords) -> str:
    """Return `context_too_long` or `answer_blocked`, where an error says so of its input; else an empty text."""
    codes = codes_of(error)
    if codes & words.too_long_codes or _says(error, words.too_long):
        return CONTEXT_TOO_LONG
    return ANSWER_BLOCKED if codes & words.blocked_codes or _says(error, words.blocked) else ""


def _says(error: dict[str, Any], phrases: Sequence[re.Pattern[str]]) -> bool:
    message = error.get("message")
    return isinstance(message, str) and any(one.search(message) for one in phrases)


def _status_of_refusal(status: int, code: str) -> int:
    """Return the status, but 400 for a 5xx of which the input is at fault: it is no outage, and not asked again."""
    at_fault = code in (CONTEXT_TOO_LONG, ANSWER_BLOCKED) and status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return HTTPStatus.BAD_REQUEST.value if at_fault else status


def _credit_gone(service: str, said: str, **details: Any) -> ProviderError:
    message = f"{service} wants to be paid: {said}" if said else f"{service} wants to be paid."
    return _final(HTTPStatus.PAYMENT_REQUIRED, message, CREDIT_GONE, details)


def _no_quota(service: str, said: str, **details: Any) -> ProviderError:
    """Return the error of a model that the account may not use, as others say with a 403: no wait helps."""
    return _final(HTTPStatus.FORBIDDEN, f"{service} has no quota for this model: {said}", NO_QUOTA, details)


def _account_closed(service: str, said: str, **details: Any) -> ProviderError:
    """Return the error of an account or key that the provider has switched off, with whatever status."""
    message = f"{service} has closed this account or key: {said}"
    return _final(HTTPStatus.FORBIDDEN, message, ACCOUNT_DEACTIVATED, details)


def _final(status: HTTPStatus, message: str, code: str, details: dict[str, Any]) -> ProviderError:
    return ProviderError(status.value, message, code=code, outcome="answered", details=details)


def error_event(
    error: dict[str, Any], *, dialect: Dialect, service: str, secrets: tuple[str, ...], used: Used = UNTOLD
) -> ProviderError:
    """Read an error that comes inside an answer that began as a success; `used`: what the answer states."""
    said = _said(error, secrets)
    has_no_credit = dialect.words.has_no_credit(codes_of(error), said)
    if has_no_credit or _status_of(error) == HTTPStatus.PAYMENT_REQUIRED:
        return _credit_gone(service, said)
    if _says(error, dialect.words.no_quota):
        return _no_quota(service, said)
    error = unwrapped(error)
    said = _said(error, secrets)
    if fault := _fault_of_input(error, dialect.words):
        broke_off = f"{service} broke off: {said}"
        return ProviderError(HTTPStatus.BAD_REQUEST.value, broke_off, code=fault, outcome="answered", used=used)
    codes, code = codes_of(error), _code(error, dialect.words) or "stream_error"
    stated = _status_of(error)
    is_refused = any(map(_REFUSED.fullmatch, codes)) or (stated is None and _says(error, (_REFUSED_WORDS,)))
    status = HTTPStatus.TOO_MANY_REQUESTS.value if is_refused else stated
    outage = max((_OUTAGES[code] for code in codes & _OUTAGES.keys()), default=None)
    push_back = None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        push_back = dialect.push_back(status, {}, json.dumps({"error": error}).encode())
    return ProviderError(
        status or outage,
        f"{service} broke off: {said}" if said else f"{service} broke off.",
        code=code,
        retry_after=push_back.retry_after if push_back else None,
        outcome="unknown" if status is None else "answered",
        push_back=push_back,
        repeat=_repeat(code),
        used=used,
    )


def _status_of(error: dict[str, Any]) -> int | None:
    """Return the HTTP status that an error states, as a number or its digits; None: it states none."""
    told = (error.get(name) for name in ("code", "status", "status_code", "http_status"))
    numbers = (int(one) if isinstance(one, str) and one.isascii() and one.isdecimal() else one for one in told)
    found = next((one for one in numbers if type(one) is int and one in _STATUSES), None)
    return HTTPStatus.TOO_MANY_REQUESTS.value if found == _IFLOWS_QUOTA else found


def malformed(service: str, what: str, *, used: Used = UNTOLD) -> ProviderError:
    """
    Return the error of a call whose answer cannot be read, so that its outcome is unknown; `used`: what it states.
    """
    return ProviderError(None, f"{service}: {what}", code="malformed_answer", outcome="unknown", used=used)


def stored(result: Any, secrets: tuple[str, ...], *, service: str, used: Used) -> Any:
    """
    Return a result as `storable` does.

    Raises:
        ProviderError: It is nested too deeply. The call is paid for, and another one would bring the same answer.
    """
    try:
        return storable(result, secrets)
    except ValueError:
        message = f"{service}: the answer is nested deeper than {MAX_JSON_DEPTH} levels"
        raise ProviderError(None, message, code="malformed_answer", outcome="answered", used=used) from None


def cut(service: str, *, used: Used = UNTOLD) -> ProviderError:
    message = f"{service}: the stream ended before the answer did"
    return ProviderError(None, message, code="stream_cut", outcome="unknown", used=used)


def error_in(parsed: Any) -> dict[str, Any]:
    """
    Return the error object of a body or an event; empty: there is none.

    A stream's error is an array of one object. vLLM and Mistral have the fields beside `"object": "error"`, a stream of
    OpenAI's Responses beside `"type": "error"`; a response that failed has them in `response`. OpenRouter puts them
    into the first choice, beside the text that came before. MiniMax's own API has a `base_resp` in every answer.
    """
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return {}
    inner = parsed.get("response")
    choices = parsed.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    nested = (one.get("error") for one in (inner, first) if isinstance(one, dict))
    error = parsed.get("error") or next(filter(None, nested), None) or _of_base_resp(parsed.get("base_resp"))
    if parsed.get("object") == "error" or (parsed.get("type") == "error" and not error):
        error = parsed
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _of_base_resp(told: Any) -> dict[str, Any]:
    """Return MiniMax's failure in the form that others have, with the status that its code stands for; empty: none."""
    code = told.get("status_code") if isinstance(told, dict) else None
    if type(code) is not int or not code:
        return {}
    status = _OF_MINIMAX.get(code, 500 if code in _OF_ITS_SERVERS else 400)
    return {"code": status, "type": f"minimax_{code}", "message": f"{told.get('status_msg') or 'failed'} ({code})"}


def refusal_in(parsed: Any) -> dict[str, Any]:
    """
    Return the error object of a refusal; empty: the body has no message.

    Cerebras, Bedrock and Cohere have the fields at the top; xAI and TGI have them beside an `error` that is a text.
    Cloudflare has a list of `errors`, and its AI gateway a list in `error`.
    """
    error = error_in(parsed)
    top = parsed[0] if isinstance(parsed, list) and parsed else parsed
    if not isinstance(top, dict) or isinstance(top.get("error"), dict) or error is top:
        return error
    listed = objects_of(top.get("error")) or objects_of(top.get("errors"))
    fields = listed[0] if listed else top
    told = (fields.get(name) for name in MESSAGES)
    message = next((text for text in told if isinstance(text, str) and text), None)
    return error if message is None else {**fields, "message": message}


def _said(error: dict[str, Any], secrets: tuple[str, ...]) -> str:
    message = error.get("message")
    return one_line(storable(message, secrets)) if isinstance(message, str) else ""


def _repeat(code: str, status: int | None = None) -> bool | None:
    """Return True if another answer may fit, though the status says that the request is at fault; see TGI's 424."""
    return True if code == SCHEMA_MISMATCH or status == HTTPStatus.FAILED_DEPENDENCY else None


def _code(error: dict[str, Any], words: ErrorWords) -> str:
    """Return `schema_mismatch`, or the provider's own name of the failure, the most exact one."""
    if codes_of(error) & words.misfit_codes:
        return SCHEMA_MISMATCH
    details = error.get("details")
    entries = details if isinstance(details, list) else []
    reasons = [entry.get("reason") for entry in entries if isinstance(entry, dict)]
    for name in (*reasons, error.get("code"), error.get("status"), error.get("type")):
        if isinstance(name, str) and _CODE.fullmatch(name):
            return name.lower()
    return ""
