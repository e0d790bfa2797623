"""pgBackRest as deploy/pgbackrest/ and docs/how-to/point-in-time-recovery.md have it: the way to the last seconds."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import Job
from queueops.audit.backups import last_backup
from queueops.core.postgres.archiver import archiver_standing
from tests.factories import make_job
from tests.support.deployment import DEPLOY
from tests.support.processes import wait_for
from tests.support.server15 import PORT, OwnServer, server_of_version_15, wait_for_server

pytestmark = pytest.mark.soak

SMALL, MANY = 200, 20_000


def test_a_full_and_an_incremental_backup_and_the_log_bring_back_a_moment_and_the_last_seconds(
    django_db_blocker: Any, figures: Any
):
    if shutil.which("pgbackrest") is None:
        pytest.skip("PGBACKREST NOT TESTED: Debian's package pgbackrest is not installed")
    with django_db_blocker.unblock(), server_of_version_15() as server:
        configure(server)

        def pgbackrest(*arguments: str) -> str:
            return server.run("pgbackrest", "--stanza=queueops", *arguments)

        pgbackrest("stanza-create")
        archive(server)
        pgbackrest("check")
        pgbackrest("--type=full", "backup")
        call_command("note_backup", "pgBackRest, full", verbosity=0)
        assert last_backup().by == "pgBackRest, full"
        make_jobs(SMALL)
        pgbackrest("--type=incr", "backup")
        make_jobs(SMALL)
        moment = now()
        make_jobs(MANY)
        run("SELECT pg_switch_wal()")
        wait_for(lambda: not waits_for_archive(), seconds=60, what="the log in the archive")
        pgbackrest("verify")
        assert "cipher: aes-256-cbc" in pgbackrest("info")
        assert not archiver_standing().is_failing

        size = sum(path.stat().st_size for path in (server.directory / "repository").rglob("*") if path.is_file())
        back = {}
        for name, options in {
            "a moment": ("--type=time", f"--target={moment}", "--target-action=promote"),
            "the last seconds": ("--target-timeline=1",),
        }.items():
            lose(server)
            begun = monotonic()
            pgbackrest(*options, "restore")
            server.start()
            wait_for_server()
            back[name] = Job.objects.count()
            took = monotonic() - begun
            figures(f"{name}: {back[name]:,} jobs back in {took:.1f} s; repository {size / 1e6:.1f} MB")
        assert back == {"a moment": 2 * SMALL, "the last seconds": 2 * SMALL + MANY}
        call_command("restored", yes=True, verbosity=0)


def configure(server: OwnServer) -> None:
    """Write the configuration with the test's paths."""
    conf = (DEPLOY / "pgbackrest/pgbackrest.conf").read_text()
    own = {
        "repo1-path": server.make_directory("repository"),
        "spool-path": server.make_directory("spool"),
        "repo1-cipher-pass": "of-a-test",
        "pg1-path": server.cluster,
    }
    for name, value in own.items():
        conf, found = re.subn(rf"^{name}=.*$", f"{name}={value}", conf, flags=re.MULTILINE)
        assert found == 1, name
    places = f"lock-path={server.make_directory('lock')}\nlog-path={server.directory}/log\n"
    socket = f"pg1-port={PORT}\npg1-socket-path={server.directory}\npg1-user=postgres\n"
    path = Path(server.directory / "pgbackrest.conf")
    path.write_text(conf.replace("[queueops]\n", f"{places}\n[queueops]\n{socket}"))
    server.environ["PGBACKREST_CONFIG"] = str(path)


def archive(server: OwnServer) -> None:
    """Begin to archive; archive_command finds its configuration in the server's environment."""
    with (server.cluster / "postgresql.conf").open("a") as settings:
        settings.write((DEPLOY / "pgbackrest/archive.conf").read_text())
    server.stop()
    server.start()
    wait_for_server()


def lose(server: OwnServer) -> None:
    server.stop("immediate")
    shutil.rmtree(server.cluster)
    server.make_directory(server.name)


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
