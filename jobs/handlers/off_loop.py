"""Work on foreign text that takes time, kept off the loop that every project's jobs share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")

SMALL_BYTES = 100_000  # takes milliseconds; a thread would cost more than it spares

# One thread: several would take the interpreter from the loop in turns. It starts with its first work, after the fork.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="off-loop")


async def off_loop(work: Callable[..., R], *arguments: object, size: int) -> R:
    """
    Return what `work` makes of its arguments, done in a thread where their size in bytes is more than SMALL_BYTES.

    The size is its budget: a thread cannot be stopped, so whoever calls bounds what it hands over, and what is done
    with it must be linear.
    """
    if size <= SMALL_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_thread, work, *arguments)
