"""Whether a deep backlog slows the queue: drain rate and duration of a claim at three depths."""

from __future__ import annotations

import statistics
import time
from functools import partial

from django.db import connection

from bench.harness.claims import claim_milliseconds
from bench.harness.processes import cluster, wait_until_finished
from bench.harness.report import commit_milliseconds, percentile
from bench.harness.seeding import depth
from bench.harness.session import Session, run
from jobs.services.operate.pauses import pause_scope, resume_scope

SHALLOW = 10_000
DEPTHS = (SHALLOW, 500_000, 2_000_000)
FINISHED = 500_000
DRAINED = 9_000  # less than the shallow backlog, so that every executor has work to the end
ROUNDS = 2
FULL_ROUNDS = 5
CLAIMS = 90
WANTED = 100


def measure(session: Session) -> None:
    report = session.report
    rates: dict[int, list[float]] = {pending: [] for pending in DEPTHS}
    claims: dict[int, list[float]] = {}
    for number in range(FULL_ROUNDS if session.full else ROUNDS):
        # Measure the depths in turns, so that a slow minute of the machine does not count against one of them.
        for pending in DEPTHS:
            name = f"depth_{pending}"
            with session.databases.copy(name, partial(depth, pending=pending, finished=FINISHED)) as url:
                rates[pending].append(_drain_rate(url))
                if number == 0 and pending != SHALLOW:
                    claims[pending] = claim_milliseconds(claims=CLAIMS, wanted=WANTED)
                    commit = commit_milliseconds(url)
    for pending in DEPTHS:
        spread = ", ".join(f"{rate:,.0f}" for rate in rates[pending])
        report.figure(f"{pending:,} pending, jobs/s", f"{statistics.median(rates[pending]):,.0f}", f"rounds: {spread}")
    for pending, taken in claims.items():
        report.figure(f"{pending:,} pending, claim of {WANTED}, p50", f"{percentile(taken, 0.5):.2f} ms")
    shallow = statistics.median(rates[SHALLOW])
    deep = min(statistics.median(rates[pending]) for pending in DEPTHS if pending != SHALLOW)
    report.metric("rate_ratio", deep / shallow, "rate at depth / shallow", "target: at least 0.9")
    worst = max(percentile(taken, 0.99) for taken in claims.values())
    note = "target: at most 10 ms; claim and start with their commit"
    report.metric("claim_p99_ms", worst, f"claim of {WANTED}, p99", note, unit="ms")
    report.figure("a durable commit, p99", f"{percentile(commit, 0.99):.2f} ms", "for reference, at the same time")
    report.figure("finished jobs beside", f"{FINISHED:,}")


def _drain_rate(url: str) -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(completed) FROM jobs_jobcount")
        [before] = cursor.fetchone() or (0,)
    pause_scope("global", "", actor="bench")
    with cluster(url):
        begun = time.monotonic()
        resume_scope("global", "", actor="bench")
        return DRAINED / (wait_until_finished(before + DRAINED, seconds=120) - begun)


if __name__ == "__main__":
    run("depth", measure)
