"""
Reads which open transaction keeps the database from removing deleted rows, how many such rows there are, and how full
the queue of notifications is.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db import connection

# clock_timestamp(), because now() is this transaction's start: one that began later would have a negative age.
OLDEST = """
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(nullif(application_name, ''), usename),
       coalesce(state, ''), left(query, 200)
  FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
   AND xact_start IS NOT NULL
 UNION ALL
SELECT 0, extract(epoch FROM clock_timestamp() - prepared)::float8, owner::text, 'prepared', gid
  FROM pg_prepared_xacts
 WHERE database = current_database()
 ORDER BY 2 DESC
 LIMIT 1
"""
DEAD = """
SELECT relname::text, n_dead_tup, n_live_tup
  FROM pg_stat_user_tables
 ORDER BY n_dead_tup DESC, relname
 LIMIT %s
"""
MAX_NOTIFICATIONS_SHARE = 0.25  # of the server's queue, which PostgreSQL itself warns about once half of it is full


class OpenTransaction(NamedTuple):
    """
    Attributes:
        pid: The backend's process id; 0: a prepared transaction has no backend.
        who: The client's application name, or its account.
        state: The state in pg_stat_activity, or `prepared`.
        query: The first 200 characters of the last statement; for a prepared transaction, its name.
    """

    pid: int
    seconds: float
    who: str
    state: str
    query: str


class DeadRows(NamedTuple):
    """
    The numbers of a table's dead rows, which were deleted or replaced and still take room, and of its living rows.
    PostgreSQL estimates both.
    """

    table: str
    dead: int
    live: int


def oldest_transaction() -> OpenTransaction | None:
    """Return this database's longest open transaction that this account may see; None: there is none."""
    with connection.cursor() as cursor:
        cursor.execute(OLDEST)
        row = cursor.fetchone()
    return OpenTransaction(*row) if row else None


def most_dead_rows(tables: int) -> list[DeadRows]:
    """Return the tables with the most dead rows."""
    with connection.cursor() as cursor:
        cursor.execute(DEAD, [tables])
        return [DeadRows(*row) for row in cursor.fetchall()]


def notification_queue_share() -> float:
    """
    Return how full the server's queue of notifications is, 0 to 1.

    It keeps what a listening session has not read, and such a session reads nothing while its transaction is open. Once
    the queue is full, every transaction that notifies fails at its commit.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notification_queue_usage()")
        [share] = cursor.fetchone()
    return float(share)
