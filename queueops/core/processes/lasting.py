"""Troubles that last, in the log: told when they begin and when they are over, and not each second in between."""

from __future__ import annotations

import logging
import time


class LastingTrouble:
    """The troubles that keep one thing from going on; for one thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: set[str] = set()
        self._began_at = 0.0

    def tell(self, kind: str, words: str, *, level: int = logging.WARNING, traceback: bool = False) -> None:
        """
        Tell of it, unless it was told since the last end.

        Args:
            kind: Identifies the trouble, however its words differ.
            traceback: Of the error that is being handled.
        """
        if kind in self._told:
            return
        if not self._told:
            self._began_at = time.monotonic()
        self._told.add(kind)
        self._logger.log(level, "%s", words, exc_info=traceback)

    @property
    def lasts(self) -> bool:
        return bool(self._told)

    def end(self) -> float | None:
        """Note that it goes on again. Return for how many seconds it did not; None: there was no trouble."""
        if not self._told:
            return None
        self._told.clear()
        return time.monotonic() - self._began_at
