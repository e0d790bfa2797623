"""Whether the batch lane loses nothing, pays nothing twice and is in time while workers die and its provider fails."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from bench.harness.processes import cluster
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.models import DutyLease, Executor, Job, ProviderBatch
from jobs.services.provider_batches.tend import duty_of
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.tenancy.credentials import seal
from queueops.tenancy.models import Credential, Project
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox

JOBS, FULL_JOBS = 2_000, 20_000
DEADLINE = timedelta(minutes=4)
MARGIN_SECONDS = 60.0
BATCH_SHARE = 0.5  # of the price of a live call
SETTINGS = {
    "QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on",
    "QUEUEOPS_BATCH_WINDOW_SECONDS": "60",
    "QUEUEOPS_BATCH_MARGIN_SECONDS": str(MARGIN_SECONDS),
    "QUEUEOPS_BATCH_COLLECT_SECONDS": "2",
    "QUEUEOPS_BATCH_POLL_SECONDS": "2",
    "QUEUEOPS_BATCH_CALL_SECONDS": "10",
    "QUEUEOPS_BATCH_MOST_JOBS": "1000",
}
FAULTS = {
    "validation_seconds": 0.5,
    "processing": {"mode": "lognormal", "median_seconds": 5, "sigma": 0.5},
    "lost_create_rate": 0.2,
    "status_error_rate": 0.1,
    "results_error_rate": 0.2,
    "results_cut_rate": 0.2,
    "repeated_line_rate": 0.02,
    "line_error_rates": {500: 0.005},
    "lost_line_rate": 0.002,
    "malformed_line_rate": 0.002,
}
MOST_KILLS = 10
BETWEEN_KILLS_SECONDS = (5.0, 12.0)


@dataclass(frozen=True, slots=True)
class LaneOutcome:
    """`kills`: of the process that had the lane's duty."""

    jobs: int
    completed: int
    late: int
    kills: int
    made: set[str]
    seconds: float


def measure(session: Session) -> None:
    jobs = FULL_JOBS if session.full else JOBS
    report = session.report
    with (
        running_sandbox() as sandbox,
        session.databases.copy("batchlane", one_project) as url,
        cluster(url, environ=SETTINGS),
    ):
        _open_account(sandbox)
        sandbox.turn(batches=FAULTS)
        found = _carry_out(jobs)
        billing = sandbox.billing()
        unknown = {batch["id"] for batch in sandbox.batches()} - found.made
    by_way = {"live": 0, "batch": 0}
    calls = tokens = 0
    for row in billing["billed"]:
        by_way[row["via"]] += row["prompt_tokens"] + row["output_tokens"]
        calls, tokens = calls + row["calls"], tokens + row["prompt_tokens"] + row["output_tokens"]
    all_live = found.jobs * tokens / max(1, calls)
    saved = 1 - (by_way["live"] + BATCH_SHARE * by_way["batch"]) / all_live
    batches = billing["batches"]
    report.metric("lost", found.jobs - found.completed, "jobs that were not completed", f"target: 0; of {found.jobs:,}")
    report.metric(
        "paid_twice", billing["prompts_paid_again"], "answers paid for again", "target: 0; the provider's count"
    )
    report.metric("orphaned", len(unknown) + batches["never_fetched"], "batches nobody came for", "target: 0")
    report.metric("late", found.late, "jobs after their deadline", "target: 0")
    report.metric("saved_share", saved, "of the price saved", "target: at least 0.45; all that was billed counts")
    report.figure("kills of the process with the duty", str(found.kills), f"in {found.seconds:.0f} s")
    report.figure("batches made", f"{batches['made']:,}", f"{batches['answers_lost']} creations were not answered")


def _open_account(sandbox: Sandbox) -> None:
    secret = seal({"api_key": f"project:{PROJECT}/user:robot"})
    row = Credential.objects.create(name="openai-key", service="openai", secret=secret, base_url=sandbox.url)
    row.projects.add(Project.objects.get(pk=PROJECT))


def _carry_out(jobs: int) -> LaneOutcome:
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_margin_seconds=MARGIN_SECONDS)  # as the workers have it
    begun = timezone.now()
    complete_by = begun + DEADLINE
    submit_batch(
        (
            {
                "kind": "llm.generate",
                "payload": {
                    "provider": "openai",
                    "credential": "openai-key",
                    "model": "small-1",
                    "prompt": f"Summarise text {number} of {begun.isoformat()}",
                    "max_output_tokens": 50,
                },
                "complete_by": complete_by.isoformat(),
                "via": "batch",
            }
            for number in range(jobs)
        ),
        project_id=PROJECT,
        actor="bench",
    )
    kills: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=_kill, args=(kills, over), daemon=True)
    killer.start()
    unfinished = Job.objects.filter(finished_at=None)
    open_batches = ProviderBatch.objects.filter(closed_at=None)
    try:
        with contextlib.suppress(AssertionError, TimeoutError):
            wait_for(
                lambda: not unfinished.exists() and not open_batches.exists(),
                seconds=2 * DEADLINE.total_seconds(),
                what="the end of all jobs",
            )
    finally:
        over.set()
        killer.join()
    return LaneOutcome(
        jobs,
        Job.objects.filter(status=JobState.COMPLETED).count(),
        _late(complete_by),
        len(kills),
        set(ProviderBatch.objects.exclude(provider_id="").values_list("provider_id", flat=True)),
        (timezone.now() - begun).total_seconds(),
    )


def _late(complete_by: datetime) -> int:
    late = Job.objects.filter(finished_at__gt=F("complete_by")).count()
    return late + (Job.objects.filter(finished_at=None).count() if timezone.now() > complete_by else 0)


def _kill(kills: list[int], over: threading.Event) -> None:
    """Kill who has the duty, with SIGKILL, again and again; another process takes it over."""
    dice = random.Random(1)
    while not over.wait(dice.uniform(*BETWEEN_KILLS_SECONDS)):
        holder = DutyLease.objects.filter(duty=duty_of("llm.generate")).values_list("holder", flat=True).first()
        executor = Executor.objects.filter(pk=holder).first() if holder else None
        if executor is not None and len(kills) < MOST_KILLS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(executor.pid, signal.SIGKILL)
                kills.append(executor.pid)


if __name__ == "__main__":
    run("batchlane", measure)
