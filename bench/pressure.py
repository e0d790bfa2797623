"""Whether the queue keeps up while its database is under pressure, and recovers from the database's failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from bench.harness.processes import cluster, wait_until_finished
from bench.harness.report import ROOT
from bench.harness.seeding import PROJECT, noop_lines, one_project
from bench.harness.session import Session, run
from jobs.models import WHOLE_PROJECT, Executor
from jobs.services.submit.submit import submit_batch
from queueops.core.clock import database_now
from queueops.core.embedded.cluster import EmbeddedServer
from tests.support.own_server import bring_back

WARM_UP_JOBS = 5_000
CAPACITY_JOBS = 30_000
BASE_SHARE = 0.5  # the usual load, as a share of the jobs that this machine submits and drains a second
HIGH_LOAD = 1.5  # times the base load
BURST_SECONDS = 5.0  # of the base load, submitted at once
SECONDS, FULL_SECONDS = 20.0, 600.0  # how long each pressure lasts
AFTER_SECONDS = 15.0  # how long the base load goes on once a fault is over and the queue has caught up
CATCH_UP_SECONDS = 120.0
SUBMIT_SECONDS = 0.1
READERS = 4
TIMES, EVERY_SECONDS = 5, 2.0  # how often, and how far apart, processes are killed
HELD_SECONDS = 10.0  # how long no connection is free
PINNED = "pinned"
UNFINISHED = ("queued", "rate_limited", "dispatched", "in_progress", "retried")


class Producer(threading.Thread):
    """
    Submits `rate` jobs a second in ten batches. Jobs that were due while the database was down are never submitted.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(daemon=True)
        self.rate = rate
        self.burst = 0  # jobs to add to the next batch
        self.submitted = 0  # jobs whose submission was confirmed
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SUBMIT_SECONDS):
            count, self.burst = round(self.rate * SUBMIT_SECONDS) + self.burst, 0
            try:
                submit_batch(noop_lines(count), project_id=PROJECT, actor="bench")
                self.submitted += count
            except (DatabaseError, InterfaceError, psycopg.Error):
                _hang_up()
        connection.close()

    def stop(self) -> None:
        self._over.set()
        self.join()


@dataclass(slots=True)
class Trial:
    """
    The pressures that were tried, and their outcomes.

    Attributes:
        base: Jobs a second.
        phases: By name: begin and end by the database's clock, completed jobs for each submitted job, and rows that
            wait for vacuum in the end.
    """

    url: str
    producer: Producer
    base: float
    phases: dict[str, tuple[float, float, float, int]] = field(default_factory=dict)

    def measure(self, name: str, seconds: float) -> float:
        """Let a phase pass; return the completed jobs for each submitted job."""
        begun, offered, completed = database_now(), self.producer.submitted, _counted("completed")
        time.sleep(seconds)
        ratio = (_counted("completed") - completed) / max(1, self.producer.submitted - offered)
        self.phases[name] = begun, database_now(), ratio, _dead_rows()
        return ratio

    def catch_up(self) -> float:
        """Wait until no more jobs are open than a second's load; return the seconds."""
        begun = time.monotonic()
        while _counted(*UNFINISHED) > self.base:
            if time.monotonic() - begun > CATCH_UP_SECONDS:
                raise SystemExit(f"{_counted(*UNFINISHED):,} jobs are open {CATCH_UP_SECONDS:g} s later")
            time.sleep(0.1)
        return time.monotonic() - begun


def measure(session: Session) -> None:
    report = session.report
    with session.databases.copy("project", one_project) as url, cluster(url):
        base = BASE_SHARE * _capacity()
        producer = Producer(base)
        producer.start()
        trial = Trial(url, producer, base)
        pinned = PINNED in session.options
        seconds = FULL_SECONDS if session.full or pinned else SECONDS
        trial.catch_up()
        trial.measure("clean", SECONDS)
        for name, pressure in list(PRESSURES.items())[: 1 if pinned else None]:
            with pressure(trial):
                trial.measure(name, seconds)
            trial.catch_up()
        faults = {} if pinned else dict(FAULTS)
        if session.postmaster is not None and not pinned:
            server = EmbeddedServer(settings.QUEUEOPS.data_dir)
            faults |= {name: partial(_restart, mode, server) for name, mode in RESTARTS.items()}
        away = {name: _fail(trial, name, fault) for name, fault in faults.items()}
        producer.stop()
        trial.catch_up()
        _wait_for_the_rest()
        lost = _number("SELECT count(*) FROM jobs_job WHERE status <> 'completed'")
        waits = {name: _wait_p99(begun, ended) for name, (begun, ended, _, _) in trial.phases.items()}
    report.figure("load", f"{base:,.0f} jobs/s", f"{BASE_SHARE:.0%} of what is submitted and drained without a pause")
    clean = trial.phases["clean"][2]
    for name, (_, _, ratio, dead) in trial.phases.items():
        target = f"target: {0.9 if name in PRESSURES else 0.98:.0%}; " if name != "clean" else ""
        back = f"caught up after {away[name]:.1f} s; " if name in away else ""
        note = f"{target}{back}wait p99 {waits[name]:,.0f} ms; {dead:,} dead rows"
        report.metric(f"{name}_ratio", ratio / clean, name, note)
    report.metric("lost", lost, "jobs not completed in the end", "target: 0")


def _fail(trial: Trial, name: str, fault: Callable[[Trial], None]) -> float:
    """Return how long the queue took to catch up after a fault."""
    fault(trial)
    back = trial.catch_up()
    trial.measure(name, AFTER_SECONDS)
    return back


@contextmanager
def _idle_in_transaction(trial: Trial) -> Iterator[None]:
    """Keep a session idle in a transaction that has an id: vacuum can remove no row that dies meanwhile."""
    with psycopg.connect(trial.url) as held:
        held.execute("SET idle_in_transaction_session_timeout = 0")  # the embedded server would end it after a minute
        held.execute("SELECT pg_current_xact_id()")
        yield


@contextmanager
def _active_readers(trial: Trial) -> Iterator[None]:
    """Run sessions that each read all jobs in one snapshot, and keep the snapshot for a while."""
    over = threading.Event()

    def read() -> None:
        with psycopg.connect(trial.url, autocommit=True) as session:
            while not over.is_set():
                session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                session.execute("SELECT count(*), sum(length(payload_text)) FROM jobs_job")
                over.wait(EVERY_SECONDS)
                session.execute("COMMIT")

    readers = [threading.Thread(target=read, daemon=True) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    yield
    over.set()
    for reader in readers:
        reader.join()


@contextmanager
def _sustained_high_load(trial: Trial) -> Iterator[None]:
    trial.producer.rate = HIGH_LOAD * trial.base
    yield
    trial.producer.rate = trial.base


@contextmanager
def _event_burst(trial: Trial) -> Iterator[None]:
    trial.producer.burst = round(BURST_SECONDS * trial.base)
    yield


@contextmanager
def _backup(trial: Trial) -> Iterator[None]:
    """Make backups, one after the other."""
    over = threading.Event()

    def back_up() -> None:
        while not over.is_set():
            with tempfile.TemporaryDirectory() as made:
                command = [sys.executable, "manage.py", "backup", f"{made}/backup"]
                environ = os.environ | {"DATABASE_URL": trial.url}
                subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, check=True)

    maker = threading.Thread(target=back_up, daemon=True)
    maker.start()
    yield
    over.set()
    maker.join()


def _restart(mode: str, server: EmbeddedServer, trial: Trial) -> None:
    server.stop(mode)
    bring_back(server)


def _backend_kill(trial: Trial) -> None:
    """End every session of the database but this one, repeatedly."""
    for _ in range(TIMES):
        _number(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        time.sleep(EVERY_SECONDS)


def _pool_exhaustion(trial: Trial) -> None:
    """Take all free connections: new ones are refused, and open ones are kept."""
    with ExitStack() as taken:
        with suppress(psycopg.OperationalError):
            while True:
                taken.enter_context(psycopg.connect(trial.url))
        time.sleep(HELD_SECONDS)


def _repeated_kills(trial: Trial) -> None:
    """Kill one executor at a time."""
    for _ in range(TIMES):
        pid = (
            Executor.objects.filter(role=Executor.Role.GENERAL).order_by("started_at").values_list("pid", flat=True)[0]
        )
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(EVERY_SECONDS)


PRESSURES = {
    "idle_in_tx": _idle_in_transaction,
    "active_readers": _active_readers,
    "sustained_high_load": _sustained_high_load,
    "event_burst": _event_burst,
    "backup": _backup,
}
FAULTS = {"backend_kill": _backend_kill, "pool_exhaustion": _pool_exhaustion, "repeated_kills": _repeated_kills}
RESTARTS = {"postgres_restart": "fast", "crash_recovery": "immediate"}  # how the server is stopped


def _capacity() -> float:
    """Return the jobs a second, from the first submission to the last end."""
    submit_batch(noop_lines(WARM_UP_JOBS), project_id=PROJECT, actor="bench")
    wait_until_finished(WARM_UP_JOBS, seconds=60)
    begun = time.monotonic()
    submit_batch(noop_lines(CAPACITY_JOBS), project_id=PROJECT, actor="bench")
    return CAPACITY_JOBS / (wait_until_finished(WARM_UP_JOBS + CAPACITY_JOBS, seconds=120) - begun)


def _wait_for_the_rest() -> None:
    """Wait for the jobs of killed executors, which come back when their leases end."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while _counted(*UNFINISHED) and time.monotonic() < deadline:
        time.sleep(0.5)


def _counted(*states: str) -> int:
    summed = " + ".join(f"sum({state})" for state in states)
    # Read the counters, a few rows: counting the jobs would compete with the measured load.
    return _number(f"SELECT coalesce({summed}, 0) FROM jobs_jobcount WHERE batch_id = %s", [WHOLE_PROJECT])  # noqa: S608


def _dead_rows() -> int:
    return _number("SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables")


def _wait_p99(begun: float, ended: float) -> float:
    """Return the 99th percentile of the milliseconds from submission to start, of the jobs submitted in a phase."""
    return _number(
        "SELECT coalesce(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started - created)), 0)"
        " FROM (SELECT created_at AS created, first_attempt_at AS started FROM jobs_job"
        " WHERE created_at BETWEEN to_timestamp(%s) AND to_timestamp(%s)) AS job",
        [begun, ended],
    )


def _number(query: str, parameters: list[UUID] | list[float] | None = None) -> int:
    """Return the single number of a query, which is repeated while the database is down."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while True:
        try:
            with connection.cursor() as cursor:
                cursor.execute(query, parameters)
                [number] = cursor.fetchone() or (0,)
                return int(number)
        except (DatabaseError, InterfaceError):
            _hang_up()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _hang_up() -> None:
    try:
        connection.close()
    except (DatabaseError, psycopg.Error):
        connection.connection = None


if __name__ == "__main__":
    run("pressure", measure, options={PINNED: "only a transaction that stays open, for ten minutes"})
