"""Limits over the API: who may see and change them, and what is refused."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from queueops.audit.models import AuditEntry
from ratelimits.feedback import PushBack
from ratelimits.limiter.answers import Asking, ask
from ratelimits.limiter.decide import Call
from ratelimits.limits import catalogue
from ratelimits.limits.api.inputs import LimitFigures
from ratelimits.models import Counter, Limit, LimitOverride
from ratelimits.subjects import Subject
from ratelimits.tuning.feedback import Refusal, push_backs
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_project
from tests.support.api import faults_of, pages
from tests.support.people import permitted

FIGURES: dict[str, Any] = {"name": "hot", "service": "sheets", "capacity": 300}


@pytest.fixture(autouse=True)
def afresh() -> None:
    catalogue.forget()


@pytest.fixture
def manager(db: None) -> Api:
    """A key that sees limits, and changes what of them is its project's."""
    return Api(key_for("acme", scopes=["read", "limits"]))


@pytest.fixture
def operator(db: None) -> Api:
    """A session that sees and changes limits."""
    api = Api()
    permissions = ("view_limit", "add_limit", "change_limit", "delete_limit")
    api.client = permitted(*permissions, headers={"X-Project": make_project("acme").pk})
    return api


def make_limit(**figures: Any) -> Limit:
    limit = Limit.objects.create(**{**FIGURES, **figures})
    catalogue.forget()
    return limit


def use(project: str = "acme", user: str = "", calls: int = 1) -> list[str]:
    asking = Asking(project, (Call(Subject("sheets", "write", project, user)),) * calls)
    return [decision["kind"] for decision in ask(asking).answer["decisions"]]


def call(api: Api, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    return api.send(method, path, "" if body is None else json.dumps(body))


def test_a_limit_that_a_refusal_prepared_is_shown_to_its_own_project_alone(manager: Api, operator: Api):
    refused = Subject("http:secret.example.com", "write", "other", owner="other")
    push_backs([Refusal(refused, PushBack(), time.time())], actor="test")
    made, other = Limit.objects.get(), Api(key_for("other", scopes=["read", "limits"]))
    assert [[row["name"] for row in one.get("/limits/").json()["results"]] for one in (other, manager, operator)] == [
        [made.name],
        [],
        [made.name],
    ]
    for path in (f"/limits/{made.pk}/", f"/limits/{made.pk}/counters/"):
        assert other.get(path).status_code == 200
        assert error_of(manager.get(path), 404)["code"] == "unknown_limit"
    tried = call(manager, "POST", f"/limits/{made.pk}/simulate/", {"changes": {"capacity": 1}})
    assert error_of(tried, 404)["code"] == "unknown_limit"


def test_a_limit_that_does_not_exist_is_not_found(manager: Api, operator: Api):
    asked = [
        manager.get("/limits/4711/"),
        manager.get("/limits/4711/counters/"),
        call(operator, "PATCH", "/limits/4711/", {"capacity": 7}),
        call(operator, "DELETE", "/limits/4711/?reason=x"),
        manager.post("/limits/4711/overrides/", {"key": "project:acme", "capacity": 7}),
        call(manager, "DELETE", "/limits/4711/overrides/?key=project:acme"),
        manager.post("/limits/4711/simulate/", {"changes": {}}),
    ]
    errors = [error_of(answer, 404) for answer in asked]
    assert [(error["code"], error["details"]) for error in errors] == [("unknown_limit", {"limit_id": 4711})] * 7


def test_the_list_shows_each_limit_with_its_live_counters(manager: Api):
    limit = make_limit(capacity=10)
    make_limit(name="quiet", service="other")
    assert use(calls=7) == ["proceed"] * 7
    quiet, hot = manager.get("/limits/").json()["results"]
    assert (quiet["counters"], quiet["overrides"]) == ([], [])
    assert (hot["id"], hot["name"], hot["capacity"]) == (limit.pk, "hot", 10)
    [counter] = hot["counters"]
    shown = {name: counter[name] for name in ("key", "used", "available", "capacity", "percent", "level", "unit")}
    assert shown == {
        "key": "project:acme",
        "used": 7,
        "available": 3,
        "capacity": 10,
        "percent": 70,
        "level": 60,
        "unit": "requests",
    }
    assert manager.get(f"/limits/{limit.pk}/").json()["counters"][0]["used"] == 7


def test_the_list_reads_as_often_for_many_limits_as_for_one(manager: Api):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert manager.get("/limits/").status_code == 200
        return len([query for query in captured if 'FROM "ratelimits_limit' in query["sql"]])

    make_limit()
    use()
    one = queries()
    for number in range(20):
        make_limit(name=f"limit-{number}")
    assert queries() == one


def test_limits_are_found_by_service_and_scope(manager: Api):
    make_limit()
    make_limit(name="users", scope="user", unit="tokens", enabled=False)
    make_limit(name="mail", service="mail", scope="global", call_type="read")

    def found(query: str) -> list[str]:
        return [row["name"] for row in manager.get(f"/limits/?{query}").json()["results"]]

    assert found("service=sheets") == ["users", "hot"]
    assert found("scope=user") == ["users"]
    assert found("scope=user,global") == ["mail", "users"]
    assert found("service=sheets&scope=project") == found("name=hot") == ["hot"]
    assert found("enabled=false") == found("unit=tokens") == ["users"]
    assert found("call_type=read") == ["mail"]


def test_a_wrong_filter_is_refused_by_name(manager: Api):
    asked = {"scop=user": "scop", "scope=galaxy": "scope", "page_size=0": "page_size", "cursor=%ff": "cursor"}
    assert faults_of({query: manager.get(f"/limits/?{query}") for query in asked}, 400, "invalid_query", asked) == {}


def test_lists_are_paged(manager: Api):
    limits = [make_limit(name=f"limit-{number}", scope="project_user") for number in range(7)]
    assert pages(manager, "/limits/") == [limit.pk for limit in reversed(limits)]
    users = [f"user-{number}-ü" for number in range(8)]
    for user in users:
        use(user=user)
    keys = [f"project:acme/user:{user}" for user in reversed(users)]
    assert pages(manager, f"/limits/{limits[3].pk}/counters/", field="key") == keys


def test_a_projects_key_sees_no_other_projects_counters_and_overrides(manager: Api):
    limits = [
        make_limit(name=scope.replace("_", "-"), scope=scope) for scope in ("global", "project", "user", "project_user")
    ]
    for project in ("acme", "acme2", "other"):
        use(project, user="u")
        LimitOverride.objects.create(limit=limits[1], key=f"project:{project}", capacity=5)
    acme = Api(key_for("acme", scopes=["read"]))

    def seen(api: Api) -> set[str]:
        rows = api.get("/limits/").json()["results"]
        listed = {counter["key"] for row in rows for counter in row["counters"]}
        apart = {key for limit in limits for key in pages(api, f"/limits/{limit.pk}/counters/", field="key")}
        single = {counter["key"] for limit in limits for counter in api.get(f"/limits/{limit.pk}/").json()["counters"]}
        assert listed == apart == single
        return listed

    own = {"*", "project:acme", "project:acme/user:u"}
    assert seen(acme) == seen(manager) == own
    operator = permitted("view_limit")
    listed = operator.get("/api/v1/limits/?project=acme").json()["results"]
    assert {counter["key"] for limit in listed for counter in limit["counters"]} == {
        *own,
        "project:acme2",
        "project:other",
        "user:u",
        "project:acme2/user:u",
        "project:other/user:u",
    }
    for api in (acme, manager):
        shown = api.get(f"/limits/{limits[1].pk}/").json()["overrides"]
        assert [override["key"] for override in shown] == ["project:acme"]
    shown = operator.get(f"/api/v1/limits/{limits[1].pk}/?project=acme").json()["overrides"]
    assert [override["key"] for override in shown] == ["project:acme", "project:acme2", "project:other"]


def test_a_projects_key_neither_changes_nor_learns_of_other_projects_keys(manager: Api):
    limit = make_limit()
    path = f"/limits/{limit.pk}/overrides/"
    LimitOverride.objects.create(limit=limit, key="project:acme2", capacity=5)
    for key in ("project:acme2", "project:acme2/user:u", "user:u"):
        assert list(error_of(manager.post(path, {"key": key, "capacity": 3}), 422)["fields"]) == ["key"]
        assert list(error_of(call(manager, "DELETE", f"{path}?key={quote(key, safe='')}"), 422)["fields"]) == ["key"]
    assert LimitOverride.objects.get().capacity == 5
    use("other", calls=3)
    simulated = manager.post(f"/limits/{limit.pk}/simulate/", {"changes": {}}).json()
    assert (simulated["calls"], simulated["today"]["busiest_key"]) == (3, "")
    use("acme", calls=4)
    simulated = manager.post(f"/limits/{limit.pk}/simulate/", {"changes": {}}).json()
    assert simulated["proposed"]["busiest_key"] == "project:acme"


def test_a_projects_key_changes_nothing_that_another_projects_job_is_decided_by(manager: Api):
    limit = make_limit(scope="global")
    path = f"/limits/{limit.pk}/overrides/"
    LimitOverride.objects.create(limit=limit, key="*", capacity=5)
    before = list(Limit.objects.values()), list(LimitOverride.objects.values())
    attempts = [
        call(manager, "PATCH", f"/limits/{limit.pk}/", {"capacity": 0}),
        call(manager, "PATCH", f"/limits/{limit.pk}/", {"enabled": False}),
        call(manager, "DELETE", f"/limits/{limit.pk}/?reason=x"),
        manager.post("/limits/", {**FIGURES, "name": "zero", "capacity": 0}),
        manager.post(path, {"key": "*", "capacity": 0}),
        call(manager, "DELETE", f"{path}?key=*"),
    ]
    assert [error_of(attempt, 403)["code"] for attempt in attempts] == ["shared_limit"] * 6
    assert (list(Limit.objects.values()), list(LimitOverride.objects.values())) == before
    assert use("neighbour") == ["proceed"]


def test_a_limit_is_created_with_the_defaults_and_audited(operator: Api):
    response = operator.post("/limits/", {**FIGURES, "reason": "a new service"})
    assert response.status_code == 201, response.content
    limit = Limit.objects.get()
    assert response.json() == {
        "id": limit.pk,
        "changed": response.json()["changed"],
        "warnings": response.json()["warnings"],
        "url": f"/api/v1/limits/{limit.pk}/",
    }
    assert "No job has ever called 'sheets'" in response.json()["warnings"][0]
    assert response["Location"] == f"/api/v1/limits/{limit.pk}/"
    shown = operator.get(f"/limits/{limit.pk}/").json()
    assert (shown["scope"], shown["algorithm"], shown["window_seconds"]) == ("project", "sliding_window", 60)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.reason) == ("create_limit", "limit hot", "a new service")
    assert entry.actor.startswith("user:")


def test_every_default_of_the_document_is_the_limits_own():
    for name, field in LimitFigures.model_fields.items():
        if name not in {"reason", "capacity"}:
            assert field.default == getattr(Limit(), name), name


WRONG_LIMITS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": None}, "invalid_input", "name"),
    ({"capacity": "300"}, "invalid_input", "capacity"),
    ({"capacity": True}, "invalid_input", "capacity"),
    ({"enabled": "yes"}, "invalid_input", "enabled"),
    ({"scope": "galaxy"}, "invalid_input", "scope"),
    ({"colour": "red"}, "invalid_input", "colour"),
    ({"proposed_capacity": 7}, "invalid_input", "proposed_capacity"),
    ({"capacity": None}, "invalid_limit", "capacity"),
    ({"capacity": -1}, "invalid_limit", "capacity"),
    ({"name": "no slug"}, "invalid_limit", "name"),
    ({"service": ""}, "invalid_limit", "service"),
    ({"service": "x" * 65}, "invalid_limit", "service"),
    ({"headroom_percent": 100}, "invalid_limit", "headroom_percent"),
    ({"notice_percent": 90}, "invalid_limit", "warning_percent"),
    ({"capacity": 400, "provider_quota": 300}, "invalid_limit", "capacity"),
    ({"algorithm": "token_bucket", "refill_per_second": 5, "provider_quota": 300}, "invalid_limit", "capacity"),
    ({"algorithm": "fixed_window", "reset_zone": "Mars/Olympus"}, "invalid_limit", "reset_zone"),
]


def test_a_limit_that_is_wrong_is_refused_by_field_and_not_stored(operator: Api):
    faults = {}
    for change, code, field in WRONG_LIMITS:
        answer = operator.post("/limits/", {**FIGURES, **change})
        error = answer.json().get("error", {})
        told = answer.status_code, error.get("code"), list(error.get("fields", {}))
        if told != (422, code, [field]) or not all(isinstance(fault, str) for fault in error["fields"][field]):
            faults[str(change)] = told
    assert faults == {}
    assert not Limit.objects.exists()


def test_a_name_is_taken_once(operator: Api):
    make_limit()
    assert list(error_of(operator.post("/limits/", FIGURES), 422)["fields"]) == ["name"]


def test_a_changed_cap_decides_the_next_call(operator: Api):
    limit = make_limit(capacity=3)
    assert use(calls=2) == ["proceed"] * 2
    response = call(operator, "PATCH", f"/limits/{limit.pk}/", {"capacity": 2, "reason": "lowered"})
    assert response.json()["changed"] == ["capacity"]
    assert use() == ["defer"]
    assert call(operator, "PATCH", f"/limits/{limit.pk}/", {"capacity": 3}).status_code == 200
    assert use(calls=2) == ["proceed", "defer"]
    assert Limit.objects.get().window_seconds == 60  # what was left out stays


def test_a_limit_that_somebody_else_changed_is_not_changed_over_it(operator: Api):
    limit = make_limit()
    seen_at = operator.get(f"/limits/{limit.pk}/").json()["updated_at"]
    body = {"capacity": 5, "seen_at": seen_at}
    assert call(operator, "PATCH", f"/limits/{limit.pk}/", body).status_code == 200
    error = error_of(call(operator, "PATCH", f"/limits/{limit.pk}/", {**body, "capacity": 6}), 409)
    assert error["code"] == "limit_changed"
    assert Limit.objects.get().capacity == 5


def test_a_change_that_is_wrong_is_refused_by_field(operator: Api):
    limit = make_limit()
    for body, field in (({"capacity": -1}, "capacity"), ({"window_second": 5}, "window_second")):
        assert list(error_of(call(operator, "PATCH", f"/limits/{limit.pk}/", body), 422)["fields"]) == [field]
    assert Limit.objects.get().capacity == 300


def test_deleting_needs_a_reason_and_takes_the_counters_along(operator: Api):
    limit = make_limit(capacity=1)
    assert use(calls=2) == ["proceed", "defer"]
    assert error_of(call(operator, "DELETE", f"/limits/{limit.pk}/"), 400)["fields"].keys() == {"reason"}
    assert call(operator, "DELETE", f"/limits/{limit.pk}/?reason=not%20needed").json() == {"removed": True}
    assert not Limit.objects.exists()
    assert not Counter.objects.exists()


def test_one_key_may_have_another_capacity(manager: Api):
    limit = make_limit(capacity=1)
    path = f"/limits/{limit.pk}/overrides/"
    body = {"key": "project:acme", "capacity": 3, "note": "raised by the provider"}
    assert manager.post(path, body).json()["changed"] == ["capacity", "note", "refill_per_second"]
    assert use(calls=4) == ["proceed", "proceed", "proceed", "defer"]
    assert use("other", calls=2) == ["proceed", "defer"]
    assert manager.get(f"/limits/{limit.pk}/").json()["overrides"] == [
        {**body, "refill_per_second": None, "ends_at": None}
    ]
    key = quote("project:acme", safe="")
    assert [call(manager, "DELETE", f"{path}?key={key}").json() for _ in range(2)] == [
        {"removed": True},
        {"removed": False},
    ]
    manager.post(path, {**body, "for_seconds": 60})
    [own] = manager.get(f"/limits/{limit.pk}/").json()["overrides"]
    assert own["ends_at"] is not None
    LimitOverride.objects.update(ends_at=Now())
    assert manager.get(f"/limits/{limit.pk}/").json()["overrides"] == []
    assert error_of(manager.post(path, {**body, "for_seconds": 60, "ends_at": "2026-01-01T06:00:00Z"}), 422)
    wrongs: list[tuple[dict[str, object], str]] = [
        ({"key": "user:u"}, "key"),
        ({"capacity": -1}, "capacity"),
        ({"ends_at": "2026-01-01T06:00:00Z"}, "ends_at"),
    ]
    for wrong, field in [({**body, **one}, field) for one, field in wrongs]:
        assert list(error_of(manager.post(path, wrong), 422)["fields"]) == [field]
    assert error_of(call(manager, "DELETE", path), 400)["fields"].keys() == {"key"}


def test_a_change_is_simulated_without_being_made(manager: Api):
    limit = make_limit(capacity=10)
    assert use(calls=8) == ["proceed"] * 8
    path = f"/limits/{limit.pk}/simulate/"
    played = manager.post(path, {"changes": {"capacity": 4}}).json()
    assert (played["calls"], played["today"]["delayed"], played["proposed"]["delayed"]) == (8, 0, 4)
    assert Limit.objects.get().capacity == 10
    assert error_of(manager.post(path, {"changes": {"capacity": -1}}), 422)["fields"].keys() == {"capacity"}
    assert error_of(manager.post(path, {"changes": {}, "hours": 25}), 422)["fields"].keys() == {"hours"}
