"""How much memory an executor takes with 100 jobs in flight, and a web process after work."""

from __future__ import annotations

import asyncio

from bench.harness.http import post_batch, post_jobs
from bench.harness.processes import cluster, memory_mb, web
from bench.harness.seeding import PROJECT, issue_key, noop_lines, one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from tests.support.processes import wait_for

IN_FLIGHT = 100
HELD_SECONDS = 30
BATCH = 50_000
REQUESTS = 1000


def measure(session: Session) -> None:
    report = session.report
    with session.databases.copy("project", one_project) as url, cluster(url, executors=1) as workers:
        lines = [{"kind": "bench.hold", "payload": {"seconds": HELD_SECONDS}}] * IN_FLIGHT
        submit_batch(lines, project_id=PROJECT, actor="bench")
        running = Job.objects.filter(status=JobState.IN_PROGRESS)
        wait_for(lambda: running.count() == IN_FLIGHT, what=f"{IN_FLIGHT} jobs in flight")
        rss, pss = memory_mb(workers.executors[0])
    report.metric(
        "executor_mb", rss, "executor, resident", f"target: at most 120 MB; {IN_FLIGHT} in flight", unit="MiB"
    )
    report.figure("executor, proportional", f"{pss:.1f} MiB", "its share of pages that the cluster's processes share")
    with session.databases.copy("project", one_project) as url:
        key = issue_key()
        with web(url) as (address, pid):
            asyncio.run(post_batch(address, key, b"\n".join(noop_lines(BATCH))))
            asyncio.run(post_jobs(address, key, requests=REQUESTS, concurrency=16))
            rss, _ = memory_mb(pid)
    note = f"target: at most 250 MB; after a batch of {BATCH:,} jobs and {REQUESTS:,} single ones"
    report.metric("web_mb", rss, "web process, resident", note, unit="MiB")


if __name__ == "__main__":
    run("memory", measure)
