"""
Reading quotas from an answer's headers: `RateLimit`, `RateLimit-Policy`, and older fields of the same meaning.

The forms are those of draft-ietf-httpapi-ratelimit-headers, read in November 2026. The draft has changed its fields:

- since -08: named policies with `q`, `w`, `qu` and `r`, `t`;
- in -07: `limit=, remaining=, reset=`;
- up to -06: three fields.

`X-RateLimit-*` has no specification. It is read as the three fields, but a reset may be a time instead of a span.

A provider, or a program in its place, may send anything. Nothing here raises, and every result is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from queueops.core.values.retry_after import A_MOMENT, MILLISECONDS, their_now

MAX_HEADER = 1000
MAX_POLICIES = 20
MAX_POLICY_NAME = 100
MAX_AMOUNT = 1e12
NEAR_A_DAY = 0.2  # tolerance, because resets are rounded

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,40})?")
_ANTHROPIC = "anthropic-ratelimit"
_SPAN = re.compile(
    r"(?=.)(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m(?!s))?(?:([0-9]{1,9}(?:\.[0-9]{1,40})?)(ms|s))?"
)
_PERIODS = {"second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
# Cerebras and Mistral put the period at the end of the name, which is all of it for Kong, whose unit is requests.
_UNIT_FIELD = re.compile(
    r"x-ratelimit-limit-((requests|req|(?:input-|output-)?tokens)(?:-(second|minute|hour|day))?|(second|minute|hour|day))"
)
_PREFIXES = ("ratelimit", "x-ratelimit", "x-rate-limit", "helicone-ratelimit", "x-hubspot-ratelimit")


@dataclass(frozen=True, slots=True)
class StatedQuota:
    """
    One quota as headers state it. None: the headers do not say.

    Attributes:
        unit: `requests` unless the headers say otherwise, such as `input_tokens`, `content-bytes`.
        reset_seconds: The time until there is room again.
        age_seconds: How long ago, at most, the provider stated the quota.
    """

    name: str = ""
    unit: str = "requests"
    capacity: float | None = None
    window_seconds: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None
    age_seconds: float = 0.0


def read_rate_headers(headers: Mapping[str, str]) -> list[StatedQuota]:
    """Return the quotas that an answer's headers state, empty ones first; at most MAX_POLICIES."""
    fields = {name.lower(): value[:MAX_HEADER] for name, value in headers.items() if name.lower().startswith(_PREFIXES)}
    now = their_now(headers)
    found = list(_named(fields, now)) or list(_unnamed(fields, now))
    return sorted(found[:MAX_POLICIES], key=lambda quota: quota.remaining != 0)


def read_quotas(headers: Mapping[str, str]) -> list[StatedQuota]:
    """
    Return all quotas that an answer's headers state: by unit, as providers of language models do, and in other forms.

    Anthropic sends `anthropic-ratelimit-<unit>-limit`, `-remaining` and `-reset`; the reset is a moment. If input and
    output have fields of their own, `tokens` only repeats one of them. `x-ratelimit-limit-<unit>`,
    `x-ratelimit-remaining-<unit>` and `x-ratelimit-reset-<unit>` state a period only where their name ends with one;
    without one, a day is known by its pace.
    Anthropic's fields state no period.
    """
    fields = {name.lower(): value[:MAX_HEADER] for name, value in headers.items() if _is_about_quotas(name.lower())}
    if not fields:
        return []
    now = their_now(headers)
    found = [*_of_anthropic(fields, now), *_by_unit(fields, now)]
    return found or read_rate_headers(headers)


def _of_anthropic(fields: Mapping[str, str], now: float) -> Iterator[StatedQuota]:
    apart = any(f"{_ANTHROPIC}-{unit}-limit" in fields for unit in ("input-tokens", "output-tokens"))
    for unit in ("requests", "input-tokens", "output-tokens", *(() if apart else ("tokens",))):
        quota = StatedQuota(
            name=unit,
            unit=unit.replace("-", "_"),
            capacity=_amount(fields.get(f"{_ANTHROPIC}-{unit}-limit")) or None,
            remaining=_amount(fields.get(f"{_ANTHROPIC}-{unit}-remaining")),
            reset_seconds=_until(fields.get(f"{_ANTHROPIC}-{unit}-reset"), now),
        )
        if quota.capacity is not None:
            yield quota


def read_units(headers: Mapping[str, str]) -> list[StatedQuota]:
    """
    Return the quotas that `x-ratelimit-limit-<unit>` and related headers state, as OpenAI and many others send them.

    Quotas that make no sense are left out: without a positive limit, or with more left than the limit.
    """
    fields = {name.lower(): value[:MAX_HEADER] for name, value in headers.items()}
    return list(_by_unit(fields, their_now(headers)))


def _by_unit(fields: Mapping[str, str], now: float) -> Iterator[StatedQuota]:
    for field in sorted(fields):
        match = _UNIT_FIELD.fullmatch(field)
        if match is None:
            continue
        name, unit, period = match[1], (match[2] or "requests").replace("-", "_"), match[3] or match[4] or ""
        unit = "requests" if unit == "req" else unit
        capacity = _amount(fields[field]) or None
        remaining = _amount(fields.get(f"x-ratelimit-remaining-{name}"))
        told = fields.get(f"x-ratelimit-reset-{name}", "")
        if capacity is not None and (remaining is None or remaining <= capacity):
            reset = parse_span(told) or _span(told, now) or None
            window = _PERIODS.get(period) or _day_by_refill(capacity, remaining, reset)
            yield StatedQuota(name, unit, capacity, window, remaining, reset)


def _day_by_refill(capacity: float, remaining: float | None, reset: float | None) -> float | None:
    """
    Return a day in seconds if a quota refills at a day's pace; None: it does not, or nothing of it is used.

    OpenAI's reset is the time until what was used is back: 8.64 s after the first of 10,000 requests a day. Taken for
    the whole window, it would make a day's quota look like a minute's.
    """
    if remaining is None or reset is None or remaining >= capacity:
        return None
    whole = reset * capacity / (capacity - remaining)
    return _PERIODS["day"] if abs(whole - _PERIODS["day"]) <= NEAR_A_DAY * _PERIODS["day"] else None


def parse_span(text: str) -> float | None:
    """Return the seconds of `1s`, `6m0s`, `12ms`, `1h0m0.5s`; None for anything else and for zero."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, last, last_unit = match.groups()
    total = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
    return total + float(last or 0) / (1000 if last_unit == "ms" else 1) or None


def _until(text: str | None, now: float) -> float | None:
    """Return the seconds until a moment that is written as in RFC 3339."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if at.tzinfo is None else max(0.0, at.timestamp() - now)


def _is_about_quotas(name: str) -> bool:
    return "ratelimit" in name or "rate-limit" in name


def _named(fields: Mapping[str, str], now: float) -> Iterator[StatedQuota]:
    """Read the form since -08: `RateLimit-Policy: "burst";q=100;w=60` beside `RateLimit: "burst";r=0;t=12`."""
    policies = {name: given for name, given in _items(fields.get("ratelimit-policy", "")) if "q" in given}
    states = {name: given for name, given in _items(fields.get("ratelimit", "")) if "r" in given}
    for name in dict.fromkeys([*policies, *states]):
        policy, state = policies.get(name, {}), states.get(name, {})
        yield StatedQuota(
            name=name[:MAX_POLICY_NAME],
            unit=policy.get("qu", "requests")[:MAX_POLICY_NAME],
            capacity=_amount(policy.get("q")) or None,
            window_seconds=_amount(policy.get("w")) or None,
            remaining=_amount(state.get("r")),
            reset_seconds=_span(state.get("t"), now),
        )


def _unnamed(fields: Mapping[str, str], now: float) -> Iterator[StatedQuota]:
    """Read the forms up to -07: one quota's limit, remaining and reset. The policy with that limit has the window."""
    together = dict(part.strip().partition("=")[::2] for part in fields.get("ratelimit", "").split(",")[:MAX_POLICIES])
    told = [name for end in ("limit", "remaining") for name in _PREFIXES if f"{name}-{end}" in fields]
    first = told[0] if told else "ratelimit"  # Reddit states no limit
    limits = fields.get(f"{first}-limit", "")
    capacity = _amount(together.get("limit") or limits.partition(",")[0].partition(";")[0]) or None
    left = together.get("remaining") or fields.get(f"{first}-remaining", "").partition(";")[0]  # Docker Hub adds w
    remaining = _amount(left)
    reset = _span(together.get("reset") or fields.get(f"{first}-reset-after") or fields.get(f"{first}-reset"), now)
    policies = f"{fields.get('ratelimit-policy', '')},{limits}"
    windows = {_amount(name): _amount(given.get("w")) for name, given in _items(policies)}
    if capacity is None and len(windows) == 1:
        [capacity] = windows
    if capacity is not None or remaining is not None or reset is not None:
        window = windows.get(capacity) if capacity is not None else None
        yield StatedQuota("", "requests", capacity or None, window or None, remaining, reset)


def _items(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Read `"a";q=1;w=60, "b";q=2` as names with their parameters."""
    for item in value.split(",")[:MAX_POLICIES]:
        name, *parameters = (part.strip() for part in item.split(";"))
        given = dict(part.partition("=")[::2] for part in parameters)
        if given:
            yield name.strip('"'), {key.strip().lower(): text.strip().strip('"') for key, text in given.items()}


def _amount(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return None
    return min(float(text), MAX_AMOUNT)


def _span(text: str | None, now: float) -> float | None:
    """Read a span or a moment as seconds from now. Moments: RFC 3339, or seconds or milliseconds since 1970."""
    if text is None:
        return None
    if not _NUMBER.fullmatch(text.strip()):
        return parse_span(text) or _until(text.strip(), now)
    seconds = float(text)  # above A_MOMENT: since 1970, in seconds (GitHub, others) or milliseconds (OpenRouter)
    if seconds > MILLISECONDS:
        seconds /= 1000
    return max(0.0, seconds - now) if seconds > A_MOMENT else min(seconds, MAX_AMOUNT)
