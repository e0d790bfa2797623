"""R5: the line to the database is slow, silent, cut or narrow; nobody hangs, and no job has two owners."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.db import connection

from jobs.models import Job
from jobs.states import JobState
from queueops.core.database import connect_directly
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.faults.clusters import Cluster, cluster
from tests.faults.ledger import Ledger
from tests.faults.producers import Producers
from tests.faults.records import PROJECT, submit_work, wait_until_drained
from tests.support.bad_line import BadLine, bad_line
from tests.support.own_server import reconnected
from tests.support.processes import database_url, wait_for

pytestmark = pytest.mark.proves("R5")

HANG_SECONDS = 10.0
# What passes nothing on takes what it is sent, so the kernel sees nothing amiss: TCP_USER_TIMEOUT, which ends a line
# whose packets are lost, is played by the reset.
# Through 1 kB/s a claim may take longer than a lease: then a neighbour with a better line kills the executor.
MOST_SECONDS = {"silent": 8.0, "narrow": 8.0}
LEASE = {"lease_seconds": 30, "renew_seconds": 10, "sweep_seconds": 5}
FAULTS: dict[str, Callable[[BadLine], None]] = {
    "slow": lambda line: line.delay(0.5),
    "silent": lambda line: line.fall_silent(),
    "cut": lambda line: line.reset(),
    "narrow": lambda line: line.narrow(1_000),
}


# A cycle of the pump has some hundred statements with house-keeping, and a claim about twenty.
SLOW_SECONDS = 0.06
SHORT_LEASE = {"lease_seconds": 6, "renew_seconds": 2, "sweep_seconds": 1}
SILENT = """
SELECT coalesce(max(extract(epoch FROM now() - heartbeat_at)), 0)::float8,
       (SELECT count(*) FROM jobs_job WHERE lease_expires_at < now())
  FROM jobs_executor
"""


@pytest.fixture
def real_url(transactional_db: None) -> str:
    """Of the server itself, past the line."""
    return database_url()


@pytest.fixture
def line(real_url: str) -> Iterator[BadLine]:
    """Every connection of this process, and of those that it starts, goes through it."""
    given = connection.get_connection_params()
    host, port = given.get("host", ""), given.get("port") or 5432
    with bad_line(Path(host, f".s.PGSQL.{port}") if host.startswith("/") else int(port)) as running:
        connection.close()
        before = dict(connection.settings_dict)
        connection.settings_dict.update(HOST="127.0.0.1", PORT=str(running.port))
        try:
            yield running
        finally:
            connection.close()
            connection.settings_dict.update(before)


def processes(running: Cluster) -> set[psutil.Process]:
    return {psutil.Process(executor.pid) for executor in running.executors()} | {running.sentinel}


def is_done(ledger: Ledger, job_id: object) -> bool:
    return job_id in ledger.by_job()


@pytest.mark.parametrize("leases", [pytest.param(2, id="short"), pytest.param(6, id="long", marks=pytest.mark.soak)])
def test_through_a_line_so_slow_that_a_cycle_outlasts_a_lease_none_lapses(
    line: BadLine, ledger: Ledger, *, leases: int, figures: Any, real_url: str
):
    """Their neighbours would kill the executors, and carry out their jobs again."""
    longest = lapsed = 0.0
    with cluster(ledger, **SHORT_LEASE) as running, psycopg.connect(real_url, autocommit=True) as beside:
        before = processes(running)
        submit_work(150 * leases, "write")
        line.delay(SLOW_SECONDS)
        until = time.monotonic() + leases * SHORT_LEASE["lease_seconds"]
        while time.monotonic() < until:
            [(silent, late)] = beside.execute(SILENT).fetchall()
            longest, lapsed = max(longest, silent), max(lapsed, late)
            time.sleep(0.1)
        line.mend()
        wait_until_drained()
        assert processes(running) == before, "an executor ended"
    figures(f"the longest silence of an executor was {longest:.1f} s, of {SHORT_LEASE['lease_seconds']} s")
    assert longest < SHORT_LEASE["lease_seconds"]
    assert not lapsed
    assert {len(entries) for entries in ledger.by_job().values()} == {1}, "a job had two owners"


def check_the_kernels_patience() -> None:
    """It ends every line whose packets are lost in time."""
    connection.ensure_connection()
    with connect_directly() as beside:
        for opened in (connection.connection, beside):
            with socket.socket(fileno=os.dup(opened.fileno())) as end:
                patience = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000
                idle, interval, count = (
                    end.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                )
                assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert 0 < patience <= HANG_SECONDS
                assert idle + interval * count <= HANG_SECONDS


@pytest.mark.parametrize(
    "seconds", [pytest.param(1.0, id="short"), pytest.param(30, id="long", marks=pytest.mark.soak)]
)
def test_a_bad_line_to_the_database_hangs_nobody_repeats_nothing_and_leaves_no_trace(
    seconds: float, line: BadLine, ledger: Ledger, figures: Any
):
    check_the_kernels_patience()
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    app = {"QUEUEOPS_EXTRA_APPS": "tests.faults.app", "FAULTS_DIR": str(ledger.directory)}
    after: dict[str, float] = {}
    longest: dict[str, float] = {}
    with cluster(ledger, **LEASE) as running, web_process(**app) as (address, web):
        producers = Producers(address, key)
        before = processes(running)
        with producers.at_work():
            for name, spoil in FAULTS.items():
                producers.wait_for_more(20)
                producers.longest_seconds = 0.0
                spoil(line)
                time.sleep(min(seconds, MOST_SECONDS.get(name, seconds)))  # how long the line is bad
                line.mend()
                line.reset()
                begun = time.monotonic()
                first = wait_for(producers.submit, what="an acknowledged submit after the fault")
                wait_for(partial(is_done, ledger, first), what="the work after the fault")
                after[name] = time.monotonic() - begun
                wait_for(reconnected, what="this test's own connection")
                longest[name] = producers.longest_seconds
        wait_until_drained()
        assert web.runs
        assert processes(running) == before, "an executor ended"
    figures(
        "; ".join(f"{name}: asked for {longest[name]:.1f} s at most, well {after[name]:.1f} s after" for name in FAULTS)
    )
    stored = dict(Job.objects.values_list("pk", "status"))
    assert set(producers.acknowledged) <= stored.keys(), "an acknowledged submit was lost"
    assert set(stored.values()) == {JobState.COMPLETED}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}, "a job had two owners"
    assert max(after.values()) <= HANG_SECONDS
    assert max(longest.values()) <= HANG_SECONDS
