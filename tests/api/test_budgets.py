"""Budgets over the API: who may see and change them, what is refused, and what the trail tells."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.urls import reverse

from queueops.audit.models import AuditEntry
from ratelimits.models import Budget
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_project
from tests.support.api import told
from tests.support.people import permitted
from tests.support.racing import run_together

FIGURES: dict[str, Any] = {"name": "pilot", "amount": 5_000_000}


@pytest.fixture
def manager(db: None) -> Api:
    return Api(key_for("acme", scopes=["read", "limits"]))


def make_budget(project: str = "acme", **figures: Any) -> Budget:
    return Budget.objects.create(project=make_project(project), **{**FIGURES, "set_by_operator": False, **figures})


def send(api: Api, method: str, path: str, body: Any = None) -> Any:
    return api.send(method, path, "" if body is None else json.dumps(body))


def rows() -> list[Any]:
    return list(Budget.objects.order_by("pk").values_list())


def test_another_projects_budget_is_not_there(manager):
    path = f"/budgets/{make_budget('globex').pk}/"
    before = rows()
    for method, query, body in (("GET", "", None), ("PATCH", "", {"amount": 7}), ("DELETE", "?reason=over", None)):
        assert error_of(send(manager, method, path + query, body), 404)["code"] == "unknown_budget"
    assert rows() == before


def test_a_budget_is_made_changed_and_deleted_and_the_trail_tells(manager):
    user = str(uuid4())
    given = {**FIGURES, "scope": "user", "user_id": user, "period": "day", "time_zone": "Europe/Vienna"}
    made = send(manager, "POST", "/budgets/", {**given, "reason": "the pilot"})
    assert made.status_code == 201, made.content
    shown = made.json()
    assert {name: shown[name] for name in given} == given
    assert (shown["spent"], shown["held"], shown["left"]) == (0, 0, FIGURES["amount"])
    path = made["Location"].removeprefix("/api/v1")
    assert manager.get(path).json() == shown
    changed = send(manager, "PATCH", path, {"amount": 7, "policy": "reject", "reason": "less"}).json()
    assert (changed["amount"], changed["policy"], changed["name"]) == (7, "reject", "pilot")
    assert send(manager, "DELETE", f"{path}?reason=over").json() == {"removed": True}
    assert error_of(manager.get(path), 404)["code"] == "unknown_budget"
    told = AuditEntry.objects.order_by("pk").values_list("action", "reason", "project_id")
    assert list(told) == [
        ("create_budget", "the pilot", "acme"),
        ("change_budget", "less", "acme"),
        ("delete_budget", "over", "acme"),
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "name"),
    ({"name": "", "amount": 1}, "name"),
    ({"name": "x"}, "amount"),
    ({"name": "x", "amount": -1}, "amount"),
    ({"name": "x", "amount": 10**15 + 1}, "amount"),
    ({"name": "x", "amount": 1.5}, "amount"),
    ({"name": "x", "amount": "7"}, "amount"),
    ({"name": "x", "amount": 7, "time_zone": "Europe/Nowhere"}, "time_zone"),
    ({"name": "x", "amount": 7, "time_zone": "CET"}, "time_zone"),  # in PostgreSQL it has no summer time
    ({"name": "x", "amount": 7, "scope": "user"}, "user_id"),
    ({"name": "x", "amount": 7, "scope": "batch"}, "batch_id"),
    ({"name": "x", "amount": 7, "user_id": str(uuid4())}, "user_id"),
    ({"name": "x", "amount": 7, "scope": "team"}, "scope"),
    ({"name": "x", "amount": 7, "period": "year"}, "period"),
    ({"name": "x", "amount": 7, "policy": "maybe"}, "policy"),
    ({"name": "x", "amount": 7, "project": "globex"}, "project"),
    ({"name": "pilot", "amount": 7}, "name"),
]


def test_what_cannot_be_a_budget_is_refused_by_its_field_and_nothing_is_made(manager):
    make_budget()
    before = rows()
    answers = [(body, field, told(send(manager, "POST", "/budgets/", body))) for body, field in WRONG]
    assert [(body, got) for body, field, got in answers if got[0] != 422 or field not in got[2]] == []
    assert rows() == before
    assert not AuditEntry.objects.exists()


def test_a_budget_names_a_batch_of_its_own_project_and_tells_nothing_of_others(manager):
    def ask(batch_id: UUID) -> Any:
        return send(manager, "POST", "/budgets/", {**FIGURES, "scope": "batch", "batch_id": str(batch_id)})

    foreign = error_of(ask(make_batch(project="globex").pk), 422)
    assert (foreign["code"], foreign["fields"]) == ("invalid_budget", {"batch_id": ["The project has no such batch."]})
    assert error_of(ask(uuid4()), 422) == foreign
    assert not Budget.objects.exists()
    batch = make_batch()
    made = ask(batch.pk)
    assert made.status_code == 201, made.content
    batch.delete()
    changed = send(manager, "PATCH", made["Location"].removeprefix("/api/v1"), {"amount": 7})
    assert changed.json()["amount"] == 7, "that its batch was removed keeps nobody from changing it"


def test_of_whom_and_when_it_counts_stays(manager):
    budget, kept = make_budget(), ["It cannot be changed: make another budget."]
    changes = ({"period": "day"}, {"scope": "each_user"}, {"time_zone": "Asia/Tokyo"}, {"user_id": str(uuid4())})
    for change in changes:
        error = error_of(send(manager, "PATCH", f"/budgets/{budget.pk}/", change), 422)
        assert (error["code"], error["fields"]) == ("invalid_budget", dict.fromkeys(change, kept))


def test_a_change_names_what_it_changes_alone_and_none_is_told_for_nothing(manager):
    budget = make_budget(note="ours")
    assert send(manager, "PATCH", f"/budgets/{budget.pk}/", {}).json()["note"] == "ours"
    assert not AuditEntry.objects.exists()
    error_of(send(manager, "PATCH", f"/budgets/{budget.pk}/", {"name": ""}), 422)
    error_of(send(manager, "PATCH", f"/budgets/{budget.pk}/", {"amount": None}), 422)


def test_what_an_operator_has_set_a_key_may_only_look_at(manager):
    budget = make_budget(set_by_operator=True)
    before = rows()
    for method, query, body in (("PATCH", "", {"amount": 7}), ("PATCH", "", {}), ("DELETE", "?reason=over", None)):
        error = error_of(send(manager, method, f"/budgets/{budget.pk}/{query}", body), 403)
        assert (error["code"], rows()) == ("operators_budget", before)
    assert manager.get(f"/budgets/{budget.pk}/").json()["set_by_operator"] is True
    assert not AuditEntry.objects.exists()


def test_what_a_key_makes_any_key_may_change_until_an_operator_does(manager):
    made = send(manager, "POST", "/budgets/", FIGURES).json()
    assert made["set_by_operator"] is False
    address = f"/budgets/{made['id']}/"
    assert send(Api(key_for("acme", scopes=["limits"])), "PATCH", address, {"amount": 6}).json()["amount"] == 6
    operator = permitted("change_budget")

    def change(amount: int) -> Any:
        body = json.dumps({"amount": amount})
        return operator.patch(f"/api/v1{address}?project=acme", body, content_type="application/json").json()

    assert change(6)["set_by_operator"] is False, "nothing was changed"
    assert change(7)["set_by_operator"] is True
    assert error_of(send(manager, "PATCH", address, {"amount": 8}), 403)["code"] == "operators_budget"


def test_one_that_an_operator_makes_is_the_operators(db):
    make_project("acme")
    sent = json.dumps(FIGURES)
    made = permitted("add_budget").post("/api/v1/budgets/?project=acme", sent, content_type="application/json")
    assert made.json()["set_by_operator"] is True


WRONG_IN_THE_FORM: list[tuple[dict[str, Any], str, str]] = [
    ({"scope": "user"}, "user_id", "Name the user of a budget of one user, and of no other."),
    ({"user_id": str(uuid4())}, "user_id", "Name the user of a budget of one user, and of no other."),
    ({"scope": "batch"}, "batch_id", "Name the batch of a budget of one batch, and of no other."),
    ({"scope": "batch", "batch_id": str(uuid4())}, "batch_id", "The project has no such batch."),
    ({"money": "-1"}, "money", "Ensure this value is greater than or equal to 0."),
]


def test_the_admins_form_says_at_the_field_whose_budget_it_cannot_be(admin_client):
    given = {"project": make_project().pk, "name": "b", "scope": "project", "money": "1", "period": "month"}
    for fields, field, told_there in WRONG_IN_THE_FORM:
        page = admin_client.post(
            reverse("admin:ratelimits_budget_add"), given | {"time_zone": "UTC", "policy": "wait"} | fields
        )
        assert page.context["adminform"].form.errors == {field: [told_there]}
    assert not Budget.objects.exists()


def test_to_delete_one_takes_a_reason(manager):
    budget = make_budget()
    error_of(send(manager, "DELETE", f"/budgets/{budget.pk}/"), 400)
    assert Budget.objects.exists()


def test_the_list_comes_in_pages_newest_first_and_of_its_own_project(manager):
    make_budget("globex")
    for number in range(5):
        make_budget(name=f"b{number}", period="day" if number % 2 else "month")
    first = manager.get("/budgets/?page_size=3").json()
    assert [row["name"] for row in first["results"]] == ["b4", "b3", "b2"]
    rest = manager.client.get(first["next"]).json()
    assert ([row["name"] for row in rest["results"]], rest["next"]) == (["b1", "b0"], None)
    assert [row["name"] for row in manager.get("/budgets/?period=day").json()["results"]] == ["b3", "b1"]


@pytest.mark.django_db(transaction=True)
def test_of_many_who_make_one_of_the_same_name_at_once_one_does():
    manager = key_for("acme", scopes=["limits"])
    answers = run_together(4, lambda _: send(Api(manager), "POST", "/budgets/", FIGURES))
    assert sorted(answer.status_code for answer in answers) == [201, 422, 422, 422]
    refused = [answer.json()["error"] for answer in answers if answer.status_code == 422]
    assert all(
        (one["code"], one["fields"]) == ("invalid_budget", {"name": ["Another budget of the project has this name."]})
        for one in refused
    )
