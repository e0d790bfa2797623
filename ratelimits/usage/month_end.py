"""Calendar months of a time zone. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from queueops.core.postgres.zones import zone_of

MONTH = re.compile(r"^[0-9]{4}-(0[1-9]|1[0-2])\Z")


def month_end(month: str, zone: str) -> datetime:
    """
    Return when the month after `month` begins, in UTC.

    If clocks go back over that midnight, it comes twice, and the first one counts. If they go forward over it, the
    moment of the jump counts.

    Args:
        month: `YYYY-MM`.
    """
    year, number = int(month[:4]), int(month[5:])
    first = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=zone_of(zone))
    return first.astimezone(UTC)
