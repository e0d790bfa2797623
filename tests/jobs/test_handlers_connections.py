"""The database's connections of handlers, which outlive the jobs that used them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from jobs.executor.loop import HandlerLoop
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.services.finish.outcomes import Failed, Succeeded
from queueops.core.postgres import base
from queueops.tenancy.models import Project
from tests.support.executing import Driven, Number, Stage, claimed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def driven(stage: Stage) -> Iterator[Driven]:
    """One slot: all jobs share a thread."""
    loop = HandlerLoop(slots=1, wake=lambda: None)
    loop.start()
    yield Driven(loop)
    loop.stop()
    asyncio.run(sync_to_async(connections.close_all)())  # of the thread that all asynchronous handlers share


def run(driven: Driven, kind: str) -> Any:
    driven.outcomes.clear()
    [outcome] = driven.run(claimed(kind))
    return outcome


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    return int(pid)


def end(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        assert cursor.fetchone() == (True,)


@pytest.mark.parametrize(
    ("idle_seconds", "then"), [(0.0, [Succeeded, Succeeded]), (float("inf"), [Failed, Succeeded])], ids=["idle", "busy"]
)
def test_an_asynchronous_handler_connects_anew_after_the_server_closed_its_connection(
    idle_seconds, then, driven, monkeypatch
):
    monkeypatch.setattr(base, "IDLE_SECONDS", idle_seconds)

    @handler(kind="test.count", service="test", payload=Number, idempotent=True)
    async def count(job: RunningJob[Number]) -> Done:
        return Done({"projects": await Project.objects.acount(), "pid": await sync_to_async(backend)()})

    end(json.loads(run(driven, "test.count").result)["pid"])
    assert [type(run(driven, "test.count")) for _ in range(2)] == then


def test_what_the_server_writes_to_an_idle_connection_ends_none(monkeypatch):
    monkeypatch.setattr(base, "IDLE_SECONDS", 0.0)
    pid = backend()
    with connection.cursor() as cursor:
        cursor.execute("LISTEN handlers_connections")
        cursor.execute("NOTIFY handlers_connections")
    assert backend() == pid


def leave_raw() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")


def leave_block() -> None:
    transaction.atomic().__enter__()


def leave_mode() -> None:
    transaction.set_autocommit(False)


@pytest.mark.parametrize("leave", [leave_raw, leave_block, leave_mode])
def test_a_transaction_that_a_handler_leaves_open_is_its_own_jobs_failure_and_no_others(leave: Any, driven):
    @handler(kind="test.leave", service="test", payload=Number, idempotent=True)
    def leaves(job: RunningJob[Number]) -> Done:
        leave()
        Project.objects.create(id="lost")
        return Done({"written": True})

    @handler(kind="test.write", service="test", payload=Number, idempotent=True)
    def write(job: RunningJob[Number]) -> Done:
        Project.objects.create(id="kept")
        return Done({"written": True})

    left, written = run(driven, "test.leave"), run(driven, "test.write")
    assert isinstance(left, Failed)
    assert left.failure.message.endswith("the handler left a transaction open; what it wrote is undone")
    assert isinstance(written, Succeeded)
    assert list(Project.objects.values_list("pk", flat=True)) == ["kept"]
