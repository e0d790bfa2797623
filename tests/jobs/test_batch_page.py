"""The batch's page: what holds it, why its jobs failed, and both narrowed to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from jobs.features.forecast import reasons
from jobs.features.forecast.reasons import holds_of_batch
from jobs.lanes import lane_name
from jobs.models import Batch, ServiceBreaker
from jobs.services.operate.pauses import pause_scope
from jobs.states import JobState
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.factories import make_batch, make_dead_letters, make_jobs
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

CAUSES = reverse("admin:jobs_deadletter_groups")


@pytest.fixture
def limit(db: None) -> Iterator[Limit]:
    Limit.objects.all().delete()
    made = Limit.objects.create(name="slow-writes", service="google-sheets", capacity=2, scope="project")
    catalogue.forget()
    yield made
    catalogue.forget()


def limited(count: int, batch: Batch, user: str = "") -> None:
    subject = Subject("google-sheets", "write", "acme", user)
    lane = lane_name(subject, project="acme", user=user)
    make_jobs(count, service="google-sheets", lane=lane, batch=batch)


def page_of(batch: Batch, role: str = "operator") -> str:
    answer: Any = signed_in(role).get(reverse("admin:jobs_batch_change", args=[batch.pk]))
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_it_says_what_holds_it_lane_by_lane_with_a_link_to_the_limit(limit: Limit):
    decide([Call(Subject("google-sheets", "write", "acme", ""))] * 2)
    batch = make_batch()
    users = [str(uuid4()), str(uuid4())]
    for count, user in ((3, users[0]), (5, users[1])):
        limited(count, batch, user)
    holds = holds_of_batch(batch.pk)
    assert [(hold.user, hold.jobs, hold.more) for hold in holds] == [(users[1], 5, False), (users[0], 3, False)]
    assert all(hold.last_starts_at for hold in holds)
    page = page_of(batch)
    assert "What holds it" in page
    assert "slow-writes" in page
    assert reverse("admin:ratelimits_limit_change", args=[limit.pk]) in page


def test_pauses_and_outages_are_told_there_too():
    batch = make_batch()
    make_jobs(2, batch=batch)
    pause_scope("project", "acme", actor="user:1", reason="a release")
    assert "a release" in page_of(batch)
    held = make_batch()
    jobs = make_jobs(2, batch=held, state=JobState.RATE_LIMITED)
    ServiceBreaker.objects.create(service=jobs[0].service, project_id="acme", opened_at="2026-01-01T00:00Z")
    assert "does not answer" in page_of(held)


def test_what_is_free_to_go_and_what_has_ended_is_held_by_nothing():
    batch = make_batch()
    make_jobs(2, batch=batch)
    make_jobs(3, batch=batch, state=JobState.COMPLETED)
    [hold] = holds_of_batch(batch.pk)
    assert (hold.user, hold.jobs) == ("", 2)
    Batch.objects.filter(pk=batch.pk).update(finished_at="2026-01-01T00:00Z")
    assert "What holds it" not in page_of(batch)


def test_of_a_large_batch_every_lane_is_told_with_the_exact_number_of_its_jobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jobs.features.forecast.forecast.MAX_OF_A_BATCH_SAMPLED", 10)
    batch = make_batch()
    users = [str(uuid4()), str(uuid4())]
    for count, user in ((20, users[0]), (35, users[1])):
        limited(count, batch, user)
    assert [(hold.user, hold.jobs, hold.more) for hold in holds_of_batch(batch.pk)] == [
        (users[1], 35, False),
        (users[0], 20, False),
    ]
    assert "&gt; " not in page_of(batch)
    monkeypatch.setattr(reasons, "MAX_OF_A_BATCH_COUNTED", 30)
    assert all(hold.more for hold in holds_of_batch(batch.pk))


def test_its_causes_stand_on_it_with_their_verbs_and_lead_to_its_own_letters():
    batch = make_batch()
    make_dead_letters(3, batch=batch, error_code="sheet_gone", fingerprint="a" * 16)
    make_dead_letters(2, error_code="elsewhere", fingerprint="b" * 16)
    page = page_of(batch)
    assert "sheet_gone" in page
    assert "elsewhere" not in page
    all_of_it = f"{reverse('admin:jobs_deadletter_all_requeue')}?batch_id={batch.pk}&amp;fingerprint={'a' * 16}"
    assert all_of_it in page
    assert "Requeue all" not in page_of(batch, "viewer")
    narrowed = signed_in("operator").get(CAUSES, {"batch_id": str(batch.pk)}).content.decode()
    assert "sheet_gone" in narrowed
    assert "elsewhere" not in narrowed


def test_causes_are_narrowed_to_a_project_and_say_so():
    make_dead_letters(1, error_code="ours", fingerprint="a" * 16)
    make_dead_letters(1, project="globex", error_code="theirs", fingerprint="b" * 16)
    client = signed_in("operator")
    everything = client.get(CAUSES).content.decode()
    assert "ours" in everything
    assert f"{CAUSES}?project=globex" in everything
    narrowed = client.get(CAUSES, {"project": "globex"}).content.decode()
    assert "theirs" in narrowed
    assert "ours" not in narrowed.replace("yours", "")
    assert "Of project globex alone" in narrowed
    assert client.get(CAUSES, {"batch_id": "no id"}).status_code == 404
    assert "Nothing has failed for good" in client.get(CAUSES, {"project": "no\0body"}).content.decode()
