"""What the names that providers give their quotas say about them. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Scope = Literal["project", "user", "project_user", "global", ""]
CountedUnit = Literal["requests", "tokens", "input_tokens", "output_tokens", ""]
CallKind = Literal["read", "write", ""]
Period = Literal["minute", "day", "other", ""]

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9])")
_NOT_A_WORD = re.compile(r"[^a-z0-9{}]+")
_DAY_WORDS = ("per day", "daily", "1 d ", "1 day ", " rpd ", " tpd ")
_MINUTE_WORDS = ("per minute", "per min ", "1 min ", " rpm ", " tpm ")


class QuotaName(NamedTuple):
    """Empty: the name does not say."""

    scope: Scope = ""
    unit: CountedUnit = ""
    call_type: CallKind = ""
    period: Period = ""

    def or_else(self, other: QuotaName) -> QuotaName:
        """Return this, completed by what another name of the same quota says."""
        return QuotaName(
            self.scope or other.scope,
            self.unit or other.unit,
            self.call_type or other.call_type,
            self.period or other.period,
        )


def read_quota_name(name: str) -> QuotaName:
    """
    Read a name in any of the forms providers use.

    `WriteRequestsPerMinutePerUser`, `Write requests per minute per user`, `sheets.googleapis.com/write_requests`,
    `1/min/{project}/{user}`, `GenerateContentInputTokensPerModelPerMinute-FreeTier`, `tokens per min (TPM)`. A name
    with a period that counts no users counts a project.
    """
    words = f" {_NOT_A_WORD.sub(' ', _CAMEL.sub(' ', name).lower())} "
    period = _period(words)
    return QuotaName(_scope(words, has_period=bool(period)), _unit(words), _call_type(words), period)


def _period(words: str) -> Period:
    if any(word in words for word in _DAY_WORDS):
        return "day"
    if any(word in words for word in _MINUTE_WORDS):
        return "minute"
    if re.search(r" per (second|hour|week|month|[0-9]+) | 1 [a-z]+ \{", words):
        return "other"
    return ""


def _scope(words: str, *, has_period: bool) -> Scope:
    if "{user}" in words:
        return "project_user" if "{project}" in words else "user"
    if " per user " in words:
        return "user"
    return "project" if has_period or " per project " in words or "{project}" in words else ""


def _unit(words: str) -> CountedUnit:
    if " input token" in words:
        return "input_tokens"
    if " output token" in words:
        return "output_tokens"
    if " token" in words or re.search(r" tp[md] ", words):
        return "tokens"
    return "requests" if " request" in words or re.search(r" rp[md] ", words) else ""


def _call_type(words: str) -> CallKind:
    if " write " in words:
        return "write"
    return "read" if " read " in words else ""
