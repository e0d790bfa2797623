"""The cost of an installation that has nothing to do: web process, cluster with its executors, and PostgreSQL."""

from __future__ import annotations

import time

from bench.harness.processes import cluster, cpu_seconds, web
from bench.harness.seeding import one_project
from bench.harness.session import Session, run

EXECUTORS = 2
SETTLE_SECONDS = 75.0  # until the start is over and autovacuum has seen the new database
SECONDS, FULL_SECONDS = 60.0, 600.0
TARGET_PERCENT = 2.0


def measure(session: Session) -> None:
    seconds = FULL_SECONDS if session.full else SECONDS
    with (
        session.databases.copy("project", one_project) as url,
        cluster(url, executors=EXECUTORS) as workers,
        web(url) as (_, web_pid),
    ):
        parts = {"cluster": workers.pid, "web process": web_pid, "PostgreSQL": session.postmaster}
        time.sleep(SETTLE_SECONDS)
        before, begun = {name: cpu_seconds(pid) for name, pid in parts.items()}, time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - begun
        used = {name: cpu_seconds(pid) - before[name] for name, pid in parts.items()}
    for name, spent in used.items():
        session.report.figure(name, f"{100 * spent / lasted:.2f} % of a core")
    session.report.metric(
        "percent_of_a_core",
        100 * sum(used.values()) / lasted,
        "the whole installation",
        f"target: at most {TARGET_PERCENT:g}; over {lasted:.0f} s, with {EXECUTORS} executors and one in quarantine",
        unit="%",
    )


if __name__ == "__main__":
    run("idle", measure)
