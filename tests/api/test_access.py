"""Who may do what, at every address and with every method, and that nobody reaches another project."""

import json
from datetime import timedelta
from itertools import groupby
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models.functions import Now
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext

from jobs.models import Job
from queueops.core.values.rate import Rate
from queueops.tenancy.callers.throttles import CallerThrottle
from queueops.tenancy.models import Credential, ProducerKey
from ratelimits.models import Allowance, Budget
from tests.api.conftest import ALL_SCOPES, ROOT, SPEC, Api, error_of, key_for
from tests.api.places import METHODS, PLACES, VIEWS, Place
from tests.factories import make_allowance, make_job, make_project
from tests.security.world import MARK, PROJECT, World, everything
from tests.support.people import permitted
from tests.support.undone import undone

ANYBODYS = [place for place in PLACES if "limits/" in str(place) or "at-once/<" in str(place)]  # of no project
# A key may not change what counts for every project.
OPERATORS = {
    "POST limits/",
    "PATCH limits/<int:pk>/",
    "DELETE limits/<int:pk>/",
    "PUT at-once/",
    "DELETE at-once/<int:pk>/",
}
# The scope of a key and the permission of an operator, where neither is what the views of the same rows need.
STATED = {
    "GET limits/": ("read", "view_limit"),
    "POST limits/": ("limits", "add_limit"),
    "GET limits/<int:pk>/": ("read", "view_limit"),
    "PATCH limits/<int:pk>/": ("limits", "change_limit"),
    "DELETE limits/<int:pk>/": ("limits", "delete_limit"),
    "GET limits/<int:pk>/counters/": ("read", "view_limit"),
    "POST limits/<int:pk>/overrides/": ("limits", "change_limit"),
    "DELETE limits/<int:pk>/overrides/": ("limits", "change_limit"),
    "POST limits/<int:pk>/simulate/": ("limits", "change_limit"),
    "GET at-once/": ("read", "view_limit"),
    "PUT at-once/": ("limits", "change_limit"),
    "GET allowances/": ("read", "view_allowance"),
    "GET allowances/<str:pk>/": ("read", "view_allowance"),
    "PATCH allowances/<str:pk>/": ("limits", "change_allowance"),
    "GET budgets/": ("read", "view_budget"),
    "POST budgets/": ("limits", "add_budget"),
    "GET budgets/<int:pk>/": ("read", "view_budget"),
    "PATCH budgets/<int:pk>/": ("limits", "change_budget"),
    "DELETE budgets/<int:pk>/": ("limits", "delete_budget"),
    "POST usage/reserve/": ("usage", "add_usageevent"),
    "POST usage/ingest/": ("usage", "add_usageevent"),
    "POST usage/cancel/": ("usage", "cancel_reservation"),
    "GET usage/me/": ("usage", "view_usagetracking"),
    "GET usage/": ("usage", "view_usagetracking"),
    "GET usage/events/": ("usage", "view_usageevent"),
    "GET audit/": ("audit", "view_auditentry"),
    "POST jobs/": ("submit", "add_job"),
    "POST batches/": ("submit", "add_job"),
    "POST forecast/": ("submit", "add_job"),
    "POST jobs/cancel/": ("submit", "cancel_job"),
    "POST ratelimits/decide/": ("decide", "add_charge"),
    "POST ratelimits/settle/": ("decide", "add_charge"),
}


@pytest.fixture
def world(db: None, monkeypatch: pytest.MonkeyPatch) -> World:
    """All there is in acme; its callers may ask as often as they like."""
    monkeypatch.setattr(CallerThrottle, "rate", Rate(60_000))
    made = World.make()
    for model in (Allowance, Budget):
        model._default_manager.update(set_by_operator=False)
    return made


def key(project: str, scopes: list[str]) -> Client:
    return Api(key_for(project, scopes=scopes, requests_per_minute=60_000)).client


def code_of(response: Any) -> tuple[int, str, Any]:
    error = json.loads(response.content or "{}").get("error", {}) if response.status_code >= 400 else {}
    return response.status_code, error.get("code", ""), (error.get("details") or {}).get("needed")


def is_let_in(place: Place, answer: tuple[int, str, Any]) -> bool:
    """Some ask what the row's state does not allow: those are told so, and not that they may not ask."""
    return answer[0] < (300 if str(place) in STATED else 500) and answer[0] not in {401, 403}


def test_every_address_and_method_says_what_it_needs():
    assert len(PLACES) > 100
    assert [str(place) for place in PLACES if place.method not in getattr(place.view, "needs", {})] == []
    needed = {str(place): (place.need.scope, place.need.permission.partition(".")[2]) for place in PLACES}
    assert {name: needed[name] for name in STATED} == STATED


def test_nobody_is_let_in_without_credentials_or_with_a_key_of_every_scope_but_the_one(world):
    keys = {scope: key("acme", [one for one in ALL_SCOPES if one != scope]) for scope in ALL_SCOPES}
    before, faults = everything(), {}
    for place in PLACES:
        stranger = place.ask(Client(), world)
        if code_of(stranger)[:2] != (401, "not_authenticated") or "Bearer" not in stranger["WWW-Authenticate"]:
            faults[str(place), "no key"] = code_of(stranger)
        needed = place.need.scope.value
        refused = code_of(place.ask(keys[needed], world))
        if refused != (403, "missing_scope", needed):
            faults[str(place), "the other scopes"] = refused
    assert faults == {}
    assert everything() == before


def test_a_key_with_the_one_scope_is_let_in(world):
    faults = {}
    keys = {scope: key("acme", [scope]) for scope in ALL_SCOPES}
    for place in PLACES:
        with undone():
            answer = code_of(place.ask(keys[place.need.scope.value], world))
        kept_for_operators = answer[1] in {"shared_limit", "operators_cap"}
        expected = kept_for_operators if str(place) in OPERATORS else is_let_in(place, answer)
        if not expected:
            faults[str(place)] = answer
    assert faults == {}


def needs(place: Place) -> str:
    return str(place.need.permission)


@pytest.mark.matrix
def test_an_operator_needs_the_permission_of_what_it_asks_for_and_the_token_of_its_session(world):
    user = User.objects.create_user("operator", is_staff=True)
    client, forged = (Client(headers={"X-Project": "acme"}, enforce_csrf_checks=checks) for checks in (False, True))
    for one in (client, forged):
        one.force_login(user)
    places = groupby(sorted(PLACES, key=needs), key=needs)
    codenames = {place.need.permission.partition(".")[2] for place in PLACES}
    permissions = {one.codename: one for one in Permission.objects.filter(codename__in=codenames)}
    faults: dict[tuple[str, str], Any] = {}
    for permission, group in places:
        asked, needed = list(group), permissions[permission.partition(".")[2]]
        user.user_permissions.set(one for one in permissions.values() if one != needed)
        for place in asked:
            if (answer := code_of(place.ask(client, world))) != (403, "missing_permission", permission):
                faults[str(place), "without"] = answer
        user.user_permissions.set([needed])
        for place in asked:
            with undone():
                if not is_let_in(place, answer := code_of(place.ask(client, world))):
                    faults[str(place), "with"] = answer
            answer = code_of(place.ask(forged, world))
            if place.method != "GET" and answer[:2] != (403, "permission_denied"):
                faults[str(place), "forged"] = answer
    assert faults == {}


@pytest.mark.proves("S1")
def test_another_projects_rows_are_neither_shown_nor_touched(world):
    unknown = World({name: "4711" if pk.isdecimal() else str(uuid4()) for name, pk in world.ids.items()})
    uuids = {pk for pk in world.ids.values() if len(pk) == 36}
    make_allowance("globex")
    Credential.objects.create(name="openai-main", service="openai").projects.add(make_project("globex"))
    spy, before, faults = key("globex", ALL_SCOPES), everything(project=PROJECT), {}
    for place in PLACES:
        if place in ANYBODYS or str(place) in {*OPERATORS, "POST allowances/"}:  # it has one
            continue
        answer = place.ask(spy, world)
        text = answer.content.decode()
        if answer.status_code == 404:
            is_hidden = text.replace(world.ids["ratelimits_budget"], "4711") == place.ask(spy, unknown).content.decode()
        else:
            names_them = answer.json().get("moved") != [] and any(pk in text for pk in uuids)
            is_hidden = answer.status_code < 300 and not ("<" in str(place) or MARK in text or names_them)
        if not is_hidden:
            faults[str(place)] = text
    assert faults == {}
    assert everything(project=PROJECT) == before


def test_every_address_answers_options_and_refuses_other_methods(world):
    api = key("acme", ALL_SCOPES)
    faults: dict[tuple[str, str], Any] = {}
    for address in VIEWS:
        offered = {place.method for place in PLACES if place.address == address}
        path = address.path(world)
        if api.generic("OPTIONS", path).status_code != 200:
            faults[address.route, "OPTIONS"] = "refused"
        for method in set(METHODS) - offered:
            answer = api.generic(method, path, "{}", content_type="application/json")
            allowed = set(answer.headers.get("Allow", "").split(", "))
            if code_of(answer)[:2] != (405, "method_not_allowed") or not {"OPTIONS", *offered} <= allowed:
                faults[address.route, method] = (code_of(answer), allowed)
    assert faults == {}


@pytest.mark.proves("S2")
def test_a_revoked_expired_or_unknown_key_is_refused_alike(db):
    revoked, expired = key_for("acme"), key_for("acme")
    first, second = ProducerKey.objects.order_by("pk")
    ProducerKey.objects.filter(pk=first.pk).update(revoked_at=Now())
    ProducerKey.objects.filter(pk=second.pk).update(expires_at=Now() - timedelta(seconds=1))
    errors = [error_of(Api(secret).get("/jobs/"), 401) for secret in (revoked, expired, "qo_nonsense", "ü")]
    assert errors == [errors[0]] * 4
    assert errors[0]["code"] == "invalid_key"


def test_a_key_is_also_taken_from_its_own_header(db):
    assert Api().get("/jobs/", **{"X-Api-Key": key_for("acme")}).status_code == 200


def test_the_last_use_of_a_key_is_written_once_a_minute(api: Api):
    api.get("/handlers/")
    used_at = ProducerKey.objects.get().last_used_at
    assert used_at is not None
    with CaptureQueriesContext(connection) as captured:
        api.get("/handlers/")
    assert [query for query in captured.captured_queries if "producerkey" in query["sql"]] == []
    assert ProducerKey.objects.get().last_used_at == used_at
    ProducerKey.objects.update(last_used_at=Now() - timedelta(seconds=61))
    api.get("/handlers/")
    used_again_at = ProducerKey.objects.get().last_used_at
    assert used_again_at is not None
    assert used_again_at > used_at - timedelta(seconds=30)


def test_a_key_that_asks_too_often_is_told_when_to_come_back(api: Api, monkeypatch):
    monkeypatch.setattr(CallerThrottle, "rate", Rate(2))
    assert [api.get("/handlers/").status_code for _ in range(2)] == [200, 200]
    response = api.get("/handlers/")
    assert error_of(response, 429)["code"] == "throttled"
    assert 1 <= int(response["Retry-After"]) <= 31
    assert Api(key_for("acme")).get("/handlers/").status_code == 200


@pytest.mark.proves("S2")
def test_guessing_keys_is_slowed_down_and_a_valid_key_of_the_same_address_is_not(api: Api, monkeypatch):
    monkeypatch.setattr("queueops.tenancy.callers.authentication.bad_keys", Rate(3))
    statuses = [Api(f"qo_{number}").get("/jobs/").status_code for number in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    assert api.get("/jobs/").status_code == 200


def test_a_key_that_names_another_project_is_told_of_its_own(api: Api):
    assert api.get("/jobs/?project=acme").status_code == 200
    for path in ("/jobs/?project=nope", "/project/?project=nope"):
        assert "'acme'" in error_of(api.get(path), 400)["fields"]["project"][0]


def test_an_operators_session_acts_for_the_project_it_names(db):
    make_job(project="acme")
    client = permitted("view_job")
    assert len(client.get(f"{ROOT}/jobs/?project=acme").json()["results"]) == 1
    assert len(client.get(f"{ROOT}/jobs/", headers={"X-Project": "acme"}).json()["results"]) == 1
    assert error_of(client.get(f"{ROOT}/jobs/"), 400)["code"] == "project_required"
    assert error_of(client.get(f"{ROOT}/jobs/?project=nobody"), 404)["code"] == "unknown_project"
    assert error_of(client.get(f"{ROOT}/jobs/?project={quote(chr(0))}"), 404)["code"] == "unknown_project"
    assert error_of(permitted(is_staff=False).get(f"{ROOT}/jobs/?project=acme"), 403)["code"] == "staff_only"


@pytest.mark.proves("S8")
def test_a_session_needs_the_csrf_token_for_what_changes_something(db):
    make_project("acme")
    client = permitted("add_job", enforce_csrf_checks=True)
    path = f"{ROOT}/jobs/?project=acme"
    response = client.post(path, json.dumps(SPEC), content_type="application/json")
    assert error_of(response, 403)["code"] == "permission_denied"
    assert not Job.objects.exists()
    token = "a" * 32
    client.cookies["csrftoken"] = token
    response = client.post(path, json.dumps(SPEC), content_type="application/json", headers={"X-CSRFToken": token})
    assert response.status_code == 201, response.content
    assert Job.objects.get().payload == SPEC["payload"]


@pytest.mark.django_db(transaction=True)
def test_a_session_posts_json_over_asgi_as_in_production():
    make_project("acme")
    client = AsyncClient(enforce_csrf_checks=True)
    client.cookies = permitted("add_job").cookies
    client.cookies["csrftoken"] = token = "a" * 32

    def post(**headers: str) -> int:
        path, body = f"{ROOT}/jobs/?project=acme", json.dumps(SPEC)

        async def send() -> int:
            response = await client.post(path, body, content_type="application/json", headers=headers)
            return int(response.status_code)

        return async_to_sync(send)()

    assert post() == 403
    assert post(**{"X-CSRFToken": token}) == 201
    assert Job.objects.get().payload == SPEC["payload"]


def test_a_session_that_posts_a_form_is_told_that_bodies_are_json(db):
    make_project("acme")
    client = permitted("add_job", enforce_csrf_checks=True)
    client.cookies["csrftoken"] = token = "a" * 32
    for media_type in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/plain"):
        path, headers = f"{ROOT}/jobs/?project=acme", {"X-CSRFToken": token}
        answer = client.post(path, b"kind=x", content_type=media_type, headers=headers)
        assert error_of(answer, 415)["code"] == "unsupported_media_type"
    assert not Job.objects.exists()
