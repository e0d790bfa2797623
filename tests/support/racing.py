"""Threads that begin at once, each with a database connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from django.db import connection, connections, transaction

from .processes import database_url, wait_for

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


def stay_until_waited_for() -> None:
    """Return, in an open transaction, once another session waits for what it has locked."""
    own = connection.connection.info.backend_pid
    # On a connection of its own: a transaction looks at the activity of others once.
    with psycopg.connect(database_url(), autocommit=True) as looking:
        waiting = "SELECT FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
        wait_for(lambda: looking.execute(waiting, [own]).rowcount, seconds=20, what="that somebody waits for it")


@contextmanager
def about_to_commit(change: Callable[[], object]) -> Iterator[None]:
    """Make a change on another connection; it is committed once the block waits for it."""
    changed = threading.Event()

    def make() -> None:
        try:
            with transaction.atomic():
                change()
                changed.set()
                stay_until_waited_for()
        finally:
            changed.set()
            connection.close()

    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(make)
        assert changed.wait(60)
        yield
        made.result(60)


def at_once(*actions: Callable[[], None]) -> None:
    """Run each on a connection of its own, all from one barrier; an error of any is the test's."""
    start = threading.Barrier(len(actions))
    errors: list[Exception] = []

    def run(action: Callable[[], None]) -> None:
        try:
            start.wait(timeout=20)
            action()
        except Exception as error:  # noqa: BLE001 (raised again below)
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
