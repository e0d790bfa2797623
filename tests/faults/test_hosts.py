"""Hosts that die whole, and a copy of the database that is started beside its original."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from psycopg import sql

from jobs.models import Executor, Job
from jobs.states import JobState
from queueops.core.embedded.host import binaries
from tests.faults.clusters import LEASE_SECONDS, cluster, is_running
from tests.faults.ledger import Ledger
from tests.faults.records import crashes, submit_work, wait_until_drained
from tests.support.processes import database_url, manage, wait_for

COPY = "queueops_copy"
WORKING = "SELECT count(*) FROM jobs_executor WHERE heartbeat_at > now() - interval '2 seconds'"
STILL_YOUNG = "SELECT count(*) FROM jobs_executor WHERE id = ANY(%s) AND heartbeat_at > now() - %s * interval '1 s'"

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.mark.proves("P10")
def test_jobs_of_a_host_that_dies_go_on_elsewhere_and_none_of_them_has_crashed(ledger: Ledger):
    with cluster(ledger, executors=1, executor_slots=20) as dying:
        submit_work(20, "wait", gate="gate")
        wait_for(lambda: len(ledger.entries("begin")) == 20, what="the start of every job")
        with cluster(ledger, executors=1, executor_slots=20) as other:
            owners = {executor.pk for executor in dying.executors()}
            os.killpg(dying.process.pid, signal.SIGKILL)
            ledger.open_gate("gate")
            wait_until_drained()
            assert owners.isdisjoint(executor.pk for executor in other.executors())
    assert set(Job.objects.values_list("status", "crash_count")) == {(JobState.COMPLETED, 0)}
    assert crashes() == []


@pytest.mark.proves("P9")
def test_workers_of_a_copied_database_leave_the_originals_alone(ledger: Ledger):
    with cluster(ledger, executors=1) as original, copy_of_the_database() as url:
        before = original.executors()
        with cluster_on_copy(ledger, url), psycopg.connect(url, autocommit=True) as copy:
            wait_for(lambda: _count(copy, WORKING) >= 2, seconds=60, what="the copy's executors")
            judged = [[executor.pk for executor in before], LEASE_SECONDS + 2]
            wait_for(lambda: not _count(copy, STILL_YOUNG, judged), what="the original's silence in the copy")
            wait_for(lambda: _swept_twice(copy), what="two more sweeps")
        assert all(is_running(executor.pid) for executor in before)
        assert {executor.pk for executor in original.executors()} == {executor.pk for executor in before}
    assert not Executor.objects.filter(leases_lost__gt=0).exists()


@contextmanager
def copy_of_the_database() -> Iterator[str]:
    """A dump of the test's database, restored beside it; its URL."""
    name, tools = connection.settings_dict["NAME"], binaries(settings.QUEUEOPS.data_dir)
    copied = sql.Identifier(COPY)
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE DATABASE {}").format(copied))
    url = database_url().replace(f"/{name}?", f"/{COPY}?")
    try:
        dumped = subprocess.run([tools / "pg_dump", database_url()], capture_output=True, check=True)
        # A setting that an older server than the tools does not know: it says so, and goes on.
        subprocess.run(
            [tools / "psql", "--quiet", "-d", url], input=dumped.stdout, stdout=subprocess.DEVNULL, check=True
        )
        yield url
    finally:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copied))


@contextmanager
def cluster_on_copy(ledger: Ledger, url: str) -> Iterator[None]:
    environ = {
        "DATABASE_URL": url,
        "FAULTS_DIR": str(ledger.directory),
        "QUEUEOPS_WORKERS": "1",
        "QUEUEOPS_LEASE_SECONDS": str(LEASE_SECONDS),
        "QUEUEOPS_RENEW_SECONDS": "0.9",
        "QUEUEOPS_SWEEP_SECONDS": "0.5",
        "QUEUEOPS_EXTRA_APPS": "tests.faults.app",
    }
    with manage("qcluster", environ=environ):
        yield


def _count(copy: psycopg.Connection, statement: str, parameters: list[object] | None = None) -> int:
    [count] = copy.execute(statement, parameters).fetchone() or (0,)
    return int(count)


def _has_changed(copy: psycopg.Connection, seen: str, first: object) -> bool:
    return copy.execute(seen).fetchone() != first


def _swept_twice(copy: psycopg.Connection) -> bool:
    """The duty is renewed with each sweep, before which every executor looks for stuck ones."""
    seen = "SELECT expires_at FROM jobs_dutylease WHERE duty = 'sweep'"
    for _ in range(2):
        first = copy.execute(seen).fetchone()
        wait_for(partial(_has_changed, copy, seen, first), what="a sweep")
    return True
