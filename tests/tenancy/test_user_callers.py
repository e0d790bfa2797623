"""What an end user may do, at every address, and that nobody reaches another user's work."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from jobs.models import Batch, BulkOperation, IdempotencyRecord, Job
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core.values import rate
from queueops.core.values.rate import Rate
from queueops.tenancy.callers.throttles import BAD_KEYS_PER_MINUTE, CallerThrottle
from queueops.tenancy.models import Issuer, ProducerKey, Project, ProjectMove
from ratelimits.models import Spend
from tests.api.conftest import SPEC, Api, error_of, key_for
from tests.api.places import PLACES
from tests.factories import (
    make_batch,
    make_dead_letter,
    make_job,
    make_webhook,
)
from tests.security.world import World, everything
from tests.support.issuers import OTHER_USER, USER, make_issuer, shared_token
from tests.support.undone import undone

pytestmark = pytest.mark.django_db

# Where an end user sees and changes what is theirs alone. All other addresses, but those of OPEN, concern the whole
# project and are closed to them. Whoever opens an address says so here.
OWN = {
    "GET jobs/",
    "POST jobs/",
    "POST jobs/cancel/",
    "GET jobs/<uuid:pk>/",
    "GET jobs/<uuid:pk>/events/",
    "GET jobs/<uuid:pk>/result/",
    "POST jobs/<uuid:pk>/cancel/",
    "GET batches/",
    "POST batches/",
    "POST forecast/",
    "GET batches/<uuid:pk>/",
    "GET batches/<uuid:pk>/jobs/",
    "GET batches/<uuid:pk>/waiting/",
    "GET batches/<uuid:pk>/results/",
    "GET batches/<uuid:pk>/table/",
    "POST batches/<uuid:pk>/cancel/",
    "GET operations/",
    "GET operations/<uuid:pk>/",
    "GET spend/",
}
OF_USAGE = {
    f"{method} {path}"  # and whose: tests/api/test_usage_access.py
    for method, paths in {
        "POST": ("usage/reserve", "usage/ingest", "usage/cancel"),
        "GET": ("usage/me", "usage/events", "usage"),
    }.items()
    for path in paths
} | {"POST functions/reserve-usage", "POST functions/ingest-usage", "POST functions/cancel-reservation"}
OPEN = OWN | OF_USAGE | {f"{one}/" for one in OF_USAGE} | {"GET handlers/"}
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
    "GET batches/<uuid:pk>/table/",
}
OWN_PLACES = [place for place in PLACES if str(place) in OWN]


@pytest.fixture
def issuer(db: None) -> Issuer:
    return make_issuer()


@pytest.fixture
def user(issuer: Issuer) -> Api:
    return Api(shared_token())


@pytest.fixture
def other(issuer: Issuer) -> Api:
    return Api(shared_token(OTHER_USER))


@pytest.fixture
def world(db: None) -> World:
    return World.make()


@pytest.fixture
def unhurried(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks every address asks often."""
    monkeypatch.setattr(CallerThrottle, "rate", Rate(60_000))
    settings.QUEUEOPS = replace(settings.QUEUEOPS, user_requests_per_minute=60_000)


def rows_of(user_id: Any, actor: str, world: World) -> World:
    """The world with such rows in the place of those that a user has."""
    batch = make_batch(user_id=user_id)
    letter = make_dead_letter(batch=batch)
    Job.objects.filter(pk=letter.job_id).update(user_id=user_id)
    operation = BulkOperation.objects.create(
        action="cancel_jobs", parameters={"project_id": "acme", "batch_id": str(batch.pk)}, actor=actor, total=1
    )
    Spend.objects.create(
        project_id="acme", job_id=letter.job_id, token=1, user_id=user_id, provider="openai", at=timezone.now(), money=7
    )
    made = {
        "jobs_job": make_job(batch=batch, user_id=user_id),
        "jobs_batch": batch,
        "jobs_deadletter": letter,
        "jobs_bulkoperation": operation,
        "jobs_webhook": make_webhook(batch.project, user_id=user_id),
    }
    return World({**world.ids, **{name: str(row.pk) for name, row in made.items()}})


def work() -> list[Any]:
    """What somebody might have changed."""
    return [
        *Job.objects.values("pk", "status", "priority", "held", "user_id"),
        *Batch.objects.values("pk", "paused"),
        *BulkOperation.objects.values("pk", "status", "actor"),
        AuditEntry.objects.count(),
    ]


def test_the_addresses_that_are_open_to_users_are_those_there_are():
    assert {str(place) for place in PLACES} >= OPEN


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("scopes", [["read", "submit", "usage"], ["read", "submit", "operate", "decide", "limits"]])
def test_what_concerns_the_whole_project_is_refused_whatever_an_issuer_gives(user, world, scopes):
    rows, faults = rows_of(USER, "key:x", world), {}
    Issuer.objects.update(scopes=scopes)
    before = everything(project="acme")
    for place in (place for place in PLACES if str(place) not in OPEN):
        answer = place.ask(user.client, rows)
        if (answer.status_code, answer.json().get("error", {}).get("code")) != (403, "not_for_users"):
            faults[str(place)] = answer.content
    assert faults == {}
    assert everything(project="acme") == before


@pytest.mark.usefixtures("unhurried")
def test_nothing_of_another_user_is_shown_or_changed(user, world):
    make_issuer(issuer="https://other.example.org")
    strangers = {"the issuer's": user, "another's": Api(shared_token("7", iss="https://other.example.org"))}
    faults, pks = {}, set()
    for of, user_id in (("another user", OTHER_USER), ("nobody in particular", None)):
        rows = rows_of(user_id, "key:x", world)
        pks |= {rows.ids[name] for name in ("jobs_job", "jobs_batch", "jobs_deadletter", "jobs_bulkoperation")}
        before = work()
        for who, stranger in strangers.items():
            for place in OWN_PLACES:
                with undone():
                    answer = place.ask(stranger.client, rows)
                    unchanged = [row for row in before if row not in work()] == []
                shown, body = answer.content.decode(), answer.json()
                if "<" in str(place):
                    fine = (answer.status_code, body["error"]["code"]) == (404, "not_found")
                elif str(place) == "POST jobs/cancel/":
                    fine = body == {"moved": [], "unmoved": [rows.ids["jobs_job"]]}
                elif str(place) == "GET spend/":
                    fine = (body["total"]["calls"], body["groups"]) == (0, [])
                elif place.method == "GET":
                    fine = body["results"] == []
                else:
                    fine = answer.status_code < 300  # a submission, of what is to be their own
                told = str(place) != "POST jobs/cancel/" and any(pk in shown for pk in pks)
                if not (fine and unchanged) or told:
                    faults[who, of, str(place)] = shown
    assert faults == {}


@pytest.mark.usefixtures("unhurried")
def test_what_is_ones_own_is_shown_and_can_be_cancelled(user, issuer, world):
    rows, faults = rows_of(USER, f"token:{issuer.pk}:{USER}", world), {}
    for place in (place for place in OWN_PLACES if "<" in str(place)):
        with undone():
            if (answer := place.ask(user.client, rows)).status_code not in {200, 202}:
                faults[str(place)] = answer.content
    assert faults == {}


def test_lists_show_ones_own_beside_those_of_others(user):
    empty = World({})
    own, _ = rows_of(USER, "x", empty).ids, rows_of(OTHER_USER, "x", empty)
    assert own["jobs_job"] in [row["id"] for row in user.get("/jobs/").json()["results"]]
    assert len(user.get("/jobs/").json()["results"]) == 2  # the dead one, too
    assert [row["id"] for row in user.get("/batches/").json()["results"]] == [own["jobs_batch"]]
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


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("shown", [True, False], ids=["a project for everybody", "a project like any other"])
def test_without_credentials_only_jobs_and_batches_of_a_project_for_everybody_are_shown(world, shown):
    Project.objects.update(anonymous_read=shown)
    rows, faults = rows_of(USER, "x", world), {}
    before = everything(project="acme")
    for place in PLACES:
        answer = place.ask(Client(headers={"X-Project": "acme"}), rows)
        if shown and str(place) in ANONYMOUS:
            fine = answer.status_code == 200
        else:
            told = (
                answer.status_code,
                answer.json().get("error", {}).get("code"),
                answer.headers.get("WWW-Authenticate"),
            )
            fine = told == (401, "not_authenticated", 'Bearer realm="QueueOps"')
        if not fine:
            faults[str(place)] = answer.content
    assert faults == {}
    assert everything(project="acme") == before


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
