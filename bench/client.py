"""The time that counting a use takes an app: before and after its call, and in the background."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.harness.processes import web
from bench.harness.report import percentile
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from queueops.tenancy.models import ProducerKey, Project, Scope
from queueops_client import UsageTracker
from ratelimits.models import Allowance, UsageEvent

USER = UUID(int=1)
USES = 2000
FULL_USES = 20_000
STRICT_USES = 300
THREADS = 4
WAITING = 20_000
EVERY_SECONDS = 0.002  # between two uses, as an app that makes calls


def one_allowance() -> None:
    one_project()
    Allowance.objects.create(project_id=PROJECT, unit="tokens", quota=10**12)


def measure(session: Session) -> None:
    report = session.report
    uses = FULL_USES if session.full else USES
    with (
        session.databases.copy("allowance", one_allowance) as url,
        tempfile.TemporaryDirectory(prefix="queueops-bench-") as directory,
        web(url) as (address, _),
    ):
        key = ProducerKey.issue(Project.objects.get(pk=PROJECT), name="benchmark", scopes=[Scope.USAGE])[1]
        outbox = Path(directory)

        def tracker(name: str, **options: Any) -> UsageTracker:
            return UsageTracker(address, key, user_id=USER, path=outbox / name, **options)

        with tracker("hybrid") as hybrid:
            hybrid.standing()
            taken = _uses(hybrid, uses)
        report.metric("added_p50_ms", percentile(taken, 0.5), "added by a use, p50", "target: at most 1 ms", unit="ms")
        report.metric(
            "added_p99_ms", percentile(taken, 0.99), "added by a use, p99", "hybrid, sends meanwhile", unit="ms"
        )
        with tracker("threads") as shared, ThreadPoolExecutor(THREADS) as threads:
            shared.standing()
            each = threads.map(lambda _: _uses(shared, uses // THREADS), range(THREADS))
            taken = [one for of_thread in each for one in of_thread]
        at = f"{THREADS} threads share a tracker"
        report.metric("threads_p50_ms", percentile(taken, 0.5), "the same, p50", at, unit="ms")
        with tracker("strict", policy="strict") as strict:
            strict.standing()
            taken = _uses(strict, STRICT_USES)
        report.metric("strict_p50_ms", percentile(taken, 0.5), "strict, p50", "one reservation each", unit="ms")
        report.metric("strict_p99_ms", percentile(taken, 0.99), "strict, p99", unit="ms")
        rate, counted = _flushed(lambda: tracker("flush", policy="optimistic", background=False))
        report.metric("flushed_per_second", rate, "flush, events/s", f"{counted:,} rows, one process, one connection")
        commits = _commits(outbox / "commits", uses)
    reference = f"{percentile(commits, 0.5):.2f} / {percentile(commits, 0.99):.2f} ms"
    report.figure("a durable commit by SQLite, p50 / p99", reference, "for reference: a use has two")


def _uses(tracker: UsageTracker, count: int) -> list[float]:
    """Return the milliseconds that each use adds to a call that takes no time."""
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        with tracker.use(estimate=800, service="gemini") as usage:
            usage.tokens = 700
        taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(EVERY_SECONDS)
    return taken


def _flushed(make: Callable[[], UsageTracker]) -> tuple[float, int]:
    """Return how many events a second a flush sends, as after an app was offline."""
    with make() as tracker:
        threads = [threading.Thread(target=_write, args=(tracker, WAITING // THREADS)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = UsageEvent.objects.count()
        begun = time.perf_counter()
        tracker.flush()
        taken = time.perf_counter() - begun
        counted = UsageEvent.objects.count() - before
        if counted != WAITING // THREADS * THREADS:
            raise SystemExit(f"{counted:,} events were counted of {WAITING:,}")
        return counted / taken, counted


def _write(tracker: UsageTracker, count: int) -> None:
    for _ in range(count):
        with tracker.use(estimate=1) as usage:
            usage.tokens = 1


def _commits(path: Path, count: int) -> list[float]:
    """Return the milliseconds of durable commits of one row."""
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE row (number INTEGER)"):
        db.execute(statement)
    taken = []
    for number in range(count):
        begun = time.perf_counter()
        db.execute("INSERT INTO row VALUES (?)", [number])
        taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(EVERY_SECONDS)
    db.close()
    return taken


if __name__ == "__main__":
    run("client", measure)
