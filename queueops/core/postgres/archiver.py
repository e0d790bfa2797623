"""Whether PostgreSQL's write-ahead log reaches its archive."""

from __future__ import annotations

from typing import NamedTuple

from django.db import connection

STANDING = """
SELECT current_setting('archive_mode') <> 'off', last_failed_time > coalesce(last_archived_time, '-infinity'),
       extract(epoch FROM clock_timestamp() - coalesce(last_archived_time, stats_reset))::float8,
       failed_count, coalesce(last_failed_wal, '')
  FROM pg_stat_archiver
"""


class ArchiverStanding(NamedTuple):
    """
    Attributes:
        is_failing: The last attempt to archive a segment failed.
        seconds: Since the last segment arrived; if none has, since the statistics were reset.
        failures: How many so far; PostgreSQL tries each segment again until it arrives.
        segment: The last segment that failed.
    """

    is_on: bool
    is_failing: bool
    seconds: float
    failures: int
    segment: str


def archiver_standing() -> ArchiverStanding:
    with connection.cursor() as cursor:
        cursor.execute(STANDING)
        is_on, is_failing, seconds, failures, segment = cursor.fetchone()
    return ArchiverStanding(is_on, bool(is_on and is_failing), seconds or 0.0, failures, segment)
