"""Keeps the lines that a handler logs while it carries out a job: with the attempt, bounded and masked."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextvars import ContextVar

from jobs.tracebacks import fit_line

FIRST_LINES, LAST_LINES = 10, 40  # lines that are kept of an attempt: its beginning and end say most
OURS = ("jobs.executor", "jobs.services", "queueops", "ratelimits", "django")

Line = tuple[int, str, str]
"""Milliseconds since the attempt began, the level, and the text."""


class AttemptLog:
    """The lines of one attempt, in the order of logging; any thread may add lines."""

    __slots__ = ("_began", "_first", "_last", "_left_out")

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: list[Line] = []
        self._last: list[Line] = []
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._first)

    def add(self, level: str, text: str) -> None:
        line = (round((time.monotonic() - self._began) * 1000), level, text)
        if len(self._first) < FIRST_LINES:
            self._first.append(line)
            return
        self._last.append(line)
        if len(self._last) > LAST_LINES:
            del self._last[0]
            self._left_out += 1

    def kept(self, secrets: Sequence[str] = ()) -> list[Line]:
        """
        Return the lines to be stored; if lines were left out, an extra line says how many.

        Args:
            secrets: Masked wherever they occur, besides the secrets that masking.py finds by itself; longest first.
        """
        lines = [*self._first, *self._last]
        if self._left_out:
            lines.insert(FIRST_LINES, (self._last[0][0], "", f"{self._left_out} lines left out"))
        return [(at, level, fit_line(text, secrets)) for at, level, text in lines]


current_log: ContextVar[AttemptLog | None] = ContextVar("attempt_log", default=None)


class AttemptLogHandler(logging.Handler):
    """Keeps the lines that job handlers and their libraries log, if the installation's log level admits them."""

    def emit(self, record: logging.LogRecord) -> None:
        log = current_log.get()
        if log is None or record.name.startswith(OURS):
            return
        try:
            log.add(record.levelname, record.getMessage())
        except Exception:  # noqa: BLE001 - a line that cannot be written must not fail the job that wrote it
            self.handleError(record)


KEEPER = AttemptLogHandler()  # one per process: with two, each line would be kept twice
