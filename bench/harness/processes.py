"""Real worker and web processes for benchmarks, and the CPU time and memory that they take."""

from __future__ import annotations

import contextlib
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil
from django.db import connection

from jobs.models import Executor
from tests.support.processes import free_port, started, wait_for

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running `manage.py qcluster`; `executors`: the pids of the executors that take ordinary jobs."""

    pid: int
    executors: list[int]


@contextlib.contextmanager
def cluster(database_url: str, *, executors: int = 2, environ: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """
    Run a cluster with so many general executors, which are ready when the block begins.

    Every cluster also has a quarantine worker, which claims no ordinary job.
    """
    variables = {
        "DATABASE_URL": database_url,
        "QUEUEOPS_WORKERS": str(executors),
        "QUEUEOPS_DRAIN_GRACE_SECONDS": "0",
        **(environ or {}),
    }
    general = Executor.objects.filter(role=Executor.Role.GENERAL)
    with started(sys.executable, "manage.py", "qcluster", environ=variables) as process:

        def ready() -> bool:
            if not process.runs:
                raise SystemExit(f"qcluster ended:\n{process.output}")
            return general.count() == executors

        wait_for(ready, seconds=START_SECONDS, what="every executor's registration")
        try:
            yield Cluster(process.pid, list(general.values_list("pid", flat=True)))
        finally:
            process.stop()


@contextlib.contextmanager
def web(database_url: str, *, environ: Mapping[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """Run a web process; yield its address and pid once it answers."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    variables = {"DATABASE_URL": database_url, "QUEUEOPS_PORT": str(port), **(environ or {})}
    with started(sys.executable, "manage.py", "web", environ=variables) as process:

        def answers() -> bool:
            if not process.runs:
                raise SystemExit(f"the web process ended:\n{process.output}")
            try:
                with urllib.request.urlopen(f"{address}/api/v1/jobs/", timeout=5):  # noqa: S310 - our own address
                    return True
            except urllib.error.HTTPError:
                return True  # an answer that asks for a key
            except OSError:
                return False

        wait_for(answers, seconds=START_SECONDS, what="an answer of the web process")
        try:
            yield address, process.pid
        finally:
            process.stop()


def cpu_seconds(pid: int | None) -> float:
    """
    Return the CPU time, user and system, of a process and its descendants, also of those that have ended.

    The descendants are the server's backends or a cluster's workers: they all work for the jobs.
    """
    if pid is None:
        return 0.0
    total = 0.0
    process = psutil.Process(pid)
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(one.cpu_times()[:4])
    return total


def memory_mb(pid: int) -> tuple[float, float]:
    """Return resident and proportional set size in MiB. The first counts pages shared with the cluster in full."""
    info = psutil.Process(pid).memory_full_info()
    return info.rss / 2**20, getattr(info, "pss", info.rss) / 2**20


def wait_until_finished(completed: int, *, seconds: float) -> float:
    """Wait until so many jobs are completed; return the time by time.monotonic."""
    with connection.cursor() as cursor:
        deadline = time.monotonic() + seconds
        while True:
            # Read the counters, a few rows: counting the jobs would compete with the measured load.
            cursor.execute(
                "SELECT coalesce(sum(completed), 0) FROM jobs_jobcount"
                " WHERE batch_id = '00000000-0000-0000-0000-000000000000'"
            )
            [done] = cursor.fetchone() or (0,)
            now = time.monotonic()
            if done >= completed:
                return now
            if now > deadline:
                raise SystemExit(f"only {done:,} of {completed:,} jobs were completed within {seconds:g} s")
            time.sleep(0.02)
