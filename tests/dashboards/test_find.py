"""One search finds whatever has a name or an id, for those who may see it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboards.services import find as search
from dashboards.services.find import find
from jobs.door.models import DoorBatch
from queueops.tenancy.models import Credential, Issuer, ProducerKey
from ratelimits.models import Limit
from tests.factories import make_batch, make_job, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

FIND = "/find/"


def titles(client: Client, term: str) -> list[str]:
    found: Any = client.get(FIND, {"q": term}).context["found"]
    return [f"{sort}: {hit.title}" for sort, hits in found.hits.items() for hit in hits]


def goes_to(client: Client, term: str) -> str:
    answer = client.get(FIND, {"q": term})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def page_of(screen: str, row: Any) -> str:
    return reverse(f"admin:{screen}_change", args=[row.pk])


@every_case("written", ["{id}", "{hex}", "…{end}", "...{end}", "{end}", "  {END} "], undone=True)
def test_a_job_is_found_by_its_id_however_it_is_written(written):
    jobs = make_jobs(3)
    identifier = str(jobs[1].pk)
    term = written.format(id=identifier, hex=jobs[1].pk.hex, end=identifier[-8:], END=identifier[-8:].upper())
    assert goes_to(signed_in("viewer"), term) == page_of("jobs_job", jobs[1])


def test_a_batch_and_a_job_are_found_by_their_ids_at_a_door():
    batch, job = make_batch(), make_job()
    came = DoorBatch.objects.create(project_id="acme", batch_id=batch.pk, complete_by=datetime.now(UTC))
    for name in (f"batch_{came.pk.hex}", f"file-output-{came.pk.hex}"):
        assert goes_to(signed_in("viewer"), name) == page_of("jobs_batch", batch)
    for name in (f"resp_{job.pk.hex}", f"batch_req_{job.pk.hex}"):
        assert goes_to(signed_in("viewer"), name) == page_of("jobs_job", job)
    assert titles(signed_in("viewer"), "batch_" + "0" * 32) == []


def test_each_sort_of_thing_is_found_by_what_people_have_of_it():
    project = make_project("acme-imports")
    user = uuid4()
    batch = make_batch(project="acme-imports", name="Nightly prices")
    make_job(project="acme-imports", batch=batch, user_id=user)
    keyed = make_job(project="acme-imports", idempotency_key="order-4711")
    key, secret = ProducerKey.issue(project, name="the importer")
    limit = Limit.objects.create(name="very-slow-writes", service="google-sheets", capacity=1)
    credential = Credential.objects.create(name="robot-account")
    issuer = Issuer.objects.create(
        project=project, name="Shop front", audiences=["shop"], jwks_url="https://shop.example.org/keys"
    )
    person = User.objects.create_superuser("barbara", email="b@example.org")
    client = signed_in("superuser")
    assert goes_to(client, "order-4711") == page_of("jobs_job", keyed)
    assert goes_to(client, str(batch.pk)) == page_of("jobs_batch", batch)
    assert goes_to(client, str(batch.pk)[-8:]) == page_of("jobs_batch", batch)
    assert goes_to(client, "nightly P") == page_of("jobs_batch", batch)
    assert goes_to(client, str(user)) == f"{reverse('admin:jobs_job_changelist')}?user_id={user}"
    assert goes_to(client, "very-slow") == page_of("ratelimits_limit", limit)
    assert goes_to(client, "robot") == page_of("tenancy_credential", credential)
    assert goes_to(client, "shop") == page_of("tenancy_issuer", issuer)
    assert goes_to(client, "barbara") == page_of("auth_user", person)
    assert goes_to(client, "acme-imp") == page_of("tenancy_project", project)
    for written in (key.prefix, f"{key.prefix}…", f"key:{key.prefix}", secret, "importer"):
        assert [hit.title for hit in find(written, person).hits["Keys"]] == [str(key)]


@every_case("key", ["018f6a52-0000-7000-8000-00000000abcd", "deadbeef"], undone=True)
def test_a_key_that_looks_like_an_id_is_found_as_a_key_too(key: str):
    make_jobs(3)
    keyed = make_job(idempotency_key=key)
    assert goes_to(signed_in("viewer"), key) == page_of("jobs_job", keyed)


def test_a_kind_is_found_and_leads_to_its_page():
    make_job(kind="http.request")
    address = goes_to(signed_in("viewer"), "http.req")
    assert address == reverse("admin:jobs_job_kind", args=["http.request"])
    assert signed_in("viewer").get(address).status_code == 200


def test_several_are_listed_and_each_sort_is_bounded():
    for number in range(search.MAX_OF_A_SORT + 5):
        make_batch(name=f"import {number}")
    make_batch(name="export")
    found = titles(signed_in("viewer"), "import")
    assert len(found) == search.MAX_OF_A_SORT
    assert found[0] == f"Batches: import {search.MAX_OF_A_SORT + 4}"  # the newest first


def test_nobody_finds_what_they_may_not_see():
    User.objects.create_user("barbara")
    make_batch(name="barbara's batch")
    assert titles(signed_in("superuser"), "barbara") == ["Batches: barbara's batch", "People: barbara"]
    assert goes_to(signed_in("viewer"), "barbara").startswith("/admin/jobs/batch/")
    assert signed_in(None).get(FIND, {"q": "barbara"}).status_code == 403
    assert Client().get(FIND, {"q": "barbara"})["Location"].startswith("/admin/login/")


@every_case(
    "term", ["", " ", "\0", "%", "_%", "'; DROP TABLE", "x" * 5_000, "zzzzzzzz", "deadbeef", "…", "ﬁ"], undone=True
)
def test_odd_terms_find_nothing_and_the_page_says_what_can_be_found(term):
    make_batch(name="prices")
    make_job()
    page = signed_in("viewer").get(FIND, {"q": term})
    assert page.status_code == 200
    assert page.context["found"].hits == {}
    assert "What can be found" in page.content.decode()


def test_an_ending_is_looked_for_window_by_window_and_the_page_says_how_far(monkeypatch):
    jobs = make_jobs(25)
    monkeypatch.setattr(search, "IDS_AT_ONCE", 10)
    monkeypatch.setattr(search, "LOOK_SECONDS", 60.0)  # or a busy machine would not come to the first of them
    viewer = User.objects.create_superuser("viewer")
    for job in (jobs[0], jobs[9], jobs[10], jobs[24]):
        assert find(str(job.pk)[-8:], viewer).only is not None
    assert find("00000000", viewer).looked_back_to is None  # it saw all
    monkeypatch.setattr(search, "LOOK_SECONDS", 0.0)
    assert find(str(jobs[0].pk)[-8:], viewer).hits == {}
    looked_back_to = find("00000000", viewer).looked_back_to
    assert looked_back_to is not None
    assert abs((datetime.now(UTC) - looked_back_to).total_seconds()) < 60
    assert "give the whole id" in signed_in("superuser").get(FIND, {"q": "00000000"}).content.decode()
