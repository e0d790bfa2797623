"""
Django's PostgreSQL backend, changed in five ways. Transactions begin with the settings of the block they are in, and
commit together with their notifications. Errors tell what a server cannot do for now. The pool hands out no connection
that is known to have ended, and no thread keeps one that has.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from django.db.backends.utils import debug_transaction
from django.utils.functional import cached_property
from psycopg.pq import TransactionStatus

from .conditions import CONDITIONS, ConditionWrapper, ReadOnlyServer
from .local_settings import (
    Settings,
    begin_statement,
    of_the_block,
    set_statement,
    unset,
    wanted_guard,
    wanted_settings,
)
from .watched_line import SilentLine, WatchingDriver

SILENCE_SECONDS = 1.0  # how long new connections fail at once after a silent one, so that no request waits twice
IDLE_SECONDS = 1.0  # a connection that was left alone for so long may have ended meanwhile
DISTRUST_SECONDS = 1.0  # the least time between two renewals of the pool: at a standby, every write asks for one

Djangos: Any = base.DatabaseWrapper  # the stubs lack the methods that a backend overrides


class DatabaseWrapper(Djangos):
    """
    Attributes:
        applied: The settings that the open transaction was begun with.
        kept: A driver's connection that is not replaced: whoever uses it must hear of its end.
    """

    Database = WatchingDriver()
    connection: Any
    closed_in_transaction: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.applied: Settings | None = None
        self.kept: Any = None
        self._announced: set[str] = set()
        self._silent_at = self._used_at = float("-inf")
        self.execute_wrappers.append(_execute)

    def apply(self, settings: Settings | None, instead_of: Settings | None) -> None:
        """Change the settings of the open transaction."""
        self.applied = settings
        changed = settings or unset(instead_of or ())
        # A broken transaction takes no statement, and its rollback also undoes the settings.
        if changed and self.connection.info.transaction_status != TransactionStatus.INERROR:
            self._run(set_statement(changed))

    @property
    def queries_logged(self) -> bool:
        """Whether queries are kept: only on request. Under DEBUG, Django would keep texts that nobody here reads."""
        return bool(self.force_debug_cursor)

    def announce(self, channel: str) -> None:
        """Notify a channel at the commit of the open transaction, or at once where none is open."""
        self.ensure_connection()
        if self.get_autocommit():
            self._run(_notifications([channel]))
        else:
            self._announced.add(channel)

    @cached_property
    def wrap_database_errors(self) -> ConditionWrapper:
        return ConditionWrapper(self)

    def ensure_connection(self) -> None:
        """Connect anew if the connection has ended: Django looks only at a request's end, and not all work is one."""
        is_replaceable = self.autocommit and not self.in_atomic_block and self.connection not in (None, self.kept)
        if is_replaceable and self._has_ended():
            self.close()
        super().ensure_connection()

    def close_if_unusable_or_obsolete(self) -> None:
        """Forget a transaction that the work before left open, too: its thread could not connect any more."""
        if self.connection is not None and self._has_ended():
            self.close()  # otherwise Django's look at it would connect anew, for nothing and perhaps in vain
        super().close_if_unusable_or_obsolete()
        if self.closed_in_transaction:
            self.connection, self.in_atomic_block, self.closed_in_transaction = None, False, False

    @property
    def has_open_transaction(self) -> bool:
        driver = self.connection
        return driver is not None and driver.info.transaction_status != TransactionStatus.IDLE and not driver.closed

    def _has_ended(self) -> bool:
        before, self._used_at = self._used_at, time.monotonic()
        if self.connection.closed or self._used_at - before < IDLE_SECONDS:
            return bool(self.connection.closed)
        try:
            # Whatever else the server may write to it is read here and kept.
            while not self.has_open_transaction and _has_news(self.connection):
                self.connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if self.pool and time.monotonic() - self._silent_at < SILENCE_SECONDS:
            raise psycopg.OperationalError("the database did not answer a moment ago")
        connection = super().get_new_connection(conn_params)
        if self.pool and _has_news(connection):
            # The server writes to an idle connection only to close it, and then closes all. Without a drain, each of
            # them would fail a request.
            self.pool.drain()
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection

    def heed(self, error: psycopg.Error) -> None:
        """Renew the pool if an error says that its connections are of no use."""
        if isinstance(error, SilentLine):
            self._silent_at = time.monotonic()
        broken = self.connection is not None and self.connection.broken
        if broken or CONDITIONS.get(error.sqlstate or "") is ReadOnlyServer:
            self.distrust_pool()

    def distrust_pool(self) -> None:
        """Replace the pool's connections; a connection in use is replaced when it comes back."""
        pool, now = self.pool, time.monotonic()
        if pool and now - getattr(pool, "distrusted_at", float("-inf")) >= DISTRUST_SECONDS:
            pool.distrusted_at = now
            pool.drain()

    def _set_autocommit(self, autocommit: bool) -> None:  # noqa: FBT001 (Django's signature)
        settings = None if autocommit else wanted_settings()
        self.applied = None
        if settings is None:
            super()._set_autocommit(autocommit)
            return
        # The driver stays in autocommit mode: otherwise it would send its own BEGIN.
        guard = wanted_guard()
        try:
            begun = self._run(begin_statement(settings, guard))
            if guard and (row := _last_row(begun)):
                guard.refuse(*row)
        except BaseException:
            self.rollback()
            raise
        self.applied = settings

    def _commit(self) -> Any:
        self.applied = None
        if not self._announced:
            return super()._commit()
        # One message for both: sent apart, the notifications would cost each commit another round trip.
        statement = _notifications(self._announced) + b"; COMMIT"
        self._announced = set()
        with debug_transaction(self, "COMMIT"):
            return self._run(statement)

    def _rollback(self) -> Any:
        self.applied, self._announced = None, set()
        return super()._rollback()

    def _savepoint_rollback(self, sid: str) -> None:
        super()._savepoint_rollback(sid)
        if self.applied is not None:  # the rollback undid settings made after the savepoint
            self._run(set_statement(self.applied))

    def _run(self, statement: bytes) -> psycopg.Cursor[Any]:
        with self.wrap_database_errors:
            ran: psycopg.Cursor[Any] = self.connection.execute(statement, prepare=False)
            return ran


def _execute(execute: Callable[..., Any], *arguments: Any) -> Any:
    with of_the_block(arguments[-1]["connection"]):
        return execute(*arguments)


def _notifications(channels: Iterable[str]) -> bytes:
    """Return the statement that notifies channels; their names are the program's own and need no quoting."""
    return b"SELECT " + b", ".join(b"pg_notify('" + name.encode() + b"', '')" for name in sorted(channels))


def _last_row(ran: psycopg.Cursor[Any]) -> Any:
    """Return the row of the last of several statements that went in one message."""
    while ran.nextset():
        pass
    return ran.fetchone()


def _has_news(connection: Any) -> bool:
    if connection.closed:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))
