"""R7: the clocks of two hosts are an hour wrong, one ahead and one behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.models import Executor, Job, JobEvent
from jobs.states import JobState
from tests.faults.clusters import LEASE_SECONDS, Cluster, cluster
from tests.faults.ledger import Ledger
from tests.faults.records import crashes, submit, submit_work, wait_until_drained
from tests.support.processes import ROOT, wait_for

pytestmark = [
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.proves("R7"),
    pytest.mark.skipif(not shutil.which("cc"), reason="a C compiler is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a library come before its own"),
]

HOUR = 3600
DELAY_SECONDS = 2.0
JOBS = 20


@pytest.fixture(scope="module")
def wrong_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("clock") / "wrong_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, ROOT / "tests/support/wrong_clock.c", "-ldl"], check=True)
    return built


@contextmanager
def host_with_clock(
    seconds: int, wrong_clock: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    monkeypatch.setenv("LD_PRELOAD", str(wrong_clock))
    with cluster(ledger, executors=1, executor_slots=JOBS // 2, faults_clock_seconds=seconds) as running:
        monkeypatch.delenv("LD_PRELOAD")
        yield running


def test_wrong_clocks_start_nothing_early_and_take_nobody_for_dead(
    wrong_clock: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
):
    with (
        host_with_clock(HOUR, wrong_clock, ledger, monkeypatch) as ahead,
        host_with_clock(-HOUR, wrong_clock, ledger, monkeypatch) as behind,
    ):
        owners = {executor.pk for host in (ahead, behind) for executor in host.executors()}
        submit_work(JOBS, "wait", gate="gate")
        wait_for(lambda: len(ledger.entries("begin")) == JOBS, what="the start of every job")
        clocks = {round((entry.at - time.time()) / HOUR) for entry in ledger.entries("begin")}
        assert clocks == {-1, 1}, "the clocks were not wrong, or one host did all the work"
        submit({"kind": "faults.write", "payload": {}, "delay_seconds": DELAY_SECONDS} for _ in range(JOBS))
        over = time.monotonic() + LEASE_SECONDS + 1
        wait_for(lambda: time.monotonic() > over, what="more than a lease")
        assert {executor.pk for host in (ahead, behind) for executor in host.executors()} == owners
        ledger.open_gate("gate")
        wait_until_drained()
        assert not Executor.objects.filter(leases_lost__gt=0).exists()
    assert crashes() == []
    assert set(Job.objects.values_list("status", "crash_count")) == {(JobState.COMPLETED, 0)}
    for job in Job.objects.filter(kind="faults.write"):
        started = JobEvent.objects.filter(job_id=job.pk, to_status=JobState.DISPATCHED).earliest("pk")
        waited = started.created_at - job.created_at
        assert timedelta(seconds=DELAY_SECONDS - 1) <= waited <= timedelta(seconds=DELAY_SECONDS + 30)
