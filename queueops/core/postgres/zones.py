"""Time zones whose clock Python and the database read alike."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from django.db import DataError, connection, transaction

# PostgreSQL takes `CET` for an abbreviation without summer time, and Python for a zone that has it.
SEASONS = (datetime(2020, 1, 1, 12, tzinfo=UTC), datetime(2020, 7, 1, 12, tzinfo=UTC))
OF_THE_HOST = frozenset({"localtime", "posixrules", "Factory"})  # files of a system's zones that name no place


@cache
def zone_names() -> frozenset[str]:
    """Return the names that mean the same clock on every host."""
    return frozenset(available_timezones() - OF_THE_HOST)


def is_zone(name: str) -> bool:
    """
    Whether the database, where periods begin, and Python, which computes their ends, know a zone and agree about it.

    A stored zone that the database does not know would stop each statement that reads it.
    """
    there = _in_database(name) if name in zone_names() else []
    return bool(there) and there == [moment.astimezone(ZoneInfo(name)).replace(tzinfo=None) for moment in SEASONS]


def zone_of(name: str) -> ZoneInfo:
    """
    Return a stored zone; UTC if Python does not know the zone, or no longer knows it.

    An error here would stop house-keeping for all projects because of the row of one.
    """
    return known_zone(name) or ZoneInfo("UTC")


@lru_cache  # without it, each look at a zone that is not there would search the disk
def known_zone(name: str) -> ZoneInfo | None:
    """Return a stored zone; None: Python does not know it on this host."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _in_database(name: str) -> list[datetime]:
    """Return the zone's clock in both seasons; empty: the database does not know the zone."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT at AT TIME ZONE %s FROM unnest(%s::timestamptz[]) AS at", [name, list(SEASONS)])
            return [clock for (clock,) in cursor.fetchall()]
    except DataError:
        return []
