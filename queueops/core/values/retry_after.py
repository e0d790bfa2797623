"""Reading a provider's Retry-After header, which may hold anything."""

import logging
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_SECONDS = 86_400.0
# Statuses that may be due to a quota. A 429 always is, and a 420, which is older.
MAY_SPEAK_OF_A_QUOTA = frozenset({400, 403, 413, 420, 429, 498})
A_MOMENT = 1_000_000_000.0  # a larger number is a time since 1970, in seconds, and no span
MILLISECONDS = 100 * A_MOMENT  # a larger number is a time since 1970 in milliseconds
CLOCKS_DIFFER_SECONDS = 5.0
MAX_CHARACTERS = 100  # no date is longer, and reading a long one costs time

logger = logging.getLogger(__name__)

_SECONDS = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,40})?) ?(?:s|sec|secs|seconds)?")
_IN_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")  # OpenAI and others; Azure
_IN_SECONDS = ("retry-after", "x-ratelimit-retry-after", "x-ai-ratelimit-retry-after")  # all; gateways; Kong's AI
_HEADERS = frozenset({*_IN_MILLISECONDS, *_IN_SECONDS, "date"})
MAX_SPREAD_SECONDS = 60.0


def spread(seconds: float, chance: float) -> float:
    """
    Return the wait, or a longer one: callers that were told the same time must not come back together.

    It is up to a tenth longer, or up to a second where a tenth is less. The addition never exceeds the wait itself or
    MAX_SPREAD_SECONDS.

    Args:
        chance: Uniform in [0, 1), drawn by the caller.
    """
    return seconds + chance * min(seconds, max(1.0, seconds / 10), MAX_SPREAD_SECONDS)


def told_delay(headers: Mapping[str, str]) -> float | None:
    """
    Return the seconds that an answer asks us to wait, by `retry-after-ms`, `Retry-After` or a header of that meaning;
    None: it asks for no wait.
    """
    told = {name.lower(): text for name, text in headers.items() if name.lower() in _HEADERS}
    for name in _IN_MILLISECONDS:
        exact = _SECONDS.fullmatch(told.get(name, "")[:MAX_CHARACTERS].strip())
        if exact and float(exact[1]) > 0:
            return min(float(exact[1]) / 1000, MAX_RETRY_AFTER_SECONDS)
    waits = (parse_retry_after(told.get(name), date=told.get("date")) for name in _IN_SECONDS)
    return next(filter(None, waits), None)


def parse_retry_after(value: str | None, *, date: str | None = None) -> float | None:
    """
    Return the seconds to wait, at most MAX_RETRY_AFTER_SECONDS; None if the value makes no sense.

    Args:
        value: The header. It holds seconds, also with their unit, or a moment (an HTTP date, or seconds or milliseconds
            since 1970). If the header came several times, the longest wait counts. Negative, past and garbled values
            are ignored.
        date: The answer's own Date header. The wait until a moment is counted from it, so that the difference
            between the provider's clock and ours does not matter.
    """
    if value is None:
        return None
    text = value[:MAX_CHARACTERS].strip()
    told = [_SECONDS.fullmatch(part.strip()) for part in text.split(",")]
    if all(told):
        seconds = max(float(one[1]) for one in told if one)
        if seconds > A_MOMENT:  # decades, so no span: some servers state a time
            logger.info("Retry-After: %s is taken for a moment", text)
            seconds = (seconds / 1000 if seconds > MILLISECONDS else seconds) - their_now({"date": date or ""})
    else:
        until = _http_date(text)
        if until is None:
            return None
        seconds = (until - (_http_date((date or "")[:MAX_CHARACTERS]) or datetime.now(UTC))).total_seconds()
    return min(seconds, MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) and seconds > 0 else None


def their_now(headers: Mapping[str, str]) -> float:
    """
    Return the seconds since 1970 by the clock of who answered, to count moments from that an answer states.

    A clock that differs from ours by less than CLOCKS_DIFFER_SECONDS is taken for ours: a Date has no fractions.
    """
    date = next((text for name, text in headers.items() if name.lower() == "date"), "")
    told, ours = _http_date(date[:MAX_CHARACTERS]), time.time()
    return ours if told is None or abs(told.timestamp() - ours) < CLOCKS_DIFFER_SECONDS else told.timestamp()


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
