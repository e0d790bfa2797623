"""How soon an idle executor starts a job: from the return of its submission to the call of its handler."""

from __future__ import annotations

import socket
import time

from bench.harness.handlers import STAMP
from bench.harness.processes import cluster
from bench.harness.report import commit_milliseconds, percentile
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job

JOBS = 200
FULL_JOBS = 2000
EVERY_SECONDS = 0.05
WARM_UP = 10
ANSWER_SECONDS = 10.0


def measure(session: Session) -> None:
    report = session.report
    count = FULL_JOBS if session.full else JOBS
    commits: list[float] = []
    notified = _delays(session, count, listen=True, commits=commits)
    report.metric("p50_ms", percentile(notified, 0.5), "with NOTIFY, p50", "target: at most 2 ms", unit="ms")
    report.metric("p99_ms", percentile(notified, 0.99), "with NOTIFY, p99", "target: at most 6 ms", unit="ms")
    polled = _delays(session, count, listen=False, commits=commits)
    for share in (0.5, 0.99):
        note = "target: at most the poll interval, 250 ms"
        report.figure(f"polling only, p{share * 100:.0f}", f"{percentile(polled, share):.1f} ms", note)
    report.figure(
        "a durable commit, p50 / p99",
        f"{percentile(commits, 0.5):.2f} / {percentile(commits, 0.99):.2f} ms",
        "for reference: a pick-up contains one, the claim's",
    )
    report.figure("jobs", f"{count}", f"one every {EVERY_SECONDS * 1000:.0f} ms; submitted by the service")


def _delays(session: Session, count: int, *, listen: bool, commits: list[float]) -> list[float]:
    """Return the delays in milliseconds; 0: the handler began before the producer knew of the commit."""
    with (
        session.databases.copy("project", one_project) as url,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
        cluster(url, executors=1, environ={"QUEUEOPS_LISTEN": "on" if listen else "off"}),
    ):
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(ANSWER_SECONDS)
        port = ear.getsockname()[1]
        commits += commit_milliseconds(url, rest_seconds=EVERY_SECONDS)
        submitted: dict[int, int] = {}
        begun: dict[int, int] = {}
        due = time.monotonic()
        for number in range(WARM_UP + count):
            time.sleep(max(0.0, due - time.monotonic()))
            due += EVERY_SECONDS
            spec = JobSpec(kind="bench.stamp", payload={"number": number, "port": port})
            submit_job(spec, project_id=PROJECT, actor="bench")
            submitted[number] = time.monotonic_ns()
        while len(begun) < len(submitted):
            number, at = STAMP.unpack(ear.recv(STAMP.size))
            begun[number] = at
    return [max(0, begun[number] - submitted[number]) / 1e6 for number in range(WARM_UP, WARM_UP + count)]


if __name__ == "__main__":
    run("pickup", measure)
