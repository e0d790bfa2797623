"""What is foreseen of large calls and of calls for many jobs, held against the limiter's own decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone

from jobs.lanes import lane_name
from jobs.models import Job
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.park import Parking
from jobs.services.explain.waiting import explain_waiting
from ratelimits.algorithms.admission import State
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.factories import foreseen, make_batch, make_jobs
from tests.ratelimits.one_counter import admit
from tests.support.documents import MAX_TOKENS_OF_A_CALL, MIN_TOKENS, TOKENS_PER_MINUTE
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

CLOSE = 0.15
SIZES = [MIN_TOKENS + round(number * (MAX_TOKENS_OF_A_CALL - MIN_TOKENS) / 19) for number in range(20)]
DOCUMENTS = [SIZES[number * 7 % 20] for number in range(20)]  # in no order
SUBJECT = Subject("google-sheets", "write", "acme", "")
LANE = lane_name(SUBJECT, project="acme", user="")
PER_CALL = 500  # jobs, of the kind's coalescing
CELLS = 3000


@pytest.fixture(autouse=True)
def no_limits(db: None) -> None:
    Limit.objects.all().delete()


def window(**figures: Any) -> Limit:
    given = {"service": "google-sheets", "scope": "project", "algorithm": "sliding_window", "window_seconds": 60}
    made = Limit.objects.create(name="window", **given | figures)
    catalogue.forget()
    return made


def released(limit: Limit, costs: Sequence[float]) -> list[float]:
    """When the limiter lets calls go, one after the other, asked again whenever it says: seconds from the first."""
    [rule] = catalogue.rules()
    algorithm, state, now, times = rule.algorithm("x"), State(), 1000.0, []
    for cost in costs:
        while not (found := admit(algorithm, state, now, [cost])).granted:
            now = found.retry_at or now
        state = found.state
        times.append(now - 1000.0)
    return times


def start_seconds(job: Job) -> float:
    told = explain_waiting(job)
    assert told is not None
    assert told.forecast is not None
    return (told.forecast.starts_at - timezone.now()).total_seconds()


def waiting(costs: Sequence[float], **fields: Any) -> list[Job]:
    jobs = make_jobs(len(costs), service="google-sheets", lane=LANE, **fields)
    for job, cost in zip(jobs, costs, strict=True):
        job.cost = job.known_cost = round(cost)
    Job.objects.bulk_update(jobs, ["cost", "known_cost"])
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk"))


def test_documents_of_more_than_half_a_window_are_foreseen_one_by_one_and_their_batch_with_them():
    limit = window(unit="tokens", capacity=TOKENS_PER_MINUTE)
    times = released(limit, DOCUMENTS)
    batch = make_batch(rate_per_second=1.0)
    jobs = waiting(DOCUMENTS, batch=batch)
    for place in (5, 12, 19):
        assert start_seconds(jobs[place]) == pytest.approx(times[place], rel=CLOSE)
    decide([Call(SUBJECT, cost=TOKENS_PER_MINUTE * 0.6)])  # as when it is under way
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(times[19] + 60, rel=CLOSE)


@pytest.mark.parametrize("sheets", [1, 3])
def test_jobs_that_leave_together_are_foreseen_together(sheets):
    limit = window(capacity=1)
    batch = make_batch(rate_per_second=1.0)
    jobs = waiting([1] * CELLS, batch=batch, kind="google_sheets.values_update")
    for number, job in enumerate(jobs):
        job.coalesce_key = f"sheet-{number % sheets}"
    Job.objects.bulk_update(jobs, ["coalesce_key"], batch_size=1000)
    jobs = list(Job.objects.order_by("pk"))
    calls = sheets * -(-CELLS // sheets // PER_CALL)
    times = released(limit, [1] * calls)
    assert start_seconds(jobs[-1]) == pytest.approx(times[-1], rel=CLOSE)
    assert start_seconds(jobs[CELLS // 2]) == pytest.approx(times[calls // 2], rel=CLOSE)
    decide([Call(SUBJECT)])
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(times[-1] + 61, rel=CLOSE)


def test_the_row_of_a_parked_job_and_every_list_tell_what_its_page_tells():
    limit = window(unit="tokens", capacity=TOKENS_PER_MINUTE)
    decide([Call(SUBJECT, cost=TOKENS_PER_MINUTE)])
    jobs = waiting(DOCUMENTS)
    gate = LaneGate()
    gate.look(wanted=10)
    assert Parking().park(gate.waiting) == len(jobs)
    for place in (0, 10, 19):
        jobs[place].refresh_from_db()
        at = jobs[place].scheduled_at
        assert at is not None
        assert (at - timezone.now()).total_seconds() == pytest.approx(start_seconds(jobs[place]), rel=CLOSE)
    limit.capacity = 2 * TOKENS_PER_MINUTE  # since then, their rows are wrong
    limit.save()
    catalogue.forget()
    client = signed_in("superuser")
    listed = client.get("/api/v1/jobs/?project=acme").json()["results"]
    told = {job["id"]: job["scheduled_at"] for job in listed}
    for place in (0, 19):
        detail = client.get(f"/api/v1/jobs/{jobs[place].pk}/?project=acme").json()
        assert detail["scheduled_at"] == detail["waiting"]["predicted_start_at"]
        seconds = (datetime.fromisoformat(told[str(jobs[place].pk)]) - timezone.now()).total_seconds()
        assert seconds == pytest.approx(start_seconds(jobs[place]), rel=CLOSE, abs=2)
    stored = jobs[19].scheduled_at
    assert stored is not None
    assert (stored - timezone.now()).total_seconds() > 1.5 * start_seconds(jobs[19])


def test_a_burst_s_worth_of_jobs_is_foreseen_as_the_stream_that_it_leaves_in():
    """600 behind 300 a minute that nobody has used: none leaves in a burst, so a whole window more is needed."""
    window(capacity=300)
    batch = make_batch()
    jobs = waiting([1] * 600, batch=batch)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(600 / 300 * 61, rel=CLOSE)
    assert start_seconds(jobs[-1]) == pytest.approx(600 / 300 * 61, rel=CLOSE)
    assert start_seconds(jobs[249]) == pytest.approx(250 / 300 * 61, rel=CLOSE)
