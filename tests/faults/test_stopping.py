"""Workers that are killed while idle, and workers that are asked to stop."""

import os
import signal

import psutil
import pytest
from django_q.models import Success
from django_q.tasks import async_task

from jobs.models import Executor, Job
from jobs.states import JobState
from tests.faults.clusters import cluster, is_running, kill
from tests.faults.ledger import Ledger
from tests.faults.records import counted, crashes, statuses, submit_work, wait_until_drained
from tests.support.processes import wait_for

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.mark.parametrize("rounds", [pytest.param(1, id="short"), pytest.param(50, id="long", marks=pytest.mark.soak)])
def test_after_every_idle_worker_was_killed_tasks_still_run_and_sigterm_stops_cleanly(rounds: int, ledger: Ledger):
    with cluster(ledger, executors=1) as running:
        for done in range(1, rounds + 1):
            victims = running.executors()
            assert len(victims) == 2
            for victim in victims:
                os.kill(victim.pid, signal.SIGKILL)
            for victim in victims:
                kill(victim)
            running.wait_until_ready()
            async_task("jobs.cluster.keep_partitions")
            _wait_for_tasks(done)
            submit_work(1, "write")
            wait_until_drained()
        pids = [executor.pid for executor in running.executors()]
        assert running.stop() == 0
        assert not any(is_running(pid) for pid in pids)
        assert not Executor.objects.filter(pid__in=pids).exists(), "a drained executor left its row"


def _wait_for_tasks(count: int) -> None:
    wait_for(lambda: Success.objects.count() >= count, what=f"task {count}, after the idle workers were killed")


def test_sigterm_lets_running_jobs_end_gives_back_the_rest_and_loses_nothing(ledger: Ledger):
    # A drain is seen at the next renewal: soon, so that nearly all of the grace period is left to let the gate go up.
    with cluster(ledger, executors=2, executor_slots=20, drain_grace_seconds=8, renew_seconds=0.2) as running:
        submit_work(12, "wait", gate="soon-")
        submit_work(9, "wait", gate="late-")
        submit_work(3, "wait_in_thread", gate="late-")  # these can't be interrupted; the process ends all the same
        submit_work(6, "wait_once", gate="soon-")
        wait_for(lambda: len(ledger.entries("begin")) == 30, what="the start of every job")
        submit_work(50, "wait", gate="late-")  # ten find a slot
        wait_for(lambda: len(ledger.entries("begin")) == 40, what="the start of as many jobs as there are slots")
        running.process.send(signal.SIGTERM)
        wait_for(lambda: Executor.objects.filter(draining=True, role="general").count() == 2, what="the drain")
        ledger.open_gate("soon-")
        assert running.stop() == 0
        assert not Executor.objects.exists()
    assert Job.objects.filter(status=JobState.COMPLETED, payload__gate="soon-").count() == 18
    assert set(Job.objects.filter(payload__gate="late-").values_list("status", flat=True)) <= {
        JobState.QUEUED,
        JobState.RETRIED,
    }
    assert set(Job.objects.values_list("retry_count", "crash_count")) == {(0, 0)}
    assert len(ledger.entries("begin")) == 40, "a draining executor claimed"
    assert counted() == statuses()

    ledger.open_gate("late-")
    with cluster(ledger):
        wait_until_drained()
    assert statuses() == {JobState.COMPLETED: 80}
    assert crashes() == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_whole_process_group_lets_running_jobs_end_too(signum: signal.Signals, ledger: Ledger):
    with cluster(ledger, executors=2, executor_slots=20, drain_grace_seconds=8, renew_seconds=0.2) as running:
        submit_work(4, "wait", gate="soon-")
        submit_work(4, "wait_once", gate="soon-")
        submit_work(4, "wait", gate="late-")
        wait_for(lambda: len(ledger.entries("begin")) == 12, what="the start of every job")
        below = psutil.Process(running.process.pid).children(recursive=True)
        for pid in [*(process.pid for process in below), running.process.pid]:
            os.kill(pid, signum)
        wait_for(lambda: Executor.objects.filter(draining=True, role="general").exists(), what="the drain")
        ledger.open_gate("soon-")
        assert running.stop() == 0
    assert not Executor.objects.exists()
    assert Job.objects.filter(status=JobState.COMPLETED).count() == 8
    given_back = Job.objects.exclude(status=JobState.COMPLETED).values_list("status", flat=True)
    # An executor that still drains may promote what another has given back.
    assert set(given_back) <= {JobState.RETRIED, JobState.QUEUED}
    assert set(Job.objects.values_list("retry_count", "crash_count")) == {(0, 0)}
    assert crashes() == []


def test_a_sigterm_to_one_worker_drains_it_and_another_takes_its_place(ledger: Ledger):
    with cluster(ledger, executor_slots=20, drain_grace_seconds=60, renew_seconds=0.2) as running:
        submit_work(4, "wait", gate="soon-")
        wait_for(lambda: len(ledger.entries("begin")) == 4, what="the start of every job")
        [asked] = Executor.objects.filter(pk__in=Job.objects.filter(status=JobState.IN_PROGRESS).values("executor"))
        os.kill(asked.pid, signal.SIGTERM)
        wait_for(lambda: Executor.objects.filter(pk=asked.pk, draining=True).exists(), what="the drain")
        ledger.open_gate("soon-")
        wait_until_drained()
        wait_for(lambda: any(one.pk != asked.pk for one in running.general()), what="another worker in its place")
    assert statuses() == {JobState.COMPLETED: 4}
    assert crashes() == []
