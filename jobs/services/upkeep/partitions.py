"""Makes and drops the partitions (parts) of the event log, one a day, and of the audit trail, one a month."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import psycopg
from django.db import OperationalError, connection, transaction
from django.utils import timezone

PARTITIONS_AHEAD = 7


@dataclass(frozen=True, slots=True)
class Partitioned:
    """
    A table that is partitioned by `created_at`, in UTC.

    Attributes:
        shape: The date format at the end of a part's name; names sort in the order of their dates.
        first_of: Returns the first day of the part that a day belongs to.
        longest: The greatest length of a part.
    """

    table: str
    shape: str
    first_of: Callable[[date], date]
    longest: timedelta

    def part_of(self, day: date) -> tuple[str, str, str]:
        """The name and bounds of the part that a day belongs to."""
        first = self.first_of(day)
        last = self.first_of(first + self.longest)
        return f"{self.table}_{first:{self.shape}}", f"{first} 00:00+00", f"{last} 00:00+00"

    def day_of(self, name: str) -> date:
        """The first day of a part."""
        return datetime.strptime(f"{name.rpartition('_')[2]} +0000", f"{self.shape} %z").date()

    def before(self, day: date) -> list[str]:
        """The parts that end at this day or earlier, the oldest first."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
                " WHERE inhparent = %s::regclass AND relname ~ '_[0-9]+$' AND relname < %s ORDER BY relname",
                [self.table, self.part_of(day)[0]],
            )
            return [name for (name,) in cursor.fetchall()]


EVENTS = Partitioned("jobs_jobevent", "%Y%m%d", lambda day: day, timedelta(days=1))
AUDIT = Partitioned("jobs_auditentry", "%Y%m", lambda day: day.replace(day=1), timedelta(days=31))


def make_partitions(*, ahead: int = PARTITIONS_AHEAD) -> list[str]:
    """
    Make the parts of today (UTC) and the days ahead.

    Attaching a ready table takes a weaker lock than creating a partition in place. A lock timeout keeps writers from
    queueing behind a long query; the next round tries again.

    Returns:
        The names of the parts made.
    """
    today = timezone.now().date()
    days = [today + timedelta(days=offset) for offset in range(ahead + 1)]
    wanted = {kept.part_of(day)[0]: (kept, *kept.part_of(day)[1:]) for kept in (EVENTS, AUDIT) for day in days}
    return [name for name, (kept, first, last) in wanted.items() if _make(kept.table, name, first, last)]


def _make(table: str, name: str, first: str, last: str) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone() != (None,):
            return False
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS)")
        cursor.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{last}')")
    return True


RESTORED = "_restored"


def make_restored_part(day: date) -> None:
    """Make a part of the event log for events that come back from the archive, if the day has none."""
    name, first, last = EVENTS.part_of(day)
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone() == (None,):
            _make(EVENTS.table, name + RESTORED, first, last)


def restored_parts() -> list[tuple[str, date]]:
    """The parts that were made for restored events, each with its day."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
            " WHERE inhparent = %s::regclass AND relname ~ %s ORDER BY relname",
            [EVENTS.table, f"_[0-9]+{RESTORED}$"],
        )
        return [(name, EVENTS.day_of(name.removesuffix(RESTORED))) for (name,) in cursor.fetchall()]


def drop_part(name: str) -> bool:
    """Drop a part; return whether it was dropped. A part that is being read stays, and the next round tries again."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            cursor.execute(f"DROP TABLE {name}")
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            return False
        raise
    return True
