"""kill -9 around a decision: what the dead process had been granted comes back, and nothing comes back twice."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.models import Job
from jobs.states import JobState
from ratelimits.limits import catalogue
from ratelimits.models import Charge, Counter, Limit
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import crashes, database_time, submit, wait_until_drained
from tests.ratelimits.one_counter import gauge
from tests.support.saturation import limits_changed

pytestmark = pytest.mark.usefixtures("transactional_db")

HOUR = 3600.0


def limit_faults(name: str, *, unit: str, capacity: float, **figures: Any) -> Limit:
    """A limit on the kinds of tests.faults.app."""
    shape = {"algorithm": "sliding_window", "window_seconds": HOUR, "scope": "project", **figures}
    limit = Limit.objects.create(name=name, service="faults", unit=unit, capacity=capacity, **shape)
    limits_changed()
    return limit


def used(limit: Limit) -> float:
    """What the limit's one counter says is used now."""
    counter = Counter.objects.get(limit=limit)
    algorithm = catalogue.rule_of(limit).algorithm(counter.key)
    return gauge(algorithm, counter.state, database_time().timestamp()).used


def run(point: str, ledger: Ledger, *, cost: int = 1) -> Job:
    """Carry out one job whose process dies once at that point."""
    submit([{"kind": "faults.write", "payload": {"point": point}, "cost": cost}])
    with cluster(ledger):
        wait_until_drained()
    job = Job.objects.get()
    assert ledger.was_asked(f"{point}-{job.pk}"), "nobody was killed"
    assert job.status == JobState.COMPLETED
    assert len(ledger.entries("effect")) == 1
    return job


def test_a_process_killed_before_its_decision_is_committed_has_used_nothing(ledger: Ledger):
    # With one call an hour, anything that the dead process left behind would stop the job for good.
    calls = limit_faults("calls", unit="requests", capacity=1)
    places = limit_faults("places", unit="in_flight", capacity=1, algorithm="concurrency", lease_seconds=HOUR)
    job = run("in_claim", ledger)
    assert job.crash_count == 0, "nothing had been claimed"
    assert not crashes()
    assert used(calls) == 1
    assert used(places) == 0
    assert not Charge.objects.exists()


@pytest.mark.parametrize("point", ["after_claim", "before_effect"])
def test_what_a_killed_process_held_comes_back_when_its_lease_ends(point, ledger: Ledger):
    tokens = limit_faults("tokens", unit="tokens", capacity=100)
    places = limit_faults("places", unit="in_flight", capacity=1, algorithm="concurrency", lease_seconds=HOUR)
    # Twice 60 do not fit: the second run needs the first one's estimate and its place back.
    job = run(point, ledger, cost=60)
    assert job.crash_count == 1
    assert used(tokens) == 60
    assert used(places) == 0
    assert not Charge.objects.exists()
