"""
Connections that end themselves where nobody answers any more.

The kernel ends a line whose packets are lost. A peer that takes packets and passes nothing on (a proxy, a balancer
whose server has gone) looks like a long statement. Therefore another line asks the server whether it works at one.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NoReturn

import psycopg
from psycopg.abc import PQGen

LINE_SILENT_SECONDS = 20.0
BESIDE_SECONDS = 3  # for a line beside, and again for its answer
AGAIN_SECONDS = 1.0  # what the server had done when it was asked may have been under way
STATE = "SELECT pg_backend_pid(), (SELECT state FROM pg_stat_activity WHERE pid = %s)"


class SilentLine(psycopg.OperationalError):
    """Nobody answers on a connection."""


class WatchedConnection(psycopg.Connection[Any]):
    """
    Attributes:
        silent_seconds: The server is asked after each silence of this length.
    """

    silent_seconds = LINE_SILENT_SECONDS

    def wait(self, gen: PQGen[Any], *arguments: Any, **options: Any) -> Any:
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        """Pass on what the driver does, which asks each tenth of a second while nothing comes."""
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
        Whether the server has nothing to do for this line.

        Raises:
            SilentLine: It had nothing to do before, or does not answer.
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
            if "FATAL" not in str(error):  # it answers, and lets nobody in now
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
    """psycopg for Django's backend, with these connections."""

    connect = WatchedConnection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)
