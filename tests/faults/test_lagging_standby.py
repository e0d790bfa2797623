"""
What a standby that lags lacks was not lost: where DATABASE_URL names several hosts and does not say which, or a pooler
chooses one, a connection may lead to it for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from dashboards.live import relay as relay_module
from dashboards.live.events import OPS, Event
from dashboards.live.relay import Relay
from jobs.models import Epoch, Executor, Job, JobEvent, PauseSwitch
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.restore_detector import RestoreDetector
from jobs.services.operate.epochs import declare_restored
from jobs.services.operate.pauses import resume_scope
from queueops.core.postgres.conditions import ReadOnlyServer
from tests.factories import make_job, make_jobs
from tests.support.embedded import connected_to
from tests.support.event_log import log_event, terminate_relays, writer
from tests.support.processes import wait_for
from tests.support.replica import Replica, primary_and_replica

SEQUENCE_AHEAD = 33  # values that a standby knows of before they are drawn
AT_STANDBY = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queueops relay'"


@pytest.fixture(scope="module")
def servers(django_db_blocker: Any) -> Iterator[Replica]:
    with django_db_blocker.unblock(), primary_and_replica() as running:
        yield running


@pytest.fixture
def standby(servers: Replica, django_db_blocker: Any) -> Iterator[Replica]:
    with django_db_blocker.unblock():
        resume_scope("global", "", actor="op")
        Job.objects.all().delete()
        yield servers
        servers.resume()


class Places:
    """Where the relay's connections lead: to a server of its own choice, or to nowhere once the test is over."""

    def __init__(self) -> None:
        self.url = ""
        self.is_over = False

    def connect(self, **options: str) -> psycopg.Connection[tuple[Any, ...]]:
        if self.is_over:
            raise relay_module._LoopEnded
        return psycopg.connect(self.url, autocommit=True, **options)  # type: ignore[arg-type]


async def until(condition: Any, *, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what=what)


def test_a_relay_whose_connection_leads_to_a_lagging_standby_waits_and_misses_nothing(
    standby: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: Any
):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, listen=False)  # a standby refuses a session that listens
    caplog.set_level(logging.WARNING)
    places = Places()
    monkeypatch.setattr(relay_module, "connect_directly", places.connect)
    primary = standby.pair.primary.dsn()
    job, before = make_job(), str(Epoch.objects.get())
    seen: list[int] = []
    lost: list[str] = []

    def log() -> int:
        with writer() as one:
            return log_event(one, job)

    def deliver(events: Any, _cursor: Any) -> None:
        seen.extend(event.id for event in events if isinstance(event, Event))

    async def follow() -> None:
        relay = Relay({OPS: object()}, deliver, lambda: lost.append("lost"))
        places.url = primary
        relay.start()
        assert await relay.has_begun()
        first = await asyncio.to_thread(log)
        await until(lambda: first in seen, what="the first event")
        await asyncio.to_thread(standby.pause)
        for _ in range(SEQUENCE_AHEAD + 1):
            late = await asyncio.to_thread(log)
        await until(lambda: late in seen, what="an event that the standby lacks")
        places.url = standby.url
        await asyncio.to_thread(terminate_relays)
        await until(lambda: ReadOnlyServer.reason in caplog.text or lost, what="the look at the standby")
        while_away = await asyncio.to_thread(log)
        places.url = primary
        await until(lambda: while_away in seen or lost, what="what came meanwhile")
        places.is_over = True
        await asyncio.to_thread(terminate_relays)

    try:
        asyncio.run(follow())
    finally:
        places.is_over = True
        standby.run(AT_STANDBY)
    assert not lost, "its watchers were told that the log is another one"
    assert str(Epoch.objects.get()) == before
    assert not PauseSwitch.objects.filter(scope="global").exists()
    assert set(JobEvent.objects.filter(job_id=job.pk, event_type="audit").values_list("pk", flat=True)) <= set(seen)


def test_an_executor_at_a_standby_proves_nothing_by_it_and_goes_on_at_the_primary(standby: Replica):
    make_jobs(2)
    witness, newcomer = RestoreDetector(uuid4()), RestoreDetector(uuid4())
    witness.refuse_the_past()
    standby.pause()
    # The standby lacks an epoch, and the claims in it.
    declare_restored(actor="op")
    resume_scope("global", "", actor="op")
    witness.refuse_the_past()
    claimed = claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns())
    assert len(claimed) == 2
    witness.note(claimed)
    before = str(Epoch.objects.get())
    with connected_to(str(standby.server.socket_dir)):
        for one in (witness, newcomer):
            with pytest.raises(ReadOnlyServer):
                one.refuse_the_past()
    for one in (witness, newcomer):
        one.refuse_the_past()
    assert str(Epoch.objects.get()) == before
    assert not PauseSwitch.objects.filter(scope="global").exists()
    assert not Executor.objects.exists()
    connection.close()
