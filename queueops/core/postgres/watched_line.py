"""
Connections that close themselves when the server no longer answers.

The kernel closes a connection whose packets are lost. A proxy or balancer that takes packets but has lost its server
looks like a long statement. Therefore a second connection asks the server whether it still works for the first one.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NoReturn

import psycopg
from psycopg._preparing import Key, Prepare, PrepareManager
from psycopg._queries import PostgresClientQuery, PostgresQuery
from psycopg.abc import PQGen

LINE_SILENT_SECONDS = 20.0
BESIDE_SECONDS = 3  # for the second connection, and again for its answer
AGAIN_SECONDS = 1.0  # before an idle server is asked again: its result may have been on the way
STATE = "SELECT pg_backend_pid(), (SELECT state FROM pg_stat_activity WHERE pid = %s)"


class SilentLine(psycopg.OperationalError):
    """Nobody answers on a connection."""


class _Statements(PrepareManager):
    """
    The statements that a connection may prepare. psycopg would keep the last hundred others, too. Django's cursors
    write all values into the text: payloads would stay in memory, and many megabytes where many rows went at once.
    """

    def maybe_add_to_cache(self, query: PostgresQuery, prep: Prepare, name: bytes) -> Key | None:
        if isinstance(query, PostgresClientQuery):
            return self.key(query) if self._names else None  # the key has the result looked at for a ROLLBACK
        return super().maybe_add_to_cache(query, prep, name)


class WatchedConnection(psycopg.Connection[Any]):
    """
    Attributes:
        silent_seconds: The server is asked after each silence of this length.
    """

    silent_seconds = LINE_SILENT_SECONDS

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prepared = _Statements()

    def wait(self, gen: PQGen[Any], *arguments: Any, **options: Any) -> Any:
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        """Pass the driver's steps on; the driver polls each tenth of a second while nothing arrives."""
        was_idle = False
        ask_at = time.monotonic() + self.silent_seconds
        try:
            state = next(gen)
            while True:
                ready = yield state
                if ready:
                    was_idle, ask_at = False, time.monotonic() + self.silent_seconds
                elif time.monotonic() >= ask_at:
                    was_idle = self._is_idle(was_idle=was_idle)
                    ask_at = time.monotonic() + (AGAIN_SECONDS if was_idle else self.silent_seconds)
                state = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _is_idle(self, *, was_idle: bool) -> bool:
        """
        Whether the server has nothing to do for this connection.

        Raises:
            SilentLine: The server was idle at the last look, too, or does not answer.
        """
        is_idle = False
        try:
            with _Beside.connect(
                self.info.dsn, password=self.info.password, connect_timeout=BESIDE_SECONDS, autocommit=True
            ) as beside:
                [(pid, state)] = beside.execute(STATE, [self.info.backend_pid]).fetchall()
                # Behind a pooler nobody knows which work belongs to which connection.
                is_idle = pid == beside.info.backend_pid and (state is None or state.startswith("idle"))
        except psycopg.Error as error:
            if "FATAL" not in str(error):  # FATAL is an answer: the server refuses new connections
                self._give_up()
        if is_idle and was_idle:
            self._give_up()
        return is_idle

    def _give_up(self) -> NoReturn:
        self.pgconn.finish()
        raise SilentLine("the line to the database is silent; it was given up")


class _Beside(WatchedConnection):
    silent_seconds = BESIDE_SECONDS

    def _is_idle(self, *, was_idle: bool) -> bool:
        self._give_up()


class WatchingDriver:
    """psycopg for Django's backend, with WatchedConnection as its connection."""

    connect = WatchedConnection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)
