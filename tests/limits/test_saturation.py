"""A flood at a provider's quota in every window mode; what happened is judged from the provider's ledger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from uuid import UUID

import pytest
from django.db.models import Avg, Max

from jobs.models import Job
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import database_time
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox
from tests.support.saturation import (
    MODES,
    Account,
    Algorithm,
    Quota,
    flood,
    judge,
    lift_limits,
    open_accounts,
    received,
    set_limits,
    set_quota,
    submit_single,
)

pytestmark = pytest.mark.usefixtures("transactional_db")

# Short windows in which lateness weighs much: the figures of a minute are bench.saturation's to show.
WINDOW_SECONDS = 6.0
PER_PROJECT = 100
PER_USER = 20
LATE_SECONDS = 0.5
TRIES = 2  # three windows through which a busy machine is held up say nothing of use
JOBS = 550  # a mode: more than the quota of what is looked at in all tries
USERS = 20  # a mode: enough that a turn of them all takes as long as an executor may take to list its lanes
MIN_USE = 0.75  # of what the limits let through; a busy machine is late with the next claim
MAX_TURNS = 5  # of each other user, until every executor has noticed a new one; JOBS / USERS would be the backlog
MANY = 20  # refusals, where the limits let none come about
QUOTAS = {mode: Quota(mode, WINDOW_SECONDS, PER_PROJECT, PER_USER, LATE_SECONDS) for mode in MODES}


@pytest.fixture
def providers() -> Iterator[dict[str, Sandbox]]:
    """A provider of its own for each window mode."""
    with ExitStack() as stack:
        found = {mode: stack.enter_context(running_sandbox()) for mode in MODES}
        for mode, sandbox in found.items():
            set_quota(sandbox, QUOTAS[mode])
        yield found


@pytest.mark.parametrize("algorithm", ["token_bucket", pytest.param("sliding_window", marks=pytest.mark.soak)])
def test_a_flood_uses_a_quota_in_every_window_mode_and_never_passes_it(algorithm, providers, ledger: Ledger, figures):
    lone = {mode: Account(mode, "lone") for mode in MODES}
    set_limits(QUOTAS[MODES[0]], algorithm=algorithm)
    for mode, sandbox in providers.items():
        open_accounts([*users_of(mode), lone[mode]], url=sandbox.url)
        flood(users_of(mode), JOBS)
    with cluster(ledger):
        wait_for(lambda: all(map(received, providers.values())), what="the flood's first calls")
        singles = {mode: submit_single(account, name="lone") for mode, account in lone.items()}
        asked_at = database_time()
        since = max(sandbox.calls()[0]["at"] for sandbox in providers.values())
        for _ in range(TRIES):
            until = since + 3.2 * WINDOW_SECONDS
            wait_for(partial(is_past, until), what="three windows and a bit")
            use = {mode: use_between(since, until, providers[mode], QUOTAS[mode]) for mode in MODES}
            if all(use[mode] >= least_use(QUOTAS[mode], algorithm) for mode in MODES):
                break
            since = until
    for mode, sandbox in providers.items():
        judgement = judge(sandbox.calls(), QUOTAS[mode], until=until)
        jobs = Job.objects.filter(project=mode)
        totals = jobs.aggregate(deferrals=Avg("deferral_count"), retries=Max("retry_count"))
        figures(
            f"{mode} windows: {judgement.calls:,} calls, {judgement.above_quota} above the quota, "
            f"{use[mode]:.1%} of it used, {totals['deferrals']:.2f} deferrals a job"
        )
        assert judgement.above_quota == 0
        assert use[mode] >= least_use(QUOTAS[mode], algorithm)
        assert totals["deferrals"] <= 1.5
        assert totals["retries"] == 0
        assert not jobs.filter(status=JobState.FAILED).exists()
        turns = turns_before(singles[mode], since=asked_at)
        assert max(turns.values(), default=0) <= MAX_TURNS


def test_without_the_limiter_the_same_flood_is_refused_many_times(sandbox: Sandbox, ledger: Ledger, figures):
    set_quota(sandbox, QUOTAS["sliding"])
    lift_limits()
    open_accounts(users_of("sliding"), url=sandbox.url)
    flood(users_of("sliding"), JOBS)
    with cluster(ledger):
        # Not every job's: the refusals themselves soon hold back those that have not begun.
        wait_for(lambda: refused(sandbox) > MANY, what="refusals")
    figures(f"{received(sandbox):,} calls for {JOBS} jobs without limits, {refused(sandbox):,} above the quota")


def refused(sandbox: Sandbox) -> int:
    return sum(call["cause"] == "provider_quota" for call in sandbox.calls())


def users_of(mode: str) -> list[Account]:
    return [Account(mode, f"u{number}") for number in range(USERS)]


def is_past(moment: float) -> bool:
    return time.time() > moment


def use_between(since: float, until: float, sandbox: Sandbox, quota: Quota) -> float:
    """The least part of the quota used over three consecutive windows of that time."""
    return judge([call for call in sandbox.calls() if call["at"] >= since], quota, until=until).utilisation


def least_use(quota: Quota, algorithm: Algorithm) -> float:
    return MIN_USE * min(1.0, quota.share(algorithm))


def turns_before(job: UUID, *, since: object) -> Counter[object]:
    """How many jobs each user of the job's project began after `since` and before it."""
    own = Job.objects.get(pk=job)
    began = Job.objects.filter(project_id=own.project_id, started_at__gt=since, started_at__lt=own.started_at)
    return Counter(began.values_list("user_id", flat=True))
