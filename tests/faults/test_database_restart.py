"""R3: PostgreSQL is stopped without a farewell while producers submit and executors work."""

import time
from functools import partial
from uuid import UUID

import psutil
import pytest

from jobs.models import DeadLetter, Job
from jobs.states import JobState
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.faults.clusters import LEASE_SECONDS, Cluster, cluster, is_running
from tests.faults.ledger import Ledger
from tests.faults.producers import Producers
from tests.faults.records import PROJECT, crashes, submit_work, wait_until_drained
from tests.support.own_server import bring_back
from tests.support.processes import free_port, manage, wait_for

pytestmark = pytest.mark.proves("R3")


def _restart(server: EmbeddedServer, *, down_seconds: float = 0.0) -> None:
    server.stop("immediate")
    time.sleep(down_seconds)  # the length of the outage
    bring_back(server)


def _is_done(ledger: Ledger, job_id: UUID | None) -> bool:
    return job_id in ledger.by_job()


def _processes(running: Cluster) -> set[psutil.Process]:
    return {psutil.Process(executor.pid) for executor in running.executors()} | {running.sentinel}


@pytest.mark.parametrize("restarts", [pytest.param(1, id="short"), pytest.param(5, id="long", marks=pytest.mark.soak)])
def test_immediate_restarts_under_load_lose_no_acknowledged_submit_and_end_no_process(
    restarts: int, server: EmbeddedServer, ledger: Ledger, figures
):
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    port = free_port()
    web_settings = {"QUEUEOPS_PORT": str(port), "QUEUEOPS_EXTRA_APPS": "tests.faults.app"}
    steady_after = []
    with (
        cluster(ledger) as running,
        manage("web", environ={**web_settings, "FAULTS_DIR": str(ledger.directory)}) as web,
    ):
        producers = Producers(f"http://127.0.0.1:{port}", key)
        wait_for(producers.submit, seconds=60, what="the web process")
        before = _processes(running)
        with producers.at_work():
            for _ in range(restarts):
                producers.wait_for_more(50)
                _restart(server)
                begun = time.monotonic()
                first = wait_for(producers.submit, what="an acknowledged submit after the restart")
                wait_for(partial(_is_done, ledger, first), what="the work after the restart")
                steady_after.append(time.monotonic() - begun)
        wait_until_drained()
        assert web.runs
        assert _processes(running) == before, "an executor ended"
    stored = dict(Job.objects.values_list("pk", "status"))
    assert set(producers.acknowledged) <= stored.keys(), "an acknowledged submit was lost"
    assert set(stored.values()) == {JobState.COMPLETED}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}, "a restart repeated an effect"
    assert len(ledger.by_job()) == len(stored)
    figures(
        f"{restarts} restarts, {len(producers.acknowledged)} acknowledged submits, 0 lost, 0 repeated, "
        f"{producers.refused} refused meanwhile; working again after {max(steady_after):.1f} s at most"
    )
    if restarts >= 5:
        assert max(steady_after) <= LEASE_SECONDS + 2


def test_an_outage_longer_than_the_lease_ends_no_process_and_costs_running_jobs_nothing(
    server: EmbeddedServer, ledger: Ledger
):
    with cluster(ledger) as running:
        before = _processes(running)
        submit_work(20, "wait_once", gate="gate")
        wait_for(lambda: len(ledger.entries("begin")) == 20, what="the start of every job")
        _restart(server, down_seconds=LEASE_SECONDS + 1)
        submit_work(20, "write")
        wait_for(lambda: Job.objects.filter(kind="faults.write", status=JobState.COMPLETED).count() == 20, what="work")
        ledger.open_gate("gate")
        wait_until_drained()
        assert _processes(running) == before, "an executor was taken for dead"
        assert all(is_running(executor.pid) for executor in running.executors())
        workers = len(running.executors())
        wait_for(
            lambda: running.output.count("slots again, after ") == workers, what="the word of each that it is back"
        )
        told = running.output
        assert told.count("lost the database") == workers
        assert told.count("no task is handed out") <= 1
        assert "Traceback" not in told
        assert "CRITICAL" not in told
    assert not DeadLetter.objects.exists()
    assert crashes() == []
    assert len(ledger.entries("begin")) == 20
