"""
How fast a real cluster drains no-op jobs with their whole history, and what a job costs on the way.

A raw SQL loop that writes the same history is measured for comparison. Submitting is not part of the costs.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen

from django.db import connection

from bench.harness.handlers import PAYLOAD_BYTES, RESULT_BYTES
from bench.harness.limits import users_batch
from bench.harness.processes import cluster, cpu_seconds, wait_until_finished
from bench.harness.report import ROOT
from bench.harness.seeding import one_batch, sampled_batches
from bench.harness.session import Session, run
from jobs.services.operate.pauses import pause_scope, resume_scope
from tests.support.collector import collecting

JOBS = 50_000
PROCESSES = 2
ROUNDS = 2
FULL_ROUNDS = 6
LIMITED = "limited"
PAYLOAD = "payload"
TRACED = "traced"
SAMPLED = 100  # one submission in so many
WAL_TARGET = 2_400


def measure(session: Session) -> None:
    if TRACED in session.options:
        _compare_traced(session)
        return
    report = session.report
    ours: list[float] = []
    costs: list[Costs] = []
    ceiling: list[float] = []
    limited: list[float] = []
    by_users: list[float] = []
    echo = PAYLOAD in session.options
    template = f"echo_{JOBS}" if echo else f"batch_{JOBS}"
    seed = partial(one_batch, JOBS, echo=echo)
    for _ in range(FULL_ROUNDS if session.full else ROUNDS):
        ceiling.append(_raw(session, template, seed, result_bytes=RESULT_BYTES if echo else 0))
        rate, cost = _cluster(session, template, seed)
        ours.append(rate)
        costs.append(cost)
        if LIMITED in session.options:
            by_users.append(_cluster(session, f"users_{JOBS}", partial(users_batch, JOBS, limited=False))[0])
            limited.append(_cluster(session, f"limited_{JOBS}", partial(users_batch, JOBS, limited=True))[0])
    report.metric("jobs_per_second", statistics.median(ours), "qcluster, jobs/s", _spread(ours))
    report.metric("ceiling_jobs_per_second", statistics.median(ceiling), "raw SQL loop, jobs/s", _spread(ceiling))
    ratio = report.metrics["jobs_per_second"] / report.metrics["ceiling_jobs_per_second"]
    report.metric("ratio", ratio, "ratio", "target: at least 0.4, and 10,000 jobs/s")
    _show_costs(session, costs)
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


def _compare_traced(session: Session) -> None:
    """Drain the same jobs with OpenTelemetry off and then on, with no jobs, some, or all of them sampled."""
    with tempfile.TemporaryDirectory() as directory, collecting(Path(directory)) as collector:
        sampled = partial(sampled_batches, JOBS, environ=collector.environ)
        shapes: dict[str, tuple[str, Callable[[], None]]] = {
            "unsampled": (f"batch_{JOBS}", partial(one_batch, JOBS)),
            "sampled": (f"sampled_{SAMPLED}_{JOBS}", partial(sampled, one_of=SAMPLED)),
            "all_sampled": (f"sampled_1_{JOBS}", partial(sampled, one_of=1)),
        }
        for name, (template, seed) in shapes.items():
            cpu: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(FULL_ROUNDS if session.full else ROUNDS):
                for on in (False, True):
                    cost = _cluster(session, template, seed, collector.environ if on else {})[1]
                    cpu[on].append((cost.python + cost.postgres) / JOBS * 1e6)
            off, with_spans = statistics.median(cpu[False]), statistics.median(cpu[True])
            note = f"off: {_spread(cpu[False])}; on: {_spread(cpu[True])} us a job; target of sampled: at most 3"
            session.report.metric(f"{name}_percent", (with_spans / off - 1) * 100, f"{name}, CPU", note, unit="%")
        told = f"{len(collector.spans()):,}"
        session.report.figure("spans collected", told, f"sampled: one submission of {SAMPLED}, and all, 100 jobs each")


@dataclass(frozen=True, slots=True)
class Costs:
    """
    The cost of all jobs of one run.

    Attributes:
        python, postgres: CPU seconds; PostgreSQL's are 0 if it is not the benchmark's own server.
        wal_bytes: The write-ahead log, with the whole pages that follow a checkpoint.
        dead_rows: The versions of rows that updates and deletes left to vacuum, even if it has removed them since.
    """

    python: float
    postgres: float
    wal_bytes: int
    dead_rows: int


def _cluster(
    session: Session, template: str, seed: Callable[[], None], environ: Mapping[str, str] | None = None
) -> tuple[float, Costs]:
    with session.databases.copy(template, seed) as url:
        pause_scope("global", "", actor="bench")
        with cluster(url, executors=PROCESSES, environ=environ) as workers:
            python, postgres, wal = cpu_seconds(workers.pid), cpu_seconds(session.postmaster), _wal_bytes()
            begun = time.monotonic()
            resume_scope("global", "", actor="bench")
            seconds = wait_until_finished(JOBS, seconds=300) - begun
            python, postgres = cpu_seconds(workers.pid) - python, cpu_seconds(session.postmaster) - postgres
            wal = _wal_bytes() - wal
        costs = Costs(python, postgres, wal, _dead_rows())  # a backend reports the rows that it wrote when it ends
    session.report.figure(f"qcluster, {template}, CPU", *_cpu(python, postgres))
    return JOBS / seconds, costs


def _show_costs(session: Session, costs: Sequence[Costs]) -> None:
    def median(of: Callable[[Costs], float]) -> float:
        return statistics.median(of(cost) / JOBS for cost in costs)

    metric = session.report.metric
    target = f"target: at most {WAL_TARGET:,.0f}, the insert and its event included; here without"
    metric("wal_bytes_per_job", median(lambda cost: cost.wal_bytes), "WAL a job", target, unit="B")
    metric("dead_rows_per_job", median(lambda cost: cost.dead_rows), "dead rows a job", "left to vacuum")
    if session.postmaster is not None:
        metric("postgres_us_per_job", median(lambda cost: cost.postgres) * 1e6, "CPU a job in PostgreSQL", unit="us")
    metric("python_us_per_job", median(lambda cost: cost.python) * 1e6, "CPU a job in Python", unit="us")


def _wal_bytes() -> int:
    return _number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")


def _dead_rows() -> int:
    return _number("SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables")


def _number(query: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(query)
        [number] = cursor.fetchone()
    return int(number)


def _raw(session: Session, template: str, seed: Callable[[], None], *, result_bytes: int) -> float:
    with session.databases.copy(template, seed) as url, ExitStack() as stack:
        command = [sys.executable, "-m", "bench.harness.raw_loop", url, str(result_bytes)]
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
    run(
        "drain",
        measure,
        options={
            LIMITED: "also measure the same with limits that never bind",
            PAYLOAD: f"with payloads of {PAYLOAD_BYTES:,} B and results of {RESULT_BYTES} B",
            TRACED: "only what OpenTelemetry costs: off and on, in turns",
        },
    )
