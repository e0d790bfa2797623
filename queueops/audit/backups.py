"""Backups in the audit trail: `manage.py backup` records its own, `note_backup` those of other programs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db import connection

from queueops.core.clock import with_clocks

from . import trail

TARGET = "backup of the database"
MAX_NAME_LENGTH = 100
LAST = """
SELECT noted.created_at, coalesce(noted.after ->> 'by', ''),
       extract(epoch FROM {{clock_now}} - coalesce(noted.created_at, made.at))::float8
  FROM (SELECT min(applied) AS at FROM django_migrations) made
  LEFT JOIN LATERAL (
       SELECT created_at, after FROM jobs_auditentry WHERE target = %s ORDER BY id DESC LIMIT 1
       ) noted ON true
"""


class LastBackup(NamedTuple):
    """`at`: when the last backup was complete, or None. `seconds`: since then, or else since the first migration."""

    at: datetime | None
    by: str
    seconds: float


def note_backup(by: str) -> None:
    """Record that a backup is complete. `by`: the program that made it."""
    trail.record(actor="system:backup", action="back_up", target=TARGET, after={"by": by[:MAX_NAME_LENGTH]})


def last_backup() -> LastBackup:
    with connection.cursor() as cursor:
        cursor.execute(with_clocks(LAST), [TARGET])
        at, by, seconds = cursor.fetchone()
    return LastBackup(at, by, seconds or 0.0)
