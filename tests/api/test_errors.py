import json
from collections import Counter
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.http import Http404
from django.test import Client

from queueops.core.errors import QueueOpsError
from queueops.site.documents.api_docs import _subclasses, api_page
from tests.api.conftest import ROOT, SPEC, Api, error_of


def test_a_code_belongs_to_one_error(db):
    api_page()  # imports all that has errors
    owners = Counter(error.code for error in _subclasses(QueueOpsError) if not error.__module__.startswith("tests."))
    assert [code for code, count in owners.items() if count > 1] == []


def test_an_unknown_address_is_a_404_in_the_same_shape(db):
    strict = Client(enforce_csrf_checks=True)
    for method in ("GET", "POST", "DELETE"):
        for path in ("/", "/nothing/", "/jobs/not-an-id/", "/jobs/7/events/"):
            assert error_of(Api().send(method, path, ""), 404)["code"] == "not_found"
        for path in ("/functions/", "/functions/reserve", "/functions/reserve-usage/x"):
            error = error_of(strict.generic(method, path, "{", content_type="application/json"), 404)
            assert error == {"code": "not_found", "message": f"There is no address {path}."}


def test_a_host_name_that_is_not_ours_is_refused_below_functions_too(db):
    response = Client().post("/functions/reserve-usage", headers={"Host": "evil.example.org"})
    assert error_of(response, 400)["code"] == "bad_request"


def test_a_forgotten_slash_is_pointed_out(db):
    assert "slash" in error_of(Api().send("POST", "/jobs", json.dumps(SPEC)), 404)["message"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RuntimeError("secret detail"), (500, "internal_error")),
        (OperationalError("connection refused"), (503, "database_unavailable")),
        (Http404("x"), (404, "not_found")),
        (type("Odd", (QueueOpsError,), {"code": "odd", "status": 422})("Odd."), (422, "odd")),
    ],
)
def test_whatever_a_view_raises_is_answered_in_the_same_shape(api: Api, monkeypatch, raised, expected):
    def fail(*arguments, **named):
        raise raised

    monkeypatch.setattr("jobs.api.views.jobs.submit_job", fail)
    response = api.post("/jobs/", SPEC)
    assert (response.status_code, error_of(response, expected[0])["code"]) == expected
    assert b"secret detail" not in response.content
    assert (int(response.headers.get("Retry-After", 0)) > 0) is (expected[0] == 503)


def test_an_id_that_the_project_has_not_is_said_to_be_none_of_the_projects(api: Api):
    for path in (f"/jobs/{uuid4()}/", f"/operations/{uuid4()}/", f"/maintenance/{uuid4()}/"):
        assert "nothing with this id" in error_of(api.get(path), 404)["message"]


def test_a_host_name_that_is_not_ours_is_refused_in_the_same_shape(api: Api):
    response = api.client.get(f"{ROOT}/jobs/", headers={"Host": "evil.example.org"})
    assert error_of(response, 400)["code"] == "bad_request"


def test_an_accept_header_does_not_turn_an_answer_into_a_refusal(api: Api):
    response = api.get("/jobs/", Accept="application/xml")
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert api.client.head(f"{ROOT}/jobs/").status_code == 200


def test_a_database_that_is_down_is_a_503_before_the_key_is_known(api: Api, monkeypatch):
    def fail():
        raise OperationalError("connection refused")

    monkeypatch.setattr("queueops.tenancy.callers.authentication.hot_cursor", fail)
    response = api.get("/jobs/")
    assert error_of(response, 503)["code"] == "database_unavailable"
    assert int(response["Retry-After"]) > 0
