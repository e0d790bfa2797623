"""A flood at a provider's quota in every window mode; what happened is judged from the provider's ledger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
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

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("transactional_db")]

# Short windows in which lateness weighs much: the figures of a minute are bench.saturation's to show.
WINDOW_SECONDS = 4.0
PER_PROJECT = 100
PER_USER = 20
LATE_SECONDS = 0.5
JOBS = 450  # a mode: more than the quota of four windows
USERS = 20  # a mode: enough that a turn of them all takes as long as an executor may take to list its lanes
LEAST_USE = 0.75  # of what the limits let through; a busy machine is late with the next claim
MOST_TURNS = 5  # of each other user, until every executor has noticed a new one; JOBS / USERS would be the backlog
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
        wait_until_saturated(providers.values())
        until = time.time()
    for mode, sandbox in providers.items():
        judgement = judge(sandbox.calls(), QUOTAS[mode], until=until)
        jobs = Job.objects.filter(project=mode)
        totals = jobs.aggregate(deferrals=Avg("deferral_count"), retries=Max("retry_count"))
        figures(
            f"{mode} windows: {judgement.calls:,} calls, {judgement.above_quota} above the quota, "
            f"{judgement.utilisation:.1%} of it used, {totals['deferrals']:.2f} deferrals a job"
        )
        assert judgement.above_quota == 0
        assert judgement.utilisation >= LEAST_USE * min(1.0, QUOTAS[mode].share(algorithm))
        assert totals["deferrals"] <= 1.5
        assert totals["retries"] == 0
        assert not jobs.filter(status=JobState.FAILED).exists()
        turns = turns_before(singles[mode], since=asked_at)
        assert max(turns.values(), default=0) <= MOST_TURNS


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


def wait_until_saturated(providers: Iterable[Sandbox]) -> None:
    """Wait until three windows and a bit have passed since every provider's first call."""
    begun = max(sandbox.calls()[0]["at"] for sandbox in providers)
    span = 3.2 * WINDOW_SECONDS
    wait_for(lambda: time.time() > begun + span, seconds=2 * span, what="three windows")


def turns_before(job: UUID, *, since: object) -> Counter[object]:
    """How many jobs each user of the job's project began after `since` and before it."""
    own = Job.objects.get(pk=job)
    began = Job.objects.filter(project_id=own.project_id, started_at__gt=since, started_at__lt=own.started_at)
    return Counter(began.values_list("user_id", flat=True))
