"""R5: the line to the database is slow, silent, cut or narrow; nobody hangs, and no job has two owners."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import psycopg
import pytest
from django.db import OperationalError, connection
from django.db.utils import ConnectionHandler

from jobs.models import Job
from jobs.states import JobState
from queueops.core.database import connect_directly
from queueops.core.postgres import base
from queueops.core.postgres.watched_line import WatchedConnection
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.faults.clusters import Cluster, cluster
from tests.faults.ledger import Ledger
from tests.faults.producers import Producers
from tests.faults.records import PROJECT, submit_work, wait_until_drained
from tests.support.awake import awake
from tests.support.bad_line import BadLine, bad_line
from tests.support.own_server import reconnected
from tests.support.processes import database_url, wait_for

pytestmark = pytest.mark.proves("R5")

HANG_SECONDS = 10.0
# Through 1 kB/s a claim may take longer than a lease: then a neighbour with a better line kills the executor.
MAX_SECONDS = {"narrow": 8.0}
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
SILENT = "SELECT coalesce(max(extract(epoch FROM now() - heartbeat_at)), 0)::float8 FROM jobs_executor"
LAPSED = "SELECT count(*) FROM jobs_job WHERE lease_expires_at < now() - %s * interval '1 second'"


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


@pytest.mark.parametrize("leases", [pytest.param(1.5, id="short"), pytest.param(6, id="long", marks=pytest.mark.soak)])
def test_through_a_line_so_slow_that_a_cycle_outlasts_a_lease_none_lapses(
    line: BadLine, ledger: Ledger, *, leases: float, figures: Any, real_url: str
):
    """Their neighbours would kill the executors, and carry out their jobs again."""
    longest = lapsed = 0.0
    with (
        cluster(ledger, **SHORT_LEASE) as running,
        psycopg.connect(real_url, autocommit=True) as beside,
        awake() as clock,
    ):
        before = processes(running)
        submit_work(int(150 * leases), "write")
        line.delay(SLOW_SECONDS)
        until = time.monotonic() + leases * SHORT_LEASE["lease_seconds"]
        while time.monotonic() < until:
            [(silent,)] = beside.execute(SILENT).fetchall()
            # While the machine stood still nobody could renew anything, and then somebody has to be the first.
            still = clock.stood_still(since=time.monotonic() - silent)
            [(late,)] = beside.execute(LAPSED, [still]).fetchall()
            longest, lapsed = max(longest, silent - still), max(lapsed, late)
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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedConnection, "silent_seconds", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("spoil", [BadLine.fall_silent, BadLine.forget])
def test_a_line_that_takes_bytes_and_passes_none_on_is_given_up(spoil: Callable[[BadLine], None], line: BadLine):
    """Also where new lines work, and the server says that it does nothing for this one."""
    with connect_directly() as asking:
        spoil(line)
        begun = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="silent"):
            asking.execute("SELECT 1")
        assert time.monotonic() - begun < HANG_SECONDS
        assert asking.broken


@pytest.mark.usefixtures("impatient")
def test_who_waited_at_a_silent_line_does_not_wait_for_another_as_well(line: BadLine, monkeypatch: pytest.MonkeyPatch):
    """As a request whose first statement was given up, and which asks the database again."""
    monkeypatch.setattr(base, "SILENCE_SECONDS", 60.0)  # however long it takes to ask again
    pooled = dict(
        connection.settings_dict["OPTIONS"], pool={"min_size": 1, "max_size": 2, "connection_class": WatchedConnection}
    )
    connections = ConnectionHandler({"default": dict(connection.settings_dict, OPTIONS=pooled)})
    one: Any = connections["default"]
    try:
        one.ensure_connection()
        line.forget()
        with pytest.raises(OperationalError, match="silent"):
            one.cursor().execute("SELECT 1")
        one.close()
        with pytest.raises(OperationalError, match="a moment ago"):
            one.ensure_connection()
    finally:
        one.close()
        one.close_pool()


@pytest.mark.usefixtures("impatient")
def test_a_statement_that_the_server_works_at_may_take_long(line: BadLine):
    with connect_directly() as asking:
        carried = line.carried
        assert asking.execute("SELECT 1 FROM pg_sleep(1)").fetchone() == (1,)
        assert line.carried > carried, "nobody asked whether it does"


def test_requests_end_while_the_line_to_the_database_is_silent(line: BadLine, figures: Any):
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    app = {"QUEUEOPS_EXTRA_APPS": "tests.faults.app", "FAULTS_DIR": "."}
    with web_process(**app) as (address, web), awake() as clock:

        async def ask(http: aiohttp.ClientSession) -> tuple[int, bool, float]:
            begun = clock.now()
            async with http.post(f"{address}/api/v1/jobs/", json={"kind": "faults.write", "payload": {}}) as answer:
                await answer.read()
                return answer.status, "Retry-After" in answer.headers, clock.now() - begun

        async def crowd() -> tuple[list[tuple[int, bool, float]], float]:
            headers = {"Authorization": f"Bearer {key}"}
            async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as http:
                assert {status for status, *_ in await asyncio.gather(*[ask(http) for _ in range(15)])} == {201}
                line.fall_silent()
                answers = await asyncio.gather(*[ask(http) for _ in range(30)])
                answers += await asyncio.gather(*[ask(http) for _ in range(3)])  # which find no connection
                line.mend()
                begun = clock.now()
                while (await ask(http))[0] != HTTPStatus.CREATED:
                    assert clock.now() - begun < 60, "the pool does not recover"
                return answers, clock.now() - begun

        answers, well_after = asyncio.run(crowd())
        assert web.runs
    longest = max(seconds for *_, seconds in answers)
    figures(f"asked for {longest:.1f} s at most, well {well_after:.1f} s after")
    assert {(status, is_told_when) for status, is_told_when, _ in answers} == {(503, True)}
    assert longest <= HANG_SECONDS
    assert well_after <= HANG_SECONDS


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
    with cluster(ledger, **LEASE) as running, web_process(**app) as (address, web), awake() as clock:
        producers = Producers(address, key, now=clock.now)
        before = processes(running)
        with producers.at_work():
            for name, spoil in FAULTS.items():
                producers.wait_for_more(20)
                producers.longest_seconds = 0.0
                spoil(line)
                time.sleep(min(seconds, MAX_SECONDS.get(name, seconds)))  # how long the line is bad
                line.mend()
                line.reset()
                begun = clock.now()
                first = wait_for(producers.submit, what="an acknowledged submit after the fault")
                wait_for(partial(is_done, ledger, first), what="the work after the fault")
                after[name] = clock.now() - begun
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
