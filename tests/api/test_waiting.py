"""What a producer is told of waiting work."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from jobs.lanes import lane_name
from jobs.models import Executor, Job
from jobs.services.operate.pauses import pause_scope
from jobs.services.upkeep.batches import foresee_batches
from jobs.states import JobState
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.api.conftest import Api, key_for
from tests.factories import make_batch, make_job, make_jobs

SHEETS = Subject("google-sheets", "write", "acme")


@pytest.fixture(autouse=True)
def one_write_every_ten_seconds(db: None) -> Iterator[None]:
    """A limit that has just been used up, and a worker with free slots."""
    Limit.objects.all().delete()
    Limit.objects.create(
        name="writes",
        service=SHEETS.service,
        call_type="write",
        algorithm="token_bucket",
        capacity=1,
        refill_per_second=0.1,  # so slow that the seconds a test takes don't matter
    )
    catalogue.forget()
    decide([Call(SHEETS)])
    Executor.objects.create(host="worker-1", pid=1, process_started_at=0, cluster_pid=1, slots=9, loop_lag_ms=1)
    yield
    catalogue.forget()


def limited(count: int, **fields: Any) -> list[Job]:
    lane = lane_name(SHEETS, project="acme", user="")
    return make_jobs(count, service=SHEETS.service, lane=lane, **fields)


def test_a_limited_job_says_what_binds_it_where_it_stands_and_when_to_ask_again(api):
    jobs = limited(20, state=JobState.RATE_LIMITED)
    response = api.get(f"/jobs/{jobs[19].pk}/")
    answer = response.json()
    waiting = answer["waiting"]
    limit, turn = waiting["reasons"]
    assert (limit["code"], limit["limit"], limit["key"], limit["unit"]) == (
        "limit",
        "writes",
        "project:acme",
        "requests",
    )
    assert (limit["needed"], limit["capacity"]) == (1.0, 1.0)
    assert turn["code"] == "turn"
    assert (waiting["position"], waiting["position_is_exact"]) == (20, True)
    assert sum(waiting["ahead"].values()) == 19
    assert waiting["forecast"] == "20 calls at 0.1 a second of writes"
    assert datetime.fromisoformat(limit["free_at"]) <= datetime.fromisoformat(waiting["predicted_start_at"])
    assert answer["waiting_for"] == limit["text"]
    assert answer["eta"] is None  # the time of its end, which nobody knows
    assert int(response["Retry-After"]) == pytest.approx(200, abs=9)


def test_a_job_that_runs_or_has_ended_waits_for_nothing(api):
    for state in (JobState.IN_PROGRESS, JobState.COMPLETED):
        answer = api.get(f"/jobs/{make_job(state=state).pk}/").json()
        assert (answer["waiting"], answer["waiting_for"]) == (None, None)


def test_a_job_outside_lanes_has_a_reason_and_no_position(api):
    waiting = api.get(f"/jobs/{make_job().pk}/").json()["waiting"]
    assert [reason["code"] for reason in waiting["reasons"]] == ["turn"]
    assert (waiting["position"], waiting["ahead"], waiting["predicted_start_at"]) == (None, None, None)


def test_a_batch_says_when_its_limits_let_it_end_and_when_to_ask_again(api):
    batch = make_batch()
    limited(20, batch=batch)
    foresee_batches()
    response = api.get(f"/batches/{batch.pk}/")
    answer = response.json()
    left = datetime.fromisoformat(answer["eta"]).timestamp() - datetime.fromisoformat(answer["created_at"]).timestamp()
    assert left == pytest.approx(200, abs=9)
    assert int(response["Retry-After"]) == pytest.approx(200, abs=9)


def test_a_list_of_batches_reads_no_limits(api, django_assert_max_num_queries):
    for _ in range(5):
        limited(2, batch=make_batch())
    api.get("/batches/")
    with django_assert_max_num_queries(9):
        answer = api.get("/batches/").json()
    assert len(answer["results"]) == 5


def test_a_batch_says_what_holds_it_those_with_the_most_jobs_first(api):
    batch = make_batch()
    limited(5, batch=batch, state=JobState.RATE_LIMITED)
    make_jobs(2, batch=batch)
    limits, turn = api.get(f"/batches/{batch.pk}/waiting/").json()["results"]
    assert (limits["user"], limits["jobs"], limits["more"]) == ("", 5, False)
    assert limits["reasons"][0]["limit"] == "writes"
    assert datetime.fromisoformat(limits["last_starts_at"]) > datetime.fromisoformat(limits["reasons"][0]["free_at"])
    assert (turn["jobs"], [reason["code"] for reason in turn["reasons"]]) == (2, ["turn"])


def test_a_paused_batch_says_so_and_one_that_has_ended_is_held_by_nothing(api):
    batch, ended = make_batch(), make_batch()
    make_jobs(2, batch=batch)
    make_job(batch=ended, state=JobState.COMPLETED)
    pause_scope("project", "acme", actor="user:1", reason="a release")
    [lane] = api.get(f"/batches/{batch.pk}/waiting/").json()["results"]
    assert lane["reasons"][0]["text"] == "project acme is paused: a release"
    assert api.get(f"/batches/{ended.pk}/waiting/").json() == {"results": []}


def test_nobody_learns_what_holds_a_batch_of_another_project(api):
    batch = make_batch()
    make_job(batch=batch)
    assert api.get(f"/batches/{batch.pk}/waiting/").status_code == 200
    assert Api(key_for("other")).get(f"/batches/{batch.pk}/waiting/").json()["error"]["code"] == "not_found"
