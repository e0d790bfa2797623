"""A producer's own page of a job: what it shows, whose, and requeueing from it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.models import DeadLetter, Job
from jobs.services.operate.pauses import pause_scope
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import ProducerKey
from tests.factories import make_dead_letters, make_job, make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


def producer(project: str = "acme", scopes: tuple[str, ...] = ("read", "operate")) -> Client:
    """A browser that is signed in with a key."""
    client = Client()
    key = ProducerKey.issue(make_project(project), name="nightly import", scopes=list(scopes))[1]
    assert client.post("/me/sign-in", {"key": key}).status_code == 302
    return client


def shown(client: Client, job: Job) -> dict[str, Any]:
    answer = client.get(f"/live/me/jobs/{job.pk}.json")
    assert answer.status_code == 200
    return dict(answer.json()["data"])


def test_it_shows_how_a_job_is_what_it_waits_for_and_what_came_of_it():
    client = producer()
    waits, done = make_job(), make_job(state=JobState.COMPLETED, result={"row": 7})
    pause_scope("project", "acme", actor="user:1", reason="a release")
    assert client.get(f"/me/jobs/{waits.pk}/").status_code == 200
    data = shown(client, waits)
    assert data["job"]["waiting"]["reasons"][0]["text"] == "project acme is paused: a release"
    assert (data["letter"], data["requeued_as"]) == (None, [])
    assert [event["to"] for event in data["events"]] == ["queued"]
    assert shown(client, done)["job"]["result"] == {"row": 7}


def test_another_projects_job_is_none():
    theirs = make_job(project="globex")
    [letter] = make_dead_letters(1, project="globex")
    client = producer()
    assert client.get(f"/me/jobs/{theirs.pk}/").status_code == 404
    assert client.get(f"/live/me/jobs/{theirs.pk}.json").status_code == 404
    assert client.post(f"/live/me/jobs/{letter.job_id}/requeue").status_code == 409
    assert not DeadLetter.objects.exclude(resolution=None).exists()


def test_whoever_is_not_signed_in_sees_nothing():
    job = make_job()
    assert Client().get(f"/me/jobs/{job.pk}/").headers["Location"] == f"/me/?job={job.pk}"
    assert Client().get(f"/live/me/jobs/{job.pk}.json").status_code == 401
    assert Client().post(f"/live/me/jobs/{job.pk}/requeue").status_code == 401


@every_case(
    ("asked", "place"), [("{id}", "/me/jobs/{id}/"), ("", "/me/"), ("//evil.test", "/me/"), ("\0", "/me/")], undone=True
)
def test_signing_in_leads_to_the_job_that_was_asked_for(asked: str, place: str):
    job, client = make_job(), Client()
    assert asked.format(id=job.pk).encode().strip(b"\0") in client.get("/me/", {"job": asked.format(id=job.pk)}).content
    key = ProducerKey.issue(make_project("acme"), name="nightly import")[1]
    answer = client.post("/me/sign-in", {"key": key, "job": asked.format(id=job.pk)})
    assert answer.headers.get("Location", "/me/") == place.format(id=job.pk)


def test_a_producer_requeues_its_dead_letter_once_and_finds_the_new_job():
    [letter] = make_dead_letters(1)
    client, address = producer(), f"/live/me/jobs/{letter.job_id}/requeue"
    new = client.post(address).json()["id"]
    data = shown(client, letter.job)
    assert (data["letter"]["resolution"], data["requeued_as"]) == ("requeued", [new])
    assert AuditEntry.objects.get(action="requeue_dead_letters").actor.startswith("key:qo_")
    again = client.post(address)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "wrong_state")


@pytest.mark.parametrize(("role", "status"), [("operator", 200), ("viewer", 403)])
def test_staff_see_it_as_producers_do_and_requeue_with_their_own_permission(role: str, status: int):
    [letter] = make_dead_letters(1)
    client = signed_in(role)
    page = client.get(f"/me/jobs/{letter.job_id}/?project=acme")
    assert (b"/requeue" in page.content) is (status == 200)
    assert client.post(f"/live/me/jobs/{letter.job_id}/requeue?project=acme").status_code == status


def test_a_key_that_may_only_read_is_told_what_it_lacks():
    [letter] = make_dead_letters(1)
    client = producer(scopes=("read",))
    assert b"/requeue" not in client.get(f"/me/jobs/{letter.job_id}/").content
    refused = client.post(f"/live/me/jobs/{letter.job_id}/requeue")
    assert (refused.status_code, "operate" in refused.json()["error"]["message"]) == (403, True)


def test_a_requeue_needs_the_pages_own_token():
    [letter] = make_dead_letters(1)
    checked = Client(enforce_csrf_checks=True)
    assert checked.post(f"/live/me/jobs/{letter.job_id}/requeue").status_code == 403
    assert DeadLetter.objects.open().count() == 1


def test_secrets_of_a_payload_are_masked_as_on_every_page():
    job = make_job(payload='{"method": "GET", "url": "https://a.test/", "headers": {"Authorization": "Bearer abc"}}')
    for client in (producer(), signed_in("viewer")):
        told = client.get(f"/live/me/jobs/{job.pk}.json").content.decode()
        assert "a.test" in told
        assert "Bearer abc" not in told
