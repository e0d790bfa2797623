"""Whether the batch lane loses no job, pays no call twice and is in time while workers die and its provider fails."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from bench.harness.processes import cluster
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.features.batch_lane.steps.rounds import duty_of
from jobs.models import DutyLease, Executor, Job, ProviderBatch
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.models import Price, Spend
from ratelimits.money.reports import total
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox

JOBS, FULL_JOBS = 2_000, 20_000
DEADLINE = timedelta(minutes=4)
MARGIN_SECONDS = 60.0
BATCH_SHARE = 0.5  # a batch costs this share of the live price
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
    "status_missing_rate": 0.1,
    "results_error_rate": 0.2,
    "results_cut_rate": 0.2,
    "repeated_line_rate": 0.02,
    "line_error_rates": {500: 0.005},
    "lost_line_rate": 0.01,
    "malformed_line_rate": 0.01,
}
WITHIN_ONE_VALUE = {"malformed_line_rate": 0}  # Gemini's results are one JSON value, in which no single line can be
INPUT, OUTPUT = 2, 8  # micro-units for a token by a live call
MODEL = "small-1"
MAX_KILLS = 10
BETWEEN_KILLS_SECONDS = (5.0, 12.0)


@dataclass(frozen=True, slots=True)
class LaneOutcome:
    """
    `kills`: how often the process with the lane's duty was killed. `spent`, `unknown`: by the ledger, in micro-units.
    """

    jobs: int
    completed: int
    late: int
    kills: int
    made: set[str]
    seconds: float
    spent: int
    unknown: int
    unanswered: int


def measure(session: Session) -> None:
    jobs = FULL_JOBS if session.full else JOBS
    _measure(session, "openai", jobs, FAULTS)
    _measure(session, "gemini", jobs // 4, FAULTS | WITHIN_ONE_VALUE, prefix="gemini_")


def _measure(session: Session, provider: str, jobs: int, faults: dict[str, Any], *, prefix: str = "") -> None:
    report = session.report
    with (
        running_sandbox() as sandbox,
        session.databases.copy(f"batchlane_{provider}", one_project) as url,
        cluster(url, environ=SETTINGS),
    ):
        _open_account(sandbox, provider)
        sandbox.turn(batches=faults, gemini={"requests_per_minute": None, "requests_per_day": None})
        found = _carry_out(jobs, provider)
        billing = sandbox.billing()
        unknown = {batch["id"] for batch in sandbox.batches()} - found.made
    by_way = {"live": 0, "batch": 0}
    calls = tokens = 0
    bill = 0.0
    for row in billing["billed"]:
        share = BATCH_SHARE if row["via"] == "batch" else 1.0
        bill += share * (INPUT * row["prompt_tokens"] + OUTPUT * row["output_tokens"])
        by_way[row["via"]] += row["prompt_tokens"] + row["output_tokens"]
        calls, tokens = calls + row["calls"], tokens + row["prompt_tokens"] + row["output_tokens"]
    all_live = found.jobs * tokens / max(1, calls)
    saved = 1 - (by_way["live"] + BATCH_SHARE * by_way["batch"]) / all_live
    batches = billing["batches"]
    report.metric(
        f"{prefix}lost", found.jobs - found.completed, "jobs that were not completed", f"target: 0; of {found.jobs:,}"
    )
    report.metric(
        f"{prefix}paid_twice",
        billing["prompts_paid_again"],
        "answers paid for again",
        "target: 0; the provider's count",
    )
    report.metric(f"{prefix}orphaned", len(unknown) + batches["never_fetched"], "batches nobody came for", "target: 0")
    report.metric(f"{prefix}late", found.late, "jobs after their deadline", "target: 0")
    short = max(0.0, bill - found.spent)
    told = f"target: 0; billed {bill:,.0f}, in the books {found.spent:,}, {found.unknown:,} of it at most, as unknown"
    report.metric(f"{prefix}unbooked", short, "of the bill in no book, in millionths", told)
    report.figure(f"{prefix}lines without an answer", str(found.unanswered), "lost, malformed, or late")
    report.metric(
        f"{prefix}saved_share", saved, "of the price saved", "target: at least 0.45; all that was billed counts"
    )
    report.figure(f"{prefix}kills of the process with the duty", str(found.kills), f"in {found.seconds:.0f} s")
    report.figure(
        f"{prefix}batches made", f"{batches['made']:,}", f"{batches['answers_lost']} creations were not answered"
    )


def _open_account(sandbox: Sandbox, provider: str) -> None:
    secret = seal({"api_key": f"project:{PROJECT}/user:robot"})
    row = Credential.objects.create(name="key", service=provider, secret=secret, base_url=sandbox.url)
    row.projects.add(Project.objects.get(pk=PROJECT))
    for via, share in (("live", 1.0), ("batch", BATCH_SHARE)):
        for unit, amount in (("input_tokens", INPUT), ("output_tokens", OUTPUT)):
            figures = {"amount": int(amount * share * 10**6), "valid_from": datetime(2026, 1, 1, tzinfo=UTC)}
            Price.objects.create(provider=provider, model=MODEL, unit=unit, via=via, **figures)


def _carry_out(jobs: int, provider: str) -> LaneOutcome:
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_margin_seconds=MARGIN_SECONDS)  # as in the workers
    begun = timezone.now()
    complete_by = begun + DEADLINE
    submit_batch(
        (
            {
                "kind": "llm.generate",
                "payload": {
                    "provider": provider,
                    "credential": "key",
                    "model": MODEL,
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
    spent = total(Spend.objects.all())
    return LaneOutcome(
        jobs,
        Job.objects.filter(status=JobState.COMPLETED).count(),
        _late(complete_by),
        len(kills),
        {
            named.removeprefix("batches/")  # as Gemini names them
            for named in ProviderBatch.objects.exclude(provider_id="").values_list("provider_id", flat=True)
        },
        (timezone.now() - begun).total_seconds(),
        spent.money,
        spent.unknown_money,
        sum(ProviderBatch.objects.values_list("unanswered", flat=True)),
    )


def _late(complete_by: datetime) -> int:
    late = Job.objects.filter(finished_at__gt=F("complete_by")).count()
    return late + (Job.objects.filter(finished_at=None).count() if timezone.now() > complete_by else 0)


def _kill(kills: list[int], over: threading.Event) -> None:
    """Kill the process that holds the duty with SIGKILL, repeatedly; each time another process takes the duty over."""
    dice = random.Random(1)
    while not over.wait(dice.uniform(*BETWEEN_KILLS_SECONDS)):
        holder = DutyLease.objects.filter(duty=duty_of("llm.generate")).values_list("holder", flat=True).first()
        executor = Executor.objects.filter(pk=holder).first() if holder else None
        if executor is not None and len(kills) < MAX_KILLS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(executor.pid, signal.SIGKILL)
                kills.append(executor.pid)


if __name__ == "__main__":
    run("batchlane", measure)
