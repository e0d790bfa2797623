"""Finds out whether a pooler in front of the database gives each transaction another session of the server."""

from __future__ import annotations

import psycopg
from django.conf import settings
from django.db import connection

from queueops.core.database import UnsuitableDatabase, connect_directly
from queueops.core.processes.readable import wait_readable

ROUNDS = 5
ANSWER_SECONDS = 5.0  # a pooler in session mode may have no session left for the second connection
POOLED = (
    "Between QueueOps and PostgreSQL a pooler hands each transaction to another session of the server: notifications "
    "and prepared statements would reach other clients. Set QUEUEOPS_LISTEN=off, or connect through a pool of sessions "
    "(PgBouncer: pool_mode = session)."
)


def ensure_session_is_ours() -> None:
    """
    Refuse shared sessions if LISTEN is on, because LISTEN needs a session of its own.

    Raises:
        UnsuitableDatabase: Sessions are shared.
    """
    if settings.QUEUEOPS.listen and are_sessions_shared():
        raise UnsuitableDatabase(POOLED)


def are_sessions_shared() -> bool:
    """
    Ask on two connections in turn which process of the server answers. If the connections share a process, or if the
    process of one connection changes, sessions are shared. Without a pooler, the process that the handshake named
    answers, and nothing more is asked.
    """
    connection.ensure_connection()
    raw = connection.connection
    if _backend(raw) == raw.info.backend_pid:
        return False
    with connect_directly() as first, connect_directly() as second:
        mine: set[int] = set()
        others: set[int] = set()
        for _ in range(ROUNDS):
            # Ask the second twice: otherwise a pooler that deals out two sessions in turn would always give each
            # connection the same session.
            for one, seen in ((first, mine), (second, others), (second, others)):
                backend = _backend(one)
                if backend is None:
                    return False  # the pooler keeps a session for the other, idle connection
                seen.add(backend)
        return len(mine) > 1 or len(others) > 1 or bool(mine & others)


def _backend(one: psycopg.Connection[tuple[object, ...]]) -> int | None:
    """Return the number of the server's process; None: the pooler has no session for the connection now."""
    one.pgconn.send_query(b"SELECT pg_backend_pid()")
    found = None
    while True:
        while one.pgconn.is_busy():
            if not wait_readable([one.pgconn.socket], seconds=ANSWER_SECONDS):
                return None
            one.pgconn.consume_input()
        result = one.pgconn.get_result()
        if result is None:
            return found
        value = result.get_value(0, 0)
        found = int(value) if value else None
