"""How often somebody may do something, in one process."""

from __future__ import annotations

import threading
import time

MAX_TRACKED = 10_000
ROUNDING_SECONDS = 1e-6  # error of a sum of many spacings, which must not refuse the last call of a window


class Rate:
    """
    Keeps a bucket for each identity, which holds a window's worth and refills steadily (GCRA).

    A bucket is one number, however high the rate. Beyond MAX_TRACKED the oldest identities are forgotten.

    Args:
        amount: How many may be taken per window; `take` can name another for an identity.
    """

    def __init__(self, amount: int, *, window_seconds: float = 60.0) -> None:
        self._amount = amount
        self._window_seconds = window_seconds
        self._full_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, identity: str = "", amount: int | None = None) -> float:
        """
        Take one; return 0, or the seconds to wait if none is left.

        Args:
            amount: How many this identity may take per window, if not the usual amount.
        """
        spacing_seconds = self._window_seconds / (amount or self._amount)
        now = time.monotonic()
        with self._lock:
            before = max(now, self._full_at.pop(identity, now))
            wait_seconds = before + spacing_seconds - now - self._window_seconds
            is_taken = wait_seconds <= ROUNDING_SECONDS
            self._full_at[identity] = before + spacing_seconds if is_taken else before
            if len(self._full_at) > MAX_TRACKED:
                del self._full_at[next(iter(self._full_at))]
        return 0.0 if is_taken else wait_seconds
