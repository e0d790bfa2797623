"""Reads which quota a refusal names, for every handler: by the host that was called, else by the answer's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ratelimits.feedback import PushBack

from .fallback import CREDIT_GONE
from .google.refusals import parse_google
from .llm.anthropic import parse_anthropic
from .llm.openai import parse_compatible, parse_openai
from .llm.providers import DIALECTS

ParseRefusal = Callable[[int, Mapping[str, str], bytes], PushBack | None]

# Codes for a closed account or key, or for used-up credit: every other call with that credential gets the same answer.
ACCOUNT_CLOSED = frozenset({CREDIT_GONE}).union(*(dialect.words.account_codes for dialect in DIALECTS.values()))
BY_DOMAIN: dict[str, ParseRefusal] = {
    "googleapis.com": parse_google,
    "openai.com": parse_openai,
    "anthropic.com": parse_anthropic,
}


def parse_refusal(status: int, headers: Mapping[str, str], body: bytes, host: str = "") -> PushBack | None:
    """
    Read a refusal of any HTTP API from a body in Google's or OpenAI's form, from the headers `RateLimit` and
    `x-ratelimit-*`, and from `Retry-After`. The result is empty if the answer names no quota.

    Args:
        host: The host that was called, if known; a gateway may answer in another provider's form.

    Returns:
        None if the refusal concerns no quota, see `is_of_a_quota`, or if a 429 says that the credit is used up.
    """
    of_host = BY_DOMAIN.get(".".join(host.lower().rsplit(".", 2)[-2:]), parse_compatible)
    return of_host(status, headers, body)
