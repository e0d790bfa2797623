"""R2: executors that were taken for dead come back, and executors that are slow are not taken for dead."""

import os
import signal

import psutil
import pytest

from jobs.models import Job
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import crashes, refused_writes, statuses, submit_work, wait_until_drained
from tests.support.processes import wait_for

pytestmark = [pytest.mark.usefixtures("quick_retries"), pytest.mark.proves("R2")]

ENDINGS = ("succeed", "retry", "fail")


def _wait_until_claimed_by(ledger: Ledger, pid: int, count: int) -> None:
    wait_for(
        lambda: sum(entry.pid == pid for entry in ledger.entries("begin")) == count,
        what=f"the start of {count} jobs by process {pid}",
    )


def _wait_until_tried(writes: int) -> None:
    """Wait until so many stale writes were refused, or accepted."""
    running = Job.objects.filter(status=JobState.IN_PROGRESS)
    wait_for(
        lambda: len(refused_writes()) + writes - running.count() >= writes, what=f"the end of {writes} stale writes"
    )


@pytest.mark.parametrize(
    "writes", [pytest.param(201, id="short"), pytest.param(3_000, id="long", marks=pytest.mark.soak)]
)
def test_a_zombies_writes_change_nothing_and_each_is_logged(writes: int, ledger: Ledger, figures):
    with cluster(
        ledger, executors=1, faults_host="frozen", executor_slots=writes, faults_stop_after_ends=writes
    ) as frozen:
        [zombie] = frozen.general()
        for ending in ENDINGS:
            submit_work(writes // len(ENDINGS), "wait", gate="gate-", ending=ending)
        _wait_until_claimed_by(ledger, zombie.pid, writes)
        stale_tokens = dict(Job.objects.values_list("pk", "fencing_token"))
        ledger.open_gate("gate-frozen")
        wait_for(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED, what="the zombie's stop")
        os.killpg(frozen.process.pid, signal.SIGSTOP)  # all of its machine, or its own watch would kill it

        with cluster(ledger, executors=1, faults_host="healthy", executor_slots=writes) as healthy:
            [heir] = healthy.general()
            _wait_until_claimed_by(ledger, heir.pid, writes)
            # The jobs run again: id and status of each are what the zombie expects, only the token is not.
            columns = ("pk", "status", "fencing_token", "executor", "retry_count", "crash_count", "result", "progress")
            before = list(Job.objects.order_by("pk").values(*columns))
            os.kill(zombie.pid, signal.SIGCONT)
            _wait_until_tried(writes)
            assert list(Job.objects.order_by("pk").values(*columns)) == before, "a stale write was accepted"
            ledger.open_gate("gate-healthy")
            wait_until_drained()
            # The log's line is written when the database has its entry.
            wait_for(lambda: frozen.output.count("lease lost") >= writes, what="the log of each")
            assert frozen.output.count("lease lost") == writes
    refused = refused_writes()
    assert len(refused) == writes
    assert {event.job_id: (event.data or {})["fencing_token"] for event in refused} == stale_tokens
    assert statuses() == {JobState.COMPLETED: writes // 3, JobState.FAILED: 2 * writes // 3}
    assert crashes() == [], "its whole machine stood still, which is no job's crash"
    figures(f"{writes} stale writes tried, {len(refused)} refused and logged, 0 accepted")


def test_a_handler_slower_than_its_lease_runs_once_because_the_lease_is_renewed(ledger: Ledger):
    lease = 2.0
    with cluster(ledger, lease_seconds=lease, renew_seconds=0.5):
        for kind in ("write", "write_once", "write_in_thread"):
            submit_work(5, kind, seconds=1.5 * lease)
        wait_until_drained()
    assert statuses() == {JobState.COMPLETED: 15}
    assert crashes() == []
    assert {len(entries) for entries in ledger.by_job().values()} == {1}
