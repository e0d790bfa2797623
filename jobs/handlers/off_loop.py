"""Runs slow work on providers' texts in a thread, off the event loop that the jobs of every project share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")

SMALL_BYTES = 100_000  # work on so few bytes takes milliseconds; a thread would cost more time than it saves

# One thread only: several would together keep the event loop from running. It starts at first use, after the fork.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="off-loop")


async def off_loop(work: Callable[..., R], *arguments: object, size: int) -> R:
    """
    Return what `work` returns for its arguments; run it in a thread if `size`, in bytes, is more than SMALL_BYTES.

    A thread cannot be stopped, so callers must bound the size of the arguments, and `work` must take time linear in it.
    """
    if size <= SMALL_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_thread, work, *arguments)
