"""Values that a process reads once and keeps for some seconds, because many screens ask for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")

_every: list[CachedRead[object]] = []


class CachedRead(Generic[Value]):
    """
    The value of a read, kept for some seconds.

    While one caller reads anew, others get the earlier value. Callers wait only for the very first read.
    """

    def __init__(self, read: Callable[[], Value], *, seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: tuple[float, Value] | None = None
        _every.append(self)  # type: ignore[arg-type]  # the list is used only to forget values

    def get(self) -> Value:
        known = self._known
        if known is not None and time.monotonic() - known[0] < self._seconds:
            return known[1]
        if not self._lock.acquire(blocking=known is None):
            assert known is not None  # noqa: S101 - without a known value, `acquire` would have waited
            return known[1]
        try:
            known = self._known
            if known is not None and time.monotonic() - known[0] < self._seconds:
                return known[1]
            value = self._read()
            self._known = (time.monotonic(), value)
            return value
        finally:
            self._lock.release()

    def forget(self) -> None:
        self._known = None


def forget_all() -> None:
    """Forget all kept values, for example after a change that must show at once."""
    for kept in _every:
        kept.forget()
