"""A database that answers and cannot write, and one that was restarted: what callers, probes and workers are told."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from jobs.models import Job
from jobs.states import JobState
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.postgres.conditions import CONDITIONS, DiskFull, OutOfMemory, try_to_write
from queueops.site.diagnosis.database import examine_database
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, submit_work, wait_until_drained
from tests.support.own_server import bring_back
from tests.support.processes import free_port, manage, wait_for

pytestmark = pytest.mark.proves("P8")

Ask = Callable[..., tuple[int, dict[str, Any]]]
POOL = 6

READ_ONLY = ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
WRITABLE = ("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
FULL = """
CREATE FUNCTION no_room() RETURNS {returns} LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '{sqlstate}'; END $$
"""


def execute(*statements: str) -> None:
    # On a session of its own that may write: the default holds for sessions without a say of their own.
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def web_of(server: EmbeddedServer) -> Iterator[Ask]:
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    port = free_port()
    environ = {"QUEUEOPS_PORT": str(port), "QUEUEOPS_EXTRA_APPS": "tests.faults.app", "FAULTS_DIR": str(server.cluster)}

    def ask(path: str = "/api/v1/jobs/", *, submit: bool = True) -> tuple[int, dict[str, Any]]:
        body = json.dumps({"kind": "faults.write", "payload": {}}).encode() if submit else None
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def serves() -> bool:
        try:
            return ask()[0] == 201
        except OSError:
            return False

    with manage("web", environ={**environ, "QUEUEOPS_POOL_SIZE": str(POOL)}):
        wait_for(serves, seconds=60, what="the web process")
        yield ask


def test_a_standby_a_full_disk_and_a_restart_are_told_apart_and_pass(server: EmbeddedServer):
    with web_of(server) as ask:
        with ThreadPoolExecutor(POOL) as threads:  # every connection of the pool is open, and idle afterwards
            assert {status for status, _ in threads.map(lambda _: ask(), range(10 * POOL))} == {201}
        server.stop("immediate")
        bring_back(server)
        assert [ask()[0] for _ in range(POOL + 1)] == [201] * (POOL + 1), "a dead connection was handed out"

        execute(*READ_ONLY)
        wait_for(lambda: ask()[0] != 201, what="the end of writes")
        status, answer = ask()
        assert (status, answer["error"]["code"]) == (503, "database_read_only")
        status, answer = ask("/readyz", submit=False)
        assert status == 503
        assert answer["reasons"] == ["the database takes no writes: it is a standby, or set to read-only"]
        execute(*WRITABLE)
        wait_for(lambda: ask()[0] == 201, what="writes")
        assert ask("/readyz", submit=False)[0] == 200

        execute(
            FULL.format(returns="trigger", sqlstate="53100"),
            "CREATE TRIGGER no_room BEFORE INSERT ON jobs_job EXECUTE FUNCTION no_room()",
        )
        stored = Job.objects.count()
        status, answer = ask()
        assert (status, answer["error"]["code"]) == (503, "database_full")
        assert Job.objects.count() == stored
        assert ask("/readyz", submit=False)[0] == 200, "there is room, as a trial says"
        execute("DROP TRIGGER no_room ON jobs_job")
        assert ask()[0] == 201


@pytest.mark.parametrize("condition", [DiskFull, OutOfMemory])
def test_the_doctor_and_the_probe_name_what_prevents_a_write(server: EmbeddedServer, condition: type[DiskFull]):
    assert examine_database().verdict is DoctorVerdict.OK
    sqlstate = next(state for state, one in CONDITIONS.items() if one is condition)
    execute(
        FULL.format(returns="event_trigger", sqlstate=sqlstate),
        "CREATE EVENT TRIGGER no_room ON ddl_command_start WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION no_room()",
    )
    found = examine_database()
    assert (found.verdict, found.advice) == (DoctorVerdict.FAIL, condition.advice)
    assert condition.reason in found.observation
    execute("DROP EVENT TRIGGER no_room")
    assert try_to_write() is None
    execute(*READ_ONLY)
    connection.close()
    wait_for(lambda: examine_database().verdict is DoctorVerdict.FAIL, what="the standby's finding")
    page = Client(raise_request_exception=False).post("/admin/login/", {"username": "a", "password": "b"})
    assert (page.status_code, page["Retry-After"]) == (503, "5")
    assert b"takes no writes" in page.content
    execute(*WRITABLE)


def test_workers_connect_anew_where_the_database_takes_no_writes_and_lose_nothing(
    server: EmbeddedServer, ledger: Ledger
):
    with cluster(ledger, executors=1) as running:
        connected = running.output.count("is ready with")
        execute(*READ_ONLY)
        wait_for(lambda: "lost the database: cannot execute" in running.output, what="the loss")
        execute(*WRITABLE)
        wait_for(lambda: running.output.count("is ready with") >= connected + 1, what="the new connection")
        submit_work(5, "write")
        wait_until_drained()
        assert "a statement failed; the cycle is repeated" not in running.output
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
