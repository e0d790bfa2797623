"""Clusters told apart, and what becomes of the jobs of one that is gone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import django_q.cluster
import psutil
import pytest
from django.db import InterfaceError, OperationalError, connection
from django.db.models.functions import Now
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from jobs import cluster
from jobs.cluster import KillSafeQueue, SkipLockedBroker, ensure_schedules
from jobs.features.watches.watch import watch_executors
from jobs.models import DeadLetter, Executor, Job
from jobs.services.upkeep import executors, upkeep
from jobs.states import JobState
from jobs.transitions import Lease, Move, move_jobs
from queueops.core.clock import database_now
from queueops.core.processes.pulses import Pulses
from ratelimits.models import QuotaAlert
from tests.factories import make_job
from tests.support.processes import ROOT, started

LEASE = timedelta(seconds=30)  # the default of QUEUEOPS_LEASE_SECONDS
RENEWAL = timedelta(seconds=10)

pytestmark = pytest.mark.django_db


def executor(cluster: UUID, *, silent: timedelta = timedelta(), **fields: Any) -> Executor:
    given = {"host": "h", "pid": 1, "process_started_at": 0, "cluster_pid": 1, "slots": 5, **fields}
    row = Executor.objects.create(cluster_id=cluster, **given)
    Executor.objects.filter(pk=row.pk).update(heartbeat_at=Now() - silent)
    return row


def run_by(owner: Executor, **fields: Any) -> Job:
    """A running job whose lease lapsed just now."""
    job = make_job(state=JobState.IN_PROGRESS, **fields)
    Job.objects.filter(pk=job.pk).update(executor=owner.pk, lease_expires_at=Now() - timedelta(milliseconds=1))
    return job


def rescued(job: Job) -> tuple[str, int]:
    """Its state and its crashes after the rescue."""
    assert upkeep.rescue_lapsed() == 1
    job.refresh_from_db()
    return job.status, job.crash_count


def test_a_process_that_dies_while_its_cluster_lives_is_its_jobs_crash():
    cluster = uuid4()
    dead = executor(cluster, silent=LEASE)
    executor(cluster, silent=RENEWAL)
    assert rescued(run_by(dead)) == (JobState.RETRIED, 1)


def test_an_executor_that_its_own_cluster_has_forgotten_died_alone():
    dead = executor(uuid4(), silent=LEASE)
    job = run_by(dead)
    dead.delete()
    assert rescued(job) == (JobState.RETRIED, 1)


@pytest.mark.proves("P10")
def test_jobs_that_went_with_a_whole_cluster_have_not_crashed():
    cluster = uuid4()
    dead = executor(cluster, silent=LEASE)
    executor(cluster, silent=LEASE - RENEWAL)  # it died with the other, just after its own renewal
    executor(uuid4())  # another host lives
    assert rescued(run_by(dead)) == (JobState.RETRIED, 0)


def test_a_call_that_may_not_be_repeated_is_told_and_its_job_is_charged_with_no_crash():
    write = '{"method": "POST", "url": "http://127.0.0.1:9/"}'
    job = run_by(executor(uuid4(), silent=LEASE), payload=write)
    assert rescued(job) == (JobState.FAILED, 0)
    letter = DeadLetter.objects.get()
    assert letter.error_code == "outcome_unknown"
    assert "all executors of its host's cluster went away" in letter.error_message


def test_a_job_that_keeps_going_down_with_its_cluster_is_poison_in_the_end():
    job = make_job()
    seen = []
    for _ in range(5):
        Job.objects.filter(pk=job.pk).update(scheduled_at=None)
        _claim(job, executor(uuid4(), silent=LEASE))
        seen.append(rescued(job))
        if job.status != JobState.FAILED:
            move_jobs("release", [Move(job.pk)])
    assert seen == [(JobState.RETRIED, 0)] * 2 + [(JobState.RETRIED, 1), (JobState.RETRIED, 2), (JobState.FAILED, 3)]
    assert DeadLetter.objects.get().error_code == "poison"


def _claim(job: Job, owner: Executor) -> None:
    job.refresh_from_db()
    token = job.fencing_token + 1
    move = Move(job.pk, token=token)
    move_jobs("dispatch", [move], lease=Lease(owner.pk, 30))
    move_jobs("start", [move])
    Job.objects.filter(pk=job.pk).update(lease_expires_at=Now() - timedelta(milliseconds=1))


@pytest.mark.proves("P9")
def test_two_hosts_of_one_name_and_equal_pids_have_a_quarantine_seat_each():
    first, second = uuid4(), uuid4()
    roles = [
        executors.register(uuid4(), cluster_pid=7, slots=5, cluster_id=cluster)[0]
        for cluster in (first, second, first, second)
    ]
    assert roles == ["quarantine", "quarantine", "general", "general"]


def test_only_executors_of_the_own_cluster_are_killed_and_others_rows_wait_for_their_jobs():
    with started("sleep", "60") as theirs, started("sleep", "60") as ours:
        for process, cluster in ((theirs, uuid4()), (ours, executors.CLUSTER_ID)):
            begun = psutil.Process(process.pid).create_time()
            known = executor(
                cluster, silent=LEASE * 2, pid=process.pid, process_started_at=begun, host=os.uname().nodename
            )
        pulses = Pulses()
        pulses.join(known.pk, pid=ours.pid).beat(time.monotonic() - 60)
        gone = executor(uuid4(), silent=LEASE * 20)
        run_by(gone)
        assert executors.kill_stuck_executors(silent_seconds=30, stuck_seconds=30, pulses=pulses) == [ours.pid]
        assert ours.process.wait(120) == -9
        alert = QuotaAlert.objects.filter(kind="stuck_executor", resolved_at=None)
        assert f":{ours.pid} did not answer for 60 s and was killed" in alert.get().message
        told = alert.filter(figures__killed=True)
        watch_executors()
        assert told.exists(), "over before anybody could see it"
        told.update(opened_at=Now() - timedelta(seconds=61))
        watch_executors()
        assert not told.exists()
        assert theirs.runs
        executors.forget_gone_executors(silent_seconds=30)
        assert set(Executor.objects.values_list("pid", flat=True)) == {theirs.pid, gone.pid}
        upkeep.rescue_lapsed()
        executors.forget_gone_executors(silent_seconds=30)
        assert set(Executor.objects.values_list("pid", flat=True)) == {theirs.pid}


@pytest.mark.proves("R7")
def test_a_system_clock_that_is_set_makes_no_living_executor_dead(monkeypatch: pytest.MonkeyPatch):
    cluster, seat = uuid4(), uuid4()
    assert executors.register(seat, cluster_pid=7, slots=5, cluster_id=cluster)[0] == "quarantine"
    with started("sleep", "60") as other:
        later = executor(uuid4(), silent=LEASE * 2, pid=other.pid, host=os.uname().nodename)
        later.refresh_from_db()
        boot = psutil.boot_time()
        monkeypatch.setattr(psutil, "boot_time", lambda: boot + 3600)  # the kernel's, once the clock is an hour ahead
        assert executors.register(uuid4(), cluster_pid=7, slots=5, cluster_id=cluster)[0] == "general"
        silent = Executor.objects.filter(pk=seat)
        silent.update(heartbeat_at=Now() - timedelta(seconds=1))
        assert executors.is_alive(silent.get())
        assert not executors.is_alive(later), "a process that began after the last heartbeat has taken the number"
    assert not executors.is_alive(later)


@pytest.mark.proves("R7")
@pytest.mark.django_db(transaction=True)
def test_a_clock_that_is_ahead_puts_off_neither_schedules_nor_tasks(monkeypatch: pytest.MonkeyPatch):
    Schedule.objects.all().delete()
    ahead = timezone.now() + timedelta(hours=3)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    broker = SkipLockedBroker("here")
    ensure_schedules()
    async_task("jobs.cluster.settle_holds", broker=broker)
    assert len(broker.dequeue() or []) == 1
    django_q.cluster.scheduler(broker)
    latest = max(Schedule.objects.values_list("next_run", flat=True)).timestamp()
    assert database_now() < latest <= database_now() + 3600 + 60
    assert OrmQ.objects.filter(lock__gt=Now() + timedelta(minutes=10)).count() == 0


SHARED = """
import multiprocessing
multiprocessing.set_start_method("forkserver")  # as Python does from 3.14 on
import django, psutil
django.setup()
import jobs.cluster
from django_q.cluster import Event, Queue, Value
shared = Queue(maxsize=1), Event(), Value("f", -1)
print(psutil.Process().children())
"""


def test_what_a_cluster_shares_needs_no_process_that_clears_it_up():
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "queueops.settings"}
    command = [sys.executable, "-c", SHARED]
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, check=True, timeout=120)
    assert done.stdout == b"[]\n"


def test_a_worker_that_is_killed_while_another_reads_what_came_leaves_the_queue_readable():
    queue = KillSafeQueue()

    def look() -> None:
        queue._reader = SimpleNamespace(poll=lambda _: True)  # something came, and another worker has read it
        queue.get(timeout=30)

    looking = multiprocessing.get_context("fork").Process(target=look)
    looking.start()
    time.sleep(0.3)  # into the midst of its looking
    looking.kill()
    looking.join()
    queue.put("task")
    assert queue.get(timeout=30) == "task"


def test_a_worker_that_is_killed_with_the_lock_of_its_timer_leaves_its_sentinel_at_work(
    monkeypatch: pytest.MonkeyPatch,
):
    timer = django_q.cluster.Value("f", -1)
    monkeypatch.setattr(timer.get_lock(), "_seconds", 0.1, raising=False)

    def die() -> None:
        with timer.get_lock():
            os.kill(os.getpid(), signal.SIGKILL)

    dying = multiprocessing.get_context("fork").Process(target=die)
    dying.start()
    dying.join()

    def guard() -> None:
        with timer.get_lock():
            timer.value -= 0.5

    guarding = threading.Thread(target=guard, daemon=True)
    guarding.start()
    guarding.join(timeout=20)
    assert not guarding.is_alive()


def test_who_hands_out_tasks_tells_once_that_the_database_is_away_and_once_that_it_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(cluster, "TASKS_AWAY_SECONDS", 0)
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(connection, "close", lambda: None)  # the test's transaction
    broker = SkipLockedBroker("here")
    answers: Iterator[Exception | bool] = iter([OperationalError("gone"), InterfaceError("gone"), False, False])

    def has_some() -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(broker, "_has_some", has_some)
    with caplog.at_level("INFO", "jobs.cluster"):
        assert [broker.dequeue() for _ in range(4)] == [None] * 4, "what is raised ends the process that asks"
    told = [(record.levelname, record.message.partition(",")[0], record.exc_info) for record in caplog.records]
    assert told == [("WARNING", "no task is handed out", False), ("INFO", "tasks are handed out again", None)]


def test_a_schedule_waits_for_the_database_without_a_word(monkeypatch: pytest.MonkeyPatch):
    called: list[object] = []

    def refuse() -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(cluster, "_scheduler", lambda **given: called.append(given))
    monkeypatch.setattr(cluster, "close_old_connections", lambda: None)
    with monkeypatch.context() as away:
        away.setattr(connection, "ensure_connection", refuse)
        django_q.cluster.scheduler(broker="b")
    assert called == []
    django_q.cluster.scheduler(broker="b")
    assert called == [{"broker": "b"}]
