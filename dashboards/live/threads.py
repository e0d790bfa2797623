"""Work on the database for sockets, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import DatabaseError, connection, connections

MAX_THREADS = 4  # each takes one connection of the pool: most must stay free for requests

Result = TypeVar("Result")

_threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="live")
# For work that waits for something else than the database: fetching an issuer's keys may take seconds.
_patient_threads = ThreadPoolExecutor(2, thread_name_prefix="live-patient")


async def in_thread(work: Callable[[], Result], *, patiently: bool = False) -> Result:
    """
    Do work in one of a few threads, and give its database connection back.

    The work must bear being done twice: it is begun again, once, if its connection had died in the pool. Otherwise,
    after a restart of the database, every new socket would be refused until the last dead connection has been tried.

    Args:
        patiently: Whether to use the threads that may hang without keeping any other socket waiting.
    """

    def carry_out() -> Result:
        try:
            return work()
        except DatabaseError:
            if not _had_died():
                raise
        finally:
            connections.close_all()
        return carry_out_again()

    def carry_out_again() -> Result:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_patient_threads if patiently else _threads, carry_out)


def _had_died() -> bool:
    """Say whether the thread's connection is broken. If so, check the pool's connections, and replace broken ones."""
    if connection.connection is None or not connection.connection.closed:
        return False
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.check()
    return True
