"""Webhooks over the API: made, listed, changed and tested by a project's key."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from jobs.features.webhooks.tell import WebhooksDuty
from jobs.handlers.webhook import WebhookMessage, compose
from jobs.models import DeadLetter, IdempotencyRecord, Job, Webhook, WebhookDelivery
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.tenancy.secrets.signing import open_signing_secret
from tests.api.conftest import Api, error_of
from tests.factories import make_batch, make_dead_letters, make_job, make_project, make_webhook, move_along
from tests.support.flow import count_all

pytestmark = pytest.mark.django_db

URL = "https://app.example.org/hook"
EVERY_JOB: dict[str, Any] = {"kinds": [], "tags": [], "any_tag": [], "outcomes": [], "user_id": None, "batch_id": None}


def make(api: Api, **figures: Any) -> dict[str, Any]:
    response = api.post("/webhooks/", {"url": URL, **figures})
    assert response.status_code == 201, response.content
    return dict(response.json())


def test_a_key_makes_lists_and_changes_webhooks_of_its_project(api: Api):
    foreign = make_webhook(make_project("other"))
    batch, user = make_batch(), str(uuid4())
    wanted: dict[str, Any] = {"kinds": ["http.request"], "tags": ["red"], "any_tag": ["a", "b"], "outcomes": ["failed"]}
    wanted |= {"user_id": user, "batch_id": str(batch.pk)}
    made = make(api, batches=False, jobs=wanted, most_jobs=7, reason="new")
    secret = made.pop("secret")
    assert made["jobs"] == wanted
    assert (made["url"], made["enabled"], made["batches"], made["most_jobs"]) == (URL, True, False, 7)
    assert secret == open_signing_secret(Webhook.objects.get(pk=made["id"]))
    assert api.get("/webhooks/").json()["results"] == [made]
    assert api.get(f"/webhooks/{made['id']}/").json() == made
    patch = api.send("PATCH", f"/webhooks/{made['id']}/", '{"jobs": {"outcomes": ["failed", "failed"]}, "reason": "x"}')
    assert patch.json() == {**made, "jobs": {**EVERY_JOB, "outcomes": ["failed"]}}, "the filter is replaced whole"
    patch = api.send("PATCH", f"/webhooks/{made['id']}/", '{"jobs": null, "batches": true, "enabled": false}')
    assert patch.json() == {**made, "jobs": None, "batches": True, "enabled": False}
    assert api.get("/webhooks/?enabled=true").json()["results"] == []
    entries = AuditEntry.objects.filter(target=f"webhook {made['id']}").order_by("pk")
    assert [(one.action, one.reason) for one in entries] == [
        ("add_webhook", "new"), ("change_webhook", "x"), ("change_webhook", ""),
    ]  # fmt: skip
    for path in ("", "deliveries/", "jobs/"):
        assert api.get(f"/webhooks/{foreign.pk}/{path}").status_code == 404
    assert api.send("PATCH", f"/webhooks/{foreign.pk}/", '{"enabled": false}').status_code == 404
    assert api.post(f"/webhooks/{foreign.pk}/test/", {}).status_code == 404
    assert "secret" not in api.get("/webhooks/").content.decode()


def test_an_empty_filter_is_every_job_and_none_is_no_job(api: Api):
    assert make(api, jobs={})["jobs"] == EVERY_JOB
    assert make(api)["jobs"] is None


def test_the_secret_is_in_one_answer_and_is_stored_in_none(api: Api):
    key = {"idempotency_key": "k1"}
    first = api.post("/webhooks/", {"url": URL}, **key)
    again = api.post("/webhooks/", {"url": URL}, **key)
    assert first.json()["secret"].startswith("whsec_")
    assert again.json() == {**first.json(), "secret": None}
    assert Webhook.objects.count() == 1
    assert "whsec_" not in str(IdempotencyRecord.objects.get().answer)


def signatures(webhook_id: str, job: Job) -> list[str]:
    """Return which secrets, by place, would sign a message now."""
    delivery = WebhookDelivery.objects.create(webhook_id=webhook_id, event=WebhookDelivery.Event.TEST, job=job)
    message = compose(delivery.pk)
    delivery.delete()
    assert message is not None
    return message.headers()["webhook-signature"].split()


def signed_with(secret: str, former: str = "") -> WebhookMessage:
    return WebhookMessage(id="1", url=URL, secret=secret, timestamp=1, body=b"{}", former_secret=former)


def test_a_message_has_a_signature_of_each_secret_as_standard_webhooks_say():
    newer, older = (f"whsec_{base64.b64encode(text * 8).decode()}" for text in (b"new!", b"old!"))
    both = signed_with(newer, older).headers()["webhook-signature"]
    assert both.split() == [signed_with(one).headers()["webhook-signature"] for one in (newer, older)]
    for secret in (newer, older):
        key, told = base64.b64decode(secret.removeprefix("whsec_")), both.split()
        assert f"v1,{base64.b64encode(hmac.new(key, b'1.1.{}', hashlib.sha256).digest()).decode()}" in told


def test_a_changed_secret_signs_beside_the_former_one_until_the_overlap_ends(api: Api):
    made, job = make(api), make_job()
    path, first = f"/webhooks/{made['id']}/secret/", made["secret"]
    changed = api.post(path, {"overlap_seconds": 3600, "reason": "somebody left"})
    assert changed.status_code == 200, changed.content
    second = changed.json()["secret"]
    row = Webhook.objects.get(pk=made["id"])
    assert (open_signing_secret(row), open_signing_secret(row, column="former_secret")) == (second, first)
    assert row.former_secret_until is not None
    assert timedelta(minutes=59) < row.former_secret_until - timezone.now() <= timedelta(hours=1)
    assert len(signatures(made["id"], job)) == 2
    refused = api.post(path, {"overlap_seconds": 60})
    assert error_of(refused, 409)["code"] == "secret_changing"
    Webhook.objects.filter(pk=made["id"]).update(hears_jobs=True)
    assert open_signing_secret(Webhook.objects.get(pk=made["id"]), column="former_secret") == first
    at_once = api.post(path, {"overlap_seconds": 0}).json()
    assert at_once["secret"] not in {first, second}
    assert len(signatures(made["id"], job)) == 1, "one that others have seen signs nothing any more"
    entries = AuditEntry.objects.filter(action="change_webhook_secret").order_by("pk")
    assert [one.reason for one in entries] == ["somebody left", ""]
    assert "whsec_" not in str([entry.after for entry in entries])


def test_a_changed_secret_is_in_one_answer_and_others_change_none(api: Api):
    made = make(api)
    path, key = f"/webhooks/{made['id']}/secret/", {"idempotency_key": "k1"}
    first, again = api.post(path, {}, **key), api.post(path, {}, **key)
    assert first.json()["secret"].startswith("whsec_")
    assert again.json() == {**first.json(), "secret": None}
    assert "whsec_" not in str([one.answer for one in IdempotencyRecord.objects.all()])
    assert api.post(f"/webhooks/{make_webhook(make_project('other')).pk}/secret/", {}).status_code == 404
    for seconds in (-1, 604_801, "3600", 1.5):
        assert api.post(path, {"overlap_seconds": seconds}).status_code == 422, seconds


BAD: dict[str, tuple[Any, str, str]] = {
    "no address": ({}, "url", "required"),
    "a strange address": ({"url": "nowhere"}, "url", "valid URL"),
    "another scheme": ({"url": "ftp://example.org/"}, "url", "https://"),
    "an unknown field": ({"url": URL, "secret": "mine"}, "secret", "not permitted"),
    "an unknown field of the filter": ({"url": URL, "jobs": {"kind": "x"}}, "jobs.kind", "not permitted"),
    "an unknown kind": ({"url": URL, "jobs": {"kinds": ["http.reqest"]}}, "jobs.kinds", "Is 'http.request' meant?"),
    "a bad tag": ({"url": URL, "jobs": {"tags": ["a,b"]}}, "jobs.tags.0", "without commas"),
    "an unknown outcome": ({"url": URL, "jobs": {"outcomes": ["queued"]}}, "jobs.outcomes.0", "completed"),
    "a batch of nobody's": ({"url": URL, "jobs": {"batch_id": str(uuid4())}}, "jobs.batch_id", "no such batch"),
    "null in the filter": ({"url": URL, "jobs": {"kinds": None}}, "jobs.kinds", "list"),
    "too many of a message": ({"url": URL, "most_jobs": 201}, "most_jobs", "200"),
    "a port that there is not": ({"url": "https://app.example.org:99999/"}, "url", "cannot be parsed"),
    "an address inside": ({"url": "http://169.254.169.254/"}, "url", "169.254.169.254"),
    "nothing to hear": ({"url": URL, "batches": False}, "jobs", "hear of nothing"),
}


def test_faults_are_told_by_their_field(api: Api):
    faults = {}
    for case, (body, field, words) in BAD.items():
        said = error_of(api.post("/webhooks/", body), 422)["fields"]
        if list(said) != [field] or words not in said[field][0]:
            faults[case] = said
    assert faults == {}
    assert not Webhook.objects.exists()


def test_a_project_without_its_own_batch_cannot_name_anothers(api: Api):
    batch = make_batch(project=make_project("other").pk)
    error = error_of(api.post("/webhooks/", {"url": URL, "jobs": {"batch_id": str(batch.pk)}}), 422)
    assert (error["code"], list(error["fields"])) == ("bad_webhook", ["jobs.batch_id"])


@pytest.mark.django_db(transaction=True)  # the events are counted behind the horizon of transactions
def test_messages_and_what_they_tell_are_listed_also_what_waits(api: Api):
    count_all()
    made = make(api, jobs={"outcomes": ["completed"]}, batches=False)
    job, second = make_job(), make_job()
    for edge in ("dispatch", "start", "complete"):
        move_along(edge, [job.pk])
    count_all()
    rows, messages = f"/webhooks/{made['id']}/jobs/", f"/webhooks/{made['id']}/deliveries/"
    [waiting] = api.get(rows).json()["results"]
    assert (waiting["job_id"], waiting["delivery_id"]) == (str(job.pk), None)
    assert api.get(f"{rows}?waits=false").json()["results"] == []
    WebhooksDuty().do()
    [told] = api.get(f"{rows}?job={job.pk}").json()["results"]
    assert api.get(f"{rows}?job={second.pk}").json()["results"] == []
    [message] = api.get(messages).json()["results"]
    assert (message["id"], message["event"], message["jobs_told"]) == (told["delivery_id"], "jobs.ended", 1)
    assert (message["state"], message["error_code"], message["batch_id"]) == ("queued", "", None)
    carrier = Job.objects.get(pk=message["job_id"])
    assert carrier.kind == "queueops.webhook_jobs"
    tested = api.post(f"/webhooks/{made['id']}/test/", {"reason": "new"})
    assert (tested.status_code, tested.json()["event"]) == (201, "webhook.test")
    assert [one["event"] for one in api.get(messages).json()["results"]] == ["webhook.test", "jobs.ended"]
    assert [one["event"] for one in api.get(f"{messages}?event=webhook.test").json()["results"]] == ["webhook.test"]
    assert api.get(f"{messages}?state=failed").json()["results"] == []
    assert error_of(api.get(f"{messages}?state=strange"), 400)["code"] == "invalid_query"
    assert AuditEntry.objects.get(action="test_webhook").reason == "new"
    Job.objects.filter(pk=carrier.pk).update(last_error_code="webhook_refused")
    [message] = api.get(f"{messages}?event=jobs.ended").json()["results"]
    assert message["error_code"] == "webhook_refused"
    assert Job.objects.get(pk=job.pk).status == JobState.COMPLETED


def test_what_a_receiver_did_not_take_is_sent_again_once_that_is_confirmed(api: Api):
    made = make(api, enabled=True)
    webhook = Webhook.objects.get(pk=made["id"])
    letters = make_dead_letters(2, kind="queueops.webhook", payload=f'{{"delivery_id": "{webhook.pk}"}}')
    for letter in letters:
        WebhookDelivery.objects.create(webhook=webhook, job=letter.job)
    DeadLetter.objects.filter(pk=letters[0].pk).update(created_at=timezone.now() - timedelta(days=2))
    Webhook.objects.update(failing_since=timezone.now(), paused_at=timezone.now(), paused_because="silent")
    path = f"/webhooks/{made['id']}/send-again/"
    assert api.get(f"/webhooks/{made['id']}/").json()["paused_because"] == "silent"
    assert api.post(path, {}).json() == {"sent": 0, "left": 2, "confirmed": False}
    since = (timezone.now() - timedelta(days=1)).isoformat()
    told = api.post(path, {"confirm": True, "since": since, "reason": "back"})
    assert (told.status_code, told.json()) == (200, {"sent": 1, "left": 0, "confirmed": True})
    assert api.post(path, {"confirm": True}).json() == {"sent": 1, "left": 0, "confirmed": True}
    assert api.get(f"/webhooks/{made['id']}/").json() | {"paused_at": None, "paused_because": ""} == {
        name: value for name, value in made.items() if name != "secret"
    }
    assert {one["state"] for one in api.get(f"/webhooks/{made['id']}/deliveries/").json()["results"]} == {"queued"}
    api.send("PATCH", f"/webhooks/{made['id']}/", '{"enabled": false}')
    assert error_of(api.post(path, {"confirm": True}), 409)["code"] == "receiver_is_off"
    assert error_of(api.post(path, {"confirm": 1}), 422)["fields"].keys() == {"confirm"}
    foreign = make_webhook(make_project("other"))
    assert api.post(f"/webhooks/{foreign.pk}/send-again/", {"confirm": True}).status_code == 404
