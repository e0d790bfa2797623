"""Who may look at the dashboard and act from it, and what is written down of it."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.test import Client

from dashboards.services.shared import cache
from jobs.features.served_kinds.served_kinds import UNSERVED
from jobs.models import Batch, BulkOperation, PauseSwitch
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import ProducerKey
from ratelimits.alerts.alerts import open_alert
from ratelimits.models import QuotaAlert
from tests.factories import make_batch, make_dead_letters, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

DATA = ("/live/ops.json", "/live/charts.json?span=15m", "/live/users.json", "/live/feed.json?state=failed")


@pytest.fixture(autouse=True)
def _fresh():
    cache.forget_all()
    yield
    cache.forget_all()


def an_alert() -> QuotaAlert:
    open_alert("exceeded", "1:x", severity="critical", message="the provider refused with 429", figures={})
    return QuotaAlert.objects.get()


def a_batch() -> Batch:
    batch = make_batch(name="report")
    make_jobs(3, batch=batch)
    return batch


def actions() -> list[tuple[str, str]]:
    batch = a_batch().pk
    return [
        (f"/live/batches/{batch}/pause", "operator"),
        (f"/live/batches/{batch}/resume", "operator"),
        (f"/live/batches/{batch}/cancel", "operator"),
        (f"/live/alerts/{an_alert().pk}/acknowledge", "operator"),
        ("/live/pauses/everything", "operator"),
        (f"/live/pauses/{PauseSwitch.objects.create(scope='service', key='llm').pk}/resume", "operator"),
    ]


def test_visitors_are_sent_to_sign_in_and_their_scripts_told_so():
    visitor = Client()
    answer = visitor.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/login/?next=/")
    for address in DATA:
        answer = visitor.get(address)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "not_signed_in"), address


def test_staff_without_the_permission_see_nothing_of_it():
    client = signed_in(None)
    answer = client.get("/")
    assert answer.status_code == 403
    assert b"This is not for you to see" in answer.content
    for address in DATA:
        assert client.get(address).status_code == 403, address


def test_a_viewer_sees_everything_and_is_offered_nothing():
    client = signed_in("viewer")
    page = client.get("/").content.decode()
    assert "data-may-" not in page
    for address in DATA:
        assert client.get(address).status_code == 200, address


def test_a_viewer_may_do_none_of_it():
    client = signed_in("viewer")
    for address, _ in actions():
        answer = client.post(address, {"reason": "because"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied"), address
    assert not Batch.objects.get().paused
    assert QuotaAlert.objects.get().acknowledged_at is None
    assert not BulkOperation.objects.exists()
    assert not AuditEntry.objects.exclude(action__startswith="sign").exists()


def test_nobody_acts_without_the_token_of_our_own_page():
    client = signed_in("superuser")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    for address, _ in actions():
        assert strict.post(address, {"reason": "because"}).status_code == 403, address
    assert not BulkOperation.objects.exists()


def test_a_batch_is_paused_resumed_and_cancelled_with_a_trace():
    client, batch = signed_in("operator"), a_batch()
    paused = client.post(f"/live/batches/{batch.pk}/pause", {"reason": "a release"}).json()
    assert paused["report"] == "1 paused; 3 jobs held. Running jobs go on."
    again = client.post(f"/live/batches/{batch.pk}/pause", {})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "nothing_to_do")
    assert client.post(f"/live/batches/{batch.pk}/resume", {}).json()["moved"] == 1
    refused = client.post(f"/live/batches/{batch.pk}/cancel", {"reason": " "})
    assert (refused.status_code, list(refused.json()["error"]["fields"])) == (400, ["reason"])
    done = client.post(f"/live/batches/{batch.pk}/cancel", {"reason": "sent twice"}).json()
    assert done["report"].startswith("Started in the background over 3 rows")
    assert BulkOperation.objects.get().reason == "sent twice"
    trail = set(AuditEntry.objects.values_list("action", "reason"))
    assert {("pause", "a release"), ("resume", ""), ("bulk_cancel_jobs", "sent twice")} <= trail


def test_everything_is_paused_and_resumed_with_a_trace():
    client = signed_in("operator")
    make_jobs(3)
    said = client.post("/live/pauses/everything", {"reason": "the provider asked us to"}).json()
    assert said["report"] == "Everything is paused. Running jobs go on."
    assert client.post("/live/pauses/everything").status_code == 200  # as pressing it twice
    [shown] = client.get("/live/ops.json").json()["data"]["pauses"]
    assert (shown["name"], shown["is_everything"], shown["may_end"]) == ("everything", True, True)
    assert client.post(f"/live/pauses/{shown['id']}/resume", {"reason": "x" * 2001}).status_code == 400
    assert client.post(f"/live/pauses/{shown['id']}/resume").json()["report"].startswith("1 resumed")
    assert client.get("/live/ops.json").json()["data"]["pauses"] == []
    assert AuditEntry.objects.filter(action="pause", reason="the provider asked us to").count() == 1


def test_what_the_platform_paused_it_ends_itself():
    switch = PauseSwitch.objects.create(scope=next(iter(UNSERVED)), key="unknown.kind", paused_by="system")
    client = signed_in("operator")
    [shown] = client.get("/live/ops.json").json()["data"]["pauses"]
    assert not shown["may_end"]
    assert client.post(f"/live/pauses/{switch.pk}/resume").status_code == 409


def test_an_alert_is_acknowledged_once():
    client, alert = signed_in("operator"), an_alert()
    assert client.post(f"/live/alerts/{alert.pk}/acknowledge").json()["report"] == "1 acknowledged, 0 left alone."
    assert client.post(f"/live/alerts/{alert.pk}/acknowledge").status_code == 409
    shown = client.get("/live/ops.json").json()["data"]["alerts"][0]
    assert shown["acknowledged_by"].startswith("operator-")
    assert AuditEntry.objects.filter(action="acknowledge_alert").count() == 1


@every_case("address", [f"/live/batches/{uuid4()}/pause", "/live/alerts/999/acknowledge", "/live/pauses/999/resume"])
def test_what_is_gone_is_told(address: str):
    assert signed_in("superuser").post(address).status_code == 404


def test_no_verb_is_made_up():
    assert signed_in("superuser").post(f"/live/batches/{a_batch().pk}/explode").status_code == 404


def test_only_known_spans_are_drawn():
    answer = signed_in("viewer").get("/live/charts.json?span=99y")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_span")
    columns = signed_in("viewer").get("/live/charts.json?span=24h").json()
    assert len(columns["at"]) == len(columns["outcomes"]["completed"]) == len(columns["backlog"]["queued"])


@every_case("query", ["state=waiting", "stat=failed", "project=" + "x" * 101])
def test_a_filter_of_the_feed_that_means_nothing_is_refused(query):
    refused = signed_in("viewer").get(f"/live/feed.json?{query}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_filter")


def test_the_feed_is_filtered_by_project_service_and_state():
    make_jobs(2, project="acme", state=JobState.COMPLETED)
    make_jobs(1, project="globex", state=JobState.COMPLETED)
    client = signed_in("viewer")
    feed = client.get("/live/feed.json?project=acme&state=completed").json()["feed"]
    assert [(event["project"], event["to"]) for event in feed] == [("acme", "completed")] * 2
    assert client.get("/live/feed.json?service=other").json()["feed"] == []
    assert len(client.get("/live/feed.json?service=http&state=completed").json()["feed"]) == 3


@pytest.fixture
def key() -> str:
    return ProducerKey.issue(make_project("acme"), name="nightly import")[1]


def test_a_producer_signs_in_with_the_key_and_sees_its_own_project_alone(key: str):
    make_jobs(2, project="acme", batch=make_batch(name="ours"))
    make_dead_letters(1, project="acme")
    make_jobs(4, project="globex", batch=make_batch(project="globex", name="theirs"))
    client = Client()
    assert b"Producer key" in client.get("/me/").content
    assert client.get("/live/me.json").status_code == 401
    assert client.post("/me/sign-in", {"key": f" {key} "}).status_code == 302
    assert key not in str(dict(client.session))
    assert b"Project acme" in client.get("/me/").content
    data = client.get("/live/me.json").json()["data"]
    assert [batch["name"] for batch in data["batches"]] == ["ours"]
    assert data["counts"]["queued"] == 2
    assert len(data["jobs"]) == 3
    assert [letter["error_code"] for letter in data["dead_letters"]] == ["not_found"]
    for others in ("/live/me.json?project=globex", "/live/me.json?project=%00"):
        seen = client.get(others)
        assert seen.status_code == 401 or seen.json()["data"]["project"] == "acme"
    for operators in ("/", *DATA):
        assert client.get(operators).status_code in {302, 401}


def test_a_producer_signs_out(key: str):
    client = Client()
    client.post("/me/sign-in", {"key": key})
    assert client.post("/me/sign-out").status_code == 302
    assert client.get("/live/me.json").status_code == 401


def test_a_revoked_key_ends_the_page_at_once(key: str):
    client = Client()
    client.post("/me/sign-in", {"key": key})
    assert client.get("/live/me.json").status_code == 200
    ProducerKey.objects.update(revoked_at="2026-01-01T00:00Z")
    assert client.get("/live/me.json").status_code == 401


def test_guesses_of_keys_are_throttled(key: str):
    client = Client()
    answers = [client.post("/me/sign-in", {"key": f"qo_{number}"}) for number in range(32)]
    assert answers[0].status_code == 403
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert client.post("/me/sign-in", {"key": key}).status_code == 429


def test_a_key_that_may_not_read_opens_nothing(key: str):
    ProducerKey.objects.update(scopes=["submit"])
    answer = Client().post("/me/sign-in", {"key": key})
    assert answer.status_code == 403


def test_staff_choose_whose_page_they_see():
    make_jobs(1, project="acme")
    client = signed_in("viewer")
    assert b"Whose work?" in client.get("/me/").content
    assert client.get("/live/me.json?project=acme").json()["data"]["counts"]["queued"] == 1
    assert client.get("/live/me.json?project=nobody").status_code == 401


def test_pages_that_are_not_there_are_designed_and_the_api_keeps_its_own_shape():
    client = Client()
    page = client.get("/nothing")
    assert (page.status_code, b"There is nothing here" in page.content) == (404, True)
    assert client.get("/api/v1/nothing/").json()["error"]["code"] == "not_found"
    assert client.get("/favicon.ico").headers["Location"] == "/static/dashboards/icon.svg"
    csrf = Client(enforce_csrf_checks=True).post("/me/sign-in", {"key": "x"})
    assert (csrf.status_code, b"The form was too old" in csrf.content) == (403, True)
