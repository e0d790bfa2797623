"""The largest and the smallest figures that limits and weights may have: whoever sets them stops nobody's work."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from jobs.features.watches.watch import tend_alerts
from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.upkeep.batches import foresee_batches
from queueops.tenancy.models import Project
from ratelimits.limits import catalogue
from ratelimits.limits.validation import LARGEST, MAX_FIGURE_SECONDS
from ratelimits.models import Limit
from ratelimits.tuning.limits import create_limit
from tests.api.conftest import ALL_SCOPES, Api, key_for
from tests.factories import SERVICE, make_batch, make_job, make_project

pytestmark = pytest.mark.django_db(transaction=True)

MAX_COST_OF_A_JOB = 2_000_000_000
SLOWEST = 0.000001  # calls or tokens a second, by the model's rule

# The figures of a limit, and another project's own, which its key with the scope `limits` may set.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a window of requests": ({"capacity": 10, "window_seconds": 60}, {"capacity": LARGEST}),
    "a year of requests": ({"capacity": LARGEST, "window_seconds": MAX_FIGURE_SECONDS}, {"capacity": 1}),
    "a bucket that hardly fills": (
        {"algorithm": "token_bucket", "unit": "tokens", "capacity": MAX_COST_OF_A_JOB, "refill_per_second": 1},
        {"capacity": MAX_COST_OF_A_JOB, "refill_per_second": SLOWEST},
    ),
    "a bucket that fills at once": (
        {"algorithm": "token_bucket", "unit": "tokens", "capacity": LARGEST, "refill_per_second": LARGEST},
        {"capacity": LARGEST, "refill_per_second": SLOWEST},
    ),
    "calls in flight": (
        {"algorithm": "concurrency", "unit": "in_flight", "capacity": LARGEST, "lease_seconds": MAX_FIGURE_SECONDS},
        {"capacity": LARGEST},
    ),
}


def claimed() -> int:
    return len(claim_jobs(uuid4(), wanted=50, lease_seconds=30, turns=ClassTurns()))


@pytest.mark.parametrize("case", CASES)
def test_figures_of_one_project_hold_up_no_other_and_every_page_can_be_read(case: str, admin_client: Client):
    figures, own = CASES[case]
    make_project("globex")
    saved = create_limit({"name": "hot", "service": SERVICE, "scope": "project", **figures}, actor="user:1")
    api = Api(key_for("acme", scopes=ALL_SCOPES))
    assert api.post(f"/limits/{saved.limit_id}/overrides/", {"key": "project:acme", **own}).status_code == 200
    catalogue.forget()
    batch = make_batch()
    jobs = [make_job(cost=MAX_COST_OF_A_JOB, batch=batch) for _ in range(3)]
    other = make_job(project="globex")
    while claimed():
        pass
    assert Job.objects.get(pk=other.pk).status == "in_progress"
    tend_alerts()
    foresee_batches()
    call = {"service": SERVICE, "call_type": "write", "cost": MAX_COST_OF_A_JOB}
    assert api.post("/ratelimits/decide", {"calls": [call] * 3}).status_code == 200
    for path in ("/jobs/", *(f"/jobs/{job.pk}/" for job in jobs), f"/batches/{batch.pk}/", "/limits/"):
        assert api.get(path).status_code == 200, path
    limit = Limit.objects.get()
    for path in ("", f"jobs/job/{jobs[-1].pk}/change/", f"jobs/batch/{batch.pk}/change/", "ratelimits/counter/"):
        assert admin_client.get(f"/admin/{path}").status_code == 200, path
    for path in ("ratelimits/limit/", f"ratelimits/limit/{limit.pk}/change/"):
        assert admin_client.get(f"/admin/{path}").status_code == 200, path


@pytest.mark.parametrize("weight", [0.01, 1e30, 1e300])
def test_a_project_of_any_weight_has_its_turns(weight: float):
    for project in ("acme", "globex"):
        make_project(project)
        for _ in range(3):
            make_job(project=project)
    Project.objects.filter(pk="acme").update(weight=weight)
    turns = ClassTurns()
    for _ in range(6):
        assert len(claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=turns)) == 1
