"""Whether a budget is kept, by the provider's bill, while 200 calls at once spend it and workers are killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime

from bench.harness.processes import cluster
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.models import Executor, Job
from jobs.services.submit.submit import submit_batch
from jobs.states import RUNNING, WAITING, JobState
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.models import BudgetHold, BudgetPeriod, Limit, Price, Spend
from ratelimits.money.holds import recount_periods
from ratelimits.money.reports import total
from ratelimits.money.save_budget import create_budget
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox

JOBS = 10_000
PARALLEL = 200
INPUT, OUTPUT = 2, 8  # micro-units for a token
INPUT_TOKENS, OUTPUT_TOKENS = 100, 64
COST = INPUT * INPUT_TOKENS + OUTPUT * OUTPUT_TOKENS
CAP = JOBS // 5 * COST
KILLS, EVERY_SECONDS = 3, 3.0
LATENCY_MS = 300
QUIET_SECONDS = 180.0
LEASE = {"QUEUEOPS_LEASE_SECONDS": "6", "QUEUEOPS_RENEW_SECONDS": "2", "QUEUEOPS_SWEEP_SECONDS": "2"}
ENVIRON = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on", "QUEUEOPS_EXECUTOR_SLOTS": str(PARALLEL // 2), **LEASE}


def measure(session: Session) -> None:
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox:
        _set_up(sandbox)
        with cluster(url, environ=ENVIRON):
            wait_for(lambda: sandbox.counters()["received"] > PARALLEL, what="the first calls")
            for _ in range(KILLS):
                time.sleep(EVERY_SECONDS)
                _kill_one()
            wait_for(_is_over, seconds=QUIET_SECONDS, what="the end of the budget")
        _tell(session, sandbox)


def _set_up(sandbox: Sandbox) -> None:
    sandbox.turn(
        openai={
            "requests_per_minute": 10**9,
            "tokens_per_minute": 10**9,
            "output_tokens": OUTPUT_TOKENS,
            "reasoning_share": 0.75,  # as xAI counts reasoning: in the total alone
        },
        latency={"mode": "fixed", "milliseconds": LATENCY_MS},
    )
    Limit.objects.all().delete()
    credential = Credential.objects.create(
        name="key", service="openai", base_url=f"{sandbox.url}/v1", secret=seal({"api_key": "project:p/user:u"})
    )
    credential.projects.set(Project.objects.all())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    for unit, amount in (("input_tokens", INPUT), ("output_tokens", OUTPUT)):
        Price.objects.create(provider="openai", model="m", unit=unit, amount=amount * 10**6, valid_from=since)
    create_budget(PROJECT, {"name": "cap", "amount": CAP, "period": "total"}, actor="bench")
    payload = {
        "provider": "openai",
        "credential": "key",
        "model": "m",
        "prompt": "word " * 80,
        "max_output_tokens": OUTPUT_TOKENS,
    }
    submit_batch([{"kind": "llm.generate", "payload": payload}] * JOBS, project_id=PROJECT, actor="bench")


def _kill_one() -> None:
    pid = Executor.objects.filter(role=Executor.Role.GENERAL).order_by("started_at").values_list("pid", flat=True)[0]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_over() -> bool:
    """Whether no job runs and all waiting jobs are held: the budget then has no room for another."""
    running = Job.objects.filter(status__in=RUNNING).exists()
    waiting = Job.objects.filter(status__in=WAITING, held=False).exists()
    return not running and not waiting and not BudgetHold.objects.filter(lost=False).exists()


def _tell(session: Session, sandbox: Sandbox) -> None:
    report = session.report
    calls = [call for call in sandbox.calls() if call["accepted"]]
    billed = sum(INPUT * call["prompt_tokens"] + OUTPUT * call["output_tokens"] for call in calls)
    known = total(Spend.objects.filter(kind=Spend.Kind.CALL))
    unknown = total(Spend.objects.filter(kind=Spend.Kind.UNKNOWN))
    period = BudgetPeriod.objects.get()
    wrong = Spend.objects.filter(kind=Spend.Kind.CALL).exclude(money=COST).count()
    missed = max(0, len(calls) - known.calls - unknown.calls)
    differences = len(recount_periods()) + wrong + missed + (known.money + unknown.money != period.spent)
    done = Job.objects.filter(status=JobState.COMPLETED).count()
    note = f"{done:,} of {JOBS:,} jobs done for {CAP:,}, {KILLS} workers killed of 2 with {PARALLEL} calls at once"
    report.metric("overspent", max(0, billed - CAP, period.spent - CAP), "above the cap, in millionths", "target: 0")
    report.metric(
        "blocked_early_share", (CAP - period.spent) / CAP, "part of the cap left", f"target: at most 0.01; {note}"
    )
    report.metric("ledger_differences", differences, "differences of ledger, budget and provider", "target: 0")
    report.metric(
        "unknown_share",
        unknown.money / CAP,
        "part of the cap that killed workers may have spent",
        f"{unknown.calls} calls at their most; billed {billed:,}, known {known.money:,}",
    )


if __name__ == "__main__":
    run("budget", measure)
