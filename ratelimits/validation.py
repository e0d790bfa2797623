"""
What the figures of a limit must be, and what they mean for those who set them. Pure.

A fault stops the change; a warning is shown and the change goes on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ratelimits.algorithms.token_bucket import TokenBucket, safe_bucket
from ratelimits.models import Limit, Unit

LARGEST = 1e12  # of any amount: beyond it a float no longer tells two neighbouring counts apart in millionths
LONGEST_FIGURE_SECONDS = 366 * 86_400.0
SHORTEST_DAY_SECONDS = 23 * 3600.0  # a zone's day when its clocks go forward
A_DAY = 86_400
MOST_DIGITS = 12

Algorithm = Limit.Algorithm

READS: Mapping[str, frozenset[str]] = {
    Algorithm.SLIDING_WINDOW: frozenset({"capacity", "window_seconds", "slack_seconds", "provider_quota"}),
    Algorithm.TOKEN_BUCKET: frozenset({"capacity", "refill_per_second", "window_seconds", "provider_quota"}),
    Algorithm.LEAKY_BUCKET: frozenset({"refill_per_second", "window_seconds", "provider_quota"}),
    Algorithm.FIXED_WINDOW: frozenset({"capacity", "window_seconds", "reset_zone", "guard_seconds", "provider_quota"}),
    Algorithm.CONCURRENCY: frozenset({"capacity", "lease_seconds"}),
}
"""The figures that each algorithm reads, or that its others are held against."""

NOUNS: Mapping[str, str] = {Unit.REQUESTS: "calls", Unit.TOKENS: "tokens", Unit.IN_FLIGHT: "calls in flight"}

_KEY_PART = r"[^/\s][^/]{0,119}"
_KEYS = {
    Limit.Scope.GLOBAL: r"\*",
    Limit.Scope.PROJECT: rf"project:{_KEY_PART}",
    Limit.Scope.USER: rf"user:{_KEY_PART}",
    Limit.Scope.PROJECT_USER: rf"project:{_KEY_PART}/user:{_KEY_PART}",
}
_KEY_EXAMPLES = {
    Limit.Scope.GLOBAL: "*",
    Limit.Scope.PROJECT: "project:acme",
    Limit.Scope.USER: "user:reports@acme.example",
    Limit.Scope.PROJECT_USER: "project:acme/user:reports@acme.example",
}


@dataclass(slots=True)
class Findings:
    """Faults by field, and warnings for the limit as a whole."""

    faults: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, name: str, fault: str) -> None:
        self.faults.setdefault(name, []).append(fault)


def check_limit(limit: Limit) -> Findings:
    """Check the figures of a limit, stored or not. What a single field forbids by itself is the model's to check."""
    found = Findings()
    _check_sizes(limit, found)
    if found.faults:
        return found
    _check_unit(limit, found)
    match limit.algorithm:
        case Algorithm.SLIDING_WINDOW:
            _check_sliding_window(limit, found)
        case Algorithm.TOKEN_BUCKET:
            _check_token_bucket(limit, found)
        case Algorithm.LEAKY_BUCKET:
            _check_leaky_bucket(limit, found)
        case Algorithm.FIXED_WINDOW:
            _check_fixed_window(limit, found)
        case Algorithm.CONCURRENCY:
            pass
    if not found.faults:
        _check_whole_calls(limit, limit.capacity, found)
    _check_thresholds(limit, found)
    if limit.shadow and limit.enabled:
        found.warnings.append(
            "A shadow limit blocks nothing: it only counts what it would have refused, until a provider refuses."
        )
    return found


def check_override(limit: Limit, key: str, capacity: float | None, refill_per_second: float | None) -> Findings:
    """Check the figures of one key of a limit. They are not held against the limit's quota: the key has its own."""
    found = Findings()
    if not re.fullmatch(key_pattern(limit), key) or "\0" in key:
        found.refuse("key", f"This limit counts keys such as {key_example(limit)}.")
    for name, value in (("capacity", capacity), ("refill_per_second", refill_per_second)):
        if value is not None and (fault := _amount_fault(value, above_zero=name != "capacity")):
            found.refuse(name, fault)
    if capacity is None:
        found.refuse("capacity", "Say how much this key may have.")
    elif not found.faults:
        if "refill_per_second" not in READS[limit.algorithm] and refill_per_second is not None:
            found.refuse("refill_per_second", f"A {_words(limit)} has no refill.")
        _check_whole_calls(limit, capacity, found)
        rate = refill_per_second or limit.refill_per_second
        if limit.algorithm == Algorithm.TOKEN_BUCKET and rate and not found.faults:
            found.warnings.append(_what_passes(limit, capacity, rate))
    return found


def safe_figures(limit: Limit, quota: float) -> dict[str, Any]:
    """
    Return the figures that use a provider's quota and keep it in every window, by the limit's algorithm.

    Raises:
        ValueError: A bucket has no room in so small a quota; such a limit takes a sliding window.
    """
    match limit.algorithm:
        case Algorithm.TOKEN_BUCKET:
            bucket = _safe_bucket(limit, quota)
            return {"capacity": bucket.capacity, "refill_per_second": bucket.rate, "provider_quota": quota}
        case Algorithm.LEAKY_BUCKET:
            return {"refill_per_second": quota / (limit.window_seconds or 60), "provider_quota": quota}
        case Algorithm.CONCURRENCY:
            return {"capacity": quota}
        case _:
            return {"capacity": quota, "provider_quota": None if limit.provider_quota is None else quota}


def figure(value: float) -> str:
    """A figure as people write it: 300, 4.85, 30,000."""
    rounded = float(f"{value:.6g}") if abs(value) < 1e6 else value  # noqa: PLR2004 (six digits are enough below)
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,.{MOST_DIGITS}f}".rstrip("0").rstrip(".")


def key_pattern(limit: Limit) -> str:
    """The regular expression that the keys of a limit match in full."""
    return _KEYS[Limit.Scope(limit.scope)] + (r"/model:.{1,100}" if limit.per_model else "")


def key_example(limit: Limit) -> str:
    return _KEY_EXAMPLES[Limit.Scope(limit.scope)] + ("/model:gemini-2.5-pro" if limit.per_model else "")


def _check_sizes(limit: Limit, found: Findings) -> None:
    reads = READS[limit.algorithm]
    required = {"capacity", "refill_per_second", "lease_seconds", "guard_seconds"} & reads
    if limit.algorithm != Algorithm.FIXED_WINDOW:
        required |= {"window_seconds"} & reads
    for name in sorted((reads | {"headroom_percent"}) - {"reset_zone"}):
        value = getattr(limit, name)
        if value is None:
            if name in required:
                found.refuse(name, f"A {_words(limit)} needs this figure.")
        elif fault := _amount_fault(value, above_zero=name in {"refill_per_second", "window_seconds", "lease_seconds"}):
            found.refuse(name, fault)
        elif name.endswith("_seconds") and value > LONGEST_FIGURE_SECONDS:
            found.refuse(name, f"At most a year: {figure(LONGEST_FIGURE_SECONDS)} seconds.")


def _amount_fault(value: Any, *, above_zero: bool) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "A finite number."
    if value < 0 or (above_zero and not value):
        return "Above zero." if above_zero else "Zero or more."
    return None if value <= LARGEST else f"At most {LARGEST:,.0f}."


def _check_unit(limit: Limit, found: Findings) -> None:
    if (limit.unit == Unit.IN_FLIGHT) != (limit.algorithm == Algorithm.CONCURRENCY):
        found.refuse("unit", "Calls in flight are counted by the algorithm concurrency, and it counts nothing else.")


def _check_whole_calls(limit: Limit, capacity: float, found: Findings) -> None:
    """A cap between none and one call would end every call as one that can never fit."""
    left = capacity * (100 - limit.headroom_percent) / 100
    if not capacity:
        found.warnings.append("A cap of 0 rejects every call for good: each of its jobs fails at once.")
    elif limit.unit != Unit.TOKENS and left < 1:
        found.refuse("capacity", f"This leaves {figure(left)} of a call: every call would be rejected.")
    elif limit.unit == Unit.TOKENS:
        found.warnings.append(f"A call of more than {figure(left)} tokens is rejected at once, as one that cannot fit.")


def _check_thresholds(limit: Limit, found: Findings) -> None:
    if limit.notice_percent > limit.warning_percent:
        found.refuse("warning_percent", "Not below the notice.")


def _check_sliding_window(limit: Limit, found: Findings) -> None:
    window = limit.window_seconds or 60
    if limit.slack_seconds is not None and limit.slack_seconds >= window:
        found.refuse("slack_seconds", f"Below the window of {figure(window)} s.")
    _check_cap(limit, found)


def _check_cap(limit: Limit, found: Findings) -> None:
    if limit.provider_quota is not None and limit.capacity > limit.provider_quota:
        found.refuse("capacity", f"The provider allows {figure(limit.provider_quota)} in a window.")


def _check_fixed_window(limit: Limit, found: Findings) -> None:
    if limit.reset_zone:
        length: float = SHORTEST_DAY_SECONDS
        try:
            ZoneInfo(limit.reset_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # what is no name at all, or names a directory
            found.refuse("reset_zone", "No such time zone; write it as America/Los_Angeles.")
    elif limit.window_seconds is None:
        found.refuse("reset_zone", "A fixed window needs a reset zone, for days, or the seconds of a window.")
        return
    else:
        length = limit.window_seconds
        if length < A_DAY:
            found.warnings.append(
                "Around a reset up to twice the cap may pass. Take a sliding window unless the provider resets so, too."
            )
    if limit.guard_seconds * 2 >= length:
        found.refuse("guard_seconds", f"Below half a window: {figure(length / 2)} s.")
    _check_cap(limit, found)


def _check_leaky_bucket(limit: Limit, found: Findings) -> None:
    window, rate = limit.window_seconds or 60, limit.refill_per_second or 0
    quota = limit.provider_quota
    if limit.unit == Unit.TOKENS:
        found.refuse("unit", "A leaky bucket spaces calls out; tokens take a window or a token bucket.")
    if limit.headroom_percent:
        found.refuse("headroom_percent", "A leaky bucket lets one call go at a time; lower its rate instead.")
    if quota is not None and rate * window > quota * (1 + 1e-9):
        found.refuse(
            "refill_per_second",
            f"{figure(rate)} a second makes {figure(rate * window)} in {figure(window)} s, but the provider allows"
            f" {figure(quota)}. Safe: {figure(_floored(quota / window))} a second.",
        )


def _check_token_bucket(limit: Limit, found: Findings) -> None:
    """A bucket lets its burst and a window's refill through in one provider window: the bucket trap."""
    window, rate, quota = limit.window_seconds or 60, limit.refill_per_second or 0, limit.provider_quota
    if quota is None:
        found.warnings.append(
            f"{_what_passes(limit, limit.capacity, rate)} State the provider's quota to have the figures held against"
            " it."
        )
    # To a billionth: 4.85 is no binary fraction. Headroom shrinks both sides alike.
    elif limit.capacity + window * rate > quota * (1 + 1e-9):
        found.refuse(
            "capacity",
            f"{_what_passes(limit, limit.capacity, rate)} The provider allows {figure(quota)}. {_safer(limit, quota)}",
        )


def _what_passes(limit: Limit, capacity: float, rate: float) -> str:
    window, noun = limit.window_seconds or 60, NOUNS[limit.unit]
    return (
        f"Up to {figure(capacity + window * rate)} {noun} may pass in one provider window of {figure(window)} s:"
        f" {figure(capacity)} at once and {figure(window * rate)} refilled meanwhile."
    )


def _safer(limit: Limit, quota: float) -> str:
    window = f"a sliding window of {figure(quota)}"
    try:
        bucket = _safe_bucket(limit, quota)
    except ValueError:
        return f"Take {window}."
    rate = figure(_floored(bucket.rate))
    return f"Safe: a burst of {figure(bucket.capacity)} and a refill of {rate} a second, or {window}."


def _safe_bucket(limit: Limit, quota: float) -> TokenBucket:
    return safe_bucket(
        quota,
        window_seconds=limit.window_seconds or 60,
        # Estimates of one call are clamped to half the limit; a smaller burst would end the calls above it.
        largest_cost=quota / 2 if limit.unit == Unit.TOKENS else 1,
    )


def _floored(value: float) -> float:
    """Six digits, never more than the value: what is typed in from a message has to hold."""
    places = 10.0 ** (5 - math.floor(math.log10(value)))
    return math.floor(value * places + 1e-6) / places  # 4.85 times 100,000 is a little below 485,000


def _words(limit: Limit) -> str:
    return str(Algorithm(limit.algorithm).label).lower()
