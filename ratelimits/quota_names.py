"""Reading the names that providers give their quotas. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

Scope = Literal["project", "user", "project_user", "global", ""]
CountedUnit = Literal["requests", "tokens", "input_tokens", "output_tokens", ""]
CallKind = Literal["read", "write", ""]
Period = Literal["minute", "day", "other", ""]

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9])")
_NOT_A_WORD = re.compile(r"[^a-z0-9{}]+")
_DAY_WORDS = ("per day", "by day", "day limit", "daily", "1 d ", "1 day ", " rpd ", " tpd ")
_MINUTE_WORDS = ("per minute", "per min ", "1 min ", " rpm ", " tpm ")
_LIMITED = (
    r"(?:_count\b| ?/ ?(?:sec|min|hour|day|month)|(?:[ _-](?:rate|usage|count))?[ _-](?:limit|quota|per|exceeded))"
)
_CONSTANT = re.compile(r"\b[A-Z]{1,40}(?:_[A-Z]{1,40}){1,10}\b")
_UNIT_WORDS: dict[CountedUnit, re.Pattern[str]] = {
    "input_tokens": re.compile(rf"(?<![a-z])(?:input|prompt)[ _-]tokens?{_LIMITED}|\bITPM\b", re.IGNORECASE),
    "output_tokens": re.compile(rf"(?<![a-z])(?:output|completion)[ _-]tokens?{_LIMITED}|\bOTPM\b", re.IGNORECASE),
    "tokens": re.compile(rf"(?<![a-z])tokens?{_LIMITED}|\bTP[MD]\b|too many tokens\b", re.IGNORECASE),
    "requests": re.compile(rf"(?<![a-z])(?:requests?|calls?|queries){_LIMITED}|\b(?:RP[MDS]|QPS)\b", re.IGNORECASE),
}
_UNIT_CODES: dict[CountedUnit, re.Pattern[str]] = {
    "input_tokens": re.compile(r"^(?:input|prompt)_tokens?\b|^(?:input|prompt)_tokens?_"),
    "output_tokens": re.compile(r"^(?:output|completion)_tokens?\b|^(?:output|completion)_tokens?_"),
    "tokens": re.compile(r"^tokens?(?:_|$)"),
    "requests": re.compile(r"^requests(?:_|$)|^request_(?:rate_)?limit"),
}


class QuotaName(NamedTuple):
    """The facts that a quota's name states; an empty field: the name does not say."""

    scope: Scope = ""
    unit: CountedUnit = ""
    call_type: CallKind = ""
    period: Period = ""

    def or_else(self, other: QuotaName) -> QuotaName:
        """Return these facts, completed by the facts of another name of the same quota."""
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
    that has a length of time but no users names a project's quota.
    """
    words = f" {_NOT_A_WORD.sub(' ', _CAMEL.sub(' ', name).lower())} "
    period = _period(words)
    return QuotaName(_scope(words, has_period=bool(period)), _unit(words), _call_type(words), period)


def read_unit(message: str, codes: Iterable[str] = ()) -> CountedUnit:
    """
    Return the unit that is used up, according to a refusal that names no quota; empty: no unit is named, or several.

    A unit is named by words such as `exceeded the token rate limit` or `TPM`, by a code such as `token_limit_exceeded`,
    or by a type such as `tokens`.
    """
    prose = _CONSTANT.sub(" ", message)  # Databricks' REQUEST_LIMIT_EXCEEDED comes before the quota's own name
    found = {unit for unit, words in _UNIT_WORDS.items() if words.search(prose)}
    for code in codes:
        found |= {unit for unit, words in _UNIT_CODES.items() if words.search(code)}
    if len(found - {"tokens"}) == 1 and "requests" not in found:
        found.discard("tokens")  # input tokens are tokens, too
    return found.pop() if len(found) == 1 else ""


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
    return "requests" if " request" in words or re.search(r" rp[md] | quer(?:y|ies) ", words) else ""


def _call_type(words: str) -> CallKind:
    if " write " in words:
        return "write"
    return "read" if " read " in words else ""
