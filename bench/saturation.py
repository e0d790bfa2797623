"""How a backlog far beyond a provider's quota goes, in each window mode, with the limiter and without it."""

from __future__ import annotations

import time

from django.db.models import Avg, Max

from bench.harness.processes import cluster
from bench.harness.seeding import one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.states import JobState
from tests.support.processes import wait_for
from tests.support.sandbox import running_sandbox
from tests.support.saturation import (
    MODES,
    Account,
    Judgement,
    Quota,
    accounts,
    flood,
    judge,
    lift_limits,
    open_accounts,
    set_limits,
    set_quota,
    submit_single,
)

JOBS = 20_000
FLOODING = accounts(projects=5, users=50)
LONE = Account("p0", "lone")
WINDOW_SECONDS = 10
FULL_WINDOW_SECONDS = 60
WINDOWS = 3.3
ALLOW_LOOPBACK = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on"}


def measure(session: Session) -> None:
    report = session.report
    window = FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS
    found: dict[str, Judgement] = {}
    for mode in MODES:
        judgement = found[mode] = _storm(session, Quota(mode, window), limited=True)
        report.figure(f"{mode} windows", f"{judgement.utilisation:.1%}", _refusals(judgement))
    without = _storm(session, Quota("aligned", window), limited=False)
    report.figure("aligned windows, no limiter", f"{without.utilisation:.1%}", _refusals(without))
    least = min(judgement.utilisation for judgement in found.values())
    above = sum(judgement.above_quota for judgement in found.values())
    note = f"target: at least 0.96; {JOBS:,} calls of 50 users of 5 projects, windows of {window} s"
    report.metric("utilisation_min", least, "provider's quota used, least", note)
    report.metric("over_quota_calls", above, "calls above the quota", "target: 0; the provider's count")
    report.metric("over_quota_calls_without", without.above_quota, "the same without the limiter", "one mode alone")


def _storm(session: Session, quota: Quota, *, limited: bool) -> Judgement:
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox:
        set_quota(sandbox, quota)
        if limited:
            set_limits(quota)
        else:
            lift_limits()
        open_accounts([*FLOODING, LONE], url=sandbox.url)
        flood(FLOODING, JOBS)
        with cluster(url, environ=ALLOW_LOOPBACK):
            wait_for(lambda: sandbox.counters()["received"], what="the first call")
            begun = time.time()
            time.sleep(quota.window_seconds)  # until the flood has begun
            single = submit_single(LONE, name="lone")
            time.sleep(max(0.0, begun + WINDOWS * quota.window_seconds - time.time()))
            until = time.time()
        _tell(session, quota, single=str(single), limited=limited)
        return judge(sandbox.calls(), quota, until=until)


def _tell(session: Session, quota: Quota, *, single: str, limited: bool) -> None:
    jobs = Job.objects.all()
    totals = jobs.aggregate(deferrals=Avg("deferral_count"), retries=Max("retry_count"))
    lone = Job.objects.get(pk=single)
    waited = (lone.started_at - lone.created_at).total_seconds() if lone.started_at else None
    name = f"{quota.mode} windows" if limited else "no limiter"
    failed = jobs.filter(status=JobState.FAILED).count()
    single_job = "never started" if waited is None else f"started after {waited:.2f} s"
    session.report.figure(
        f"{name}: deferrals a job",
        f"{totals['deferrals']:.2f}",
        f"retries at most {totals['retries']}, {failed:,} failed; a lone user's single job {single_job}",
    )


def _refusals(judgement: Judgement) -> str:
    return f"of the quota used, {judgement.above_quota:,} of {judgement.calls:,} calls above it"


if __name__ == "__main__":
    run("saturation", measure)
