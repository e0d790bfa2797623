"""How fast reported usage is counted, and how long a reservation takes, while others do the same for the same users."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from django.db import connection
from django.utils import timezone

from bench.harness.http import post_usage
from bench.harness.processes import cpu_seconds, web
from bench.harness.report import commit_milliseconds, percentile
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from queueops.tenancy.models import ProducerKey, Project, Scope
from ratelimits.models import Allowance
from ratelimits.usage.ingest import Reported, ingest
from ratelimits.usage.ledger import check_ledger
from ratelimits.usage.reserve import reserve

BATCH = 500
USERS = [UUID(int=number) for number in range(50)]
CLIENTS = 8
EVENTS = 80_000
FULL_EVENTS = 800_000
HTTP_EVENTS = 40_000
ROUNDS = 3
RESERVING = 20
RESERVATIONS = 200  # of each client
WARM_UP = 20


def one_allowance() -> None:
    one_project()
    Allowance.objects.create(project_id=PROJECT, unit="tokens", quota=10**12)


def measure(session: Session) -> None:
    report = session.report
    events = FULL_EVENTS if session.full else EVENTS
    with session.databases.copy("allowance", one_allowance) as url:
        together(CLIENTS, _batches(CLIENTS * BATCH))  # opens connections and prepares plans
        python, postgres = time.process_time(), cpu_seconds(session.postmaster)
        rates = [events / together(CLIENTS, _batches(events)) for _ in range(ROUNDS)]
        python, postgres = time.process_time() - python, cpu_seconds(session.postmaster) - postgres
        at = f"target: 10,000; {CLIENTS} clients, batches of {BATCH} over {len(USERS)} users"
        report.metric("events_per_second", statistics.median(rates), "service, events/s", at)
        each = f"{python / events / ROUNDS * 1e6:.0f} us an event in Python, "
        each += f"{postgres / events / ROUNDS * 1e6:.0f} us in PostgreSQL"
        report.figure("  CPU", f"{python + postgres:.2f} s", each)
        taken = _reserve_all()
        at = f"{RESERVING} clients, {len(USERS)} users"
        report.metric("reserve_p50_ms", percentile(taken, 0.5), "reserve, p50", at, unit="ms")
        report.metric("reserve_p99_ms", percentile(taken, 0.99), "reserve, p99", "target: at most 15 ms", unit="ms")
        key = ProducerKey.issue(Project.objects.get(pk=PROJECT), name="benchmark", scopes=[Scope.USAGE])[1]
        with web(url) as (address, _):
            asyncio.run(post_usage(address, key, _bodies(CLIENTS * BATCH), concurrency=CLIENTS))
            rates = [
                HTTP_EVENTS / asyncio.run(post_usage(address, key, _bodies(HTTP_EVENTS), concurrency=CLIENTS))
                for _ in range(ROUNDS)
            ]
        report.metric("http_events_per_second", statistics.median(rates), "HTTP, events/s", "one web process")
        commit = commit_milliseconds(url)
        found = check_ledger()
        if found.differences:
            raise SystemExit(f"the ledger differs: {found.differences[0]}")
    report.figure("a durable commit, p50", f"{percentile(commit, 0.5):.2f} ms", "for reference, at the same time")


def together(clients: int, work: list[Callable[[], object]]) -> float:
    """Do all of the work in so many threads, each with its own connection; return the seconds."""
    left, lock, failures = iter(work), threading.Lock(), []

    def client() -> None:
        try:
            while True:
                with lock:
                    one = next(left, None)
                if one is None:
                    return
                one()
        except Exception as error:  # noqa: BLE001 (told below, by the thread that can end the run)
            failures.append(repr(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"{len(failures)} clients failed: {failures[0]}")
    return time.monotonic() - begun


def _batches(events: int) -> list[Callable[[], object]]:
    now = timezone.now()

    def send(batch: list[Reported]) -> Callable[[], object]:
        return lambda: ingest(batch, project_id=PROJECT)

    return [
        send([Reported(uuid4(), USERS[number % len(USERS)], 100, now, service="gemini") for number in range(BATCH)])
        for _ in range(events // BATCH)
    ]


def _bodies(events: int) -> list[bytes]:
    now = timezone.now().isoformat()
    return [
        json.dumps(
            [
                {"event_id": str(uuid4()), "user_id": str(USERS[number % len(USERS)]), "tokens": 100, "ts": now}
                for number in range(BATCH)
            ]
        ).encode()
        for _ in range(events // BATCH)
    ]


def _reserve_all() -> list[float]:
    """Return the milliseconds of each reservation; each client reserves again as soon as it is answered."""
    taken: list[float] = []

    def client(number: int) -> Callable[[], object]:
        def reserve_on_and_on() -> None:
            for turn in range(WARM_UP + RESERVATIONS):
                begun = time.monotonic()
                reserve(project_id=PROJECT, user_id=USERS[(number + turn) % len(USERS)], amount=100)
                if turn >= WARM_UP:
                    taken.append((time.monotonic() - begun) * 1000)

        return reserve_on_and_on

    together(RESERVING, [client(number) for number in range(RESERVING)])
    return taken


if __name__ == "__main__":
    run("ingest", measure)
