"""Successes that say that nothing was done because a quota was full: GraphQL's APIs and Slack answer so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobs.handlers.refusals import parse_refusal
from queueops.core.outbound.client import OutboundResponse
from ratelimits.feedback import TOO_MANY_REQUESTS, PushBack, bounded_delay, has_quota_code, objects_of

from .answers import error_document

MAX_THROTTLED_BYTES = 20_000  # no such answer is longer, and a longer one is not parsed


def throttled(response: OutboundResponse) -> PushBack | None:
    """
    Return the quota that a success says was full; None: it says no such thing, or it has data.

    A code alone counts, and only in a list of `errors` or beside `"ok": false`. A resource may well have the status
    `throttled`, and a call that was carried out must not be repeated.
    """
    parsed = error_document(response) if len(response.body) <= MAX_THROTTLED_BYTES else None
    if not isinstance(parsed, dict) or parsed.get("data") or not _says_so(parsed):
        return None
    found = parse_refusal(TOO_MANY_REQUESTS, response.headers, response.body, response.host) or PushBack()
    return replace(found, retry_after=found.retry_after or _until_restored(parsed))


def _says_so(parsed: Mapping[str, Any]) -> bool:
    errors = objects_of(parsed.get("errors"))
    if parsed.get("ok") is False:
        errors = [{"code": parsed.get("error")}]
    return bool(errors) and all(map(has_quota_code, errors))


def _until_restored(parsed: Mapping[str, Any]) -> float | None:
    """Return the seconds until Shopify's bucket has what the query costs."""
    cost: Any = parsed
    for name in ("extensions", "cost"):
        cost = cost.get(name) if isinstance(cost, dict) else None
    bucket = cost.get("throttleStatus") if isinstance(cost, dict) else None
    if not isinstance(bucket, dict):
        return None
    figures: tuple[Any, ...] = (
        cost.get("requestedQueryCost"),
        bucket.get("currentlyAvailable"),
        bucket.get("restoreRate"),
    )
    if not all(type(one) in (int, float) for one in figures) or figures[2] <= 0:
        return None
    return bounded_delay((figures[0] - figures[1]) / figures[2])
