"""The benchmarks' own databases: migrated once, seeded once, copied for every run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import psycopg
from django.core.management import call_command
from django.db import connection
from psycopg import sql

from .report import ROOT

# The templates' content depends on these files: a change to a file makes new templates, and drops the old ones.
SOURCES = (
    "*/migrations/*.py",
    "*/*/migrations/*.py",
    "jobs/models/guard.py",
    "jobs/states.py",
    "jobs/lanes.py",
    "bench/harness/seeding.py",
    "bench/harness/floods.py",
    "bench/harness/limits.py",
    "bench/harness/operations.py",
)


class Databases:
    """Databases of one server, named bench_*."""

    def __init__(self, server_url: str) -> None:
        """`server_url`: any database of the server, with a user who may create databases."""
        self.server_url = server_url
        self.digest = _digest()

    def url(self, database: str) -> str:
        return urlsplit(self.server_url)._replace(path="/" + quote(database)).geturl()

    @contextmanager
    def copy(self, name: str, seed: Callable[[], None] | None = None) -> Iterator[str]:
        """
        Give the URL of a fresh copy of the template `name`, and connect Django to it; drop it afterwards.

        Args:
            name: The name of the seeded content, which is part of the template's name.
            seed: Fills a template that does not exist yet, through Django's connection.
        """
        template = self._template(name, seed)
        work = f"bench_work_{name}"
        self._create(work, template)
        self.connect(work)
        try:
            yield self.url(work)
        finally:
            connection.close()
            self._drop(work)

    def connect(self, database: str) -> None:
        connection.close()
        connection.settings_dict["NAME"] = database

    def drop_stale(self) -> None:
        """Drop templates of other versions of the schema, and copies that a killed run left."""
        for name in self._names():
            if name.startswith("bench_") and not name.endswith(self.digest):
                self._drop(name)

    def _template(self, name: str, seed: Callable[[], None] | None) -> str:
        template = f"bench_{name}_{self.digest}"
        if template in self._names():
            return template
        unfinished = f"bench_unfinished_{name}"
        if name == "empty":
            self._create(unfinished, "template1")
            self.connect(unfinished)
            call_command("migrate", verbosity=0)
        else:
            print(f"seeding {name}, once ...", flush=True)
            self._create(unfinished, self._template("empty", None))
            self.connect(unfinished)
        if seed is not None:
            seed()
        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")  # autovacuum would have done this by then
        connection.close()
        # Rename last: otherwise a seeding that was cut off would count as finished.
        self._run("ALTER DATABASE {} RENAME TO {}", unfinished, template)
        return template

    def _create(self, name: str, template: str) -> None:
        self._drop(name)
        # Copy files, and not through the log: gigabytes of log would burden the next run with a checkpoint.
        self._run("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)

    def _drop(self, name: str) -> None:
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _names(self) -> list[str]:
        with psycopg.connect(self.server_url, autocommit=True) as admin:
            return [name for (name,) in admin.execute("SELECT datname FROM pg_database").fetchall()]

    def _run(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.server_url, autocommit=True) as admin:
            admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _digest() -> str:
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
