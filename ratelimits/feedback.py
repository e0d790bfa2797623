"""
Reading a provider's refusal: which of its quotas was exceeded, and when to come back.

A provider, or whoever answers in its place, may send anything. Nothing here raises, and every result is bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queueops.core.values.retry_after import MAX_RETRY_AFTER_SECONDS, MAY_SPEAK_OF_A_QUOTA, told_delay
from ratelimits.quota_names import CallKind, CountedUnit, QuotaName, Scope, read_quota_name, read_unit
from ratelimits.rate_headers import StatedQuota, parse_span, read_quotas, read_rate_headers, read_units

MAX_ERROR_BYTES = 1_000_000
MAX_DETAILS = 50
MAX_VIOLATIONS = 20  # of one detail, and of all
MAX_QUOTA_NAME = 200
MAX_CAP = 1e12

_TOO_MANY_REQUESTS = 429
_FORBIDDEN = 403
_QUOTA_REASONS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "rate_limit_exceeded", "capacity_exceeded"}
)
_QUOTA_WORDS = re.compile(r"rate limit exceeded|secondary rate limit", re.IGNORECASE)
MINUTE_SECONDS = 60.0
_A_DAY = 86_400.0

_GOOGLE_DURATION = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,9})?s")
_NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
_GOOGLE_MESSAGE = re.compile(r"quota metric '([^']{1,200})'(?: and limit '([^']{1,200})')?")
_GOOGLE_RETRY = re.compile(r"Please retry in ([0-9]{1,30}(?:\.[0-9]{1,9})?s)")
_OPENAI_LIMIT = re.compile(r" on ((?:requests|tokens) per (?:min|day)[^:]{0,40}):(?: Limit:? ([0-9]{1,30}))?")
_ANTHROPIC_LIMIT = re.compile(r"rate limit of ([0-9,]{1,30}) ((?:input |output |)(?:tokens|requests) per [a-z]{1,10})")
_OPENAI_REQUESTED = re.compile(r"[ ,]Requested:? ([0-9]{1,30})")
_OPENAI_RETRY = re.compile(r"Please try again in ([0-9dhms.]{1,40}[smhd])")
_OPENAI_CREDIT_GONE = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_UNITS: tuple[CountedUnit, ...] = ("requests", "tokens")
_STATED_UNITS: dict[str, CountedUnit] = {
    "tokens": "tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
}


def is_of_a_quota(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """
    Whether an answer refuses because of a quota: a 429, and others that say so.

    GitHub and Google's older APIs say it with a 403, Groq with a 413 and a 498; see docs/reference/wire-facts.md. A 403
    that says nothing of it is a right that is missing, which no wait brings.
    """
    if status == _TOO_MANY_REQUESTS:
        return True
    if status not in MAY_SPEAK_OF_A_QUOTA:
        return False
    if status == _FORBIDDEN and _header(headers, "x-ratelimit-remaining").strip() == "0":
        return True
    error = _error_of(body)
    reasons = {_text(one.get("reason")) for name in ("errors", "details") for one in _objects(error.get(name))}
    if not _QUOTA_REASONS.isdisjoint({*reasons, _text(error.get("code")), _text(error.get("status"))}):
        return True
    return status == _FORBIDDEN and _QUOTA_WORDS.search(_text(error.get("message"))) is not None


@dataclass(frozen=True, slots=True)
class Violation:
    """
    One quota that had no room; empty: the provider does not say.

    Attributes:
        name: As the provider calls it.
        stated_cap: Its size in `unit` in `window_seconds` or, with `per_day`, a day; None where the size or its period
            is not stated.
        requested: What the provider counted for the call itself, in `unit`, where that is more than the whole cap.
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
        retry_after: Seconds, at most a day; short even where a day's quota is gone.
    """

    violations: tuple[Violation, ...] = ()
    retry_after: float | None = None


def parse_refusal(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of any HTTP API: a body as Google's or OpenAI's, `RateLimit` and `x-ratelimit-*` headers,
    `Retry-After`; empty where it says nothing.

    Returns:
        None where it refuses for no quota, see `is_of_a_quota`, and for a 429 that says the credit is gone.
    """
    google = _read_google(status, headers, body)
    if google is None or google.violations:
        return google
    other = parse_openai(status, headers, body)
    return other and PushBack(other.violations, other.retry_after or google.retry_after)


def parse_google(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of a Google API: Sheets, Gemini, others with the same envelope.

    Returns:
        None where it refuses for no quota: the words RESOURCE_EXHAUSTED also come with a 402, which no wait mends.
    """
    found = _read_google(status, headers, body)
    if found is None or found.violations:
        return found
    unit = read_unit(_text(_error_of(body).get("message"), most=10_000))
    return replace(found, violations=(Violation(unit, unit=unit),)) if unit else found


def _read_google(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    if not is_of_a_quota(status, headers, body):
        return None
    error = _error_of(body)
    message = _text(error.get("message"), most=10_000)
    details = _objects(error.get("details"))
    found = list(dict.fromkeys(_google_violations(details, message)))[:MAX_VIOLATIONS]
    hints = (_google_duration(detail.get("retryDelay")) for detail in details)
    in_message = _GOOGLE_RETRY.search(message)
    retry_after = (
        told_delay(headers)
        or next((hint for hint in hints if hint is not None), None)
        or (_google_duration(in_message[1]) if in_message else None)
    )
    return PushBack(tuple(found), retry_after)


def parse_openai(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of an OpenAI-compatible server from its message and its `x-ratelimit-*` headers, or from headers that
    are common to many APIs, see `rate_headers`.

    The headers are believed where they make sense together: a limit above zero, no more left than that, a reset that
    is a time. A header's limit states no period, so it is a cap only where all of it is back within a minute.

    Returns:
        None where it refuses for no quota, and for a 429 that says the credit is gone.
    """
    if not is_of_a_quota(status, headers, body):
        return None
    error = _error_of(body)
    if {_text(error.get("code")), _text(error.get("type"))} & _OPENAI_CREDIT_GONE:
        return None
    message = _text(error.get("message"), most=10_000)
    gauges = [quota for quota in read_units(headers) if quota.remaining is not None]
    violation = _openai_violation(error, message, gauges)
    in_message = _OPENAI_RETRY.search(message)
    gauge = _gauge_of(violation, gauges) if violation else None
    retry_after = (
        told_delay(headers)
        or (_span(in_message[1]) if in_message else None)
        or (_bounded(gauge.reset_seconds or 0.0) if gauge else None)
    )
    if violation is None:
        return _from_rate_headers(headers, retry_after)
    return PushBack((violation,), retry_after)


def parse_anthropic(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of Anthropic's from its message, or from the headers of the only quota without room.

    Returns:
        None unless the status is 429: a 529 says that its servers are overloaded, which is no quota.
    """
    if status != _TOO_MANY_REQUESTS:
        return None
    message = _text(_error_of(body).get("message"), most=10_000)
    said = _ANTHROPIC_LIMIT.search(message)
    retry_after = told_delay(headers)
    if said:
        read = read_quota_name(said[2])
        cap = _cap(said[1].replace(",", "")) if read.period == "minute" else None
        return PushBack((Violation(said[2], "project", read.unit, stated_cap=cap),), retry_after)
    empty = [quota for quota in read_quotas(headers) if quota.remaining == 0]
    if len(empty) != 1 and (unit := read_unit(message)):
        return PushBack((Violation(unit, "project", unit),), retry_after)
    violations = tuple(
        _stated_violation(replace(one, window_seconds=MINUTE_SECONDS)) for one in empty[: len(empty) == 1]
    )
    told = _bounded(empty[0].reset_seconds or 0.0) if violations else None
    return PushBack(violations, retry_after or told)


def _from_rate_headers(headers: Mapping[str, str], retry_after: float | None) -> PushBack:
    """A quota with nothing left was exceeded; where none is said to be empty, the only one that is stated."""
    stated = read_rate_headers(headers)
    empty = [quota for quota in stated if quota.remaining == 0] or stated * (len(stated) == 1)
    resets = [_bounded(quota.reset_seconds) for quota in empty if quota.reset_seconds is not None]
    told = max((reset for reset in resets if reset is not None), default=None)
    counted = [quota for quota in empty if quota.unit in _UNITS]
    return PushBack(tuple(map(_stated_violation, counted)), retry_after or told)


def _stated_violation(quota: StatedQuota) -> Violation:
    """It is told to whoever's key the call shows: the project."""
    window, per_day = quota.window_seconds or MINUTE_SECONDS, quota.window_seconds == _A_DAY
    size = f"{quota.capacity:,.0f} " if quota.capacity else ""
    period = f" in {quota.window_seconds:g} s" if quota.window_seconds else ""
    return Violation(
        name=_text(quota.name) or f"{size}{quota.unit}{period}",
        scope="project",
        unit=_STATED_UNITS.get(quota.unit, "requests"),
        per_day=per_day,
        stated_cap=_cap(quota.capacity) if quota.window_seconds else None,
        window_seconds=MINUTE_SECONDS if per_day else window,
    )


def _google_violations(details: list[dict[str, Any]], message: str) -> Iterator[Violation]:
    said = _GOOGLE_MESSAGE.search(message)
    metric, limit = (said[1], said[2] or "") if said else ("", "")
    named = False
    for detail in details:
        for entry in _items(detail.get("violations"))[:MAX_VIOLATIONS]:
            if isinstance(entry, dict) and (entry.get("quotaId") or entry.get("quotaMetric")):
                named = True
                dimensions = entry.get("quotaDimensions")
                model = dimensions.get("model") if isinstance(dimensions, dict) else None
                quota = (entry.get("quotaId"), entry.get("quotaMetric"))
                yield _violation(quota, model=model, cap=entry.get("quotaValue"))
        metadata = detail.get("metadata")
        if isinstance(metadata, dict) and any(map(metadata.get, ("quota_limit", "quota_metric", "quota_unit"))):
            named = True
            sources = (
                metadata.get("quota_limit"),
                limit,
                metadata.get("quota_metric"),
                metric,
                metadata.get("quota_unit"),
            )
            yield _violation(sources, model=None, cap=metadata.get("quota_limit_value"))
    if said and not named:
        yield _violation((limit, metric), model=None, cap=None)


def _violation(sources: tuple[Any, ...], *, model: Any, cap: Any) -> Violation:
    """Put together what all names of one quota say; the first that is a text is its name."""
    names = [text for source in sources if (text := _text(source))]
    read = QuotaName()
    for name in names:
        read = read.or_else(read_quota_name(name))
    return Violation(
        name=names[0] if names else "",
        scope=read.scope,
        unit=read.unit,
        call_type=read.call_type,
        per_day=read.period == "day",
        model=_text(model),
        stated_cap=_cap(cap) if read.period in {"minute", "day"} else None,
    )


def _openai_violation(error: dict[str, Any], message: str, gauges: Sequence[StatedQuota]) -> Violation | None:
    said = _OPENAI_LIMIT.search(message)
    read = read_quota_name(said[1]) if said else QuotaName()
    unit = read.unit or read_unit(message, (_text(error.get("code")), _text(error.get("type"))))
    spent = [gauge for gauge in gauges if not gauge.remaining and (not unit or gauge.unit == unit)]
    if not unit and len(spent) == 1:
        unit = _STATED_UNITS.get(spent[0].unit, "requests")
    if not unit:
        return None
    gauge = spent[0] if len(spent) == 1 else _gauge_of(Violation(unit=unit), gauges)
    per_day = read.period == "day" or (not said and gauge is not None and gauge.window_seconds == _A_DAY)
    cap = _cap(said[2]) if said else None
    if not said and gauge and not per_day and _is_of_a_minute(gauge):
        cap = gauge.capacity
    name = _text(said[1]).strip() if said else unit
    asked = _OPENAI_REQUESTED.search(message) if said else None
    requested = _cap(asked[1]) if asked else None
    return Violation(
        name=name,
        scope="project",
        unit=unit,
        per_day=per_day,
        stated_cap=cap,
        requested=requested if requested and cap and requested > cap else None,
    )


def _gauge_of(violation: Violation, gauges: Sequence[StatedQuota]) -> StatedQuota | None:
    """What headers say of the violated quota: the one without room where there are several of its unit."""
    of_unit = [gauge for gauge in gauges if gauge.unit == violation.unit]
    return min(of_unit, key=lambda gauge: (bool(gauge.remaining), gauge.window_seconds or 0.0), default=None)


def _is_of_a_minute(gauge: StatedQuota) -> bool:
    """A header's limit mostly states no period: it is a minute's where all of it is back within one."""
    if gauge.window_seconds is not None:
        return gauge.window_seconds == MINUTE_SECONDS
    return gauge.reset_seconds is not None and gauge.reset_seconds <= MINUTE_SECONDS


def _header(headers: Mapping[str, str], name: str) -> str:
    for key, value in headers.items():
        if key.lower() == name:
            return value[:MAX_QUOTA_NAME]
    return ""


def _error_of(body: bytes) -> dict[str, Any]:
    """
    Return the body's error object, empty for what is none.

    A stream's body is an array of envelopes; some servers put the error's fields at the top.
    """
    if len(body) > MAX_ERROR_BYTES:
        return {}
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    for envelope in _items(parsed) or [parsed]:
        if isinstance(envelope, dict):
            error = envelope.get("error", envelope)
            return dict(error) if isinstance(error, dict) else {"message": error}
    return {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in _items(value)[:MAX_DETAILS] if isinstance(one, dict)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any, *, most: int = MAX_QUOTA_NAME) -> str:
    """Return a text that can be stored: bounded, without NUL and halves of surrogate pairs."""
    if not isinstance(value, str):
        return ""
    return value[:most].replace("\0", "").encode(errors="replace").decode()


def _cap(value: Any) -> float | None:
    """Return a stated cap. Zero and -1 are what servers send that do not know theirs."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if len(text) > MAX_QUOTA_NAME or not _NUMBER.fullmatch(text):
        return None
    cap = float(text)
    return cap if 0 < cap <= MAX_CAP else None


def _google_duration(value: Any) -> float | None:
    if not isinstance(value, str) or not _GOOGLE_DURATION.fullmatch(value):
        return None
    return _bounded(float(value[:-1]))


def _span(value: str) -> float | None:
    """See `parse_span`; bounded."""
    return _bounded(parse_span(value) or 0.0)


def _bounded(seconds: float) -> float | None:
    return min(seconds, MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) and seconds > 0 else None
