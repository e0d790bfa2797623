"""A PostgreSQL server of Debian's version 15, whose every file is a test's, and Django connected to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

from queueops.core.embedded.host import system_user
from tests.support.embedded import connected_to, throw_away_data_dir
from tests.support.own_server import reconnected
from tests.support.processes import wait_for

PORT = 54_329
VERSION_15 = Path("/usr/lib/postgresql/15/bin")


@dataclass
class OwnServer:
    """A server below a directory that its user owns. `environ`: for what is run beside it."""

    directory: Path
    binaries: Path = VERSION_15
    name: str = "cluster"
    port: int = PORT
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def cluster(self) -> Path:
        return self.directory / self.name

    def run(self, *command: str) -> str:
        """Run a program as the server's user, its own version's first."""
        owner = system_user()
        user = ("setpriv", "--reuid", owner, "--regid", owner, "--clear-groups", "--") if owner else ()
        environ = {**os.environ, "PATH": f"{self.binaries}:{os.environ['PATH']}", **self.environ}
        done = subprocess.run(
            (*user, *command), env=environ, cwd=self.directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    def make_directory(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir(mode=0o700)
        if owner := system_user():
            shutil.chown(path, owner)
        return path

    def make(self, *options: str, settings: str = "") -> None:
        """Make an empty cluster whose socket is in the directory."""
        if not (self.directory / "log").exists():
            self.make_directory("log")
        self.run(
            "initdb", "--pgdata", str(self.cluster), "--username=postgres", "--auth=trust", "--encoding=UTF8", *options
        )
        own = f"port = {self.port}\nlisten_addresses = ''\nunix_socket_directories = '{self.directory}'\n"
        with (self.cluster / "postgresql.conf").open("a") as file:
            file.write(own + settings)

    def start(self) -> None:
        log = self.directory / "log" / self.name
        self.run("pg_ctl", "--pgdata", str(self.cluster), "--wait", f"--log={log}", "start")

    def stop(self, how: str = "fast") -> None:
        if (self.cluster / "postmaster.pid").exists():
            self.run("pg_ctl", "--pgdata", str(self.cluster), "--mode", how, "stop")

    def sql(self, *commands: str, database: str = "queueops") -> str:
        """Run statements as the superuser; what psql prints."""
        given = (f"--command={command}" for command in commands)
        where = (f"--host={self.directory}", f"--port={self.port}", "--username=postgres", f"--dbname={database}")
        return self.run("psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", *where, *given)


@contextmanager
def server_of_version_15(settings: str = "") -> Iterator[OwnServer]:
    """Run one with a migrated database, to which this process is connected."""
    if not VERSION_15.exists():
        pytest.skip("NOT TESTED: Debian's package postgresql-15 is not installed")
    with throw_away_data_dir() as directory:
        if owner := system_user():
            shutil.chown(directory, owner)
        server = OwnServer(directory)
        server.make(settings=settings)
        try:
            server.start()
            server.sql("CREATE DATABASE queueops", database="postgres")
            with connected_to(str(directory), PORT):
                call_command("migrate", verbosity=0)
                yield server
        finally:
            connection.close()
            server.stop("immediate")


def wait_for_server() -> None:
    """Wait until this process is connected, and the server takes writes."""
    wait_for(reconnected, seconds=120, what="the server")

    def takes_writes() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT NOT pg_is_in_recovery()")
            return bool(cursor.fetchone()[0])

    wait_for(takes_writes, seconds=120, what="the end of the recovery")
