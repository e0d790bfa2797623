"""A primary with a replica that Django knows, and the middle of its replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection, connections
from django.test import override_settings

from queueops.core.database import database_settings
from queueops.core.postgres.replica import REPLICA, forget_trouble, replica_standing
from tests.support.processes import wait_for
from tests.support.standby import Pair, primary_and_standby

NEVER_TOO_LATE = 3600.0


class Replica:
    """
    Attributes:
        pair: Commits of its primary do not wait for the standby.
        url: Of the standby, for DATABASE_REPLICA_URL.
    """

    def __init__(self, pair: Pair) -> None:
        assert pair.standby is not None
        self.pair = pair
        self.server = pair.standby
        self.url = pair.standby.dsn()
        self._admin = psycopg.connect(self.url, autocommit=True)

    def pause(self) -> None:
        """Let it have all that there is now, and nothing more until `resume`."""
        with connection.cursor() as cursor:
            # One that has replayed no commit yet, or an hour ago, is not read: nobody knows how far it lags.
            cursor.execute("SELECT pg_logical_emit_message(true, 'queueops', 'a commit')")
        self.catch_up()
        self.run("SELECT pg_wal_replay_pause()")
        wait_for(lambda: self.run("SELECT pg_get_wal_replay_pause_state()") == ("paused",), what="the pause")

    def resume(self) -> None:
        self.run("SELECT pg_wal_replay_resume()")

    def catch_up(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_lsn()::text")
            position = cursor.fetchone()[0]
        reached = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_for(lambda: self.run(reached, position) == (True,), what="the replay")

    def sessions(self, application: str = "queueops") -> int:
        """How many connections a program has to it."""
        found = self.run("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", application)
        assert found
        return int(str(found[0]))

    def run(self, statement: str, *parameters: object) -> tuple[object, ...] | None:
        cursor = self._admin.execute(statement, parameters)
        return cursor.fetchone() if cursor.description else None

    def stop(self) -> None:
        self._admin.close()
        self.server.stop("immediate")

    def start(self) -> None:
        self.server.ensure_running()
        self._admin = psycopg.connect(self.url, autocommit=True)


@contextmanager
def primary_and_replica() -> Iterator[Replica]:
    """A migrated pair that this process reads as it does where DATABASE_REPLICA_URL is set."""
    with primary_and_standby() as pair:
        with connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM RESET synchronous_standby_names")
            cursor.execute("SELECT pg_reload_conf()")
        replica = Replica(pair)
        with known_as_replica(replica.url, max_lag=NEVER_TOO_LATE):
            yield replica
        replica._admin.close()


@contextmanager
def known_as_replica(url: str, *, max_lag: float) -> Iterator[None]:
    """Have Django know a server as its replica."""
    before = _replace(database_settings(url))
    try:
        with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, replica_url=url, replica_max_lag_seconds=max_lag)):
            yield
    finally:
        _replace(before)


def _replace(known: dict[str, Any] | None) -> dict[str, Any] | None:
    before: dict[str, Any] | None = connections.settings.get(REPLICA)
    if before is not None:
        connections[REPLICA].close()
        del connections[REPLICA], connections.settings[REPLICA]
    if known is not None:
        connections.settings[REPLICA] = known
        connections.configure_settings(connections.settings)  # fills in what is left out
    forget_trouble()
    return before


def trouble() -> str:
    """Why the replica is not read, asked now."""
    forget_trouble()
    standing = replica_standing()
    assert standing
    return standing.trouble
