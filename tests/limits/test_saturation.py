"""A flood at a provider's quota in every window mode; what happened is judged from the provider's ledger."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

import pytest
from django.db.models import Avg, Max

from jobs.models import Job
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import database_time
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox
from tests.support.saturation import (
    MODES,
    Account,
    Algorithm,
    Quota,
    accounts,
    flood,
    judge,
    lift_limits,
    open_accounts,
    received,
    set_limits,
    set_quota,
    submit_single,
)

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("transactional_db")]


@dataclass(frozen=True, slots=True)
class Form:
    """`least_use`: of what the limits let through; the short form leaves room for what a busy machine delays."""

    jobs: int
    projects: int
    users: int
    window_seconds: float
    per_project: int
    per_user: int
    late_seconds: float
    least_use: float

    def quota(self, mode: str) -> Quota:
        return Quota(mode, self.window_seconds, self.per_project, self.per_user, self.late_seconds)


SHORT = Form(700, 2, 20, 2, per_project=100, per_user=20, late_seconds=0.2, least_use=0.85)
LONG = Form(20_000, 5, 50, 60, per_project=300, per_user=60, late_seconds=0, least_use=0.96)

ALGORITHMS: dict[str, Algorithm] = {
    "aligned": "token_bucket",
    "sliding": "sliding_window",
    "anchored": "token_bucket",
}
FLOODS = [pytest.param((SHORT, mode), id=f"short-{mode}") for mode in MODES] + [
    pytest.param((LONG, mode), id=f"long-{mode}", marks=pytest.mark.soak) for mode in MODES
]


@pytest.mark.parametrize("case", FLOODS)
def test_a_flood_uses_a_providers_quota_and_never_passes_it(case, ledger: Ledger, sandbox: Sandbox, figures):
    form, mode = case
    quota, algorithm = form.quota(mode), ALGORITHMS[mode]
    flooding = accounts(form.projects, form.users)
    lone = Account("p0", "lone")
    set_quota(sandbox, quota)
    set_limits(quota, algorithm=algorithm)
    open_accounts([*flooding, lone], url=sandbox.url)
    flood(flooding, form.jobs)
    with cluster(ledger):
        wait_for(lambda: received(sandbox) > form.per_project / 2, what="the flood's first calls")
        single, asked_at = submit_single(lone, name="lone"), database_time()
        wait_for(lambda: Job.objects.get(pk=single).finished_at, what="the single job's end")
        wait_until_saturated(sandbox, quota)
        until = time.time()
    judgement = judge(sandbox.calls(), quota, until=until)
    jobs = Job.objects.all()
    totals = jobs.aggregate(deferrals=Avg("deferral_count"), retries=Max("retry_count"))
    began_at = Job.objects.values_list("started_at", flat=True).get(pk=single)
    assert began_at is not None
    waited = (began_at - asked_at).total_seconds()
    figures(
        f"{judgement.calls:,} calls, {judgement.above_quota} above the quota, {judgement.utilisation:.1%} of it used, "
        f"{totals['deferrals']:.2f} deferrals a job, a single job of a lone user waited {waited:.2f} s"
    )
    assert judgement.above_quota == 0
    assert judgement.utilisation >= form.least_use * min(1.0, quota.share(algorithm))
    assert totals["deferrals"] <= 1.5
    assert totals["retries"] == 0
    assert not jobs.filter(status=JobState.FAILED).exists()
    assert max(turns_before(single, since=asked_at).values(), default=0) <= 2, (
        "the single job waited for more than turns"
    )


def test_without_the_limiter_the_same_flood_is_refused_many_times(ledger: Ledger, sandbox: Sandbox, figures):
    quota = SHORT.quota("sliding")
    flooding = accounts(SHORT.projects, SHORT.users)
    set_quota(sandbox, quota)
    lift_limits()
    open_accounts(flooding, url=sandbox.url)
    flood(flooding, SHORT.jobs)
    with cluster(ledger):
        wait_until_saturated(sandbox, quota)
    judgement = judge(sandbox.calls(), quota)
    figures(f"{judgement.calls:,} calls without limits, {judgement.above_quota:,} above the quota")
    assert judgement.above_quota > judgement.calls / 4


def wait_until_saturated(sandbox: Sandbox, quota: Quota) -> None:
    """Wait until three windows and a bit have passed since the first call."""
    wait_for(lambda: received(sandbox), what="a call")
    first = sandbox.calls()[0]["at"]
    span = 3.2 * quota.window_seconds
    wait_for(lambda: time.time() - first > span, seconds=2 * span, what="three windows")


def turns_before(job: UUID, *, since: object) -> Counter[object]:
    """How many jobs each user of the job's project began after `since` and before it."""
    own = Job.objects.get(pk=job)
    began = Job.objects.filter(project_id=own.project_id, started_at__gt=since, started_at__lt=own.started_at)
    return Counter(began.values_list("user_id", flat=True))
