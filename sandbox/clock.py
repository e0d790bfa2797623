"""
The sandbox's time of day: it starts with the wall clock and then runs steadily, so that no window sees a step back.

Windows, delays, outages and batches use this clock. A test moves it on instead of waiting: `PATCH /_sandbox/clock`.
"""

import asyncio
import time
from collections.abc import Callable

_offset = time.time() - time.monotonic()
_moved = 0.0
_sleepers: set[Callable[[], None]] = set()


def now() -> float:
    """Return seconds since 1970."""
    return time.monotonic() + _offset + _moved


def move(seconds: float) -> None:
    """Move the clock on, and wake the sleepers whose time has come."""
    global _moved  # noqa: PLW0603 (one clock of the process)
    _moved += seconds
    _wake_all()


def restore() -> None:
    """Return to real time."""
    global _moved  # noqa: PLW0603
    _moved = 0.0
    _wake_all()


async def sleep(seconds: float) -> None:
    """Sleep until this clock has gone on by so many seconds."""
    await sleep_until(now() + seconds)


async def sleep_until(moment: float, *, unless: asyncio.Event | None = None) -> None:
    """Sleep until a moment, which may be past, or until `unless` is set."""
    if unless is not None:
        tasks = [asyncio.ensure_future(unless.wait()), asyncio.ensure_future(sleep_until(moment))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return
    loop = asyncio.get_running_loop()
    while (left := moment - now()) > 0:
        turn = asyncio.Event()
        timer = loop.call_later(left, turn.set)
        _sleepers.add(turn.set)
        try:
            await turn.wait()
        finally:
            timer.cancel()
            _sleepers.discard(turn.set)


def _wake_all() -> None:
    for wake in list(_sleepers):
        wake()
