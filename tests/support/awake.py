"""Seconds in which this machine worked: a promise in seconds holds for a machine that does not stand still."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.05
STILL_SECONDS = 0.25  # between two looks: a machine that works keeps no thread waiting for so long


class AwakeClock:
    """A clock that stands while the machine does, or is too busy for a thread that does nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._still: list[tuple[float, float]] = []  # when it went on, and for how long it had stood still
        self._over = threading.Event()

    def now(self) -> float:
        """Seconds, to be compared with one another."""
        return self._look() - self.stood_still(since=float("-inf"))

    def stood_still(self, *, since: float) -> float:
        """For how long it stood still after a moment of `time.monotonic`."""
        self._look()
        with self._lock:
            return sum(min(seconds, went_on - since) for went_on, seconds in self._still if went_on > since)

    def run(self) -> None:
        """Look again and again, until it is over."""
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def end(self) -> None:
        self._over.set()

    def _look(self) -> float:
        # Whoever asks looks, too: it may be the first to run when the machine goes on.
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at > STILL_SECONDS:
                self._still.append((now, now - self._looked_at - LOOK_SECONDS))
            self._looked_at = now
            return now


@contextmanager
def awake() -> Iterator[AwakeClock]:
    """A clock for the block."""
    clock = AwakeClock()
    looking = threading.Thread(target=clock.run, daemon=True)
    looking.start()
    try:
        yield clock
    finally:
        clock.end()
        looking.join()
