"""Whether a flood delays another project's single jobs, and what many active projects cost a claim."""

from __future__ import annotations

import socket
import time

from bench.harness.claims import claim_milliseconds
from bench.harness.floods import many_projects, old_flood
from bench.harness.handlers import STAMP
from bench.harness.processes import cluster
from bench.harness.report import commit_milliseconds, percentile
from bench.harness.seeding import one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import JobState
from queueops.tenancy.models import Project

FLOOD = 200_000
AGED_SECONDS = 1200  # more than 15 minutes, at which a normal job's priority first rises
HELD_SECONDS = 0.1  # how long each of the flood's jobs runs: the slots stay busy to the end
SINGLES = 30
FULL_SINGLES = 45
ANSWER_SECONDS = 60.0
QUIET = "b"
PROJECTS = 1000
CLAIMS = 100
WANTED = 100


def measure(session: Session) -> None:
    report = session.report
    delays, busy = _start_delays(session, FULL_SINGLES if session.full else SINGLES)
    alone, _ = _start_delays(session, SINGLES // 3, flooded=False)
    note = f"target: at most 1,000 ms; {len(delays)} jobs, one a second"
    report.metric("start_delay_p99_ms", percentile(delays, 0.99), "single jobs beside the flood, p99", note, unit="ms")
    report.figure("the same, p50", f"{percentile(delays, 0.5):.1f} ms")
    report.figure("the same without the flood, p50", f"{percentile(alone, 0.5):.1f} ms", "for reference")
    report.figure("the flood, jobs/s meanwhile", f"{busy:,.0f}", f"{FLOOD:,} jobs, {AGED_SECONDS // 60} minutes old")
    with session.databases.copy(f"projects_{PROJECTS}", lambda: many_projects(PROJECTS, jobs=20)) as url:
        commit = commit_milliseconds(url)
        taken = claim_milliseconds(claims=CLAIMS, wanted=WANTED)
    with session.databases.copy("projects_1", lambda: many_projects(1, jobs=20 * PROJECTS)):
        of_one = claim_milliseconds(claims=CLAIMS, wanted=WANTED)
    extra = percentile(taken, 0.5) - percentile(of_one, 0.5)
    note = f"target: at most 10 ms; of {WANTED} jobs, with start and commit"
    report.metric("claim_p99_ms", percentile(taken, 0.99), f"claim with {PROJECTS:,} projects, p99", note, unit="ms")
    report.figure("the same, p50", f"{percentile(taken, 0.5):.2f} ms", f"{extra:.2f} ms more than with one project")
    report.figure("a durable commit, p99", f"{percentile(commit, 0.99):.2f} ms", "for reference, at the same time")


def _start_delays(session: Session, singles: int, *, flooded: bool = True) -> tuple[list[float], float]:
    """
    Return the milliseconds from each submission's return to its handler's call, and the flood's completed jobs a
    second.
    """
    template, seed = ("flood", _seed_flood) if flooded else ("project", one_project)
    with (
        session.databases.copy(template, seed) as url,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
    ):
        Project.objects.get_or_create(pk=QUIET, defaults={"name": "The quiet one"})
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(ANSWER_SECONDS)
        submitted: dict[int, int] = {}
        with cluster(url):
            begun = due = time.monotonic()
            for number in range(singles):
                time.sleep(max(0.0, due - time.monotonic()))
                due += 1.0
                payload = {"number": number, "port": ear.getsockname()[1]}
                submit_job(JobSpec(kind="bench.stamp", payload=payload), project_id=QUIET, actor="bench")
                submitted[number] = time.monotonic_ns()
            delays: list[float] = []
            while len(delays) < singles:
                number, at = STAMP.unpack(ear.recv(STAMP.size))
                delays.append(max(0, at - submitted[number]) / 1e6)
            seconds = time.monotonic() - begun
            left = Job.objects.exclude(project_id=QUIET).filter(status=JobState.QUEUED).count()
            if flooded and not left:
                raise SystemExit("the flood ended before the last single job: nothing was in its way")
    return delays, (FLOOD - left) / seconds


def _seed_flood() -> None:
    old_flood(FLOOD, aged_seconds=AGED_SECONDS, held_seconds=HELD_SECONDS)


if __name__ == "__main__":
    run("fairness", measure)
