"""A PostgreSQL server that a test may bring down, with Django pointed at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from queueops.core.embedded.cluster import EmbeddedServer
from tests.support.embedded import connected_to, throw_away_data_dir
from tests.support.processes import wait_for
from tests.support.templates import copy_template


@contextmanager
def own_server() -> Iterator[EmbeddedServer]:
    """Run a migrated server; for the length of the block every connection of this process goes to it."""
    with migrated_server() as server, connected_to(str(server.socket_dir)):
        yield server


@contextmanager
def migrated_server() -> Iterator[EmbeddedServer]:
    """Run a copy of the migrated server: a new one takes seconds."""
    with throw_away_data_dir() as data_dir, copy_template(data_dir).use() as server:
        try:
            yield server
        finally:
            server.stop("immediate")


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
