"""What a limit keeps back: parked once, in its lane, and free as soon as there is room; and what never fits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.postgres.functions import TransactionNow as DbNow
from django.db import connection

from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.claim.claim import promote_due
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.park import Parking, rest_seconds
from jobs.services.operate import job_actions, pauses
from jobs.services.upkeep import upkeep
from jobs.states import JobState, Priority
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit
from ratelimits.tuning.limits import delete_limit, update_limit
from tests.jobs import merging
from tests.jobs.merging import ALONE, claim, submit
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    merging.declare(monkeypatch)


@pytest.fixture(autouse=True)
def limit(db: None) -> Iterator[Limit]:
    """One call a minute for each project."""
    Limit.objects.all().delete()
    made = Limit.objects.create(name="limit", service="svc", capacity=1)
    catalogue.forget()
    yield made
    catalogue.forget()


def jobs(count: int, **fields: Any) -> list[Job]:
    return [submit(kind=ALONE, **fields) for _ in range(count)]


def park() -> int:
    gate = LaneGate()
    gate.look(wanted=10)
    return Parking().park(gate.waiting)


def full_and_parked(count: int = 3) -> list[Job]:
    """The limit's one call is under way, and these wait for the next."""
    jobs(1)
    assert len(claim()) == 1
    parked = jobs(count)
    assert park() == count
    return parked


def claimed_ids() -> list[Any]:
    return [job.id for job in claim()]


def widen(capacity: float = 2) -> None:
    Limit.objects.update(capacity=capacity)
    catalogue.forget()


# In the claim


def test_what_a_claim_meets_and_a_limit_refuses_is_parked_with_one_deferral(limit):
    Limit.objects.update(unit="tokens", capacity=100)
    catalogue.forget()
    first, second = jobs(2, spec={"cost": 60})
    assert claimed_ids() == [first.pk]
    assert claim() == []
    second.refresh_from_db()
    assert (second.status, second.deferral_count, second.retry_count) == (JobState.RATE_LIMITED, 1, 0)
    event = JobEvent.objects.get(job_id=second.pk, event_type="scheduling")
    figures = {"operation": "rate_limit_check", "binding_limit": "limit", "estimated_cost": 60, "available": 40}
    assert event.data is not None
    assert figures.items() <= event.data.items()
    assert event.data["delay_seconds"] > 60


def test_a_job_queued_before_there_was_a_limit_is_held_back_too_and_gets_its_lane(limit):
    Limit.objects.all().delete()
    catalogue.forget()
    first, second = jobs(2)
    assert first.lane is None
    Limit.objects.create(name="late", service="svc", capacity=1)
    catalogue.forget()
    assert claimed_ids() == [first.pk]
    second.refresh_from_db()
    assert (second.status, second.lane) == (JobState.RATE_LIMITED, "svc/write//acme//acme/")
    widen()
    assert claimed_ids() == [second.pk]


def test_jobs_queued_before_there_was_a_limit_are_adopted_by_its_lanes_in_bounded_statements():
    Limit.objects.all().delete()
    catalogue.forget()
    early = jobs(5)
    Limit.objects.create(name="late", service="svc", capacity=1)
    catalogue.forget()
    parking = Parking()
    assert [parking.adopt(most=2) for _ in range(4)] == [2, 2, 0, 0]
    assert set(Job.objects.filter(pk__in=[job.pk for job in early]).values_list("lane", flat=True)) == {
        "svc/write//acme//acme/"
    }


@every_case("how", ["claim", "park"], undone=True)
def test_what_can_never_fit_is_a_dead_letter_with_the_limits_reason(limit, how):
    if how == "park":
        jobs(1)
        claim()
    tokens = {"name": "tokens", "service": "svc", "unit": "tokens", "capacity": 100}
    Limit.objects.create(**tokens)
    catalogue.forget()
    large = submit(kind=ALONE, spec={"cost": 101})
    if how == "claim":
        assert claim() == []
    else:
        park()
    large.refresh_from_db()
    assert (large.status, large.last_error_code) == (JobState.FAILED, "limit_rejected")
    [letter] = DeadLetter.objects.all()
    assert letter.error_message == "tokens: the cost of 101 is above the limit's capacity of 100"


# Parked


def test_parking_forecasts_one_after_the_other_at_the_limits_pace_and_parks_each_once():
    parked = full_and_parked(3)
    assert park() == 0
    rows = Job.objects.filter(pk__in=[job.pk for job in parked]).order_by("pk")
    times = [job.scheduled_at for job in rows if job.scheduled_at is not None]
    assert [job.status for job in rows] == [JobState.RATE_LIMITED] * 3
    assert [(later - sooner).total_seconds() for sooner, later in pairwise(times)] == [61, 61]
    assert set(rows.values_list("deferral_count", flat=True)) == {1}
    event = JobEvent.objects.get(job_id=parked[0].pk, event_type="scheduling")
    assert event.data is not None
    assert (event.data["operation"], event.data["binding_limit"]) == ("rate_limit_schedule", "limit")


@every_case(("how", "operation"), [("claim", "rate_limit_check"), ("park", "rate_limit_schedule")], undone=True)
def test_one_event_says_what_a_kept_back_job_needs_of_each_unit_and_what_there_was(limit, how, operation):
    Limit.objects.create(name="tokens", service="svc", unit="tokens", capacity=100)
    catalogue.forget()
    jobs(1, spec={"cost": 60})
    if how == "park":  # no request is left; a claim that sees room for one is refused for its tokens
        claim()
    else:
        Limit.objects.filter(name="limit").update(capacity=5)
        catalogue.forget()
        claim()
    [later] = jobs(1, spec={"cost": 50})
    if how == "park":
        park()
    else:
        claim()
    [event] = JobEvent.objects.filter(job_id=later.pk, data__has_key="operation")
    assert event.event_type == "scheduling"
    assert event.data is not None
    assert event.data["operation"] == operation
    requests = {"estimated_cost": 1.0, "available": 0.0 if how == "park" else 4.0}
    assert event.data["units"] == {"requests": requests, "tokens": {"estimated_cost": 50.0, "available": 40.0}}
    later.refresh_from_db()
    assert later.scheduled_at is not None
    assert datetime.fromisoformat(event.data["scheduled_at"]) == later.scheduled_at
    seconds = (later.scheduled_at - event.created_at).total_seconds()
    assert event.data["delay_seconds"] == pytest.approx(seconds, abs=0.001)
    unit = event.data["unit"]
    assert event.data["binding_limit"] == {"requests": "limit", "tokens": "tokens"}[unit]
    assert {name: event.data[name] for name in ("estimated_cost", "available")} == event.data["units"][unit]


def test_a_forecast_does_not_release_a_parked_job_without_room():
    parked = full_and_parked(1)
    Job.objects.filter(pk=parked[0].pk).update(scheduled_at=DbNow() - timedelta(seconds=1))
    assert promote_due()[0] == 0
    assert claim() == []


@every_case("change", ["raise", "delete", "disable", "shadow", "clear"], undone=True)
def test_a_limit_that_gives_way_frees_what_it_held_back_at_once(limit, change):
    parked = full_and_parked(1)
    match change:
        case "raise":
            update_limit(limit.pk, {"capacity": 5}, actor="user:1")
        case "delete":
            delete_limit(limit.pk, actor="user:1", reason="x")
        case "disable":
            update_limit(limit.pk, {"enabled": False}, actor="user:1")
        case "shadow":
            update_limit(limit.pk, {"shadow": True}, actor="user:1")
        case "clear":
            Counter.objects.update(state={})
    assert claimed_ids() == [parked[0].pk]


def test_a_parked_job_whose_priority_is_raised_goes_first():
    parked = full_and_parked(3)
    assert job_actions.change_priority([parked[2].pk], priority=Priority.URGENT, actor="user:1").moved == [parked[2].pk]
    widen()
    assert claimed_ids() == [parked[2].pk]


def test_a_cancelled_parked_job_makes_way_for_the_next():
    parked = full_and_parked(2)
    assert job_actions.cancel_jobs([parked[0].pk], actor="user:1", reason="x").moved == [parked[0].pk]
    widen()
    assert claimed_ids() == [parked[1].pk]


def test_an_expired_parked_job_fails_and_is_never_sent():
    parked = full_and_parked(2)
    Job.objects.filter(pk=parked[0].pk).update(expires_at=DbNow() - timedelta(seconds=1))
    assert upkeep.expire_waiting() == 1
    widen()
    assert claimed_ids() == [parked[1].pk]
    parked[0].refresh_from_db()
    assert (parked[0].status, parked[0].last_error_code) == (JobState.FAILED, "expired")


@every_case("delay", [0, 3600], undone=True)
def test_a_parked_job_that_is_given_a_time_goes_by_it_and_not_by_its_lane(delay):
    parked = full_and_parked(1)
    widen()
    job_actions.schedule_jobs([parked[0].pk], delay=timedelta(seconds=delay), actor="user:1")
    assert claimed_ids() == ([] if delay else [parked[0].pk])
    if delay:
        Job.objects.filter(pk=parked[0].pk).update(scheduled_at=DbNow())
        assert promote_due()[0] == 1
        assert claimed_ids() == [parked[0].pk]


@every_case(("scope", "key"), [("service", "svc"), ("kind", ALONE), ("project", "acme"), ("global", "")], undone=True)
def test_parked_jobs_stay_while_paused_and_go_when_resumed(scope, key):
    parked = full_and_parked(2)
    pauses.pause_scope(scope, key, actor="user:1")
    widen(9)
    assert claim() == []
    pauses.resume_scope(scope, key, actor="user:1")
    assert claimed_ids() == [job.pk for job in parked]


def test_parking_rests_many_times_as_long_as_a_part_takes_and_the_longer_the_slower_it_gets():
    assert rest_seconds(0.01) == pytest.approx(0.19)
    assert rest_seconds(0.05) == pytest.approx(0.95)
    assert rest_seconds(60) == 1


def test_what_is_parked_is_durable_before_others_see_it():
    """Of a crash that took events back which the relay has read, the relay would say that the database was put back."""
    full_and_parked()
    assert commits_wait() == "on"  # to the end of the transaction, which is the test's


def commits_wait() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        [found] = cursor.fetchone()
    return str(found)
