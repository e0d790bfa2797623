"""Processes whose parent is killed: they let their work end, and nothing of theirs is left."""

from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest
from django.db import connection

from jobs.models import Executor, Job
from jobs.states import JobState
from tests.faults.clusters import Cluster, cluster, is_running
from tests.faults.ledger import Ledger
from tests.faults.records import submit_work
from tests.support.processes import wait_for

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("P1")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
@pytest.mark.parametrize("level", ["master", "sentinel"])
def test_whatever_level_of_a_cluster_is_killed_running_jobs_end_and_nothing_is_left(level: str, ledger: Ledger):
    with cluster(ledger, executors=2, drain_grace_seconds=30) as running:
        below = _kill_while_at_work(running, level, ledger)
        wait_for(lambda: Executor.objects.filter(draining=True).count() == 1, what="the drain")
        submit_work(1, "write")
        ledger.open_gate("gate")
        wait_for(lambda: not any(map(is_running, below)), seconds=60, what="the end of every process below")
        wait_for(lambda: not _other_sessions(), what="the end of their sessions")
        assert running.process.process.wait(120) != 0
    assert not Executor.objects.exists()
    assert set(Job.objects.values_list("kind", "status", "crash_count")) == {
        ("faults.wait", JobState.COMPLETED, 0),
        ("faults.write", JobState.QUEUED, 0),  # an orphan claims nothing
    }


def test_where_the_kernel_tells_of_no_dead_parent_executors_find_out_themselves(ledger: Ledger):
    with cluster(ledger, executors=1, drain_grace_seconds=30, faults_no_death_signal=1) as running:
        below = {executor.pid for executor in running.executors()}
        _kill_while_at_work(running, "sentinel", ledger)
        wait_for(lambda: Executor.objects.filter(draining=True).count() == 1, what="the drain")
        ledger.open_gate("gate")
        wait_for(lambda: not any(map(is_running, below)), seconds=60, what="the end of the workers")
    assert not Executor.objects.exists()
    assert Job.objects.get().status == JobState.COMPLETED


def _kill_while_at_work(running: Cluster, level: str, ledger: Ledger) -> list[int]:
    """The pids of every process below."""
    submit_work(1, "wait", gate="gate")
    wait_for(lambda: ledger.entries("begin"), what="the start of the job")
    killed = running.process.pid if level == "master" else running.sentinel.pid
    below = [process.pid for process in psutil.Process(killed).children(recursive=True)]
    os.kill(killed, signal.SIGKILL)
    return below


def _other_sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])
