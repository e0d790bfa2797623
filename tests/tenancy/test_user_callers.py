"""What an end user may do, at every address, and that nobody reaches another user's work."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern
from django.utils import timezone

from jobs.api.urls import urlpatterns as queue
from jobs.models import Batch, BulkOperation, IdempotencyRecord, Job
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core.values import rate
from queueops.core.values.rate import Rate
from queueops.tenancy.callers.throttles import BAD_KEYS_PER_MINUTE, CallerThrottle
from queueops.tenancy.models import Issuer, ProducerKey, Project, ProjectMove
from ratelimits.api.urls import urlpatterns as limiter
from ratelimits.models import Spend
from tests.api.conftest import SPEC, Api, error_of, key_for
from tests.factories import (
    make_batch,
    make_dead_letter,
    make_job,
    make_provider_batch,
    make_schedule,
    make_webhook,
    make_window,
)
from tests.support.issuers import OTHER_USER, USER, make_issuer, shared_token

pytestmark = pytest.mark.django_db

# What each address is to an end user: "own": theirs alone; "all": the same for everybody; "whole": it concerns the
# whole project. Whoever adds an address decides here.
ADDRESSES = {
    "GET jobs/": "own",
    "POST jobs/": "own",
    "POST jobs/cancel/": "own",
    "POST jobs/schedule/": "whole",
    "POST jobs/reset/": "whole",
    "POST jobs/priority/": "whole",
    "GET jobs/<uuid:pk>/": "own",
    "GET jobs/<uuid:pk>/events/": "own",
    "GET jobs/<uuid:pk>/result/": "own",
    "POST jobs/<uuid:pk>/cancel/": "own",
    "POST jobs/<uuid:pk>/schedule/": "whole",
    "POST jobs/<uuid:pk>/reset/": "whole",
    "POST jobs/<uuid:pk>/priority/": "whole",
    "POST jobs/<uuid:pk>/retry/": "whole",
    "POST jobs/<uuid:pk>/go-on/": "whole",
    "GET batches/": "own",
    "POST batches/": "own",
    "POST forecast/": "own",
    "GET batches/<uuid:pk>/": "own",
    "GET batches/<uuid:pk>/jobs/": "own",
    "GET batches/<uuid:pk>/waiting/": "own",
    "GET batches/<uuid:pk>/results/": "own",
    "POST batches/<uuid:pk>/cancel/": "own",
    "POST batches/<uuid:pk>/pause/": "whole",
    "POST batches/<uuid:pk>/resume/": "whole",
    "POST batches/<uuid:pk>/priority/": "whole",
    "POST batches/<uuid:pk>/retry/": "whole",
    "POST batches/<uuid:pk>/go-on/": "whole",
    "GET audit/": "whole",
    "GET events/": "whole",
    "GET dead-letters/": "whole",
    "POST dead-letters/requeue/": "whole",
    "POST dead-letters/discard/": "whole",
    "GET dead-letters/<uuid:pk>/": "whole",
    "POST dead-letters/<uuid:pk>/requeue/": "whole",
    "POST dead-letters/<uuid:pk>/discard/": "whole",
    "GET handlers/": "all",
    "GET operations/": "own",
    "GET operations/<uuid:pk>/": "own",
    "POST operations/<uuid:pk>/cancel/": "whole",
    "GET provider-batches/": "whole",
    "GET provider-batches/<uuid:pk>/": "whole",
    "POST provider-batches/<uuid:pk>/cancel/": "whole",
    "GET schedules/": "whole",
    "POST schedules/": "whole",
    "POST schedules/preview/": "whole",
    "GET schedules/<uuid:pk>/": "whole",
    "PATCH schedules/<uuid:pk>/": "whole",
    "DELETE schedules/<uuid:pk>/": "whole",
    "GET schedules/<uuid:pk>/fires/": "whole",
    "POST schedules/<uuid:pk>/pause/": "whole",
    "POST schedules/<uuid:pk>/resume/": "whole",
    "POST schedules/<uuid:pk>/run/": "whole",
    "GET maintenance/": "whole",
    "POST maintenance/": "whole",
    "GET maintenance/<uuid:pk>/": "whole",
    "PATCH maintenance/<uuid:pk>/": "whole",
    "DELETE maintenance/<uuid:pk>/": "whole",
    "POST maintenance/<uuid:pk>/end/": "whole",
    "GET webhooks/": "whole",
    "POST webhooks/": "whole",
    "GET webhooks/<uuid:pk>/": "whole",
    "PATCH webhooks/<uuid:pk>/": "whole",
    "POST webhooks/<uuid:pk>/test/": "whole",
    "GET webhooks/<uuid:pk>/deliveries/": "whole",
    "GET webhooks/<uuid:pk>/jobs/": "whole",
    "GET at-once/": "whole",
    "PUT at-once/": "whole",
    "DELETE at-once/<int:pk>/": "whole",
    "GET spend/": "own",
    "GET budgets/": "whole",
    "POST budgets/": "whole",
    "GET budgets/<int:pk>/": "whole",
    "PATCH budgets/<int:pk>/": "whole",
    "DELETE budgets/<int:pk>/": "whole",
    "GET project/": "whole",
    "POST project/pause/": "whole",
    "POST project/resume/": "whole",
    "POST ratelimits/decide/": "whole",
    "POST ratelimits/settle/": "whole",
    "GET limits/": "whole",
    "GET objectives/": "whole",
    "POST limits/": "whole",
    "GET limits/<int:pk>/": "whole",
    "PATCH limits/<int:pk>/": "whole",
    "DELETE limits/<int:pk>/": "whole",
    "GET limits/<int:pk>/counters/": "whole",
    "POST limits/<int:pk>/overrides/": "whole",
    "DELETE limits/<int:pk>/overrides/": "whole",
    "POST limits/<int:pk>/simulate/": "whole",
    "POST usage/reserve/": "own",
    "POST usage/ingest/": "own",
    "POST usage/cancel/": "own",
    "GET usage/me/": "own",
    "GET usage/events/": "own",
    "GET usage/": "own",
}
ANONYMOUS = {
    "GET jobs/",
    "GET jobs/<uuid:pk>/",
    "GET jobs/<uuid:pk>/events/",
    "GET jobs/<uuid:pk>/result/",
    "GET batches/",
    "GET batches/<uuid:pk>/",
    "GET batches/<uuid:pk>/jobs/",
    "GET batches/<uuid:pk>/waiting/",
    "GET batches/<uuid:pk>/results/",
}


def view_of(pattern: URLPattern) -> Any:
    return vars(pattern.callback)["cls"]


PATTERNS = {
    f"{method} {pattern.pattern}": pattern
    for pattern in [*queue, *limiter]
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    if hasattr(view_of(pattern), method.lower()) and str(pattern.pattern).endswith("/")
}


@pytest.fixture
def issuer(db: None) -> Issuer:
    return make_issuer()


@pytest.fixture
def user(issuer: Issuer) -> Api:
    return Api(shared_token())


@pytest.fixture
def other(issuer: Issuer) -> Api:
    return Api(shared_token(OTHER_USER))


def make_rows(user_id: Any, actor: str) -> dict[str, str]:
    batch = make_batch(user_id=user_id)
    letter = make_dead_letter(batch=batch)
    Job.objects.filter(pk=letter.job_id).update(user_id=user_id)
    operation = BulkOperation.objects.create(
        action="cancel_jobs", parameters={"project_id": "acme", "batch_id": str(batch.pk)}, actor=actor, total=1
    )
    Spend.objects.create(
        project_id="acme", job_id=letter.job_id, token=1, user_id=user_id, provider="openai", at=timezone.now(), money=7
    )
    return {
        "jobs": str(make_job(batch=batch, user_id=user_id).pk),
        "batches": str(batch.pk),
        "dead-letters": str(letter.pk),
        "operations": str(operation.pk),
        "provider-batches": str(make_provider_batch().pk),
        "schedules": str(make_schedule(f"of {user_id}").pk),
        "maintenance": str(make_window().pk),
        "webhooks": str(make_webhook(batch.project, user_id=user_id).pk),
    }


def call(api: Api, named: str, ids: dict[str, str]) -> Any:
    method, route = named.split(" ")
    path = "/" + route.replace("<uuid:pk>", ids.get(route.split("/", maxsplit=1)[0], "")).replace("<int:pk>", "1")
    if method == "GET":
        return api.get(path)
    body: dict[str, Any] = {}
    if route == "jobs/cancel/":
        body = {"ids": [ids["jobs"]]}
    return api.send(method, path, json.dumps(body))


def work() -> list[Any]:
    """What somebody might have changed."""
    return [
        list(Job.objects.order_by("pk").values("pk", "status", "priority", "held", "user_id")),
        list(Batch.objects.order_by("pk").values("pk", "paused")),
        list(BulkOperation.objects.order_by("pk").values("pk", "status", "actor")),
        AuditEntry.objects.count(),
    ]


def test_every_address_is_decided_for_end_users():
    assert set(PATTERNS) == set(ADDRESSES)


@pytest.mark.parametrize("named", [named for named, what in ADDRESSES.items() if what == "whole"])
def test_what_concerns_the_whole_project_is_refused(user, named):
    assert error_of(call(user, named, make_rows(USER, "key:x")), 403)["code"] == "not_for_users"


@pytest.mark.parametrize(
    "named", [named for named, what in ADDRESSES.items() if what == "own" and "usage" not in named]
)
@pytest.mark.parametrize("of", ["another user", "nobody in particular", "another issuer's user of the same project"])
def test_nothing_of_another_user_is_shown_or_changed(user, named, of):
    if of == "another issuer's user of the same project":
        make_issuer(issuer="https://other.example.org")
        user = Api(shared_token("7", iss="https://other.example.org"))
    rows = make_rows(None if of == "nobody in particular" else OTHER_USER, "key:x")
    before = work()
    response = call(user, named, rows)
    shown = response.content.decode()
    if "pk" in named:
        assert error_of(response, 404)["code"] == "not_found"
    elif named == "GET spend/":
        assert (json.loads(shown)["total"]["calls"], json.loads(shown)["groups"]) == (0, [])
    elif named.startswith("GET"):
        assert json.loads(shown)["results"] == []
    elif named == "POST jobs/cancel/":
        assert json.loads(shown) == {"moved": [], "unmoved": [rows["jobs"]]}
    else:
        assert response.status_code == 422  # a submission without a body
    assert not any(pk in shown for name, pk in rows.items() if named != "POST jobs/cancel/" or name != "jobs")
    assert work() == before


@pytest.mark.parametrize("named", [named for named, what in ADDRESSES.items() if what == "own" and "pk" in named])
def test_what_is_ones_own_is_shown_and_can_be_cancelled(user, issuer, named):
    rows = make_rows(USER, f"token:{issuer.pk}:{USER}")
    assert call(user, named, rows).status_code in {200, 202}


def test_lists_show_ones_own_beside_those_of_others(user):
    own, _ = make_rows(USER, "x"), make_rows(OTHER_USER, "x")
    assert own["jobs"] in [row["id"] for row in user.get("/jobs/").json()["results"]]
    assert len(user.get("/jobs/").json()["results"]) == 2  # the dead one, too
    assert [row["id"] for row in user.get("/batches/").json()["results"]] == [own["batches"]]
    assert user.get(f"/jobs/?user={OTHER_USER}").json()["results"] == []


def test_a_submission_is_its_users_whether_it_says_so_or_not(user):
    for spec in (SPEC, {**SPEC, "user_id": str(USER)}):
        assert Job.objects.get(pk=user.post("/jobs/", spec).json()["id"]).user_id == USER
    batch = Batch.objects.get(pk=user.post("/batches/", {"jobs": [SPEC, {**SPEC, "user_id": str(USER)}]}).json()["id"])
    assert batch.user_id == USER
    assert set(batch.jobs.values_list("user_id", flat=True)) == {USER}


def test_nobody_submits_for_another(user):
    assert error_of(user.post("/jobs/", {**SPEC, "user_id": str(OTHER_USER)}), 403)["code"] == "foreign_user"
    refused = error_of(user.post("/batches/", {"jobs": [SPEC, {**SPEC, "user_id": str(OTHER_USER)}]}), 422)
    assert [(line["line"], line["code"]) for line in refused["details"]["errors"]] == [(2, "foreign_user")]
    assert not Job.objects.exists()


def test_a_forecast_is_of_what_a_user_may_submit(user):
    told = user.post("/forecast/", {"jobs": [SPEC, {**SPEC, "user_id": str(OTHER_USER)}]}).json()
    assert told["jobs"]["count"] == 1
    assert [(line["line"], line["code"]) for line in told["rejected"]["jobs"]] == [(2, "foreign_user")]
    assert not Job.objects.exists()


def test_a_key_still_submits_for_anybody(issuer):
    api = Api(key_for("acme"))
    assert Job.objects.get(pk=api.post("/jobs/", {**SPEC, "user_id": str(USER)}).json()["id"]).user_id == USER


def test_the_actor_names_issuer_and_user(user, issuer):
    job = make_job(user_id=USER)
    user.post(f"/jobs/{job.pk}/cancel/", {"reason": "no longer wanted"})
    job.refresh_from_db()
    assert job.status == JobState.CANCELLED
    begun = user.post(f"/batches/{make_batch(user_id=USER).pk}/cancel/")
    operation = BulkOperation.objects.get(pk=begun.json()["id"])
    assert operation.actor == f"token:{issuer.pk}:{USER}"
    assert user.get(begun.json()["url"].removeprefix("/api/v1")).status_code == 200


def test_an_idempotency_key_of_another_user_gives_neither_the_answer_nor_the_job(user, other):
    first = user.post("/jobs/", SPEC, **{"Idempotency-Key": "one"})
    assert user.post("/jobs/", SPEC, **{"Idempotency-Key": "one"}).json() == first.json()
    assert error_of(other.post("/jobs/", SPEC, **{"Idempotency-Key": "one"}), 422)["code"] == "idempotency_key_reused"
    assert IdempotencyRecord.objects.count() == 1
    named = {**SPEC, "idempotency_key": "job-7"}
    assert user.post("/jobs/", named).json() == {
        **user.post("/jobs/", named).json(),
        "created": True,
        "outcome": "created",
    }
    refused = error_of(other.post("/jobs/", named), 422)
    assert refused["code"] == "idempotency_key_reused"
    assert Job.objects.filter(user_id=OTHER_USER).count() == 0


def test_an_idempotency_key_means_one_users_work_even_to_a_key_that_acts_for_all(issuer):
    api = Api(key_for("acme"))
    named = {**SPEC, "idempotency_key": "job-7", "user_id": str(USER)}
    first = api.post("/jobs/", named).json()
    assert api.post("/jobs/", named).json() == {**first, "created": False, "outcome": "duplicate"}
    refused = error_of(api.post("/jobs/", {**named, "user_id": str(OTHER_USER)}), 422)
    assert refused["code"] == "idempotency_key_reused"


def test_the_scopes_are_the_issuers(user, issuer):
    Issuer.objects.update(scopes=["usage"])
    assert error_of(user.get("/jobs/"), 403)["code"] == "missing_scope"
    assert user.get("/usage/me/").status_code in {200, 404}
    Issuer.objects.update(scopes=["read"])
    assert user.get("/jobs/").status_code == 200
    assert error_of(user.post("/jobs/", SPEC), 403)["code"] == "missing_scope"


def test_a_scope_that_no_issuer_can_give_opens_nothing_were_it_given(user, issuer):
    Issuer.objects.update(scopes=["read", "submit", "operate", "decide", "limits"])
    rows = make_rows(USER, "key:x")
    for named, what in ADDRESSES.items():
        if what == "whole":
            assert error_of(call(user, named, rows), 403)["code"] == "not_for_users", named


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (shared_token(exp=1), "expired_token"),
        (shared_token(aud="x"), "invalid_token"),
        ("not.a.token", "invalid_token"),
        ("no-dot-at-all", "invalid_key"),
        ("qo_with.dot", "invalid_key"),
    ],
)
def test_a_bad_token_is_refused_with_a_code_and_a_challenge(issuer, token, code):
    response = Api(token).get("/jobs/")
    error = error_of(response, 401)
    assert error["code"] == code
    assert response["WWW-Authenticate"].startswith('Bearer realm="QueueOps"')
    if code != "invalid_key":
        assert 'error="invalid_token"' in response["WWW-Authenticate"]


def test_a_token_is_taken_from_the_authorization_header_alone(issuer):
    token = shared_token()
    assert error_of(Api().get("/jobs/", **{"X-Api-Key": token}), 401)["code"] == "invalid_key"
    assert error_of(Api().get(f"/jobs/?access_token={token}"), 401)["code"] == "not_authenticated"


def test_an_issuer_that_is_turned_off_is_refused_at_the_next_request(user):
    assert user.get("/jobs/").status_code == 200
    Issuer.objects.update(enabled=False)
    assert error_of(user.get("/jobs/"), 401)["code"] == "invalid_token"


def test_guessing_tokens_is_throttled_like_guessing_keys_and_hinders_nobody_else(user, monkeypatch):
    monkeypatch.setattr(rate, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # a slow machine is let guess more
    guesser, expired = Api("not.a.token"), Api(shared_token(exp=1))
    codes = [guesser.get("/jobs/").json()["error"]["code"] for _ in range(BAD_KEYS_PER_MINUTE + 1)]
    assert codes == ["invalid_token"] * BAD_KEYS_PER_MINUTE + ["too_many_bad_keys"]
    response = guesser.get("/jobs/")
    assert error_of(response, 429)["code"] == "too_many_bad_keys"
    assert int(response["Retry-After"]) > 0
    assert user.get("/jobs/").status_code == 200
    assert error_of(expired.get("/jobs/"), 401)["code"] == "expired_token"  # was genuine: no guess
    assert error_of(Api("qo_guess").get("/jobs/"), 429)["code"] == "too_many_bad_keys"


def test_each_user_has_a_rate_of_their_own(user, other, settings: Any, monkeypatch):
    monkeypatch.setattr(CallerThrottle, "rate", Rate(60_000))
    settings.QUEUEOPS = replace(settings.QUEUEOPS, user_requests_per_minute=3)
    assert [user.get("/handlers/").status_code for _ in range(4)] == [200, 200, 200, 429]
    response = user.get("/handlers/")
    assert error_of(response, 429)["code"] == "throttled"
    assert 1 <= int(response["Retry-After"]) <= 20
    assert other.get("/handlers/").status_code == 200


def test_a_key_may_have_a_rate_of_its_own(db, monkeypatch):
    monkeypatch.setattr(CallerThrottle, "rate", Rate(60_000))
    slow, fast = Api(key_for("acme", requests_per_minute=2)), Api(key_for("acme"))
    assert [slow.get("/handlers/").status_code for _ in range(3)] == [200, 200, 429]
    assert [fast.get("/handlers/").status_code for _ in range(5)] == [200] * 5
    ProducerKey.objects.update(requests_per_minute=None)
    assert slow.get("/handlers/").status_code == 200


@pytest.mark.parametrize("named", sorted(ADDRESSES))
@pytest.mark.parametrize("shown", [True, False], ids=["a project for everybody", "a project like any other"])
def test_without_credentials_only_jobs_and_batches_of_a_project_for_everybody_are_shown(issuer, named, shown):
    issuer.project.anonymous_read = shown
    issuer.project.save()
    rows = make_rows(USER, "x")
    before = work()
    nobody = Api()
    nobody.client.defaults["HTTP_X_PROJECT"] = "acme"
    response = call(nobody, named, rows)
    if shown and named in ANONYMOUS:
        assert response.status_code == 200
    else:
        assert error_of(response, 401)["code"] == "not_authenticated"
        assert response["WWW-Authenticate"] == 'Bearer realm="QueueOps"'
    assert work() == before


def test_without_credentials_the_project_may_be_named_in_the_address(issuer):
    issuer.project.anonymous_read = True
    issuer.project.save()
    job = make_job()
    assert [row["id"] for row in Api().get("/jobs/?project=acme").json()["results"]] == [str(job.pk)]
    make_job(project="globex")
    for project in ("globex", "nobody", "", "acme\0", "acme%00"):
        assert error_of(Api().get(f"/jobs/?project={project}"), 401)["code"] == "not_authenticated"


@pytest.mark.parametrize(
    ("move", "status", "code"), [(ProjectMove.MOVING, 200, None), (ProjectMove.MOVED, 410, "project_moved")], ids=str
)
def test_without_credentials_a_project_on_its_way_is_read_and_one_that_has_moved_is_not(issuer, move, status, code):
    make_job()
    Project.objects.update(anonymous_read=True, move=move, moved_to="https://two.example")
    answer = Api().get("/jobs/?project=acme")
    assert (answer.status_code, answer.json().get("error", {}).get("code")) == (status, code)
    if code:
        assert error_of(answer, status)["details"] == {"project": "acme", "address": "https://two.example"}


def test_a_bad_key_or_token_is_refused_even_where_everybody_may_read(issuer):
    issuer.project.anonymous_read = True
    issuer.project.save()
    for secret, code in (("qo_guess", "invalid_key"), ("a.b.c", "invalid_token")):
        assert error_of(Api(secret).get("/jobs/?project=acme"), 401)["code"] == code


def test_those_without_credentials_share_the_rate_of_one_user_an_address(issuer, settings: Any, monkeypatch):
    issuer.project.anonymous_read = True
    issuer.project.save()
    monkeypatch.setattr(CallerThrottle, "rate", Rate(60_000))
    settings.QUEUEOPS = replace(settings.QUEUEOPS, user_requests_per_minute=2)
    client = Client()
    asked = [client.get("/api/v1/jobs/?project=acme", REMOTE_ADDR="203.0.113.7").status_code for _ in range(3)]
    assert asked == [200, 200, 429]
    assert client.get("/api/v1/jobs/?project=acme", REMOTE_ADDR="203.0.113.8").status_code == 200
