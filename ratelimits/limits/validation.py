"""
Checks of a limit's figures, and warnings about what they mean. Pure.

A fault stops the change; a warning is shown and the change goes on.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ratelimits.algorithms.figures import NOUNS, Findings, figure
from ratelimits.algorithms.kinds import KINDS
from ratelimits.costs import IN_FLIGHT, PER_CALL, UNTIL_THE_END
from ratelimits.models import Limit

__all__ = [
    "KINDS",
    "NOUNS",
    "Findings",
    "check_limit",
    "check_override",
    "figure",
    "key_example",
    "key_pattern",
    "safe_figures",
]

LARGEST = 1e12  # the largest amount that a limit may have
MAX_FIGURE_SECONDS = 366 * 86_400.0

Algorithm = Limit.Algorithm

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


def check_limit(limit: Limit) -> Findings:
    """Check the figures of a limit, stored or not. The model checks what concerns a single field alone."""
    found = Findings()
    _check_sizes(limit, found)
    if found.faults:
        return found
    _check_unit(limit, found)
    _check_whose(limit, found)
    KINDS[limit.algorithm].check(limit, found)
    if not found.faults:
        _check_whole_calls(limit, limit.capacity, found)
    _check_thresholds(limit, found)
    if limit.shadow and limit.enabled:
        found.warnings.append(
            "A shadow limit blocks nothing: it only counts what it would have refused, until a provider refuses."
        )
    return found


def check_override(limit: Limit, key: str, capacity: float | None, refill_per_second: float | None) -> Findings:
    """Check the figures of one key of a limit. The limit's quota does not bound them, as the key has its own quota."""
    found = Findings()
    if not re.fullmatch(key_pattern(limit), key) or "\0" in key:
        found.refuse("key", f"This limit counts keys such as {key_example(limit)}.")
    for name, value in (("capacity", capacity), ("refill_per_second", refill_per_second)):
        if value is not None and (fault := _amount_fault(value, above_zero=name != "capacity")):
            found.refuse(name, fault)
    if capacity is None:
        found.refuse("capacity", "Say how much this key may have.")
    elif not found.faults:
        if "refill_per_second" not in KINDS[limit.algorithm].reads and refill_per_second is not None:
            found.refuse("refill_per_second", f"A {_words(limit)} has no refill.")
        _check_whole_calls(limit, capacity, found)
        rate = refill_per_second or limit.refill_per_second
        bound = KINDS[limit.algorithm].bound_in_words(limit, capacity, rate) if rate else None
        if bound and not found.faults:
            found.warnings.append(bound)
    return found


def safe_figures(limit: Limit, quota: float) -> dict[str, Any]:
    """
    Return the figures with which the limit's algorithm keeps a provider's quota in every window of the provider.

    Raises:
        ValueError: The quota is too small for a bucket; use a sliding window for such a limit.
    """
    return KINDS[limit.algorithm].safe(limit, quota)


def key_pattern(limit: Limit) -> str:
    """The regular expression that the keys of a limit match in full."""
    return _KEYS[Limit.Scope(limit.scope)] + (r"/model:.{1,100}" if limit.per_model else "")


def key_example(limit: Limit) -> str:
    return _KEY_EXAMPLES[Limit.Scope(limit.scope)] + ("/model:gemini-2.5-pro" if limit.per_model else "")


def _check_sizes(limit: Limit, found: Findings) -> None:
    algorithm = KINDS[limit.algorithm]
    reads = algorithm.reads
    for name in sorted((reads | {"headroom_percent"}) - {"reset_zone"}):
        value = getattr(limit, name)
        if value is None:
            if name not in algorithm.optional:
                found.refuse(name, f"A {_words(limit)} needs this figure.")
        elif fault := _amount_fault(value, above_zero=name in {"refill_per_second", "window_seconds", "lease_seconds"}):
            found.refuse(name, fault)
        elif name.endswith("_seconds") and value > MAX_FIGURE_SECONDS:
            found.refuse(name, f"At most a year: {figure(MAX_FIGURE_SECONDS)} seconds.")


def _amount_fault(value: Any, *, above_zero: bool) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "A finite number."
    if value < 0 or (above_zero and not value):
        return "Above zero." if above_zero else "Zero or more."
    return None if value <= LARGEST else f"At most {LARGEST:,.0f}."


def _check_unit(limit: Limit, found: Findings) -> None:
    if (limit.unit in UNTIL_THE_END) != (KINDS[limit.algorithm].counts_in_flight):
        found.refuse(
            "unit",
            "Calls in flight and tokens enqueued are counted by the algorithm concurrency, which counts nothing else.",
        )


def _check_whose(limit: Limit, found: Findings) -> None:
    if not limit.service and not limit.project and not limit.kind:
        found.refuse("service", "Name a service, a project or a kind.")
    elif limit.unit != IN_FLIGHT:
        why = "Only a limit of calls in flight counts {}: a provider's quota is its service's."
        if limit.kind:
            found.refuse("kind", why.format("one kind's"))
        if not limit.service:
            found.refuse("service", why.format("calls to any service"))


def _check_whole_calls(limit: Limit, capacity: float, found: Findings) -> None:
    """
    Refuse a cap above 0 and below one call, because it would reject every call. Warn of calls that other caps reject.
    """
    left = capacity * (100 - limit.headroom_percent) / 100
    if not capacity:
        found.warnings.append("A cap of 0 rejects every call for good: each of its jobs fails at once.")
    elif limit.unit in PER_CALL and left < 1:
        found.refuse("capacity", f"This leaves {figure(left)} of a call: every call would be rejected.")
    elif limit.unit not in PER_CALL:
        noun = NOUNS[limit.unit]
        found.warnings.append(f"A call of more than {figure(left)} {noun} is rejected at once, as one that cannot fit.")


def _check_thresholds(limit: Limit, found: Findings) -> None:
    if limit.notice_percent > limit.warning_percent:
        found.refuse("warning_percent", "Not below the notice.")


def _words(limit: Limit) -> str:
    return str(Algorithm(limit.algorithm).label).lower()
