"""Requests that are wrong in ways that no client of ours is."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queueops.core.errors import MAX_FIELDS_TOLD
from tests.api.conftest import SPEC, Api, error_of, key_for
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def test_a_method_that_no_view_has_is_not_allowed_though_a_view_has_something_of_its_name():
    api = Api(key_for("acme"))
    faults = {
        (method, path): answer.status_code
        for method in ("QUERY", "NEEDS", "HTTP_METHOD_NAMES", "BREW")
        for path in ("/jobs/", "/batches/", "/limits/", "/webhooks/")
        if (answer := api.send(method, path, "{}")).status_code != 405
    }
    assert faults == {}


def test_an_id_in_capitals_is_the_same_id():
    job = make_job()
    answer = Api(key_for(job.project_id)).get(f"/jobs/{str(job.pk).upper()}/")
    assert answer.status_code == 200, answer.content
    assert answer.json()["id"] == str(job.pk)


def test_of_very_many_wrong_fields_some_are_told_and_how_many_more_there_are():
    spec = {**SPEC, **{f"wrong_{number}": 1 for number in range(1_000)}}
    answer = Api(key_for("acme")).send("POST", "/jobs/", json.dumps(spec))
    error = error_of(answer, 422)
    assert len(error["fields"]) == MAX_FIELDS_TOLD
    assert error["details"]["fields_left_out"] == 1_000 - MAX_FIELDS_TOLD


def test_a_row_that_was_chosen_by_what_is_no_key_is_a_bad_request():
    User.objects.create_superuser("root", password="long enough for root")
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.get())
    make_job()
    for wrong in ("x", "1; drop", "\x00", "9" * 40):
        posted = {"action": "cancel_selected", "_selected_action": wrong}
        assert client.post("/admin/jobs/job/", posted).status_code == 400, wrong
