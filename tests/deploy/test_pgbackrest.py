"""pgBackRest as deploy/pgbackrest/ and docs/how-to/point-in-time-recovery.md have it: the way to the last seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import Job
from queueops.audit.backups import last_backup
from queueops.core.embedded.host import system_user
from queueops.core.postgres.archiver import archiver_standing
from tests.factories import make_job
from tests.support.deployment import DEPLOY
from tests.support.embedded import connected_to, throw_away_data_dir
from tests.support.own_server import reconnected
from tests.support.processes import wait_for

pytestmark = pytest.mark.soak

PORT = 54_329
BINARIES = Path("/usr/lib/postgresql/15/bin")
SMALL, MANY = 200, 20_000


@dataclass
class Server:
    """A server of version 15, whose files pgBackRest knows as those of the stanza `queueops`."""

    directory: Path

    @property
    def cluster(self) -> Path:
        return self.directory / "cluster"

    def run(self, *command: str) -> str:
        """Run a program as the server's user."""
        owner = system_user()
        user = ("setpriv", "--reuid", owner, "--regid", owner, "--clear-groups", "--") if owner else ()
        environ = {**os.environ, "PATH": f"{BINARIES}:{os.environ['PATH']}", "PGBACKREST_CONFIG": str(self._conf)}
        done = subprocess.run(
            (*user, *command), env=environ, cwd=self.directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    def pgbackrest(self, *arguments: str) -> str:
        return self.run("pgbackrest", "--stanza=queueops", *arguments)

    @property
    def _conf(self) -> Path:
        return self.directory / "pgbackrest.conf"

    def make(self) -> None:
        for name in ("repository", "spool", "log", "lock"):
            path = self.directory / name
            path.mkdir()
            if owner := system_user():
                shutil.chown(path, owner)
        conf = (DEPLOY / "pgbackrest/pgbackrest.conf").read_text()
        own = {
            "repo1-path": self.directory / "repository",
            "spool-path": self.directory / "spool",
            "repo1-cipher-pass": "of-a-test",
            "pg1-path": self.cluster,
        }
        for name, value in own.items():
            conf, found = re.subn(rf"^{name}=.*$", f"{name}={value}", conf, flags=re.MULTILINE)
            assert found == 1, name
        places = f"lock-path={self.directory}/lock\nlog-path={self.directory}/log\n"
        socket = f"pg1-port={PORT}\npg1-socket-path={self.directory}\npg1-user=postgres\n"
        self._conf.write_text(conf.replace("[queueops]\n", f"{places}\n[queueops]\n{socket}"))
        self.run("initdb", "--pgdata", str(self.cluster), "--username=postgres", "--auth=trust")
        own_lines = f"port = {PORT}\nlisten_addresses = ''\nunix_socket_directories = '{self.directory}'\n"
        with (self.cluster / "postgresql.conf").open("a") as settings:
            settings.write(own_lines + (DEPLOY / "pgbackrest/archive.conf").read_text())
        self.start()
        self.run("createdb", f"--host={self.directory}", f"--port={PORT}", "--username=postgres", "queueops")

    def start(self) -> None:
        self.run("pg_ctl", "--pgdata", str(self.cluster), "--wait", f"--log={self.directory}/log/server", "start")

    def stop(self, how: str = "fast") -> None:
        self.run("pg_ctl", "--pgdata", str(self.cluster), "--mode", how, "stop")


@contextmanager
def running() -> Iterator[Server]:
    if shutil.which("pgbackrest") is None or not BINARIES.exists():
        pytest.skip("PGBACKREST NOT TESTED: Debian's packages pgbackrest and postgresql-15 are not installed")
    with throw_away_data_dir() as directory:
        if owner := system_user():
            shutil.chown(directory, owner)
        server = Server(directory)
        server.make()
        try:
            with connected_to(str(directory), PORT):
                call_command("migrate", verbosity=0)
                yield server
        finally:
            if (server.cluster / "postmaster.pid").exists():
                server.stop("immediate")


def test_a_full_and_an_incremental_backup_and_the_log_bring_back_a_moment_and_the_last_seconds(
    django_db_blocker: Any, figures: Any
):
    with django_db_blocker.unblock(), running() as server:
        server.pgbackrest("stanza-create")
        server.pgbackrest("check")
        server.pgbackrest("--type=full", "backup")
        call_command("note_backup", "pgBackRest, full", verbosity=0)
        assert last_backup().by == "pgBackRest, full"
        make_jobs(SMALL)
        server.pgbackrest("--type=incr", "backup")
        make_jobs(SMALL)
        moment = now()
        make_jobs(MANY)
        run("SELECT pg_switch_wal()")
        wait_for(lambda: not waits_for_archive(), seconds=60, what="the log in the archive")
        server.pgbackrest("verify")
        told = server.pgbackrest("info")
        assert "cipher: aes-256-cbc" in told
        assert not archiver_standing().is_failing

        size = sum(path.stat().st_size for path in (server.directory / "repository").rglob("*") if path.is_file())
        back = {}
        for name, options in {
            "a moment": ("--type=time", f"--target={moment}", "--target-action=promote"),
            "the last seconds": ("--target-timeline=1",),
        }.items():
            server.stop("immediate")
            shutil.rmtree(server.cluster)
            server.cluster.mkdir(mode=0o700)
            if owner := system_user():
                shutil.chown(server.cluster, owner)
            begun = datetime.now().astimezone()
            server.pgbackrest(*options, "restore")
            server.start()
            wait_for(reconnected, seconds=120, what="the server")
            wait_for(lambda: one("SELECT NOT pg_is_in_recovery()"), seconds=120, what="the end of the recovery")
            took = (datetime.now().astimezone() - begun).total_seconds()
            back[name] = Job.objects.count()
            figures(f"{name}: {back[name]:,} jobs back in {took:.1f} s; repository {size / 1e6:.1f} MB")
        assert back == {"a moment": 2 * SMALL, "the last seconds": 2 * SMALL + MANY}
        call_command("restored", yes=True, verbosity=0)


def make_jobs(count: int) -> None:
    job = make_job()
    run(
        "INSERT INTO jobs_job SELECT (jsonb_populate_record(one, jsonb_build_object('id', gen_random_uuid()))).*"
        "  FROM jobs_job one, generate_series(2, %s) WHERE one.id = %s",
        count,
        job.pk,
    )


def waits_for_archive() -> bool:
    return bool(one("SELECT count(*) > 0 FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'"))


def now() -> str:
    """A moment after all that is committed, as pgBackRest reads it: to the millisecond."""
    moment: datetime = one("SELECT clock_timestamp() + interval '1 millisecond'")
    return moment.isoformat(sep=" ", timespec="milliseconds")


def run(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)


def one(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]
