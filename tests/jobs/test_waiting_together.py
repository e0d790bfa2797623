"""What is told of a job whose lane's other jobs leave together, and of a limit that the provider has slowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobs.lanes import lane_name
from jobs.models import Job
from jobs.services.explain.waiting import explain_waiting
from jobs.states import JobState
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit
from ratelimits.subjects import Subject
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db

WRITE = Subject("google-sheets", "write", "acme", "")


@pytest.fixture(autouse=True)
def two_a_minute() -> Iterator[None]:
    Limit.objects.all().delete()
    Limit.objects.create(name="writes", service="google-sheets", call_type="write", scope="project", capacity=2.0)
    catalogue.forget()
    decide([Call(WRITE)] * 2)
    yield
    catalogue.forget()


def waiting(count: int, **fields: Any) -> list[Job]:
    lane = lane_name(WRITE, project="acme", user="")
    return make_jobs(count, state=JobState.RATE_LIMITED, service="google-sheets", lane=lane, **fields)


def test_a_job_that_leaves_alone_stands_behind_calls_and_not_behind_each_of_their_jobs():
    waiting(30, coalesce_key="sheet")
    [alone] = waiting(1)
    told = explain_waiting(alone)
    assert told is not None
    assert told.position is not None
    assert told.position.ahead == 30
    assert told.forecast is not None
    assert told.forecast.basis.startswith("2 calls at")


def test_a_limit_that_refusals_have_slowed_says_so():
    Counter.objects.update(pressure=0.5, pressure_changed_at="2100-01-01T00:00Z")
    [job] = waiting(1)
    told = explain_waiting(job)
    assert told is not None
    assert told.text == "writes has no room: 0 of 1 requests are free, slowed to 50% by refusals of the provider"
