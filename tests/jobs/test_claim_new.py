"""What is submitted begins at once, though another claim holds the counters of lanes that are open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, connections

from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.models import Job
from jobs.services.claim import claim, lanes, scan_cursor
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.services.upkeep import executors
from jobs.states import JobState
from queueops.core.notify import Channel
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.factories import make_jobs, make_project
from tests.support.processes import wait_for
from tests.support.racing import waiting_for

pytestmark = pytest.mark.django_db(transaction=True)

SLOTS = 4
WAITING = 3


@pytest.fixture
def pump(stage, monkeypatch) -> Iterator[ExecutorPump]:
    """A general executor whose cycles the test makes, in the thread `database`."""
    monkeypatch.setattr(lanes, "READING_SHARE", 1e9)  # all lanes are looked at in each cycle
    monkeypatch.setattr(
        scan_cursor, "DEAR_SECONDS", 1e9
    )  # or a look that a busy machine held up would begin nothing ahead
    make_project()
    Limit.objects.create(name="narrow", service="google-sheets", call_type="any", scope="project", capacity=1)
    catalogue.forget()
    executors.register(uuid4(), cluster_pid=os.getpid(), slots=1, pool="")  # takes the quarantine seat
    settings = ExecutorSettings(
        slots=SLOTS, lease_seconds=60, renew_seconds=20, sweep_seconds=20, poll_seconds=1, drain_grace_seconds=0,
        listen=True,
    )  # fmt: skip
    made = ExecutorPump(settings, cluster_pid=os.getpid())
    made.loop.start()
    yield made
    made.loop.stop()


def test_a_new_job_begins_while_a_claim_waits_for_a_lanes_counter(pump):
    make_jobs(WAITING, service="google-sheets", kind="test.double", payload='{"n": 1}')
    with ThreadPoolExecutor(1) as database, psycopg.connect(**parameters()) as blocker:

        def cycle() -> None:
            pump._connect()
            pump._cycle()

        def cycled_into_a_waiting_lane() -> bool:
            database.submit(cycle).result()
            return has_waiting_lane(pump)

        wait_for(cycled_into_a_waiting_lane, what="a lane without room")
        Limit.objects.update(capacity=2)
        catalogue.forget()  # it has room now
        blocker.execute("SELECT FROM ratelimits_counter FOR UPDATE")
        new = submit("test.nothing")
        pump._hear(Channel.READY)
        blocked = database.submit(cycle)
        wait_for(lambda: waiting_for(blocker), seconds=10, what="a claim that waits for the counter")
        assert in_state(new, JobState.IN_PROGRESS)
        blocker.rollback()
        blocked.result(30)
        database.submit(connections.close_all).result()


def has_waiting_lane(pump: ExecutorPump) -> bool:
    return Job.objects.filter(status=JobState.COMPLETED).count() == 1 and pump._gate.has_lanes


def submit(kind: str) -> UUID:
    return submit_job(JobSpec(kind=kind, payload={"n": 1}), project_id="acme", actor="key:test").id


def in_state(job_id: UUID, state: JobState) -> bool:
    return Job.objects.get(pk=job_id).status == state


def parameters() -> dict[str, Any]:
    return connection.get_connection_params() | {"cursor_factory": None}


def test_before_an_outcome_is_written_nothing_is_begun_ahead_of_it(pump, stage, monkeypatch):
    """It may be a refusal, whose counters have yet to cool down."""
    ahead: list[bool] = []
    real = claim.claim_new

    def claim_new(*arguments: Any, **options: Any) -> Any:
        ahead.append(pump.loop.waiting_seconds is not None)
        return real(*arguments, **options)

    monkeypatch.setattr(claim, "claim_new", claim_new)
    pump._connect()
    pump._cycle()
    first = submit("test.wait")
    pump._hear(Channel.READY)
    pump._cycle()
    stage.let_go.set()
    wait_for(lambda: pump.loop.waiting_seconds is not None, what="an outcome that nobody has collected")
    second = submit("test.wait")
    pump._hear(Channel.READY)
    pump._cycle()
    assert ahead == [False]
    assert in_state(first, JobState.COMPLETED)
    assert not in_state(second, JobState.QUEUED)
