"""
Errors of a server that answers but cannot do something for now, told apart by SQLSTATE.

Django reports a write on a standby as a programming mistake (InternalError). For callers, each of these is an outage of
the database: nothing was stored, and the same request may succeed later.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar

from django.db import DatabaseError, OperationalError, connection
from django.db.utils import DatabaseErrorWrapper
from psycopg import Error, errors


class ServerCondition(OperationalError):
    """
    Attributes:
        code: The stable error code of the API's answer.
        reason: The condition in words for people; names no address.
        advice: What an operator can do.
    """

    code: ClassVar[str]
    reason: ClassVar[str]
    advice: ClassVar[str]


class ReadOnlyServer(ServerCondition):
    code = "database_read_only"
    reason = "the database takes no writes: it is a standby, or set to read-only"
    advice = "Point DATABASE_URL at the primary; else look at SHOW default_transaction_read_only."


class DiskFull(ServerCondition):
    code = "database_full"
    reason = "the database's disk is full"
    advice = "Make room on the database server's disk. Nothing that was acknowledged is lost; work goes on by itself."


class OutOfMemory(ServerCondition):
    code = "database_out_of_memory"
    reason = "the database is out of memory"
    advice = "Look into the database's log; lower work_mem or max_connections."


class TooManyConnections(ServerCondition):
    code = "database_connections_used_up"
    reason = "the database takes no more connections"
    advice = "Raise max_connections, lower QUEUEOPS_POOL_SIZE or QUEUEOPS_WORKERS, or put PgBouncer in front."


CONDITIONS: dict[str, type[ServerCondition]] = {
    "25006": ReadOnlyServer,
    "53100": DiskFull,
    "53200": OutOfMemory,
    "53300": TooManyConnections,
}
TRIAL = """
CREATE TEMPORARY TABLE queueops_trial ON COMMIT DROP AS SELECT repeat(md5(n::text), 30) FROM generate_series(1, 100) n
"""

_full_since: list[DiskFull] = []  # at most one: set when the disk is full, cleared when a trial write succeeds


class ConditionWrapper(DatabaseErrorWrapper):
    """Django's translation of the driver's errors, which also raises the conditions above."""

    wrapper: Any

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Error):
            self.wrapper.heed(error)
            if condition := CONDITIONS.get(error.sqlstate or ""):
                self.wrapper.errors_occurred = True
                told = condition(*error.args)
                if isinstance(told, DiskFull):
                    _full_since[:] = [told]
                raise told.with_traceback(traceback) from error
        super().__exit__(kind, error, traceback)


def standing_condition() -> type[ServerCondition] | None:
    """
    Ask the database, and return the condition that prevents writes, as far as this process knows; None: there is none.

    A trial write is made only after a statement of this process found the disk full.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('transaction_read_only')")
        if cursor.fetchone() == ("on",):
            ours: Any = connection  # the stubs lack our backend's methods
            ours.distrust_pool()  # another host may be the primary by now
            return ReadOnlyServer
    return try_to_write() if _full_since else None


def try_to_write() -> type[ServerCondition] | None:
    """Write a few pages that nobody keeps; return the condition that prevents this, or None."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(TRIAL)
    except ServerCondition as condition:
        return type(condition)
    except DatabaseError:
        return None
    _full_since.clear()
    return None


NOT_MIGRATED = "The database lacks tables or columns of this version. Run manage.py migrate first."


def is_not_migrated(error: BaseException) -> bool:
    """Whether a statement failed, for psycopg or for Django, because a table or column is not there."""
    return isinstance(error.__cause__ or error, errors.UndefinedTable | errors.UndefinedColumn)


def in_a_line(error: Exception) -> str:
    """Return the database's message in one line, or NOT_MIGRATED if that is the cause."""
    return NOT_MIGRATED if is_not_migrated(error) else " ".join(str(error).split())
