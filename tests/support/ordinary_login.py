"""
A migrated database that belongs to a login role without any right of its own, whom row security confines.

Other tests connect as a superuser, whom no policy confines before it takes on a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from queueops.core.embedded.cluster import SUPERUSER, EmbeddedServer
from queueops.site.diagnosis.database import examine_row_security
from queueops.tenancy import checks
from queueops.tenancy.database_roles import RolesMissing, missing_roles
from tests.support.embedded import throw_away_data_dir
from tests.support.templates import copy_of, key_of, rows_key, running, tables_key

LOGIN = "ann's queue"  # a name that must be quoted
MIGRATED = "migrated"
DATABASE = "ours"

Administrator = Callable[[str], object]


@contextmanager
def connected_as_the_login(server: EmbeddedServer, name: str = DATABASE) -> Iterator[None]:
    connection.close()
    before = dict(connection.settings_dict)
    connection.settings_dict.update(NAME=name, USER=LOGIN, PASSWORD="", HOST=str(server.socket_dir), PORT="")
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


@pytest.fixture(scope="session")
def fresh_server(django_db_blocker: Any) -> Iterator[EmbeddedServer]:
    """A server with a database that the login has made of an empty one, where no role of ours existed."""
    with throw_away_data_dir() as data_dir:
        with django_db_blocker.unblock():
            server = copy_of(data_dir, "login", key_of([Path(__file__)], tables_key(), rows_key()), make=_make)
        with server.use():
            yield server
            server.stop("immediate")


def _make(data_dir: Path) -> None:
    with running(data_dir) as server, psycopg.connect(server.dsn(SUPERUSER), autocommit=True) as admin:
        _make_database(server, lambda statement: admin.execute(statement.encode()), "NOCREATEROLE")


@pytest.fixture(scope="session")
def administrator(fresh_server: EmbeddedServer) -> Iterator[Administrator]:
    with psycopg.connect(fresh_server.dsn(SUPERUSER), autocommit=True) as admin:
        yield lambda statement: admin.execute(statement.encode())


@pytest.fixture(scope="session", params=["NOCREATEROLE", pytest.param("CREATEROLE", marks=pytest.mark.soak)])
def once_migrated(
    request: Any, fresh_server: EmbeddedServer, administrator: Administrator, django_db_blocker: Any
) -> str:
    """A database that an ordinary role made of an empty one, where no role of ours existed; its name."""
    if (attribute := request.param) != _attribute(administrator):
        administrator(f"DROP DATABASE {MIGRATED} WITH (FORCE)")
        for role in ("queueops_api", "queueops_anonymous", "queueops_service", f'"{LOGIN}"'):
            administrator(f"DROP ROLE IF EXISTS {role}")
        with django_db_blocker.unblock():
            _make_database(fresh_server, administrator, attribute)
    return MIGRATED


def _attribute(administrator: Administrator) -> str:
    """Of the login that has made the database there is."""
    found: Any = administrator("SELECT 1 FROM pg_roles WHERE rolcreaterole AND NOT rolsuper")
    return "CREATEROLE" if found.fetchone() is not None else "NOCREATEROLE"


def _make_database(server: EmbeddedServer, administrator: Administrator, attribute: str) -> None:
    administrator(f'CREATE ROLE "{LOGIN}" LOGIN {attribute}')
    administrator(f'CREATE DATABASE {MIGRATED} OWNER "{LOGIN}"')
    with connected_as_the_login(server, MIGRATED):
        _migrate(administrator, may_make_roles=attribute == "CREATEROLE")


def _migrate(administrator: Administrator, *, may_make_roles: bool) -> None:
    """By itself where the login may make roles; where it may not, after an administrator did as told."""
    if not may_make_roles:
        with pytest.raises(RolesMissing) as refused:
            call_command("migrate", verbosity=0)
        told = refused.value.message
        assert told in examine_row_security().advice
        asked_for = [line.strip() for line in told.splitlines() if line.endswith(";")]
        assert asked_for[:2] == ["CREATE ROLE queueops_service NOLOGIN;", "CREATE ROLE queueops_api NOLOGIN;"]
        for statement in asked_for:
            administrator(statement)
    call_command("migrate", verbosity=0)
    assert missing_roles() == []
    assert checks.unsafe() == []


@pytest.fixture
def migrated(
    once_migrated: str, fresh_server: EmbeddedServer, administrator: Administrator, django_db_blocker: Any
) -> Iterator[None]:
    """Connected as the login role to its own copy of the migrated database."""
    administrator(f'CREATE DATABASE {DATABASE} TEMPLATE {MIGRATED} OWNER "{LOGIN}"')
    with django_db_blocker.unblock(), connected_as_the_login(fresh_server):
        yield
    administrator(f"DROP DATABASE {DATABASE} WITH (FORCE)")
