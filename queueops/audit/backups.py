"""Backups as the audit trail knows them: `manage.py backup` notes its own, `note_backup` another program's."""

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
    """`at`: when it was whole; None: none was noted. `seconds`: since then, or since the database was made."""

    at: datetime | None
    by: str
    seconds: float


def note_backup(by: str) -> None:
    """Write down that a backup is whole. `by`: what made it."""
    trail.record(actor="system:backup", action="back_up", target=TARGET, after={"by": by[:MAX_NAME_LENGTH]})


def last_backup() -> LastBackup:
    with connection.cursor() as cursor:
        cursor.execute(with_clocks(LAST), [TARGET])
        at, by, seconds = cursor.fetchone()
    return LastBackup(at, by, seconds or 0.0)
