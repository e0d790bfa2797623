"""Caps of calls in flight over the API: whose they are, what is refused, and what the trail tells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queueops.audit.models import AuditEntry
from ratelimits.models import Limit
from tests.api.conftest import ALL_SCOPES, Api, error_of, key_for
from tests.factories import make_project
from tests.support.api import told
from tests.support.people import signed_in
from tests.support.racing import run_together

CAP: dict[str, Any] = {"at_most": 4, "kind": "http.request"}


@pytest.fixture
def manager(db: None) -> Api:
    """With the session of somebody who may change limits."""
    make_project()
    return with_session("limits manager")


def with_session(role: str, project: str = "acme") -> Api:
    api = Api()
    api.client = signed_in(role)
    api.client.defaults["HTTP_X_PROJECT"] = project
    return api


def put(api: Api, **given: Any) -> Any:
    return api.send("PUT", "/at-once/", json.dumps(given))


def caps(api: Api) -> list[dict[str, Any]]:
    answer = api.get("/at-once/")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_a_cap_is_set_changed_seen_and_removed(manager):
    made = put(manager, **CAP, reason="they asked").json()
    assert (made["name"], made["used"], made["at_most"]) == ("acme-http-request-at-once", 0, 4)
    assert put(manager, at_most=9, kind="http.request").json()["id"] == made["id"]
    put(manager, at_most=50)
    put(manager, at_most=2, each_user=True)
    assert [(cap["kind"], cap["each_user"], cap["at_most"]) for cap in caps(manager)] == [
        ("http.request", False, 9),
        ("", False, 50),
        ("", True, 2),
    ]
    assert manager.send("DELETE", f"/at-once/{made['id']}/?reason=over", "").json() == {"deleted": True}
    assert len(caps(manager)) == 2
    trail = list(AuditEntry.objects.order_by("id").values_list("action", "target"))
    of_kind = [action for action, target in trail if target == "limit acme-http-request-at-once"]
    assert of_kind == ["create_limit", "update_limit", "delete_limit"]


def test_it_is_an_ordinary_limit_that_no_other_project_is_shown(manager):
    made = put(manager, **CAP).json()
    limit = Limit.objects.get()
    assert (limit.algorithm, limit.unit, limit.project, limit.kind) == ("concurrency", "in_flight", "acme", CAP["kind"])
    assert [row["name"] for row in manager.get("/limits/").json()["results"]] == [made["name"]]
    other = Api(key_for("beta", scopes=ALL_SCOPES))
    assert other.get("/limits/").json()["results"] == []
    assert caps(other) == []
    assert error_of(other.get(f"/limits/{made['id']}/"), 404)["code"] == "unknown_limit"
    beta = with_session("limits manager", "beta")
    assert error_of(beta.send("DELETE", f"/at-once/{made['id']}/?reason=mine", ""), 404)["code"] == "unknown_limit"
    assert Limit.objects.count() == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "at_most"),
    ({"at_most": 0}, "at_most"),
    ({"at_most": -1}, "at_most"),
    ({"at_most": 2.5}, "at_most"),
    ({"at_most": True}, "at_most"),
    ({"at_most": 10_000_000}, "at_most"),
    ({"at_most": 5, "kind": "no.such.kind"}, "kind"),
    ({"at_most": 5, "service": "s" * 65}, "service"),
    ({"at_most": 5, "each_user": "yes"}, "each_user"),
    ({"at_most": 5, "colour": "red"}, "colour"),
]


def test_what_cannot_be_is_told_at_its_field_and_changes_nothing(manager):
    answers = [(given, field, told(put(manager, **given))) for given, field in WRONG]
    assert [(given, got) for given, field, got in answers if got[0] != 422 or field not in got[2]] == []
    assert not Limit.objects.exists()


def test_removing_wants_a_reason_and_a_cap_that_is_ones_own(manager):
    made = put(manager, **CAP).json()
    assert "reason" in error_of(manager.send("DELETE", f"/at-once/{made['id']}/", ""), 400)["fields"]
    shared = Limit.objects.create(name="shared", service="sheets", capacity=5)
    error_of(manager.send("DELETE", f"/at-once/{shared.pk}/?reason=mine", ""), 404)
    assert Limit.objects.count() == 2


def test_a_key_sees_the_caps_that_hold_it_and_lifts_none(manager):
    made = put(manager, **CAP).json()
    for scope in ALL_SCOPES:
        api = Api(key_for("acme", scopes=[scope]))
        assert api.get("/at-once/").status_code == (200 if scope == "read" else 403)
        refused = "operators_cap" if scope == "limits" else "missing_scope"
        assert error_of(put(api, **CAP, each_user=True), 403)["code"] == refused
        assert error_of(api.send("DELETE", f"/at-once/{made['id']}/?reason=mine", ""), 403)["code"] == refused
    assert Limit.objects.count() == 1


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 403), ("limits manager", 200)])
def test_a_person_needs_the_permission(db, role, status):
    make_project()
    api = with_session(role)
    assert put(api, **CAP).status_code == status
    assert caps(api) == [cap for cap in caps(api) if status == 200]


@pytest.mark.django_db(transaction=True)
def test_two_who_set_the_same_at_once_make_one_limit():
    make_project()
    apis = [with_session("limits manager") for _ in range(4)]
    run_together(4, lambda number: put(apis[number], **CAP))
    assert Limit.objects.count() == 1


ONLY_IN_FLIGHT: list[tuple[dict[str, Any], str]] = [
    ({"service": "sheets", "kind": "http.request", "capacity": 5}, "kind"),
    ({"project": "acme", "capacity": 5}, "service"),
    ({"unit": "in_flight", "algorithm": "concurrency", "capacity": 5}, "service"),
    ({"project": "nobody", "unit": "in_flight", "algorithm": "concurrency", "capacity": 5}, "project"),
]


def test_only_calls_in_flight_are_counted_for_one_kind_or_for_any_service(manager):
    of_a_project = {"name": "own", "service": "sheets", "project": "acme", "capacity": 5}
    assert manager.post("/limits/", of_a_project).status_code == 201
    answers = [
        (figures, field, told(manager.post("/limits/", {"name": "mine", **figures})))
        for figures, field in ONLY_IN_FLIGHT
    ]
    assert [(figures, got) for figures, field, got in answers if got[0] != 422 or field not in got[2]] == []
