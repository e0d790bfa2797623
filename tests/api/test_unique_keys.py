"""Unique keys and debounce over the API, and on the job's page."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from jobs.models import JobEvent
from tests.api.conftest import SPEC, Api, error_of
from tests.support.people import signed_in

KEYED = {**SPEC, "unique_key": "rows"}


def test_a_second_submission_is_answered_with_the_job_there_is(api: Api):
    first = api.post("/jobs/", KEYED)
    assert (first.status_code, first.json()["outcome"]) == (201, "created")
    second = api.post("/jobs/", {**KEYED, "priority": "low"})
    assert second.status_code == 200
    assert second.json() == {**first.json(), "created": False, "outcome": "pending"}
    replaced = api.post("/jobs/", {**KEYED, "priority": "low", "if_pending": "replace"})
    assert (replaced.status_code, replaced.json()["outcome"]) == (200, "replaced")
    told = api.get(f"/jobs/{first.json()['id']}/").json()
    assert (told["unique_key"], told["priority"]) == ("rows", "low")
    again = api.post("/jobs/", {**SPEC, "idempotency_key": "i"}), api.post("/jobs/", {**SPEC, "idempotency_key": "i"})
    assert [one.json()["outcome"] for one in again] == ["created", "duplicate"]


@pytest.mark.parametrize("as_lines", [False, True])
def test_a_batch_counts_what_met_its_key(api: Api, as_lines: bool):
    api.post("/jobs/", KEYED)
    jobs = [KEYED, {**KEYED, "if_pending": "replace"}, {**KEYED, "unique_key": "other"}, SPEC]
    if as_lines:
        told = api.lines("\n".join(map(json.dumps, jobs))).json()
    else:
        told = api.post("/batches/", {"jobs": jobs}).json()
    assert (told["accepted"], told["pending"], told["replaced"], told["duplicates"]) == (2, 2, 1, 0)


def test_a_repeated_request_gets_the_first_answer_also_when_it_debounced(api: Api):
    body = {**KEYED, "debounce_seconds": 60}
    first, second = (api.post("/jobs/", body, Idempotency_Key="one") for _ in range(2))
    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert JobEvent.objects.filter(job_id=first.json()["id"]).count() == 1


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"unique_key": ""}, "unique_key"),
        ({"unique_in": "world"}, "unique_in"),
        ({"if_pending": "?"}, "if_pending"),
        ({"debounce_seconds": -1}, "debounce_seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_field(api: Api, fields: dict[str, object], place: str):
    assert place in error_of(api.post("/jobs/", {**KEYED, **fields}), 422)["fields"]


def test_a_key_that_is_another_users_is_refused(api: Api):
    api.post("/jobs/", {**KEYED, "user_id": "5f9c1c5e-3b52-4b4f-9a1f-3f0c5d1f8a11"})
    refused = error_of(api.post("/jobs/", KEYED), 422)
    assert (refused["code"], set(refused["fields"])) == ("unique_key_taken", {"unique_key"})


def test_the_page_of_a_job_shows_its_key_and_how_long_it_is_put_off(api: Api):
    job = api.post("/jobs/", {**KEYED, "debounce_seconds": 60}).json()["id"]
    api.post("/jobs/", {**KEYED, "debounce_seconds": 60})
    page = signed_in("operator").get(reverse("admin:jobs_job_change", args=[job])).content.decode()
    assert "Unique key" in page
    assert "Put off until at most" in page
    assert "work of a later submission" in page
