"""How Google's APIs refuse: Sheets, Gemini and others with the same envelope, `google.rpc.Status`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from queueops.core.values.retry_after import told_delay
from ratelimits.feedback import (
    MAX_VIOLATIONS,
    PushBack,
    Violation,
    bounded_delay,
    cap_of,
    error_of,
    is_of_a_quota,
    items_of,
    objects_of,
    short_text,
    wait_told,
)
from ratelimits.quota_names import QuotaName, read_quota_name, read_unit

# Values of `ErrorInfo.reason` for a closed account or key, in lower case; source: docs/reference/wire-facts.md.
ACCOUNT_REASONS = frozenset({"billing_disabled", "consumer_suspended", "consumer_invalid", "api_key_expired"})

_DURATION = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,9})?s")
_QUOTA_IN_MESSAGE = re.compile(r"quota metric '([^']{1,200})'(?: and limit '([^']{1,200})')?")
# Gemini: the key's plan has no quota for the model. The details of such a refusal name quotas as always.
QUOTA_OF_ZERO = re.compile(
    r"quota exceeded for metric: [^\s,]{1,200}, limit: 0(?![0-9.])|doesn't have a free quota tier", re.IGNORECASE
)


def parse_google(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of a Google API: Sheets, Gemini, others with the same envelope.

    Returns:
        None if the refusal concerns no quota that comes back: RESOURCE_EXHAUSTED also comes with a 402, and for a quota
            of 0.
    """
    found = read_details(status, headers, body)
    if found is None or found.violations:
        return found
    unit = read_unit(short_text(error_of(body).get("message"), most=10_000))
    return replace(found, violations=(Violation(unit, unit=unit),)) if unit else found


def read_details(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """Read the quotas that the details and the message name exactly, without a guess from the message's other words."""
    if not is_of_a_quota(status, headers, body):
        return None
    error = error_of(body)
    message = short_text(error.get("message"), most=10_000)
    if QUOTA_OF_ZERO.search(message):
        return None
    details = objects_of(error.get("details"))
    found = list(dict.fromkeys(_violations(details, message)))[:MAX_VIOLATIONS]
    hints = (_duration(detail.get("retryDelay")) for detail in details)
    retry_after = (
        told_delay(headers) or next((hint for hint in hints if hint is not None), None) or wait_told({}, error, message)
    )
    return PushBack(tuple(found), retry_after)


def _violations(details: list[dict[str, Any]], message: str) -> Iterator[Violation]:
    said = _QUOTA_IN_MESSAGE.search(message)
    metric, limit = (said[1], said[2] or "") if said else ("", "")
    named = False
    for detail in details:
        for entry in items_of(detail.get("violations"))[:MAX_VIOLATIONS]:
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
    """Read the scope, unit and so on of a quota from all its names; the violation keeps the first that is a text."""
    names = [text for source in sources if (text := short_text(source))]
    read = QuotaName()
    for name in names:
        read = read.or_else(read_quota_name(name))
    return Violation(
        name=names[0] if names else "",
        scope=read.scope,
        unit=read.unit,
        call_type=read.call_type,
        per_day=read.period == "day",
        model=short_text(model),
        stated_cap=cap_of(cap) if read.period in {"minute", "day"} else None,
    )


def _duration(value: Any) -> float | None:
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        return None
    return bounded_delay(float(value[:-1]))
