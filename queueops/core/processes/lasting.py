"""Logs lasting troubles once when they begin, and not again each second until they end."""

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
        Log a trouble, unless its kind was logged since the last end.

        Args:
            kind: Identifies the trouble, however its words differ.
            traceback: Whether the traceback of the error that is being handled is logged, too.
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
        """Note that the troubles are over. Return for how many seconds they lasted; None: there was none."""
        if not self._told:
            return None
        self._told.clear()
        return time.monotonic() - self._began_at
