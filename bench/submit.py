"""How fast jobs are accepted: by the service, over HTTP in bulk, and over HTTP one by one."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench.harness.http import post_batch, post_jobs
from bench.harness.processes import cpu_seconds, web
from bench.harness.report import percentile
from bench.harness.seeding import PROJECT, issue_key, noop_lines, one_project
from bench.harness.session import Session, run
from jobs.services.submit.submit import submit_batch

BULK = 50_000
ROUNDS = 3
SINGLE = 2000
FULL_SINGLE = 20_000
CONCURRENCY = 16
WARM_UP = 100


def measure(session: Session) -> None:
    report = session.report
    lines = list(noop_lines(BULK))
    rates = [_service(session, lines) for _ in range(ROUNDS)]
    report.metric("service_per_second", statistics.median(rates), "service, bulk, jobs/s", "target: 30,000")
    with session.databases.copy("project", one_project) as url:
        key = issue_key()
        with web(url) as (address, pid):
            body = b"\n".join(lines)
            python, postgres = cpu_seconds(pid), cpu_seconds(session.postmaster)
            rates = [BULK / asyncio.run(post_batch(address, key, body)) for _ in range(ROUNDS)]
            python, postgres = cpu_seconds(pid) - python, cpu_seconds(session.postmaster) - postgres
            report.metric("http_bulk_per_second", statistics.median(rates), "HTTP, bulk, jobs/s", "target: 12,000")
            report.figure("  CPU", *_cpu(python, postgres, ROUNDS * BULK))
            asyncio.run(post_jobs(address, key, requests=WARM_UP, concurrency=CONCURRENCY))
            python, postgres = cpu_seconds(pid), cpu_seconds(session.postmaster)
            requests = FULL_SINGLE if session.full else SINGLE
            seconds, taken = asyncio.run(post_jobs(address, key, requests=requests, concurrency=CONCURRENCY))
            python, postgres = cpu_seconds(pid) - python, cpu_seconds(session.postmaster) - postgres
    at = f"concurrency {CONCURRENCY}"
    report.metric("http_single_per_second", requests / seconds, "HTTP, single, requests/s", f"target: 300; {at}")
    report.figure("  CPU", *_cpu(python, postgres, requests))
    worst = percentile(taken, 0.99) * 1000
    report.metric("http_single_p99_ms", worst, "HTTP, single, p99", f"target: at most 150 ms; {at}", unit="ms")


def _service(session: Session, lines: list[bytes]) -> float:
    with session.databases.copy("project", one_project):
        python, postgres = time.process_time(), cpu_seconds(session.postmaster)
        begun = time.monotonic()
        submit_batch(lines, project_id=PROJECT, actor="bench")
        seconds = time.monotonic() - begun
        cost = _cpu(time.process_time() - python, cpu_seconds(session.postmaster) - postgres, len(lines))
    session.report.figure("service, CPU", *cost)
    return len(lines) / seconds


def _cpu(python: float, postgres: float, jobs: int) -> tuple[str, str]:
    each = f"{python / jobs * 1e6:.0f} us a job in Python, {postgres / jobs * 1e6:.0f} us in PostgreSQL"
    return f"{python + postgres:.2f} s", each


if __name__ == "__main__":
    run("submit", measure)
