"""A lane is crowded when more waits in it than a window admits: in calls, or in tokens by what its jobs cost."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.services.explain.queues import crowded_lanes
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import Project
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db


@every_case(
    ("limits", "is_crowded"),
    [
        ({"requests": 10}, False),
        ({"requests": 9}, True),
        ({"tokens": 1000}, False),
        ({"tokens": 900}, True),
        ({"requests": 100, "input_tokens": 900}, True),
        ({"requests": 9, "input_tokens": 100_000}, True),
    ],
    undone=True,
)
def test_a_lane_is_crowded_by_calls_or_by_tokens(limits, is_crowded):
    Limit.objects.all().delete()
    for unit, capacity in limits.items():
        Limit.objects.create(name=unit.replace("_", "-"), service="http:example.org", unit=unit, capacity=capacity)
    catalogue.forget()
    Project.objects.create(pk="acme", name="acme")
    line = {"kind": "http.request", "payload": {"method": "GET", "url": "https://example.org/"}, "cost": 100}
    submit_batch([line] * 10, project_id="acme", actor="key:test")
    [lane] = {job.lane or "" for job in Job.objects.all()}
    assert crowded_lanes([lane]) == ({lane} if is_crowded else set())
