"""The lines that a handler logs while it carries out a job: kept with the attempt, bounded and masked."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextvars import ContextVar

from jobs.tracebacks import fit_line

FIRST_LINES, LAST_LINES = 10, 40  # of an attempt: how it began and how it ended say most
OURS = ("jobs.executor", "jobs.services", "queueops", "ratelimits", "django")

Line = tuple[int, str, str]
"""Milliseconds since the attempt began, the level, and the text."""


class AttemptLog:
    """Lines of one attempt, as they come; any thread may add some."""

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
        The lines as they are stored; where some were left out, one says how many.

        Args:
            secrets: Masked wherever they stand, beside what masking.py finds by itself; longest first.
        """
        lines = [*self._first, *self._last]
        if self._left_out:
            lines.insert(FIRST_LINES, (self._last[0][0], "", f"{self._left_out} lines left out"))
        return [(at, level, fit_line(text, secrets)) for at, level, text in lines]


current_log: ContextVar[AttemptLog | None] = ContextVar("attempt_log", default=None)


class AttemptLogHandler(logging.Handler):
    """Keeps what handlers and the libraries they call log, as far as the installation's level lets it through."""

    def emit(self, record: logging.LogRecord) -> None:
        log = current_log.get()
        if log is None or record.name.startswith(OURS):
            return
        try:
            log.add(record.levelname, record.getMessage())
        except Exception:  # noqa: BLE001 - a line that cannot be written must not fail the job that wrote it
            self.handleError(record)


KEEPER = AttemptLogHandler()  # one a process: with two, each line would be kept twice
