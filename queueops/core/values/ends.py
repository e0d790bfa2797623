"""When something ends, as people write it: `06:00`, `2h`, `2026-11-29 06:00`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

UNITS = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
END_RULE = "Write a time such as 06:00, a date and a time such as 2026-11-29 06:00, or how long: 90m, 2h, 1d"
_SPAN = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*(m|min|h|d)")


def read_end(text: str, *, now: datetime, zone: tzinfo = UTC) -> datetime:
    """
    Return the moment that a text means. A time without a date is the next such time; no offset means `zone`.

    Raises:
        ValueError: The text has no such form; the message is END_RULE.
    """
    written = text.strip().lower()
    if found := _SPAN.fullmatch(written):
        return now + timedelta(seconds=float(found[1]) * UNITS[found[2]])
    try:
        if ":" in written and len(written) <= len("06:00:00"):
            return _next(time.fromisoformat(written), now.astimezone(zone))
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(END_RULE) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _next(at: time, now: datetime) -> datetime:
    today = datetime.combine(now.date(), at, now.tzinfo)
    return today if today > now else datetime.combine(now.date() + timedelta(days=1), at, now.tzinfo)
