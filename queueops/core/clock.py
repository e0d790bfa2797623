"""The one clock that counts: the database's."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection

LATEST = datetime(9999, 1, 1, tzinfo=UTC)  # that is told: no datetime is after that year


def database_now() -> float:
    """Seconds since 1970 at this moment, not at the transaction's start."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        [now] = cursor.fetchone()
    return float(now)


def database_moment() -> datetime:
    """The same as a datetime."""
    return datetime.fromtimestamp(database_now(), UTC)


def foretold(at: float) -> datetime:
    """A time that was reckoned, in seconds since 1970; LATEST where a limit lets so little through that none comes."""
    return datetime.fromtimestamp(at, UTC) if at < LATEST.timestamp() else LATEST
