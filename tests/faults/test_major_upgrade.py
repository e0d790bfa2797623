"""PostgreSQL's major upgrade from 15 to 18, as docs/how-to/upgrade.md has it, with work before and after."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import Epoch, Job, PauseSwitch
from jobs.services.operate.pauses import resume_scope
from queueops.core.embedded.host import binaries
from queueops.tenancy.checks import unsafe
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import statuses, submit_work, wait_until_drained
from tests.support.embedded import connected_to
from tests.support.processes import wait_for
from tests.support.server15 import PORT, OwnServer, server_of_version_15, wait_for_server

pytestmark = pytest.mark.soak

JOBS, WAITING = 300, 200


def work(ledger: Ledger) -> None:
    """Carry jobs out, stop the workers, and leave others waiting."""
    with cluster(ledger) as running:
        submit_work(JOBS, "write")
        wait_until_drained()
        running.stop()
    submit_work(WAITING, "write")


def work_on(ledger: Ledger) -> None:
    """What waited is carried out, and what comes; none of it twice."""
    with cluster(ledger):
        submit_work(JOBS, "write")
        wait_until_drained()
    assert statuses() == {"completed": 2 * JOBS + WAITING}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}


def test_pg_upgrade_takes_every_job_along(ledger: Ledger, django_db_blocker: Any, figures: Any):
    with django_db_blocker.unblock(), server_of_version_15() as old:
        work(ledger)
        epoch = Epoch.objects.get().value
        newer = OwnServer(old.directory, binaries(old.directory), "cluster-18")
        newer.make("--no-data-checksums")  # as the old one has none
        connection.close()
        begun = monotonic()
        old.stop()
        newer.run(
            "pg_upgrade", "--link", "--username=postgres",
            f"--old-bindir={old.binaries}", f"--new-bindir={newer.binaries}",
            f"--old-datadir={old.cluster}", f"--new-datadir={newer.cluster}",
            f"--socketdir={old.directory}",
        )  # fmt: skip
        newer.start()
        try:
            wait_for_server()
            away = monotonic() - begun
            call_command("migrate", verbosity=0)
            assert unsafe() == []
            work_on(ledger)
            assert (Epoch.objects.get().value, PauseSwitch.objects.count()) == (epoch, 0), "nothing was put back"
            figures(f"pg_upgrade --link: {Job.objects.count():,} jobs, {version()}, no database for {away:.1f} s")
        finally:
            connection.close()
            newer.stop("immediate")


def test_logical_replication_leaves_seconds_without_a_database(ledger: Ledger, django_db_blocker: Any, figures: Any):
    with django_db_blocker.unblock(), server_of_version_15("wal_level = logical\n") as old:
        submit_work(JOBS, "write")
        newer = OwnServer(old.directory, binaries(old.directory), "cluster-18", PORT + 1)
        newer.make()
        newer.start()
        try:
            copy_structure(old, newer)
            old.sql("CREATE PUBLICATION upgrade FOR ALL TABLES WITH (publish_via_partition_root = true)")
            source = f"host={old.directory} port={PORT} user=postgres dbname=queueops"
            newer.sql(f"CREATE SUBSCRIPTION upgrade CONNECTION '{source}' PUBLICATION upgrade")
            with cluster(ledger) as running:  # while it is copied
                wait_until_drained()
                running.stop()
            submit_work(WAITING, "write")
            connection.close()
            begun = monotonic()
            wait_until_equal(old, newer)
            newer.sql("DROP SUBSCRIPTION upgrade", *sequences(old))
            old.stop()
            with connected_to(str(old.directory), PORT + 1):
                wait_for_server()
                call_command("restored", yes=True, verbosity=0)
                away = monotonic() - begun
                assert unsafe() == []
                resume_scope("global", "", actor="op")
                work_on(ledger)
                figures(f"logical replication: {Job.objects.count():,} jobs, {version()}, no writes for {away:.1f} s")
        finally:
            connection.close()
            newer.stop("immediate")


def copy_structure(old: OwnServer, newer: OwnServer) -> None:
    where = (f"--host={old.directory}", f"--port={old.port}", "--username=postgres")
    roles = newer.directory / "roles.sql"
    tables = newer.directory / "tables.sql"
    newer.run("pg_dumpall", "--roles-only", f"--file={roles}", *where)
    newer.run("pg_dump", "--schema-only", f"--file={tables}", *where, "queueops")
    newer.sql("CREATE DATABASE queueops", database="postgres")
    to = (f"--host={newer.directory}", f"--port={newer.port}", "--username=postgres", "--quiet", "--no-psqlrc")
    newer.run("psql", *to, f"--file={roles}", "postgres")  # which has postgres already, and says so
    newer.run("psql", *to, "--set=ON_ERROR_STOP=on", f"--file={tables}", "queueops")


def wait_until_equal(old: OwnServer, newer: OwnServer) -> None:
    here = "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'upgrade' AND replay_lsn >= "
    reached = old.sql("SELECT pg_current_wal_lsn()").strip()
    wait_for(lambda: old.sql(f"{here}'{reached}'").strip() == "1", seconds=120, what="the last change")
    to_copy = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
    wait_for(lambda: newer.sql(to_copy).strip() == "0", seconds=120, what="the tables' copies")


def sequences(old: OwnServer) -> list[str]:
    """Statements that set each sequence: replication leaves them out."""
    asked = "SELECT format('SELECT setval(%L, %s)', schemaname || '.' || sequencename, last_value) FROM pg_sequences"
    return old.sql(f"{asked} WHERE last_value IS NOT NULL").split("\n")[:-1]


def version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return f"PostgreSQL {cursor.fetchone()[0]}"
