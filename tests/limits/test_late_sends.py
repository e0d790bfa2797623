"""Executors that are held up: what they were granted before is not sent after, for the provider would count it then."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from uuid import UUID

import pytest

from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import JobState
from tests.faults.app import handlers  # noqa: F401 - registers the kind that holds up the loop
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox
from tests.support.saturation import KIND, Account, Quota, flood, open_accounts, received, set_limits, set_quota

pytestmark = pytest.mark.django_db(transaction=True)

WINDOW_SECONDS = 2.0
STALL_SECONDS = 4.0
AFTERWARDS = 40  # calls that the provider has to see after a stall's end
SLACK_SECONDS = 1.5  # what its calls may be late by in all; half of it to be sent, half on their way on a busy machine


@pytest.mark.parametrize("stalls", [pytest.param(1, id="short"), pytest.param(3, id="long", marks=pytest.mark.soak)])
def test_a_held_up_executor_sends_nothing_above_the_quota(stalls: int, sandbox: Sandbox, ledger: Ledger, figures):
    quota = Quota("sliding", WINDOW_SECONDS, per_project=80, per_user=80, late_seconds=SLACK_SECONDS)
    users = [Account("acme", f"u{number}") for number in range(3)]
    set_quota(sandbox, quota)
    set_limits(quota, algorithm="sliding_window")
    open_accounts(users, url=sandbox.url)
    flood(users, 300 * stalls)
    with cluster(ledger, executors=2, executor_slots=20):
        wait_for(lambda: received(sandbox) > 0, what="the flood's first call")
        for _ in range(stalls):
            spec = JobSpec(kind="faults.block", payload={"seconds": STALL_SECONDS}, priority="urgent")
            job = submit_job(spec, project_id="acme", actor="key:flood")
            wait_for(partial(_has_ended, job.id), what="the stall's end")
            wait_for(partial(_has_sent, sandbox, received(sandbox) + AFTERWARDS), what="what leaves after it")
        calls = sandbox.calls()
    refused = [call for call in calls if call["cause"] == "provider_quota"]
    gap = max(later["at"] - sooner["at"] for sooner, later in pairwise(calls))
    figures(f"{len(calls)} calls, {len(refused)} above the quota; longest gap {gap:.1f} s")
    assert refused == []
    writes = Job.objects.filter(kind=KIND)
    assert not writes.filter(retry_count__gt=0).exists()
    assert not writes.filter(status=JobState.FAILED).exists()


def _has_ended(job_id: UUID) -> bool:
    return Job.objects.filter(pk=job_id, status=JobState.COMPLETED).exists()


def _has_sent(sandbox: Sandbox, calls: int) -> bool:
    return received(sandbox) >= calls
