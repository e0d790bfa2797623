"""A PostgreSQL server that a test may bring down, with Django pointed at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection

from queueops.core.embedded.cluster import DATABASE_NAME, SUPERUSER, EmbeddedServer
from tests.support.embedded import copy_files, throw_away_data_dir
from tests.support.processes import wait_for


@contextmanager
def own_server() -> Iterator[EmbeddedServer]:
    """Run a migrated server; for the length of the block every connection of this process goes to it."""
    with migrated_server() as server, connected_to(str(server.socket_dir)):
        yield server


@contextmanager
def migrated_server() -> Iterator[EmbeddedServer]:
    """Run a copy of the session's migrated server: a new one takes seconds."""
    with throw_away_data_dir() as data_dir:
        copy_files(EmbeddedServer(_migrated()).cluster, EmbeddedServer(data_dir).cluster)
        with EmbeddedServer(data_dir).use() as server:
            try:
                yield server
            finally:
                server.stop("immediate")


@cache
def _migrated() -> Path:
    """The data directory of a migrated server that has stopped; it goes with the session's."""
    data_dir: Path = settings.QUEUEOPS.data_dir / "migrated"
    with EmbeddedServer(data_dir).use() as server, connected_to(str(server.socket_dir)):
        call_command("migrate", verbosity=0)
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET fsync = off")  # nobody cuts its power
    return data_dir


@contextmanager
def connected_to(host: str, port: int | str = "", *, user: str = SUPERUSER, password: str = "") -> Iterator[None]:
    """Have every connection of this process, and of those that it starts, go to a server's database `queueops`."""
    connection.close()
    before = dict(connection.settings_dict)
    connection.settings_dict.update(NAME=DATABASE_NAME, USER=user, PASSWORD=password, HOST=host, PORT=str(port))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


@pytest.fixture
def server(django_db_blocker: Any) -> Iterator[EmbeddedServer]:
    """The test's own server, instead of the session's."""
    with django_db_blocker.unblock(), own_server() as running:
        yield running


def bring_back(server: EmbeddedServer) -> None:
    """Start a stopped server, and wait until this process's own connection works again."""
    server.ensure_running()
    wait_for(reconnected, what="the server's return")


def reconnected() -> bool:
    connection.close()
    try:
        connection.ensure_connection()
    except OperationalError:
        return False
    return True
