"""Real clusters for fault tests, on the short lease profile, with the handlers of tests.faults.app."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from uuid import UUID

import psutil

from jobs.models import Executor
from tests.faults.ledger import Ledger
from tests.support.processes import RunningProcess, manage, wait_for

LEASE_SECONDS = 3.0  # shorter ones lapse by themselves on a busy machine
START_SECONDS = 60.0


class Cluster:
    """A running `manage.py qcluster`."""

    def __init__(self, process: RunningProcess, workers: int) -> None:
        self.process = process
        self.workers = workers

    @property
    def output(self) -> str:
        return self.process.output

    @property
    def sentinel(self) -> psutil.Process:
        """The process between the master and the workers."""
        return psutil.Process(self.process.pid).children()[0]

    def executors(self) -> list[Executor]:
        """Those that are registered and alive."""
        found = Executor.objects.filter(cluster_pid=self.sentinel.pid)
        return [executor for executor in found if is_running(executor.pid)]

    def general(self) -> list[Executor]:
        """Those that take ordinary jobs."""
        return [executor for executor in self.executors() if executor.role == Executor.Role.GENERAL]

    def wait_until_ready(self) -> None:
        """Wait until every worker process has a living, registered executor."""

        def ready() -> bool:
            if not self.process.runs:
                raise AssertionError(f"the cluster ended:\n{self.output}")
            return bool(psutil.Process(self.process.pid).children()) and len(self.executors()) == self.workers

        try:
            wait_for(ready, seconds=START_SECONDS, what="every executor's registration")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-4000:]}") from None

    def stop(self, *, seconds: float = 60.0) -> int:
        """SIGTERM to the master alone; its exit code."""
        return self.process.stop(seconds=seconds)


@contextlib.contextmanager
def cluster(ledger: Ledger, *, executors: int = 2, **variables: object) -> Iterator[Cluster]:
    """
    Run a cluster with so many executors that take ordinary jobs, ready when the block begins.

    One more worker takes the one-slot quarantine seat. The block's end kills what is left.

    Args:
        variables: Further settings by their name in lower case: `executor_slots=1`, `faults_host="b"`,
            `otel_sdk_disabled="true"`.
    """
    settings: dict[str, object] = {
        "workers": executors,
        "lease_seconds": LEASE_SECONDS,
        "renew_seconds": 0.9,
        "sweep_seconds": 0.5,
        "drain_grace_seconds": 1,
        "loop_budget_seconds": 20,  # a busy machine may hold up a loop for a while
        "extra_apps": "tests.faults.app",
        **variables,
    }
    environ = {
        name.upper() if name.startswith(("faults_", "otel_")) else f"QUEUEOPS_{name.upper()}": str(value)
        for name, value in settings.items()
    }
    with manage("qcluster", environ={"FAULTS_DIR": str(ledger.directory), **environ}) as process:
        running = Cluster(process, executors + 1)
        running.wait_until_ready()
        yield running


def kill(executor: Executor) -> UUID:
    """Kill an executor's process as the kernel would, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(executor.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(executor.pid), what=f"the end of process {executor.pid}")
    return executor.pk


def is_running(pid: int) -> bool:
    """Whether a process of this number does anything; a stopped one counts, a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
