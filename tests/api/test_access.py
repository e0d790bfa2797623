"""Who may do what, and that nobody reaches another project."""

import json
from datetime import timedelta
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
from django.urls import URLPattern

from jobs.api.urls import urlpatterns
from jobs.models import BulkOperation, DeadLetter, Job, MaintenanceWindow, Schedule, Webhook, WebhookDelivery
from jobs.states import JobState
from queueops.core.values.rate import Rate
from queueops.tenancy.callers.throttles import CallerThrottle
from queueops.tenancy.models import ProducerKey
from tests.api.conftest import ALL_SCOPES, ROOT, SPEC, Api, error_of, key_for
from tests.factories import (
    make_batch,
    make_dead_letter,
    make_job,
    make_project,
    make_provider_batch,
    make_schedule,
    make_webhook,
    make_window,
)


def view_of(pattern: URLPattern) -> Any:
    return vars(pattern.callback)["cls"]


METHODS = [
    (method, pattern)
    for pattern in urlpatterns
    for method in ("GET", "POST")
    if hasattr(view_of(pattern), method.lower())
]
SCHEDULE: dict[str, Any] = {"cron": "0 * * * *", "jobs": [SPEC]}
BODIES: dict[str, dict[str, Any]] = {
    "JobList": SPEC,
    "BatchList": {"jobs": [SPEC]},
    "ForecastBatch": {"jobs": [SPEC]},
    "ScheduleJob": {"delay_seconds": 5},
    "ChangeJobPriority": {"priority": "low"},
    "ChangeBatchPriority": {"priority": "low"},
    "ScheduleJobs": {"delay_seconds": 5},
    "ChangeJobsPriority": {"priority": "low"},
    "ScheduleList": {"name": "x", **SCHEDULE},
    "PreviewSchedule": {"name": "x", **SCHEDULE},
    "WebhookList": {"url": "https://example.org/", "jobs": {}},
    "WindowList": {"begins_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-01T01:00:00Z"},
    "DiscardDeadLetter": {"reason": "x"},
    "DiscardDeadLetters": {"reason": "x"},
}


def ids_of(project: str) -> dict[str, str]:
    batch = make_batch(project=project)
    letter = make_dead_letter(project=project, batch=batch)
    operation = BulkOperation.objects.create(
        action="cancel_jobs", parameters={"project_id": project, "batch_id": str(batch.pk)}, actor="x", total=1
    )
    return {
        "jobs": str(make_job(project=project, batch=batch).pk),
        "batches": str(batch.pk),
        "dead-letters": str(letter.pk),
        "operations": str(operation.pk),
        "provider-batches": str(make_provider_batch(project=project).pk),
        "schedules": str(make_schedule(project=project).pk),
        "maintenance": str(make_window(project).pk),
        "webhooks": str(make_webhook(make_project(project)).pk),
    }


def address(pattern: URLPattern, ids: dict[str, str]) -> str:
    route = str(pattern.pattern)
    return "/" + route.replace("<uuid:pk>", ids.get(route.split("/", maxsplit=1)[0], "")).replace("<int:pk>", "1")


def call(api: Api, method: str, pattern: URLPattern, ids: dict[str, str]):
    if method == "GET":
        return api.get(address(pattern, ids))
    body = dict(BODIES.get(view_of(pattern).__name__, {}))
    route = str(pattern.pattern)
    if "<" not in route and route.split("/", maxsplit=1)[0] in {"jobs", "dead-letters"} and route.count("/") > 1:
        body["ids"] = [ids[route.split("/", maxsplit=1)[0]]]
    return api.post(address(pattern, ids), body)


def everything() -> dict[str, list[Any]]:
    """What an attacker might have changed."""
    return {
        "jobs": list(Job.objects.order_by("pk").values("pk", "status", "priority", "scheduled_at", "held")),
        "letters": list(DeadLetter.objects.order_by("pk").values("pk", "resolution")),
        "schedules": list(Schedule.objects.order_by("pk").values("pk", "paused", "next_due_at")),
        "windows": list(MaintenanceWindow.objects.order_by("pk").values("pk", "skipped_until", "next_change_at")),
        "webhooks": list(Webhook.objects.order_by("pk").values("pk", "url", "enabled", "hears_jobs")),
        "messages": list(WebhookDelivery.objects.order_by("pk").values("pk")),
        "operations": list(BulkOperation.objects.order_by("pk").values("pk", "status")),
    }


@pytest.mark.proves("S1")
@pytest.mark.parametrize(("method", "pattern"), METHODS, ids=lambda value: str(getattr(value, "pattern", value)))
def test_another_projects_rows_are_neither_shown_nor_touched(api: Api, method, pattern):
    theirs = ids_of("other")
    before = everything()
    response = call(api, method, pattern, theirs)
    if "<uuid:pk>" in str(pattern.pattern):
        unknown = call(api, method, pattern, dict.fromkeys(theirs, str(uuid4())))
        assert error_of(response, 404) == error_of(unknown, 404)
    else:
        assert response.status_code in {200, 201}, response.content
        text = response.content.decode()
        body = response.json()
        if isinstance(body.get("unmoved"), list):
            assert not body["moved"]
        else:
            assert not [theirs_id for theirs_id in theirs.values() if theirs_id in text]
    after = everything()
    assert [row for row in after["jobs"] if row in before["jobs"]] == before["jobs"]
    for rows in ("schedules", "windows", "webhooks"):
        assert [row for row in after[rows] if row in before[rows]] == before[rows]
    for rows in ("letters", "operations", "messages"):
        assert after[rows] == before[rows]


@pytest.mark.parametrize(("method", "pattern"), METHODS, ids=lambda value: str(getattr(value, "pattern", value)))
def test_every_method_needs_a_key_with_its_scope(db, method, pattern):
    ids = ids_of("acme")
    before = everything()
    response = call(Api(), method, pattern, ids)
    assert error_of(response, 401)["code"] == "not_authenticated"
    assert response["WWW-Authenticate"].startswith("Bearer")
    needed = view_of(pattern).needs[method].scope.value
    others = [scope for scope in ALL_SCOPES if scope != needed]
    error = error_of(call(Api(key_for("acme", scopes=others)), method, pattern, ids), 403)
    assert (error["code"], error["details"]["needed"]) == ("missing_scope", needed)
    assert everything() == before


@pytest.mark.parametrize("pattern", urlpatterns, ids=lambda pattern: str(pattern.pattern))
def test_every_address_answers_options_and_refuses_other_methods(api: Api, pattern):
    rows = ["jobs", "batches", "dead-letters", "operations", "provider-batches", "schedules", "maintenance", "webhooks"]
    path = address(pattern, dict.fromkeys(rows, str(uuid4())))
    assert api.send("OPTIONS", path, "").status_code == 200
    response = api.send("PATCH" if hasattr(view_of(pattern), "put") else "PUT", path, "")
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert "OPTIONS" in response["Allow"]


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


def signed_in(*permissions: str, is_staff: bool = True, **kwargs) -> Client:
    user = User.objects.create_user(f"user{User.objects.count()}", is_staff=is_staff)
    for permission in permissions:
        user.user_permissions.add(Permission.objects.get(codename=permission))
    client = Client(**kwargs)
    client.force_login(user)
    return client


def test_an_operators_session_acts_for_the_project_it_names(db):
    make_job(project="acme")
    client = signed_in("view_job")
    assert len(client.get(f"{ROOT}/jobs/?project=acme").json()["results"]) == 1
    assert len(client.get(f"{ROOT}/jobs/", headers={"X-Project": "acme"}).json()["results"]) == 1
    assert error_of(client.get(f"{ROOT}/jobs/"), 400)["code"] == "project_required"
    assert error_of(client.get(f"{ROOT}/jobs/?project=nobody"), 404)["code"] == "unknown_project"
    assert error_of(client.get(f"{ROOT}/jobs/?project={quote(chr(0))}"), 404)["code"] == "unknown_project"


def test_an_operator_needs_the_permission_of_each_action(db):
    job = make_job(project="acme")
    path = f"{ROOT}/jobs/{job.pk}/cancel/?project=acme"
    error = error_of(signed_in("view_job").post(path, {}, content_type="application/json"), 403)
    assert (error["code"], error["details"]["needed"]) == ("missing_permission", "jobs.cancel_job")
    assert signed_in("cancel_job").post(path, {}, content_type="application/json").status_code == 200
    assert Job.objects.get().status == JobState.CANCELLED
    assert error_of(signed_in(is_staff=False).get(f"{ROOT}/jobs/?project=acme"), 403)["code"] == "staff_only"


@pytest.mark.proves("S8")
def test_a_session_needs_the_csrf_token_for_what_changes_something(db):
    make_project("acme")
    client = signed_in("add_job", enforce_csrf_checks=True)
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
    client.cookies = signed_in("add_job").cookies
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


@pytest.mark.parametrize(
    "media_type", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/plain"]
)
def test_a_session_that_posts_a_form_is_told_that_bodies_are_json(db, media_type):
    make_project("acme")
    client = signed_in("add_job", enforce_csrf_checks=True)
    client.cookies["csrftoken"] = token = "a" * 32
    answer = client.post(
        f"{ROOT}/jobs/?project=acme", b"kind=x", content_type=media_type, headers={"X-CSRFToken": token}
    )
    assert error_of(answer, 415)["code"] == "unsupported_media_type"
    assert not Job.objects.exists()


def test_every_method_says_what_it_needs():
    assert all(set(view_of(pattern).needs) >= {method} for method, pattern in METHODS)
