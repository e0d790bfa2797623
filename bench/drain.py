"""How fast a real cluster drains no-op jobs with their whole history, beside a raw SQL loop with the same record."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from subprocess import PIPE, Popen

from bench.harness.limits import users_batch
from bench.harness.processes import cluster, cpu_seconds, wait_until_finished
from bench.harness.report import ROOT
from bench.harness.seeding import one_batch
from bench.harness.session import Session, run
from jobs.services.operate.pauses import pause_scope, resume_scope

JOBS = 50_000
PROCESSES = 2
ROUNDS = 2
FULL_ROUNDS = 6
LIMITED = "limited"


def measure(session: Session) -> None:
    report = session.report
    ours: list[float] = []
    ceiling: list[float] = []
    limited: list[float] = []
    by_users: list[float] = []
    for _ in range(FULL_ROUNDS if session.full else ROUNDS):
        ceiling.append(_raw(session))
        ours.append(_cluster(session, f"batch_{JOBS}", partial(one_batch, JOBS)))
        if LIMITED in session.options:
            by_users.append(_cluster(session, f"users_{JOBS}", partial(users_batch, JOBS, limited=False)))
            limited.append(_cluster(session, f"limited_{JOBS}", partial(users_batch, JOBS, limited=True)))
    report.metric("jobs_per_second", statistics.median(ours), "qcluster, jobs/s", _spread(ours))
    report.metric("ceiling_jobs_per_second", statistics.median(ceiling), "raw SQL loop, jobs/s", _spread(ceiling))
    ratio = report.metrics["jobs_per_second"] / report.metrics["ceiling_jobs_per_second"]
    report.metric("ratio", ratio, "ratio", "target: at least 0.4, and 10,000 jobs/s")
    if limited:
        unlimited = statistics.median(by_users)
        report.figure("ten users, no limits, jobs/s", f"{unlimited:,.0f}", _spread(by_users))
        report.figure("the same under limits, jobs/s", f"{statistics.median(limited):,.0f}", _spread(limited))
        note = "target: at least 0.6; a user's and a project's limit that never bind"
        report.metric("limited_ratio", statistics.median(limited) / unlimited, "limited / unlimited", note)
    report.figure(
        "executors",
        str(PROCESSES),
        f"QUEUEOPS_WORKERS={PROCESSES}; the quarantine worker beside them claims no ordinary job",
    )


def _cluster(session: Session, template: str, seed: Callable[[], None]) -> float:
    with session.databases.copy(template, seed) as url:
        pause_scope("global", "", actor="bench")
        with cluster(url, executors=PROCESSES) as workers:
            python, postgres = cpu_seconds(workers.pid), cpu_seconds(session.postmaster)
            begun = time.monotonic()
            resume_scope("global", "", actor="bench")
            seconds = wait_until_finished(JOBS, seconds=120) - begun
            python, postgres = cpu_seconds(workers.pid) - python, cpu_seconds(session.postmaster) - postgres
    session.report.figure(f"qcluster, {template}, CPU", *_cpu(python, postgres))
    return JOBS / seconds


def _raw(session: Session) -> float:
    with session.databases.copy(f"batch_{JOBS}", lambda: one_batch(JOBS)) as url, ExitStack() as stack:
        command = [sys.executable, "-m", "bench.harness.raw_loop", url]
        loops = [
            stack.enter_context(Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)) for _ in range(PROCESSES)
        ]
        for loop in loops:
            _line_of(loop)
        postgres = cpu_seconds(session.postmaster)
        begun = time.monotonic()
        for loop in loops:
            _tell(loop)
        ended = [json.loads(_line_of(loop)) for loop in loops]
        seconds = time.monotonic() - begun
        postgres = cpu_seconds(session.postmaster) - postgres
    done = sum(answer["done"] for answer in ended)
    if done != JOBS:
        raise SystemExit(f"the raw loops did {done:,} of {JOBS:,} jobs")
    session.report.figure("raw SQL loop, CPU", *_cpu(sum(answer["cpu"] for answer in ended), postgres))
    return JOBS / seconds


def _tell(loop: Popen[str]) -> None:
    if loop.stdin is not None:
        loop.stdin.write("go\n")
        loop.stdin.flush()


def _line_of(loop: Popen[str]) -> str:
    if loop.stdout is not None and (line := loop.stdout.readline()):
        return line
    raise SystemExit("a raw loop ended too early")


def _cpu(python: float, postgres: float) -> tuple[str, str]:
    each = f"{python / JOBS * 1e6:.0f} us a job in Python, {postgres / JOBS * 1e6:.0f} us in PostgreSQL"
    return f"{python + postgres:.2f} s", each


def _spread(rates: list[float]) -> str:
    return "rounds: " + ", ".join(f"{rate:,.0f}" for rate in rates)


if __name__ == "__main__":
    run("drain", measure, options={LIMITED: "also measure the same with limits that never bind"})
