"""
The database is put back to an earlier moment, or its disk is full, while workers live on: none kills another, and no
call that may not be repeated is made twice.

What workers do at each step is tried in tests/jobs/test_own_claims.py, where nothing is started; here is the whole.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import DeadLetter, Job, PauseSwitch
from jobs.services.operate.epochs import PUT_BACK_REASON
from jobs.services.operate.pauses import resume_scope
from jobs.states import RUNNING, TERMINAL, JobState
from queueops.core.embedded.cluster import EmbeddedServer
from tests.faults.clusters import Cluster, cluster
from tests.faults.ledger import Ledger
from tests.faults.records import submit, submit_work, wait_until_drained
from tests.support.embedded import connected_to, copy_files, throw_away_data_dir
from tests.support.own_server import bring_back
from tests.support.processes import wait_for
from tests.support.templates import copy_template

pytestmark = [pytest.mark.soak, pytest.mark.proves("R20", "P5")]

SLOTS = 10
EXECUTORS = 3
CALLS_A_SECOND = 40  # about what these slots get done
UNDER_WAY = 5  # of each kind, at the moment to which the database is put back
# Longer than the server is away: an executor rests after it has waited for long by itself.
LEASE = {"lease_seconds": 9, "renew_seconds": 2.5}
MEGABYTES = 200  # of the small disk: room for a copy of the migrated server, and for some log
FULL_SECONDS = 60.0


def submit_calls(count: int) -> None:
    chosen = random.Random(0)  # noqa: S311 - no secret
    submit(
        {"kind": kind, "payload": {"seconds": chosen.uniform(0.2, 1.2)}}
        for kind in chosen.choices(("faults.call", "faults.call_once"), k=count)
    )


def pids(running: Cluster) -> set[int]:
    return {executor.pid for executor in running.executors()}


def called_twice(ledger: Ledger) -> Counter[str]:
    """Jobs by kind whose call was begun more than once. Those of lost rows count: no call of theirs came again."""
    twice = [job for job, entries in ledger.by_job("begin").items() if len(entries) > 1]
    return Counter(Job.objects.filter(pk__in=twice).values_list("kind", flat=True))


def go_on(seconds: float, ledger: Ledger) -> None:
    """Let work go on for so long."""
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, seconds=seconds + 60, what="the passing of time")
    assert ledger.entries("end"), "nothing was done meanwhile"


@pytest.mark.parametrize("back", [10, 40, 120])
def test_a_restore_under_live_workers_kills_none_and_repeats_no_call_that_may_not_be(
    back: int, server: EmbeddedServer, ledger: Ledger, figures: Any
):
    log, kept = ledger.directory / "outcomes", server.cluster.with_name("kept")
    for kind in ("wait", "wait_once"):
        submit_work(UNDER_WAY, kind, gate="since")
        submit_work(UNDER_WAY, kind, gate="after")
    with cluster(ledger, executors=EXECUTORS, executor_slots=SLOTS, outcome_log=log, **LEASE) as running:
        before = pids(running)
        wait_for(lambda: len(ledger.entries("begin")) == 4 * UNDER_WAY, what="calls under way")
        submit_calls(CALLS_A_SECOND * (back + 10))
        wait_for(lambda: len(ledger.entries("end")) > SLOTS, what="others beside them")
        server.stop("immediate")
        copy_files(server.cluster, kept)
        bring_back(server)
        running.wait_until_ready()
        ledger.open_gate("since")
        go_on(back, ledger)
        server.stop("immediate")
        shutil.rmtree(server.cluster)
        copy_files(kept, server.cluster)
        bring_back(server)
        wait_for(PauseSwitch.objects.filter(scope="global", reason=PUT_BACK_REASON).exists, what="the pause")
        running.wait_until_ready()
        ledger.open_gate("after")
        wait_for(lambda: not Job.objects.filter(status__in=RUNNING).exists(), seconds=60, what="an end of what ran")
        ended = Job.objects.filter(kind="faults.wait_once").values_list("payload__gate", "status")
        assert set(ended) == {("since", JobState.FAILED), ("after", JobState.COMPLETED)}
        assert not Job.objects.filter(crash_count__gt=0).exists(), "one was charged with a crash"
        calls = len(ledger.entries("begin"))
        unknown = DeadLetter.objects.filter(error_code="outcome_unknown").count()
        said = StringIO()
        call_command("reconcile", str(log), apply=True, yes=True, stdout=said)
        assert len(ledger.entries("begin")) == calls, "somebody was called before the resume"
        resume_scope("global", "", actor="op")
        wait_until_drained(seconds=60 + 3 * back)
        assert pids(running) == before, "a sound worker was killed, or ended"
        assert "does not answer" not in running.output
    twice = called_twice(ledger)
    assert twice["faults.call_once"] == twice["faults.wait_once"] == 0
    figures(
        f"{back} s back: 0 workers killed, 0 calls that may not be repeated made twice, {twice.total()} others "
        f"were; {unknown} became outcome_unknown by the workers' memory; {calls} calls had been begun"
    )


@contextmanager
def small_disk() -> Iterator[Path]:
    with throw_away_data_dir() as directory:
        options = ["-o", f"size={MEGABYTES}m,mode=711"]
        subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", directory], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast:
        size = 1 << 20
        while size:
            try:
                ballast.write(b"\0" * size)
            except OSError:
                size //= 16


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted by root alone")
def test_a_full_disk_for_a_minute_kills_no_worker_and_repeats_no_call(
    ledger: Ledger, django_db_blocker: Any, figures: Any
):
    with django_db_blocker.unblock(), small_disk() as disk, copy_template(disk).use() as server:
        try:
            with connected_to(str(server.socket_dir)):
                figures(_fill_and_empty(server, ledger, disk / "ballast"))
        finally:
            server.stop("immediate")


def _fill_and_empty(server: EmbeddedServer, ledger: Ledger, ballast: Path) -> str:
    log = ledger.directory / "outcomes"
    submit_calls(CALLS_A_SECOND * 20)
    with cluster(ledger, executors=EXECUTORS, executor_slots=SLOTS, outcome_log=log) as running:
        before = pids(running)
        wait_for(lambda: len(ledger.entries("end")) > 2 * SLOTS, what="calls under way")
        fill(ballast)
        wait_for(lambda: "lost the database" in running.output, seconds=120, what="the first word of it")
        until = time.monotonic() + FULL_SECONDS
        wait_for(lambda: time.monotonic() >= until, seconds=FULL_SECONDS + 60, what="the passing of time")
        connection.close()
        ballast.unlink()
        bring_back(server)
        running.wait_until_ready()
        wait_until_drained(seconds=240)
        assert pids(running) == before, "a sound worker was killed, or ended"
        assert "does not answer" not in running.output
        told = len(running.output.encode())
    twice = called_twice(ledger)
    ended = Counter(Job.objects.filter(status__in=TERMINAL).values_list("status", flat=True))
    assert twice["faults.call_once"] == 0
    return f"full for {FULL_SECONDS:.0f} s: {dict(ended)}, called twice {dict(twice)}; the workers wrote {told:,} bytes"
