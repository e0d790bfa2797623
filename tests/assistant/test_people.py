"""People's assistants: a personal token opens what its owner's role opens, everywhere or in one project."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import Job, PauseSwitch
from queueops.access.models import PersonalToken
from queueops.access.services.personal_tokens import issue_token, revoke_tokens
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.tenancy.models import digest_of
from ratelimits.alerts.alerts import open_alert
from ratelimits.limits import catalogue
from ratelimits.models import Limit, LimitOverride
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_dead_letters, make_jobs, make_project
from tests.support.assistants import Answered, Assistant
from tests.support.people import signed_in
from tests.support.undone import undone

pytestmark = pytest.mark.django_db

WHY = {"reason": "the provider asked for it"}

# Each change, and the roles that may confirm it.
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "preview_pause": ({"scope": "project", **WHY}, {"operator", "administrator"}),
    "preview_resume": ({"scope": "project", **WHY}, {"operator", "administrator"}),
    "preview_cancel_batch": ({"batch": "nightly", **WHY}, {"operator", "administrator"}),
    "preview_requeue": ({"fingerprint": "a" * 32, **WHY}, {"operator", "administrator"}),
    "preview_cap": ({"limit": "writes", "capacity": 30.0, **WHY}, {"limits manager", "administrator"}),
}


def person(role: str) -> User:
    roles.make_groups()
    made = User.objects.create_user(f"{role}-{User.objects.count()}", is_staff=True)
    made.groups.add(Group.objects.get(name=role))
    return made


def token_of(user: User, *, project: str | None = None, days: float = 1) -> Assistant:
    expires_at = timezone.now() + timedelta(days=days)
    _, secret = issue_token(user, name="on call", expires_at=expires_at, project_id=project, actor=f"user:{user.pk}")
    return Assistant(secret)


@pytest.fixture(autouse=True)
def _two_projects() -> Any:
    for project in ("acme", "beta"):
        batch = make_batch(project=project, name="nightly")
        make_jobs(2, project=project, batch=batch)
        make_dead_letters(1, project=project, error_code="http_404", fingerprint="a" * 32)
    Limit.objects.create(name="writes", service="http", capacity=600, window_seconds=60)
    catalogue.forget()
    yield
    catalogue.forget()


def confirmed(assistant: Assistant, tool: str, **arguments: Any) -> Answered:
    shown = assistant.call(tool, **arguments)
    token = "" if shown.data is None else shown.data["confirmation"]
    return assistant.call(
        "confirm",
        change=tool,
        arguments={name: value for name, value in arguments.items() if name != "project"},
        confirmation=token,
        project=arguments["project"],
    )


def state() -> list[Any]:
    return [
        list(PauseSwitch.objects.values_list("scope", "key")),
        list(LimitOverride.objects.values_list("key", "capacity")),
        list(Job.objects.order_by("id").values_list("status", "held")),
    ]


def test_a_person_is_shown_every_project_and_looks_into_the_one_that_is_named():
    assistant = token_of(person("viewer"))
    assert [row["id"] for row in assistant.call("projects").data] == ["acme", "beta"]
    for project in ("acme", "beta"):
        found = assistant.call("search_everything", text="nightly", project=project)
        assert [hit["title"] for hit in found.data["Batches"]] == ["nightly"]
    one = str(Job.objects.filter(project_id="beta").latest("id").pk)
    assert assistant.call("look_at_job", job=one, project="beta").error == {}
    assert assistant.call("look_at_job", job=one, project="acme").code == "not_found"
    assert assistant.call("limits").code == "project_required"
    assert assistant.call("limits", project="nobody").code == "unknown_project"


def test_the_role_decides_which_previews_may_be_confirmed():
    faults, before = {}, state()
    for role in ("viewer", "operator", "limits manager", "administrator"):
        owner = person(role)
        assistant = token_of(owner)
        trail = AuditEntry.objects.filter(actor=f"user:{owner.pk}", reason__endswith="(through the assistant)")
        for tool, (arguments, may) in CHANGES.items():
            with undone():
                answer = confirmed(assistant, tool, project="acme", **arguments)
                done = answer.code, trail.exists(), state() == before
            if role not in may:
                fine = done == ("missing_permission", False, True)
            else:
                fine = answer.error == {} and (done[1] or tool == "preview_resume")  # nothing was paused
            if not fine:
                faults[tool, role] = done
    assert faults == {}


def test_a_viewer_cannot_use_what_an_operator_was_shown():
    arguments = {"scope": "project", **WHY}
    shown = token_of(person("operator")).call("preview_pause", project="acme", **arguments)
    given = {"change": "preview_pause", "arguments": arguments, "confirmation": shown.data["confirmation"]}
    assert token_of(person("viewer")).call("confirm", project="acme", **given).code == "missing_permission"
    assert token_of(person("operator")).call("confirm", project="acme", **given).code == "bad_confirmation"
    assert not PauseSwitch.objects.exists()


def test_a_confirmation_of_one_project_is_none_for_another():
    assistant = token_of(person("operator"))
    arguments = {"scope": "project", **WHY}
    shown = assistant.call("preview_pause", project="acme", **arguments)
    given = {"change": "preview_pause", "arguments": arguments, "confirmation": shown.data["confirmation"]}
    assert assistant.call("confirm", project="beta", **given).code == "bad_confirmation"
    assert assistant.call("confirm", project="acme", **given).error == {}
    assert list(PauseSwitch.objects.values_list("key", flat=True)) == ["acme"]


@pytest.mark.parametrize("role", ["viewer", "administrator"])
def test_another_project_is_out_of_sight_for_who_is_confined_to_one(role):
    make_project("gamma")
    open_alert(
        "long_running",
        subject="everywhere",
        severity="warning",
        message="beta is mentioned",
        figures={"projects": ["acme", "beta"]},
    )
    assistant = token_of(person(role), project="acme")
    assert [row["id"] for row in assistant.call("projects").data] == ["acme"]
    assert assistant.call("limits").error == {}
    theirs = str(Job.objects.filter(project_id="beta").latest("id").pk)
    for project in ("beta", "nobody"):
        assert assistant.call("look_at_job", job=theirs, project=project).code == "unknown_project"
    assert assistant.call("look_at_job", job=theirs).code == "not_found"
    assert "beta" not in str(assistant.call("alerts").data)
    arguments = {"scope": "project", **WHY}
    assert confirmed(assistant, "preview_pause", project="beta", **arguments).code == "unknown_project"
    own = {"limit": "writes", "capacity": 5.0, "key": "project:beta", **WHY}
    assert confirmed(assistant, "preview_cap", project="acme", **own).error != {}
    assert state()[:2] == [[], []]


@pytest.mark.parametrize("ends", ["revoked", "expired", "inactive", "no staff", "unknown"])
def test_a_token_that_is_over_is_refused_at_once(ends):
    owner = person("viewer")
    assistant = token_of(owner)
    assert assistant.call("projects").error == {}
    if ends == "revoked":
        revoke_tokens([PersonalToken.objects.get().pk], actor="user:1", reason="lost")
    elif ends == "expired":
        PersonalToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif ends == "unknown":
        assistant = Assistant("qp_unknown")
    else:
        User.objects.filter(pk=owner.pk).update(**{"is_active" if ends == "inactive" else "is_staff": False})
    answer = mcp(assistant.key)
    assert error_of(answer, 401)["code"] == "invalid_key"


def mcp(key: str) -> Any:
    return Api(key).client.post("/mcp/", b"{}", content_type="application/json")


def test_a_role_that_is_taken_away_closes_the_tools_at_once():
    owner = person("viewer")
    assistant = token_of(owner)
    owner.groups.clear()
    assert error_of(mcp(assistant.key), 403)["code"] == "missing_permission"


def test_a_token_opens_the_assistant_and_no_address_of_the_api():
    secret = token_of(person("administrator")).key
    api = Api(secret)
    for path in ("/jobs/", "/limits/", "/at-once/"):
        assert error_of(api.get(f"{path}?project=acme"), 401)["code"] == "invalid_key"


def test_a_key_is_offered_nothing_of_peoples():
    assistant = Assistant(key_for("acme"))
    assert assistant.call("projects").code == "unknown_tool"
    assert assistant.call("limits", project="beta").code == "invalid_input"
    assert assistant.connected(lambda client: client.list_tools()).tools
    names = {one.name for one in assistant.connected(lambda client: client.list_tools()).tools}
    described = {one.name: one for one in token_of(person("viewer")).connected(lambda one: one.list_tools()).tools}
    assert set(described) - names == {"projects"}
    assert all("project" in tool.input_schema["properties"] for name, tool in described.items() if name != "projects")


def ask_for_token(client: Client, *, days: int) -> Any:
    expires_at = timezone.now() + timedelta(days=days)
    given = {"name": "pager", "expires_at_0": f"{expires_at:%Y-%m-%d}", "expires_at_1": f"{expires_at:%H:%M:%S}"}
    return client.post(reverse("admin:access_personaltoken_add"), given)


def test_a_token_is_issued_in_the_admin_shown_once_and_revoked():
    client = signed_in("viewer")
    shown = ask_for_token(client, days=30)
    secret = shown.context["secret"]
    token = PersonalToken.objects.get()
    assert (token.digest, token.name, token.project_id) == (digest_of(secret), "pager", None)
    listed = client.get(reverse("admin:access_personaltoken_changelist")).content.decode()
    assert token.prefix in listed
    assert secret not in listed
    assert Assistant(secret).call("projects").error == {}
    address = reverse("admin:access_personaltoken_revoke", args=[token.pk])
    assert client.post(address, {"confirmed": "1", "reason": ""}).status_code == 200
    assert signed_in("operator").post(address, {"confirmed": "1", "reason": "not mine"}).status_code == 200
    assert PersonalToken.objects.get().revoked_at is None
    assert signed_in("administrator").post(address, {"confirmed": "1", "reason": "he left"}).status_code == 302
    assert PersonalToken.objects.get().revoked_at is not None
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"issue_personal_token", "revoke_personal_token"} <= actions


@pytest.mark.parametrize("days", [-1, 91])
def test_a_token_without_a_near_end_is_refused(days):
    answer = ask_for_token(signed_in("viewer"), days=days)
    assert "expires_at" in answer.context["adminform"].form.errors
    assert not PersonalToken.objects.exists()
