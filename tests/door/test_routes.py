"""Model routes: which one a call goes by, and how they are made, by each surface."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.door.errors import BadModelRoute, NoModelRoute
from jobs.door.models import ModelRoute, Protocol
from jobs.door.routes import delete_route, known_models, route_for, routes_of, save_route
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from ratelimits.models import Price
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_project
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def credentials() -> None:
    for name, service in (("main", "openai"), ("other", "openai"), ("own", "vllm"), ("claude", "anthropic")):
        Credential.objects.create(name=name, service=service, secret=seal({"api_key": "k"})).projects.add(
            make_project("acme")
        )


def put(pattern: str, **fields: Any) -> ModelRoute:
    given = {"pattern": pattern, "provider": "openai", "credential": "main", **fields}
    return save_route(None, given, project_id="acme", actor="user:1")


def test_a_whole_name_goes_before_a_beginning_and_a_place_before_both():
    put("*", credential="other")
    put("gpt-*")
    put("gpt-4o", credential="other")
    put("gpt-4*")
    found = {model: route_for(routes_of("acme"), model, Protocol.OPENAI).pattern for model in ("gpt-4o", "gpt-4", "x")}
    assert found == {"gpt-4o": "gpt-4o", "gpt-4": "gpt-4*", "x": "*"}
    save_route(ModelRoute.objects.get(pattern="gpt-*").pk, {"place": 0}, project_id="acme", actor="user:1")
    for pattern in ("*", "gpt-4o", "gpt-4*"):
        save_route(ModelRoute.objects.get(pattern=pattern).pk, {"place": 1}, project_id="acme", actor="user:1")
    assert route_for(routes_of("acme"), "gpt-4o", Protocol.OPENAI).pattern == "gpt-*"


def test_a_model_may_be_had_by_both_protocols_and_a_missing_route_is_named():
    put("m")
    with pytest.raises(NoModelRoute, match="model_routes set PROJECT 'n'"):
        route_for(routes_of("acme"), "n", Protocol.OPENAI)
    with pytest.raises(NoModelRoute, match="nothing is translated"):
        route_for(routes_of("acme"), "m", Protocol.ANTHROPIC)
    put("m", provider="anthropic", credential="claude")
    assert route_for(routes_of("acme"), "m", Protocol.ANTHROPIC).credential == "claude"


@every_case(
    ("fields", "field"),
    [
        ({"pattern": ""}, "pattern"),
        ({"pattern": "a*b"}, "pattern"),
        ({"pattern": "a b"}, "pattern"),
        ({"pattern": "m"}, "pattern"),
        ({"provider": "gemini"}, "provider"),
        ({"credential": "nobody"}, "credential"),
        ({"credential": "own"}, "credential"),
        ({"service": "vllm"}, "credential"),
    ],
)
def test_a_route_that_leads_nowhere_is_refused(fields: dict[str, Any], field: str):
    if not ModelRoute.objects.exists():
        put("m")
    given = {"pattern": "n", "provider": "openai", "credential": "main", **fields}
    with pytest.raises(BadModelRoute) as refused:
        save_route(None, given, project_id="acme", actor="user:1")
    assert list(refused.value.fields) == [field]
    assert ModelRoute.objects.count() == 1


def test_changes_are_in_the_audit_trail():
    route = put("m")
    save_route(route.pk, {"credential": "other"}, project_id="acme", actor="user:1", reason="a new key")
    delete_route(route.pk, project_id="acme", actor="user:1")
    told: Any = AuditEntry.objects.filter(target=f"model route {route.pk}").order_by("pk")
    assert [entry.action for entry in told] == ["create_model_route", "change_model_route", "delete_model_route"]
    assert (told[1].before["credential"], told[1].after["credential"], told[1].reason) == ("main", "other", "a new key")


def test_known_are_named_models_and_those_that_have_a_price():
    for provider, model in (("openai", "gpt-4o"), ("openai", "gpt-4o"), ("vllm", "gpt-own"), ("anthropic", "c-1")):
        since = {"amount": 1, "valid_from": "2026-01-01T00:00Z"}
        Price.objects.get_or_create(provider=provider, model=model, unit="input_tokens", defaults=since)
    put("gpt-*")
    put("mine")
    assert known_models("acme") == [("gpt-4o", "openai"), ("mine", "openai")]


def test_by_the_api():
    api = Api(key_for("acme"))
    made = api.post("/model-routes/", {"pattern": "gpt-*", "credential": "main"})
    assert made.status_code == 201, made.content
    route = made.json()
    assert (route["pattern"], route["provider"], route["place"]) == ("gpt-*", "openai", 0)
    assert api.get("/model-routes/").json()["results"] == [route]
    changed = api.send(
        "PATCH", f"/model-routes/{route['id']}/", '{"credential": "other", "reason": "a new key"}'
    ).json()
    assert (changed["credential"], changed["pattern"]) == ("other", "gpt-*")
    error = error_of(api.post("/model-routes/", {"pattern": "gpt-*", "credential": "nobody"}), 422)
    assert list(error["fields"]) == ["pattern", "credential"]
    assert error_of(api.post("/model-routes/", {"pattern": "x", "colour": "red"}), 422)["code"] == "invalid_input"
    stranger = Api(key_for("globex"))
    assert stranger.get("/model-routes/").json()["results"] == []
    assert api.send("DELETE", f"/model-routes/{route['id']}/", "").json() == {"deleted": True}
    assert ModelRoute.objects.count() == 0


def test_by_the_command():
    out = StringIO()
    call_command("model_routes", "set", "acme", "gpt-*", "--credential", "main", stdout=out)
    call_command("model_routes", "set", "acme", "gpt-*", "--credential", "other", "--place", "3", stdout=out)
    assert out.getvalue().splitlines()[-1].split() == ["3", "gpt-*", "openai", "other", "openai"]
    with pytest.raises(CommandError, match="may not use a credential 'nobody'"):
        call_command("model_routes", "set", "acme", "x", "--credential", "nobody")
    with pytest.raises(CommandError, match="no project"):
        call_command("model_routes", "list", "nobody")
    with pytest.raises(CommandError, match="no route for 'x'"):
        call_command("model_routes", "remove", "acme", "x")
    call_command("model_routes", "remove", "acme", "gpt-*", stdout=out)
    assert "has no routes" in out.getvalue()


def test_by_the_form(admin_client: Client):
    address = "/admin/door/modelroute/add/"
    given = {"project": "acme", "pattern": "gpt-*", "provider": "openai", "credential": "nobody", "place": "0"}
    told = admin_client.post(address, given)
    assert "may not use a credential" in told.content.decode()
    assert admin_client.post(address, {**given, "credential": "main", "reason": "first"}).status_code == 302
    route = ModelRoute.objects.get()
    changed = admin_client.post(f"/admin/door/modelroute/{route.pk}/change/", {**given, "credential": "other"})
    assert changed.status_code == 302
    route.refresh_from_db()
    assert (route.credential, route.project_id) == ("other", "acme")
    assert "gpt-*" in admin_client.get("/admin/door/modelroute/").content.decode()
    assert "<option value='claude'>" in admin_client.get(address).content.decode()
    assert admin_client.post(f"/admin/door/modelroute/{route.pk}/delete/", {"post": "yes"}).status_code == 302
    assert ModelRoute.objects.count() == 0
