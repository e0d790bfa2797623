"""Threads that begin at once, each with a database connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg
from django.db import connection, connections

T = TypeVar("T")


def run_together(count: int, client: Callable[[int], T], *, threads: ThreadPoolExecutor | None = None) -> list[T]:
    """
    Return what `client` returned for 0, 1, ... in so many threads; raises what the first of them raised.

    Args:
        threads: At least so many, for callers that must not wait for those that hang.
    """
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        try:
            barrier.wait(30)
            return client(number)
        finally:
            connections.close_all()

    if threads is not None:
        return [future.result(60) for future in [threads.submit(run, number) for number in range(count)]]
    with ThreadPoolExecutor(count) as own:
        return list(own.map(run, range(count)))


def waiting_for(blocker: psycopg.Connection[object]) -> bool:
    """Whether a session waits for a lock that `blocker` holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))",
            [blocker.info.backend_pid],
        )
        [count] = cursor.fetchone()
    return bool(count)
