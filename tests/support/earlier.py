"""The test's database as it was at an earlier moment, as a restore leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

SESSIONS = (
    "SELECT pid, backend_type, application_name, state, backend_start, state_change, left(query, 200)"
    " FROM pg_stat_activity WHERE datname = %s"
)


class Clock:
    """The database now, and as it was at a moment: the server's own copy of it, byte by byte."""

    def __init__(self) -> None:
        self.name = connection.settings_dict["NAME"]
        self.earlier = f"{self.name}_earlier"

    def keep_moment(self) -> None:
        self._run(f'CREATE DATABASE {self.earlier} TEMPLATE "{self.name}"')

    def put_back(self) -> None:
        """From here on the test, and every process that it starts, has the database of that moment."""
        connection.close()
        connection.settings_dict["NAME"] = self.earlier

    def cut_off(self) -> None:
        """Nobody reaches the database of now any more."""
        self._run(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS false')
        self._run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")  # noqa: S608

    def let_in(self) -> None:
        self._run(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS true')

    def end(self) -> None:
        connection.close()
        self.let_in()
        connection.settings_dict["NAME"] = self.name
        self._run(f"DROP DATABASE IF EXISTS {self.earlier} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        connection.close()
        given = {**connection.get_connection_params(), "dbname": "postgres"}
        known = {name: given[name] for name in ("dbname", "user", "password", "host", "port") if given.get(name)}
        with psycopg.connect(**known, autocommit=True) as alone:
            try:
                alone.execute(statement.encode())
            except psycopg.errors.ObjectInUse as error:
                sessions = alone.execute(SESSIONS, [self.name]).fetchall()
                raise AssertionError("\n".join(map(str, sessions))) from error


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock()
    yield made
    made.end()
