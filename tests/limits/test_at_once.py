"""`At most N at once`, judged by what is in flight: of claims that race, and at the provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from ratelimits.tuning.concurrency_caps import at_once_of, remove_at_once, set_at_once
from tests.factories import KIND, PAYLOAD, make_project
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.processes import wait_for
from tests.support.racing import at_once
from tests.support.sandbox import Sandbox
from tests.support.saturation import limits_changed

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "test.other"
CLAIMERS = 8
USERS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)]


def submit(count: int, *, project: str = "acme", **fields: Any) -> None:
    make_project(project)
    line = {"kind": KIND, "payload": json.loads(PAYLOAD), **fields}
    submit_batch([json.dumps(line)] * count, project_id=project, actor="key:test")


def cap(at_most: int, **whose: Any) -> int:
    made = set_at_once("acme", at_most, actor="user:1", **whose)
    limits_changed()
    return made.limit_id


def claimed_together(each: int = 5) -> Sequence[Any]:
    """What eight executors claim that race, and what is left for one alone."""
    found: list[Any] = []

    def claim() -> None:
        turns, executor = ClassTurns(), uuid4()
        for _ in range(4):
            found.extend(claim_jobs(executor, wanted=each, lease_seconds=30, turns=turns))

    at_once(*[claim] * CLAIMERS)
    while more := claim_jobs(uuid4(), wanted=each, lease_seconds=30, turns=ClassTurns()):
        found.extend(more)
    return found


def in_flight(**of: Any) -> int:
    return Job.objects.filter(status=JobState.IN_PROGRESS, **of).count()


@pytest.mark.parametrize(
    "whose",
    [
        pytest.param({}, id="the project"),
        pytest.param({"kind": KIND}, id="a kind"),
        pytest.param({"service": "http:127.0.0.1"}, id="a service"),
        pytest.param({"kind": KIND, "service": "http:127.0.0.1"}, id="a kind to a service"),
    ],
)
@pytest.mark.parametrize("comes", ["before", "after"])
def test_executors_that_race_have_never_more_in_flight(whose, comes):
    make_project()
    if comes == "before":
        cap(6, **whose)
    submit(60)
    submit(10, project="beta")
    if comes == "after":
        cap(6, **whose)
    claimed_together()
    assert in_flight(project_id="acme") == 6
    assert in_flight(project_id="beta") == 10
    [shown] = at_once_of("acme")
    assert (shown.used, shown.at_most) == (6, 6)


def test_each_user_has_so_many():
    make_project()
    cap(2, each_user=True)
    for user in USERS:
        submit(10, user_id=user)
    claimed_together()
    assert [in_flight(user_id=user) for user in USERS] == [2, 2, 2, 2]


def test_a_full_kind_stands_before_no_other_kind_whose_lane_it_was_in(monkeypatch):
    """They were put into one lane while no limit counted the kind."""
    from jobs.handlers import registry

    monkeypatch.setitem(registry._handlers, OTHER, registry._handlers[KIND])
    make_project()
    cap(100)  # counts them all, so that they have a lane
    submit(40)
    submit(5)
    others = list(Job.objects.order_by("-id").values_list("pk", flat=True)[:5])
    Job.objects.filter(pk__in=others).update(kind=OTHER)
    assert Job.objects.values("lane").distinct().count() == 1
    cap(3, kind=KIND)
    claimed_together(each=3)
    assert in_flight(kind=KIND) == 3
    assert in_flight(kind=OTHER) == 5


def test_a_raised_cap_and_a_removed_one_let_go_what_waited():
    make_project()
    limit_id = cap(2, kind=KIND)
    submit(20)
    claimed_together()
    assert in_flight() == 2
    assert cap(5, kind=KIND) == limit_id
    claimed_together()
    assert in_flight() == 5
    remove_at_once("acme", limit_id, actor="user:1", reason="the provider can take it")
    limits_changed()
    claimed_together()
    assert in_flight() == 20


def test_the_provider_never_sees_more_than_so_many_at_once(ledger: Ledger, sandbox: Sandbox):
    make_project()
    cap(3, kind=KIND)
    sandbox.turn(latency={"mode": "fixed", "milliseconds": 150})
    url = sandbox.row_url("sheet", "1")
    submit(60, payload={"method": "GET", "url": url})
    with cluster(ledger, executors=3, executor_slots=8) as running:
        running.wait_until_ready()
        wait_for(
            lambda: not Job.objects.exclude(status__in=[JobState.COMPLETED, JobState.FAILED]).exists(),
            seconds=90,
            what="the end of all jobs",
        )
        running.stop()
    counted = sandbox.counters()
    assert (counted["received"], counted["most_in_flight"]) == (60, 3)
