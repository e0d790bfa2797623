"""What operators call a project's users: given with a submission, shown wherever the user is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobs.models import Job
from queueops.tenancy.models import Project, UserLabel
from queueops.tenancy.scope import reading_for
from queueops.tenancy.user_labels import label_users, labels_of
from tests.api.conftest import SPEC, Api, error_of, key_for
from tests.factories import make_batch, make_job, make_project
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

ANNA, BEN = UUID(int=7), UUID(int=8)


def spec(user: UUID, label: str) -> dict[str, Any]:
    return {**SPEC, "user_id": str(user), "user_label": label}


def test_the_last_label_that_was_given_counts():
    api = Api(key_for("acme"))
    assert api.post("/jobs/", spec(ANNA, "Anna")).status_code == 201
    assert api.post("/batches/", {"jobs": [spec(BEN, "Ben"), spec(ANNA, " Anna Berg ")]}).status_code == 201
    Api(key_for("globex")).post("/jobs/", spec(ANNA, "somebody else"))
    assert labels_of("acme", [ANNA, BEN]) == {ANNA: "Anna Berg", BEN: "Ben"}


def test_a_label_of_nobody_or_that_says_nothing_is_refused():
    api = Api(key_for("acme"))
    labels = ({"user_label": "Anna"}, *({"user_id": str(ANNA), "user_label": label} for label in (" ", "x" * 101)))
    for wrong in labels:
        assert error_of(api.post("/jobs/", {**SPEC, **wrong}), 422)["code"] == "invalid_job"
    assert not Job.objects.exists()


def test_a_label_that_is_known_is_not_written_again():
    make_project("acme")
    label_users("acme", {ANNA: "Anna", BEN: "Ben"})
    with CaptureQueriesContext(
        connection,
    ) as asked:
        label_users("acme", {ANNA: "Anna", BEN: "Ben"})
    assert [query["sql"].split()[0] for query in asked] == ["SELECT"]


def test_it_is_shown_where_the_user_is_and_found_by_its_beginning():
    job = make_job(user_id=ANNA, batch=make_batch(user_id=ANNA))
    label_users("acme", {ANNA: "<b>Anna</b> Berg"})
    Project.objects.filter(pk="acme").update(user_address="https://app.example.org/users/{user_id}?from=queue")
    client = signed_in("viewer")
    jobs = f"{reverse('admin:jobs_job_changelist')}?user_id={ANNA}"
    for page in (("admin:jobs_job_change", job.pk), ("admin:jobs_batch_change", job.batch_id)):
        shown = client.get(reverse(page[0], args=[page[1]])).content.decode()
        assert f'href="{jobs}">&lt;b&gt;Anna&lt;/b&gt; Berg</a>' in shown, page
        assert f'href="https://app.example.org/users/{ANNA}?from=queue"' in shown, page
    assert client.get("/find/", {"q": "<B>anna"})["Location"] == jobs
    assert client.get("/find/", {"q": "%"}).status_code == 200


def test_an_address_that_could_not_lead_to_a_user_is_refused():
    project = make_project("acme")
    for address in (
        "javascript:alert({user_id})",
        "https://app.example.org/",
        "//x/{user_id}",
        "https://x/{user_id}/{user_id}",
    ):
        project.user_address = address
        with pytest.raises(ValidationError, match="http or https"):
            project.full_clean()


def test_an_end_user_neither_reads_nor_gives_labels():
    make_project("acme")
    label_users("acme", {ANNA: "Anna"})
    with reading_for("acme", ANNA):
        assert not UserLabel.objects.exists()
    with reading_for("acme"):
        assert UserLabel.objects.count() == 1
