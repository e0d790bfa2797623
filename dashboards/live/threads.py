"""Work on the database for sockets, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

MAX_THREADS = 4  # of the pool's connections, so that sockets leave most of them to requests

Result = TypeVar("Result")

_threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="live")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Carry it out in one of few threads, and give its database connection back."""

    def carry_out() -> Result:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, carry_out)
