"""What an executor remembers of its claims, where the database says otherwise."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import psutil
import pytest
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now

from jobs import cluster
from jobs.executor.inline import InlineEventLoop, InlinePump
from jobs.executor.pump import ExecutorSettings
from jobs.models import DeadLetter, Epoch, Executor, Job, JobEvent
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.upkeep import executors
from jobs.services.upkeep.own_claims import BEGUN, CUT_OFF, UNKNOWN_END, compare_claims
from jobs.states import JobState
from queueops.core.postgres import base
from queueops.core.processes.pulses import Pulses
from ratelimits.models import QuotaAlert
from tests.factories import make_job
from tests.support.forgetting import forget_all

pytestmark = pytest.mark.django_db

ONCE = '{"method": "POST", "url": "http://127.0.0.1:9/"}'
LEASE = 30.0
OPTIONS = ExecutorSettings(
    slots=10, lease_seconds=LEASE, renew_seconds=10, sweep_seconds=1, poll_seconds=1, drain_grace_seconds=0, listen=True
)


def claim(executor: UUID, *payloads: str | None) -> list[ClaimedJob]:
    """Submit a job each and claim them, in that order; None: one that may be repeated."""
    claimed = []
    for payload in payloads:
        make_job(**({"payload": payload} if payload else {}))
        claimed += claim_jobs(executor, wanted=1, lease_seconds=LEASE, turns=ClassTurns())
    return claimed


def told(job: ClaimedJob) -> tuple[str, int, str]:
    """Its state, its crashes and what its log says last."""
    row = Job.objects.get(pk=job.id)
    return row.status, row.crash_count, JobEvent.objects.filter(job_id=job.id).order_by("-id")[0].message or ""


def test_what_was_begun_is_never_given_back_as_not_begun_and_ends_as_its_kind_says():
    executor = uuid4()
    known, repeated, once, unbegun, unbegun_once = claim(executor, None, None, ONCE, None, ONCE)
    assert compare_claims(executor, [known], begun_up_to=once.token) == (2, 1, 1)
    assert told(known)[0] == JobState.IN_PROGRESS
    assert told(repeated) == (JobState.RETRIED, 0, BEGUN)
    assert told(once) == (JobState.FAILED, 0, UNKNOWN_END)
    assert [told(job) for job in (unbegun, unbegun_once)] == [(JobState.RETRIED, 0, CUT_OFF)] * 2
    assert DeadLetter.objects.get().error_code == "outcome_unknown"
    assert compare_claims(executor, [known], begun_up_to=once.token) == (0, 0, 0)


def test_a_claim_under_way_is_no_claim_of_an_earlier_run_of_its_job():
    """The row is of the restored moment: the run that goes on now came after it, with a token of its own."""
    executor = uuid4()
    [job] = claim(executor, ONCE)
    later = job._replace(token=job.token + 5)
    assert compare_claims(executor, [later], begun_up_to=later.token) == (0, 0, 1)
    assert told(job)[0] == JobState.FAILED


def test_what_is_carried_out_here_and_waits_there_is_not_called_a_second_time_unless_it_may_be():
    executor = uuid4()
    point = transaction.savepoint()
    make_job(payload=ONCE)
    make_job()
    before = transaction.savepoint()
    claimed = claim_jobs(executor, wanted=2, lease_seconds=LEASE, turns=ClassTurns())
    assert len(claimed) == 2
    transaction.savepoint_rollback(before)
    forget_all()
    highest = max(job.token for job in claimed)
    assert compare_claims(executor, claimed, begun_up_to=highest) == (0, 0, 1)
    states = {job.payload: told(job)[0] for job in claimed}
    assert sorted(states.values()) == [JobState.FAILED, JobState.QUEUED]
    assert DeadLetter.objects.get().job.payload["method"] == "POST"
    transaction.savepoint_rollback(point)


@contextmanager
def a_pump() -> Iterator[InlinePump]:
    """An executor that does what the test has it do, on the test's connection."""
    loop, pump = InlineEventLoop(), InlinePump(OPTIONS, cluster_pid=os.getpid())
    try:
        pump.begin_on(loop)
        yield pump
    finally:
        loop.close()
        pump.leave()


def test_an_executor_that_connects_again_tells_what_it_had_begun_from_what_it_had_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with a_pump() as pump:
        monkeypatch.setattr(pump.loop, "carry_out", lambda *given: None)
        begun, later, goes_on = claim(pump.id, ONCE, ONCE, None)
        pump._begin([begun, later, goes_on], {})
        pump._disown(begun.id)  # it ended, in a time that the database has lost
        [cut_off] = claim(pump.id, ONCE)  # its commit came through, its answer did not
        pump._connected = False
        with caplog.at_level(logging.WARNING, "jobs.executor.pump"):
            pump._connect()
        assert [told(job)[0] for job in (begun, goes_on, cut_off)] == ["failed", "in_progress", "retried"]
        assert "1 claims were cut off before they began" in caplog.text
        pump._disown(later.id)
        pump._renew()
        assert told(later)[0] == JobState.IN_PROGRESS, "nothing says that the database is another"
        Epoch.objects.update(began_at=Now() + timedelta(seconds=1))  # behind a pooler no line was cut
        pump._renew()
        assert told(later)[0] == JobState.FAILED
        assert not pump.may_judge
        pump._owned.clear()


@pytest.mark.django_db(transaction=True)
def test_an_idle_executor_hears_of_the_end_of_its_connection(monkeypatch: pytest.MonkeyPatch):
    """A connection that was replaced in silence would listen to nothing, and no claim would be compared."""
    monkeypatch.setattr(base, "IDLE_SECONDS", 0.0)

    def end_connection() -> None:
        another = connection.copy()
        with another.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])
        another.close()

    with a_pump() as pump:
        end_connection()
        with pytest.raises(OperationalError):
            pump._cycle()
        pump._disconnected(OperationalError("away"))
        pump._connect()
        pump._cycle()
    connection.close()
    connection.ensure_connection()  # as a handler's
    end_connection()
    assert Job.objects.count() == 0


def test_whoever_has_just_connected_takes_nobodys_jobs_and_forgets_nobody_for_a_lease(
    monkeypatch: pytest.MonkeyPatch,
):
    """The rows are of the restored moment: leases have lapsed of executors that live, and have not come back yet."""
    executors.register(uuid4(), cluster_pid=1, slots=5)
    with a_pump() as pump:
        job = make_job(state=JobState.IN_PROGRESS)
        Executor.objects.update(heartbeat_at=Now() - timedelta(days=1))
        Job.objects.update(lease_expires_at=Now() - timedelta(days=1), executor=uuid4())
        known = Executor.objects.count()
        monkeypatch.setattr(cluster, "_hosted", [pump])

        def judge(now: float) -> tuple[int, str]:
            """What an executor and the house-keeping of its process do, and what is left."""
            pump._duties.do(now)
            cluster.sweep_leases()
            cluster.clean_executors()
            job.refresh_from_db()
            return Executor.objects.count(), job.status

        pump._connected = False
        pump._connect()
        now = time.monotonic()
        assert not pump.may_judge
        assert judge(now + LEASE - 1) == (known, JobState.IN_PROGRESS)
        pump._duties.rests_until = now
        assert pump.may_judge
        pump._duties.do(now + LEASE + 1)
        job.refresh_from_db()
        assert job.status == JobState.RETRIED
        pump._connected = False
        assert not pump.may_judge, "the database is away, or another"
        pump._connected = True


def beating(pulses: Pulses, *, pump: float = 0.0, loop: float = 0.0, trouble: bool = False) -> UUID:
    """A sibling's signs of life, so many seconds old; its process is one that runs."""
    owner = uuid4()
    pulse = pulses.join(owner, pid=os.getppid())
    pulse.tick(time.monotonic() - loop)
    pulse.beat(time.monotonic() - pump)
    pulse.tell_trouble(is_in_trouble=trouble)
    return owner


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, signal: numbers.append(pid))
    return numbers


def test_siblings_are_judged_by_their_own_signs_of_life_and_never_by_their_rows(killed: list[int]):
    for what, is_stuck, given in (
        ("it lives", False, {}),
        ("the database was written by nobody for a while", False, {"pump": LEASE - 1, "trouble": True}),
        ("its pump waits for a database that failed it", False, {"pump": 10 * LEASE, "trouble": True}),
        ("its pump is silent", True, {"pump": LEASE + 1}),
        ("its handlers' loop is held", True, {"loop": LEASE + 1}),
        ("it is frozen whole while the database is away", True, {"pump": 60, "loop": 60, "trouble": True}),
    ):
        pulses = Pulses()
        owner = beating(pulses, **given)
        [pulse] = pulses.read()
        started_at = pulse.started_at + psutil.boot_time()
        row = {"pid": pulse.pid, "process_started_at": started_at, "cluster_id": executors.CLUSTER_ID}
        Executor.objects.create(pk=owner, host="h", cluster_pid=1, slots=5, loop_lag_ms=10_000_000, **row)
        Executor.objects.update(heartbeat_at=Now() - timedelta(days=1))
        killed.clear()
        assert (
            bool(executors.kill_stuck_executors(silent_seconds=LEASE, stuck_seconds=LEASE, pulses=pulses)) is is_stuck
        ), what
        assert bool(killed) is is_stuck, what
        assert QuotaAlert.objects.filter(kind="stuck_executor", subject=str(owner)).exists() is is_stuck, what


def test_a_killed_sibling_that_the_database_does_not_know_is_told_by_its_number(killed: list[int]):
    pulses = Pulses()
    owner = beating(pulses, pump=LEASE + 1)
    assert executors.kill_stuck_executors(silent_seconds=LEASE, stuck_seconds=LEASE, pulses=pulses) == [os.getppid()]
    assert f":{os.getppid()} did not answer for 31 s" in QuotaAlert.objects.get(subject=str(owner)).message
