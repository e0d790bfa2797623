"""
A provider's refusal because of a quota: which quota was exceeded, and when to come back.

This file has the neutral record and the forms that providers share. The file of each handler reads its provider's own
form. A provider, or a program in its place, may send anything. Nothing here raises, and every result is bounded.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queueops.core.values.retry_after import MAX_RETRY_AFTER_SECONDS, MAY_SPEAK_OF_A_QUOTA, told_delay
from ratelimits.quota_names import CallKind, CountedUnit, Scope
from ratelimits.rate_headers import StatedQuota, parse_span, read_rate_headers

MAX_ERROR_BYTES = 1_000_000
MAX_DETAILS = 50
MAX_PASSED_ON = 20_000  # characters of an error that another passes on
MAX_VIOLATIONS = 20  # in one detail, and in all details together
MAX_QUOTA_NAME = 200
MAX_CAP = 1e12

TOO_MANY_REQUESTS = 429
_FORBIDDEN, _BAD_REQUEST = 403, 400
_ENHANCE_YOUR_CALM = 420
# Codes of quotas that come back, without capital letters and what is no letter: Shopify, GitHub, Linear; AWS.
_THROTTLING = frozenset(
    {
        "throttled",
        "ratelimited",
        "throttling",
        "throttlingexception",
        "throttledexception",
        "toomanyrequestsexception",
        "provisionedthroughputexceededexception",
    }
)
# These count beside any status but 400: Google, OpenAI; Groq; Salesforce.
_QUOTA_CODES = _THROTTLING | {
    "ratelimitexceeded",
    "userratelimitexceeded",
    "dailylimitexceeded",
    "capacityexceeded",
    "requestlimitexceeded",
}
_CODE_FIELDS = ("code", "status", "type", "reason", "errorCode", "__type")
_NO_LETTER = re.compile(r"[^a-z]+")
# GitHub, Google's YouTube; Facebook's numbers of its limits.
_QUOTA_WORDS = {
    _FORBIDDEN: re.compile(
        r"rate limit exceeded|secondary rate limit|abuse detection mechanism|exceeded your (?:<[^>]{1,100}>)?quota|"
        r"^\(#(?:4|17|32|613)\) ",
        re.IGNORECASE,
    ),
    _BAD_REQUEST: re.compile(r"^\(#(?:4|17|32|613)\) "),
}
MINUTE_SECONDS = 60.0
DAY_SECONDS = 86_400.0

_NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
# Where a refusal without an error object has its words.
MESSAGES = ("message", "error", "detail", "description", "error_msg", "msg", "errors")
_WAITS = ("retry_after", "retry_after_seconds", "retry_in_seconds")  # Discord, Telegram; monday.com
_WAIT_IN_WORDS = re.compile(
    r"\b(?:(?:try(?: again)?|retry|resets?|available) (?:in|after)|wait(?: for)?) '?"
    r"(?:([0-9dhms.]{1,60}[dhms])\b|([0-9]{1,15}(?:\.[0-9]{1,40})?)'? "
    r"(millisecond|second|sec|minute|min|hour|day)s?\b)",
    re.IGNORECASE,
)
_SECONDS = {"millisecond": 0.001, "second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3_600, "day": DAY_SECONDS}
_MOMENT_IN_WORDS = re.compile(
    r"(?:resets? at:?|retry after|将在)\s{0,3}"
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.\d{1,9})?\s?(Z|UTC|[+-]\d\d:\d\d)?",
    re.IGNORECASE,
)
# Codes of Zhipu's and Z.ai's quotas, whose moments are Beijing's and have no zone.
_OF_ZHIPU = frozenset({"1308", "1310", *map(str, range(1316, 1322))})
_UNITS: tuple[CountedUnit, ...] = ("requests", "tokens")
STATED_UNITS: dict[str, CountedUnit] = {
    "tokens": "tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
}


def is_of_a_quota(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """
    Whether an answer refuses because of a quota: a 429, or another status whose answer says so.

    GitHub, Salesforce and Google's older APIs say so with a 403, AWS and Facebook with a 400, Groq with a 413 and
    a 498; see docs/reference/wire-facts.md. A 403 that names no quota means that a right is missing: no wait helps.
    """
    if status in (TOO_MANY_REQUESTS, _ENHANCE_YOUR_CALM):
        return True
    if status not in MAY_SPEAK_OF_A_QUOTA:
        return False
    if status == _FORBIDDEN and _header(headers, "x-ratelimit-remaining").strip() == "0":
        return True
    error = error_of(body)
    words = _QUOTA_WORDS.get(status)
    codes = _THROTTLING if status == _BAD_REQUEST else _QUOTA_CODES
    return has_quota_code(error, codes) or (
        words is not None and words.search(short_text(error.get("message"))) is not None
    )


def has_quota_code(error: Mapping[str, Any], codes: frozenset[str] = _QUOTA_CODES) -> bool:
    """Whether an error, or one that is nested in it, has the code of a quota that comes back."""
    extensions = error.get("extensions")
    nested = (*objects_of(error.get("errors")), *objects_of(error.get("details")), *objects_of([extensions]))
    told = (short_text(one.get(name)) for one in (error, *nested) for name in _CODE_FIELDS)
    return any(code == "429" or _NO_LETTER.sub("", code.rpartition("#")[2].lower()) in codes for code in told)


@dataclass(frozen=True, slots=True)
class Violation:
    """
    One quota that had no room. A field is empty where the provider does not say.

    Attributes:
        name: The quota's name, as the provider calls it.
        stated_cap: Its size in `unit` in `window_seconds` or, with `per_day`, a day; None where the size or its period
            is not stated.
        requested: How much the provider counted for the call itself, in `unit`, where that exceeds the whole cap.
    """

    name: str = ""
    scope: Scope = ""
    unit: CountedUnit = ""
    call_type: CallKind = ""
    per_day: bool = False
    model: str = ""
    stated_cap: float | None = None
    window_seconds: float = MINUTE_SECONDS
    requested: float | None = None


@dataclass(frozen=True, slots=True)
class PushBack:
    """
    A refusal because of a quota.

    Attributes:
        violations: Empty where nobody knows which quota it was.
        retry_after: Seconds, at most a day; it may be short even where a day's quota is used up.
    """

    violations: tuple[Violation, ...] = ()
    retry_after: float | None = None


def refusal_in_headers(headers: Mapping[str, str], retry_after: float | None) -> PushBack:
    """
    Return the quotas with nothing left as exceeded. If all have something left and only one is stated, return that
    quota.
    """
    stated = read_rate_headers(headers)
    empty = [quota for quota in stated if quota.remaining == 0] or stated * (len(stated) == 1)
    resets = [bounded_delay(quota.reset_seconds) for quota in empty if quota.reset_seconds is not None]
    told = max((reset for reset in resets if reset is not None), default=None)
    counted = [quota for quota in empty if quota.unit in _UNITS]
    return PushBack(tuple(map(stated_violation, counted)), retry_after or told)


def stated_violation(quota: StatedQuota) -> Violation:
    """
    Return the violation of a quota from headers. Its scope is the project, because the headers answer the project's
    key.
    """
    window, per_day = quota.window_seconds or MINUTE_SECONDS, quota.window_seconds == DAY_SECONDS
    size = f"{quota.capacity:,.0f} " if quota.capacity else ""
    period = f" in {quota.window_seconds:g} s" if quota.window_seconds else ""
    return Violation(
        name=short_text(quota.name) or f"{size}{quota.unit}{period}",
        scope="project",
        unit=STATED_UNITS.get(quota.unit, "requests"),
        per_day=per_day,
        stated_cap=cap_of(quota.capacity) if quota.window_seconds else None,
        window_seconds=MINUTE_SECONDS if per_day else window,
    )


def _header(headers: Mapping[str, str], name: str) -> str:
    for key, value in headers.items():
        if key.lower() == name:
            return value[:MAX_QUOTA_NAME]
    return ""


def error_of(body: bytes) -> dict[str, Any]:
    """
    Return the body's error object; empty where it has none.

    The body of a stream is an array of envelopes. Some servers put the error's fields at the top, or into a list
    `errors`; its words may be there or in a field of MESSAGES.
    """
    if len(body) > MAX_ERROR_BYTES:
        return {}
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    for envelope in items_of(parsed) or [parsed]:
        if isinstance(envelope, dict):
            error = envelope.get("error")
            return _with_details(error if isinstance(error, dict) else _error_at_top(envelope))
    return {}


def unwrapped(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error with the words of the error that OpenRouter passes on in `metadata.raw`."""
    raw, said = _raw_in(error), short_text(error.get("message"), most=MAX_PASSED_ON)
    words = _error_written_in(raw).get("message") or raw
    return {**error, "message": f"{said}: {words}"} if isinstance(words, str) and words else dict(error)


def _with_details(error: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return an error with the details of the error that it passes on as JSON in its message, as gateways do.

    OpenRouter's `metadata.raw` is of an account of its own, so that only the wait concerns us.
    """
    raw = _raw_in(error)
    inner = _error_written_in(raw or short_text(error.get("message"), most=MAX_PASSED_ON))
    details = [one for one in objects_of(inner.get("details")) if not raw or "retryDelay" in one]
    return {**error, "details": details} if details and not error.get("details") else dict(error)


def _raw_in(error: Mapping[str, Any]) -> str:
    metadata = error.get("metadata")
    return short_text(metadata.get("raw"), most=MAX_PASSED_ON) if isinstance(metadata, dict) else ""


def _error_written_in(text: str) -> dict[str, Any]:
    """Return the error object that begins with a text's first brace; empty: there is none."""
    try:
        parsed, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):
        return {}
    error = parsed.get("error", parsed)
    return error if isinstance(error, dict) else {}


def _error_at_top(envelope: dict[str, Any]) -> dict[str, Any]:
    listed = objects_of(envelope.get("error")) or objects_of(envelope.get("errors"))
    fields = {**envelope, **(listed[0] if listed else {})}
    texts = (fields.get(name) for name in MESSAGES)
    return {**fields, "message": next((text for text in texts if isinstance(text, str) and text), None)}


def objects_of(value: Any) -> list[dict[str, Any]]:
    return [one for one in items_of(value)[:MAX_DETAILS] if isinstance(one, dict)]


def items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def short_text(value: Any, *, most: int = MAX_QUOTA_NAME) -> str:
    """Return a text that can be stored: bounded, without NUL or halves of surrogate pairs."""
    if not isinstance(value, str):
        return ""
    return value[:most].replace("\0", "").encode(errors="replace").decode()


def cap_of(value: Any) -> float | None:
    """Return a stated cap, or None. Servers that do not know their cap send zero or -1."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if len(text) > MAX_QUOTA_NAME or not _NUMBER.fullmatch(text):
        return None
    cap = float(text)
    return cap if 0 < cap <= MAX_CAP else None


def told_span(value: str) -> float | None:
    """Return the seconds that `parse_span` reads, at most MAX_RETRY_AFTER_SECONDS; None for zero and for other text."""
    return bounded_delay(parse_span(value) or 0.0)


def wait_in_words(message: str) -> float | None:
    """Return the seconds of `try again in 6m0s` or `retry after 45 seconds`; None: the message names no wait."""
    found = _WAIT_IN_WORDS.search(message)
    if found is None:
        return None
    return told_span(found[1].lower()) if found[1] else bounded_delay(float(found[2]) * _SECONDS[found[3].lower()])


def wait_told(headers: Mapping[str, str], error: Mapping[str, Any], message: str) -> float | None:
    """Return the seconds that a refusal asks us to wait, in its headers, in a field of its body, or in words."""
    return told_delay(headers) or _wait_in_fields(error) or wait_in_words(message) or _moment_in_words(error, message)


def _wait_in_fields(error: Mapping[str, Any]) -> float | None:
    places = (error, *(error.get(name) for name in ("parameters", "extensions", "metadata")))
    told: Iterator[Any] = (place.get(name) for place in places if isinstance(place, dict) for name in _WAITS)
    return next((bounded_delay(one) for one in told if type(one) in (int, float)), None)


def _moment_in_words(error: Mapping[str, Any], message: str) -> float | None:
    """Return the seconds until the moment at which a message says that its quota is reset; None: it names none."""
    found = _MOMENT_IN_WORDS.search(message)
    zone = found and (found[2] or ("+08:00" if not _OF_ZHIPU.isdisjoint(_texts(error, "code", "type")) else None))
    if not found or not zone:
        return None
    try:
        until = datetime.fromisoformat(found[1] + zone.upper().replace("UTC", "Z")).timestamp()
    except (ValueError, OverflowError):
        return None
    return bounded_delay(until - time.time())


def _texts(error: Mapping[str, Any], *names: str) -> list[str]:
    return [value for name in names if isinstance(value := error.get(name), str)]


def bounded_delay(seconds: float) -> float | None:
    return min(seconds, MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) and seconds > 0 else None
