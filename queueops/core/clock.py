"""
The one clock that counts: the database's.

The time that is compared with a stored time (a lease, a schedule, an expiry) comes from this module alone. SQL
takes it from `{{now}}`, `{{clock_now}}` or `{{statement_now}}`, the ORM from `Now`. A test can thus move time for all
of them at once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from django.contrib.postgres import functions as postgres
from django.db import connection
from django.db.models import functions

LATEST = datetime(9999, 1, 1, tzinfo=UTC)  # the latest time that is shown: no datetime is after that year

CLOCKS = {"now": "now()", "clock_now": "clock_timestamp()", "statement_now": "statement_timestamp()"}


def with_clocks(statement: str) -> str:
    """Fill in the clocks of a statement that is written in code; `load_sql` does so for statements in files."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: CLOCKS[found[1]], statement)


class Now(functions.Now):
    """
    Django's Now, for times that are compared or stored. A column's default uses Django's own, which a test cannot move.
    """

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, **context, template=CLOCKS["statement_now"])


class TransactionNow(postgres.TransactionNow):
    """The transaction's start, as `{{now}}` gives it in SQL."""

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, **context, template=CLOCKS["now"])


def database_now() -> float:
    """Return the seconds since 1970 at this moment, not at the transaction's start."""
    with connection.cursor() as cursor:
        cursor.execute(with_clocks("SELECT extract(epoch FROM {{clock_now}})::float8"))
        [now] = cursor.fetchone()
    return float(now)


def database_moment() -> datetime:
    """Return the database's time at this moment as a datetime."""
    return datetime.fromtimestamp(database_now(), UTC)


def foretold(at: float) -> datetime:
    """Return a forecast time, given in seconds since 1970; LATEST if a limit admits so little that it never comes."""
    return datetime.fromtimestamp(at, UTC) if at < LATEST.timestamp() else LATEST
