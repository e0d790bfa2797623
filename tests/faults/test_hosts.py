"""Hosts that die whole, and a copy of the database that is started beside its original."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
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
from tests.support.processes import database_url, manage, started, wait_for

UNSHARE = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
MAY_UNSHARE = bool(shutil.which("unshare")) and not subprocess.call([*UNSHARE, "true"], stderr=subprocess.DEVNULL)
A_HOST = (*UNSHARE, "sh", "-c", f"hostname same && exec {sys.executable} manage.py qcluster")

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


@pytest.mark.skipif(not MAY_UNSHARE, reason="this machine gives no namespaces to simulate hosts with")
@pytest.mark.proves("P9")
def test_hosts_of_one_name_with_equal_pids_share_the_work_and_one_outlives_the_other(ledger: Ledger):
    environ = {
        **environ_of(ledger),
        "DATABASE_URL": database_url(),
        "QUEUEOPS_EXECUTOR_SLOTS": "10",
    }
    with started(*A_HOST, environ=environ) as first, started(*A_HOST, environ=environ) as second:
        registered = Executor.objects.values_list("cluster_id", "host", "pid", "role")
        wait_for(lambda: registered.count() == 4, what="both hosts' executors")
        found = list(registered)
        assert len({cluster_id for cluster_id, _, _, _ in found}) == 2
        assert {host for _, host, _, _ in found} == {"same"}
        assert len({pid for _, _, pid, _ in found}) < 4, "no two processes have one number"
        assert [role for _, _, _, role in found].count(Executor.Role.QUARANTINE) == 2
        submit_work(20, "wait", gate="gate")
        wait_for(lambda: len(ledger.entries("begin")) == 20, what="the start of every job")
        assert Job.objects.values("executor").distinct().count() == 2
        os.killpg(first.pid, signal.SIGKILL)
        ledger.open_gate("gate")
        wait_until_drained()
        assert second.runs
    assert set(Job.objects.values_list("status", "crash_count")) == {(JobState.COMPLETED, 0)}


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
    with manage("qcluster", environ={**environ_of(ledger), "DATABASE_URL": url}):
        yield


def environ_of(ledger: Ledger) -> dict[str, str]:
    return {
        "FAULTS_DIR": str(ledger.directory),
        "QUEUEOPS_WORKERS": "1",
        "QUEUEOPS_LEASE_SECONDS": str(LEASE_SECONDS),
        "QUEUEOPS_RENEW_SECONDS": "0.9",
        "QUEUEOPS_SWEEP_SECONDS": "0.5",
        "QUEUEOPS_EXTRA_APPS": "tests.faults.app",
    }


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
