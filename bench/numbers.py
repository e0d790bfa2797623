"""How long another tenant's job waits beside payloads full of numbers such as 1e308, and what these cost a worker."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from bench.harness.handlers import STAMP
from bench.harness.processes import cluster, wait_until_finished
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from queueops.tenancy.models import Project

QUIET = "quiet"
PAYLOADS = 10
NUMBERS = 283_000  # 1.7 MB of text, which jsonb would make 88 MB
ROUNDS = 5
FULL_ROUNDS = 20
ANSWER_SECONDS = 60.0


def measure(session: Session) -> None:
    line = b'{"kind":"bench.noop","payload":{"n":[%s]}}' % b",".join([b"1e308"] * NUMBERS)
    rounds = FULL_ROUNDS if session.full else ROUNDS
    delays: list[float] = []
    with (
        session.databases.copy("project", one_project) as url,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
        cluster(url) as workers,
    ):
        Project.objects.get_or_create(pk=QUIET, defaults={"name": "The quiet one"})
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(ANSWER_SECONDS)
        for number in range(rounds):
            submit_batch([line] * PAYLOADS, project_id=PROJECT, actor="bench")
            payload = {"number": number, "port": ear.getsockname()[1]}
            submit_job(JobSpec(kind="bench.stamp", payload=payload), project_id=QUIET, actor="bench")
            submitted = time.monotonic_ns()
            _, begun = STAMP.unpack(ear.recv(STAMP.size))
            delays.append(max(0, begun - submitted) / 1e9)
            wait_until_finished((PAYLOADS + 1) * (number + 1), seconds=ANSWER_SECONDS)
        peak = max(map(_peak_mb, workers.executors))
    note = f"target: at most 1 s; {PAYLOADS} payloads of {len(line) / 1e6:.1f} MB before it, {rounds} times"
    session.report.metric("longest_start_s", max(delays), "another tenant's job, longest wait", note, unit="s")
    session.report.metric("worker_mb", peak, "a worker, resident at its most", "target: at most 300 MB", unit="MiB")


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    [kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return kilobytes / 1024


if __name__ == "__main__":
    run("numbers", measure)
