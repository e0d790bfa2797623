"""Quotas of requests, input tokens and output tokens per minute, and the headers that state them."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from sandbox import clock
from sandbox.knobs.providers import AnthropicKnobs
from sandbox.llm import quota_key
from sandbox.provider import CallIdentity, CallTokens
from sandbox.quotas.book import ExhaustedQuota, Quota, QuotaBook, QuotaCost

NAME = "anthropic"

_ROUNDED_TO = 1_000


def charges(
    caller: CallIdentity, model: str, tokens: CallTokens, knobs: AnthropicKnobs, *, max_tokens: int
) -> list[QuotaCost]:
    """Return the cost of a call: its input, and the output that it will or may have; cached input is free."""
    rule, key, hidden = knobs.rule(), quota_key(caller, model, knobs), knobs.hidden_share
    found = []
    if knobs.requests_per_minute is not None:
        found.append(QuotaCost(Quota(NAME, "RPM", "requests", knobs.requests_per_minute, rule, hidden), key))
    if knobs.input_tokens_per_minute is not None:
        quota = Quota(NAME, "ITPM", "input_tokens", knobs.input_tokens_per_minute, rule, hidden)
        found.append(QuotaCost(quota, key, tokens.prompt - tokens.cached))
    if knobs.output_tokens_per_minute is not None:
        quota = Quota(NAME, "OTPM", "output_tokens", knobs.output_tokens_per_minute, rule, hidden)
        found.append(QuotaCost(quota, key, max_tokens if knobs.output_charged == "max_tokens" else tokens.output))
    return found


def settle(costs: Sequence[QuotaCost], tokens: CallTokens, book: QuotaBook, *, at: float) -> None:
    """Give back the tokens that were charged in advance and that the answer did not need."""
    for cost in costs:
        if cost.quota.unit == "output_tokens" and cost.cost != tokens.output:
            book.settle(cost, tokens.output, at=at, now=clock.now())


def ratelimit_headers(costs: Sequence[QuotaCost], book: QuotaBook, knobs: AnthropicKnobs) -> dict[str, str]:
    """
    Describe the quotas as they are after this call; a reset is when all of a quota is free.

    `tokens` stands for whichever of the two quotas of tokens has less left.
    """
    if knobs.ratelimit_headers == "none":
        return {}
    now, tightest = clock.now(), math.inf
    found: dict[str, str] = {}
    lie = {"minus_one": "-1", "zero": "0"}.get(knobs.ratelimit_headers)
    for cost in costs:
        left, seconds = book.room(cost, now)
        unit, is_tokens = cost.quota.unit.replace("_", "-"), cost.quota.unit != "requests"
        told = round(left / _ROUNDED_TO) * _ROUNDED_TO if is_tokens and knobs.rounded_remaining else left
        figures = {
            "limit": lie or str(cost.quota.capacity),
            "remaining": lie or str(told),
            "reset": datetime.fromtimestamp(math.ceil(now + seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        names = [unit, "tokens"] if is_tokens and left < tightest else [unit]
        tightest = min(tightest, left) if is_tokens else tightest
        found |= {f"anthropic-ratelimit-{name}-{part}": text for name in names for part, text in figures.items()}
    return found


def retry_after(violations: Sequence[ExhaustedQuota]) -> str | None:
    waits = [min(violation.wait_seconds, violation.charge.quota.rule.seconds) for violation in violations]
    return str(max(1, math.ceil(max(waits)))) if waits else None
