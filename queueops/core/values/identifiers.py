"""UUIDv7, and the time in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID


def first_id_at(moment: datetime, *, moved_by: timedelta = timedelta(0)) -> UUID:
    """
    Return the smallest UUIDv7 of a moment's millisecond, clipped to 48 bits: ids made before it are smaller.

    Args:
        moved_by: Added to the moment here, because a datetime near the year 1 or 9999 cannot be moved.
    """
    seconds = moment.timestamp() + moved_by.total_seconds()
    return UUID(int=min(2**48 - 1, max(0, int(seconds * 1000))) << 80)


def time_of(identifier: UUID) -> datetime:
    """Return when a UUIDv7 was made."""
    milliseconds = identifier.int >> 80
    return datetime.fromtimestamp(min(milliseconds / 1000, 253_000_000_000), tz=UTC)
