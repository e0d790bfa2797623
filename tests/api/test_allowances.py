"""Allowances over the API and by command: who may see and change them, what is refused, and what the trail tells."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from queueops.audit.models import AuditEntry
from queueops.tenancy.models import Project
from ratelimits.models import Allowance, UsageTracking
from ratelimits.usage.allowances import set_override
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_allowance, make_project, make_usage_event, make_usage_month
from tests.support.api import told
from tests.support.people import permitted

PATH = "/allowances/acme/"
ASKED = {"quota": 500, "unit": "tokens", "time_zone": "Europe/Vienna"}


@pytest.fixture
def manager(db: None) -> Api:
    return Api(key_for("acme", scopes=["read", "limits"]))


def send(api: Api, method: str, path: str, body: Any = None) -> Any:
    return api.send(method, path, "" if body is None else json.dumps(body))


def rows() -> list[Any]:
    return list(Allowance.objects.order_by("pk").values_list())


def own(project: str = "acme", **figures: Any) -> Allowance:
    """One that a key of the project has set."""
    made = make_allowance(project, **figures)
    Allowance.objects.filter(pk=made.pk).update(set_by_operator=False)
    return made


def test_an_allowance_is_made_changed_and_deleted_and_the_trail_tells(manager):
    made = send(manager, "POST", "/allowances/", {**ASKED, "reason": "the plan"})
    assert made.status_code == 201, made.content
    shown = made.json()
    assert {name: shown[name] for name in ASKED} == ASKED
    assert (shown["policy"], shown["reservation_seconds"], shown["set_by_operator"]) == ("strict", 300, False)
    assert made["Location"] == f"/api/v1{PATH}"
    seen = manager.get(PATH).json()
    assert manager.get("/allowances/").json()["results"] == [seen]
    assert seen.items() <= shown.items()
    changed = send(manager, "PATCH", PATH, {"policy": "record_overage", "reason": "softer"}).json()
    assert (changed["policy"], changed["quota"], len(changed["warnings"])) == ("record_overage", 500, 1)
    assert send(manager, "DELETE", f"{PATH}?reason=over").json() == {"removed": True}
    assert error_of(manager.get(PATH), 404)["code"] == "no_allowance"
    assert manager.get("/allowances/").json()["results"] == []
    entries = AuditEntry.objects.order_by("pk").values_list("action", "reason", "project_id")
    assert list(entries) == [
        ("set_allowance", "the plan", "acme"),
        ("set_allowance", "softer", "acme"),
        ("delete_allowance", "over", "acme"),
    ]


def test_another_projects_allowance_is_not_there(manager):
    own("globex", quota=7)
    before = rows()
    path = "/allowances/globex/"
    for method, query, body in (("GET", "", None), ("PATCH", "", {"quota": 1}), ("DELETE", "?reason=over", None)):
        assert error_of(send(manager, method, path + query, body), 404)["code"] == "no_allowance"
    assert manager.get("/allowances/").json()["results"] == []
    assert rows() == before


def test_keys_look_at_what_an_operator_has_set_and_leave_it_and_operators_take_over_what_keys_have_set(manager):
    make_allowance(quota=5)
    before = rows()
    for method, query, body in (("PATCH", "", {"quota": 1}), ("DELETE", "?reason=over", None)):
        assert error_of(send(manager, method, PATH + query, body), 403)["code"] == "operators_allowance"
    assert error_of(send(manager, "POST", "/allowances/", ASKED), 409)["code"] == "allowance_exists"
    assert rows() == before
    own("globex", quota=5)
    client = permitted("change_allowance", "view_allowance")
    path = "/api/v1/allowances/globex/?project=globex"
    answer = client.patch(path, json.dumps({"quota": 6}), content_type="application/json")
    assert answer.json()["set_by_operator"] is True


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "quota"),
    ({"quota": -1}, "quota"),
    ({"quota": 10**15 + 1}, "quota"),
    ({"quota": 1.5}, "quota"),
    ({"quota": "7"}, "quota"),
    ({"quota": None}, "quota"),
    ({"quota": 7, "unit": "bytes"}, "unit"),
    ({"quota": 7, "policy": "lax"}, "policy"),
    ({"quota": 7, "time_zone": "Europe/Nowhere"}, "time_zone"),
    ({"quota": 7, "reservation_seconds": 0}, "reservation_seconds"),
    ({"quota": 7, "reservation_seconds": 86_401}, "reservation_seconds"),
    ({"quota": 7, "project": "globex"}, "project"),
]


def test_what_cannot_be_an_allowance_is_refused_by_its_field_and_nothing_is_made(manager):
    answers = [(body, field, told(send(manager, "POST", "/allowances/", body))) for body, field in WRONG]
    assert [(body, got) for body, field, got in answers if got[0] != 422 or field not in got[2]] == []
    own()
    before = rows()
    changes = [(body, field, told(send(manager, "PATCH", PATH, body))) for body, field in WRONG if body]
    assert [(body, got) for body, field, got in changes if got[0] != 422 or field not in got[2]] == []
    assert rows() == before
    assert not AuditEntry.objects.exists()


def test_a_lower_quota_says_whom_it_stops_and_holds_in_this_month(manager):
    user = uuid4()
    own(quota=10)
    make_usage_event(user, amount=1)
    make_usage_event(user, amount=1)
    changed = send(manager, "PATCH", PATH, {"quota": 1}).json()
    assert changed["months"] == 1
    assert "1 of the users" in changed["warnings"][0]
    assert UsageTracking.objects.get().quota == 1


def test_an_allowance_in_use_stays_and_so_do_months_and_own_quotas_of_one_that_is_deleted(manager):
    user = uuid4()
    own(quota=10)
    error_of(send(manager, "DELETE", PATH), 400)
    make_usage_month(user, month="2026-01")
    set_override("acme", user, quota=99, actor="user:1")
    make_usage_event(uuid4())
    assert error_of(send(manager, "DELETE", f"{PATH}?reason=over"), 409)["code"] == "allowance_in_use"
    UsageTracking.objects.exclude(month_year="2026-01").delete()
    assert send(manager, "DELETE", f"{PATH}?reason=over").json() == {"removed": True}
    assert UsageTracking.objects.get().quota == 10
    assert send(manager, "POST", "/allowances/", ASKED).status_code == 201
    assert Project.objects.get(pk="acme").allowance_overrides.get().quota == 99


# By command


def command(*words: str, **options: Any) -> None:
    call_command("set_allowance", *words, **options)


@pytest.mark.django_db
def test_the_command_gives_shows_changes_and_deletes(capsys):
    make_project("acme")
    command("acme", quota=5000, unit="tokens", reason="the plan")
    command("acme")
    command("acme", "--time-zone", "Europe/Vienna")
    command("acme", "--delete")
    shown = "acme: 5,000 tokens for each user and month of {}, strict, reservations of 300 s."
    assert capsys.readouterr().out.splitlines() == [
        shown.format("UTC"), shown.format("UTC"), shown.format("Europe/Vienna"), "acme has no allowance any more."
    ]  # fmt: skip
    entries = AuditEntry.objects.order_by("pk").values_list("actor", "action", "reason")
    assert list(entries) == [
        ("command:set_allowance", "set_allowance", "the plan"),
        ("command:set_allowance", "set_allowance", ""),
        ("command:set_allowance", "delete_allowance", ""),
    ]


@pytest.mark.django_db
def test_the_command_says_what_is_wrong_and_what_may_surprise_and_changes_nothing():
    for words, told_of in (
        (["nowhere", "--quota", "1"], "project_id: There is no such project"),
        (["nowhere"], "no allowance; --quota gives it one"),
        (["nowhere", "--policy", "strict"], "no allowance; --quota gives it one"),
        (["nowhere", "--delete"], "no such project"),
    ):
        with pytest.raises(CommandError, match=told_of):
            command(*words)
    make_allowance(quota=10)
    make_usage_event(uuid4())
    before = rows()
    for words, told_of in (
        (["acme", "--quota", "-1"], "quota: Ensure"),
        (["acme", "--time-zone", "Nowhere"], "time_zone: No such time zone"),
        (["acme", "--quota", "1", "--delete"], "not both"),
        (["acme", "--delete"], "A quota of 0 ends it at once"),
        (["acme", "--policy", "record_overage"], "Mind: From now on(.|\n)*Nothing was changed. Say --yes"),
    ):
        with pytest.raises(CommandError, match=told_of):
            command(*words)
    assert rows() == before
    command("acme", "--policy", "record_overage", "--yes")
    assert Allowance.objects.get().policy == "record_overage"
