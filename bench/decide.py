"""How fast the limiter decides for a process's threads: on one hot key, over two scopes, and in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from bench.harness.processes import cpu_seconds
from bench.harness.report import commit_milliseconds, percentile
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from ratelimits.limiter.answers import Asking, ask
from ratelimits.limiter.decide import Call
from ratelimits.limits.catalogue import forget
from ratelimits.models import Counter, Limit
from ratelimits.subjects import Subject

ONE_SCOPE = "bench-one"
TWO_SCOPES = "bench-two"
SECONDS = 4.0
FULL_SECONDS = 20.0
WARM_UP_SECONDS = 0.5
BATCH = 100
BATCH_CLIENTS = 4


def two_services() -> None:
    """Make one service with a project limit, and one with a limit for the project and another for each user."""
    one_project()
    ample = {"capacity": 1e9, "unit": "requests"}
    Limit.objects.create(name="one-project", service=ONE_SCOPE, scope="project", **ample)
    Limit.objects.create(name="two-project", service=TWO_SCOPES, scope="project", **ample)
    Limit.objects.create(name="two-user", service=TWO_SCOPES, scope="user", **ample)


@dataclass(frozen=True, slots=True)
class Measured:
    """The milliseconds of each request, and the requests a second. Each client asks again as soon as it is answered."""

    milliseconds: list[float]
    per_second: float

    @property
    def p50(self) -> float:
        return percentile(self.milliseconds, 0.5)

    @property
    def p99(self) -> float:
        return percentile(self.milliseconds, 0.99)


def measure(session: Session) -> None:
    report = session.report
    seconds = FULL_SECONDS if session.full else SECONDS

    def case(clients: int, service: str, calls: int = 1) -> Measured:
        return _closed_loop(clients, seconds, lambda number: _asking(service, calls, number))

    with session.databases.copy("limits", two_services) as url:
        forget()
        python, postgres = time.process_time(), cpu_seconds(session.postmaster)
        hot = case(20, ONE_SCOPE)
        python, postgres = time.process_time() - python, cpu_seconds(session.postmaster) - postgres
        at = "one hot key, 20 clients"
        report.metric("single_p50_ms", hot.p50, f"{at}, p50", "target: at most 8 ms", unit="ms")
        report.metric("single_p99_ms", hot.p99, f"{at}, p99", "target: at most 40 ms", unit="ms")
        report.metric("single_per_second", hot.per_second, f"{at}, decisions/s", "target: 2,500")
        each = len(hot.milliseconds) * (seconds + WARM_UP_SECONDS) / seconds
        cost = f"{python / each * 1e6:.0f} us a decision in Python, {postgres / each * 1e6:.0f} us in PostgreSQL"
        report.figure("  CPU", f"{python + postgres:.2f} s", cost)
        alone = case(1, ONE_SCOPE)
        report.metric("one_client_p50_ms", alone.p50, "one client, p50", "target: at most 1.5 ms", unit="ms")
        for clients in (1, 20, 100):
            two = case(clients, TWO_SCOPES)
            what = f"two scopes, {clients} client{'s' * (clients > 1)}"
            report.metric(f"two_scopes_{clients}_p50_ms", two.p50, f"{what}, p50", unit="ms")
            report.metric(f"two_scopes_{clients}_p99_ms", two.p99, f"{what}, p99", unit="ms")
            report.metric(f"two_scopes_{clients}_per_second", two.per_second, f"{what}, decisions/s")
        batches = case(BATCH_CLIENTS, ONE_SCOPE, BATCH)
        what = f"batches of {BATCH}, {BATCH_CLIENTS} clients"
        report.metric("batch_per_second", batches.per_second * BATCH, f"{what}, decisions/s", "target: 20,000")
        report.metric("batch_p50_ms", batches.p50, f"{what}, p50 of a batch", unit="ms")
        commit = commit_milliseconds(url)
        report.figure("counters", f"{Counter.objects.count():,}")
    report.figure("a durable commit, p50", f"{percentile(commit, 0.5):.2f} ms", "for reference, at the same time")


def _asking(service: str, calls: int, number: int) -> Asking:
    user = f"user-{number % 50}"  # the second scope: a few keys that clients share
    return Asking(PROJECT, tuple(Call(Subject(service, "write", PROJECT, user)) for _ in range(calls)))


def _closed_loop(clients: int, seconds: float, asking: Callable[[int], Asking]) -> Measured:
    start = threading.Barrier(clients)
    taken: list[list[float]] = [[] for _ in range(clients)]
    failures: list[str] = []

    def client(number: int) -> None:
        try:
            start.wait(30)
            begun = time.monotonic()
            while (now := time.monotonic()) < begun + WARM_UP_SECONDS + seconds:
                _ensure_proceed(ask(asking(number)).answer)
                if now >= begun + WARM_UP_SECONDS:
                    taken[number].append((time.monotonic() - now) * 1000)
        except Exception as error:  # noqa: BLE001 (told below, by the thread that can end the run)
            failures.append(repr(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"{len(failures)} clients failed: {failures[0]}")
    found = [one for each in taken for one in each]
    return Measured(found, len(found) / seconds)


def _ensure_proceed(answer: dict[str, Any]) -> None:
    if answer["degraded"] or any(one["kind"] != "proceed" for one in answer["decisions"]):
        raise RuntimeError(f"not every call may proceed: {answer}")


if __name__ == "__main__":
    run("decide", measure)
