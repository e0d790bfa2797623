"""Webhooks in the admin: their filters, what is refused where, tests, and the messages with their jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from jobs.models import Job, Webhook, WebhookDelivery, WebhookJob
from queueops.audit.models import AuditEntry
from queueops.tenancy.secrets.signing import open_signing_secret
from tests.factories import SIGNING_SECRET, make_dead_letters, make_job, make_project, make_webhook
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

ADD = "/admin/jobs/webhook/add/"
FORM = {
    "project": "acme",
    "url": "https://example.org/hook",
    "enabled": "on",
    "hears_jobs": "on",
    "kinds": ["http.request"],
    "tags": "red, ä b",
    "any_tag": "",
    "outcomes": ["failed"],
    "user_id": "",
    "batch_id": "",
    "most_jobs": "50",
    "reason": "they mend what fails",
}


def page_of(webhook: Webhook) -> str:
    return reverse("admin:jobs_webhook_change", args=[webhook.pk])


def test_a_filter_is_entered_shown_and_changed_and_the_trail_has_it():
    make_project()
    client = signed_in("administrator")
    assert "The secret is shown once, when this is added." in client.get(ADD).content.decode()
    response = client.post(ADD, FORM)
    webhook = Webhook.objects.get()
    assert open_signing_secret(webhook) in response.content.decode()
    assert (webhook.kinds, webhook.tags, webhook.outcomes) == (["http.request"], ["red", "ä b"], ["failed"])
    assert (webhook.hears_batches, webhook.hears_jobs, webhook.most_jobs) == (False, True, 50)
    page = client.get(page_of(webhook)).content.decode()
    assert 'value="red, ä b"' in page
    assert "jobs: http.request, failed, tags red and ä b" in client.get("/admin/jobs/webhook/").content.decode()
    change = {**FORM, "kinds": [], "tags": "", "outcomes": ["completed", "cancelled"], "hears_batches": "on"}
    assert client.post(page_of(webhook), change).status_code == 302
    webhook.refresh_from_db()
    assert (webhook.kinds, webhook.tags, webhook.outcomes) == ([], [], ["completed", "cancelled"])
    assert open_signing_secret(webhook) in response.content.decode(), "it stays"
    added, changed = AuditEntry.objects.filter(target=f"webhook {webhook.pk}").order_by("pk")
    told = [one or {} for one in (added.after, changed.before, changed.after)]
    assert (added.action, added.reason, told[0]["tags"]) == ("add_webhook", FORM["reason"], ["red", "ä b"])
    assert (told[1]["outcomes"], told[2]["outcomes"]) == (["failed"], ["completed", "cancelled"])
    assert "whsec" not in json.dumps(told)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown kind": ({"kinds": ["nobodys.kind"]}, "not one of the available choices"),
    "our own kind": ({"kinds": ["queueops.webhook"]}, "not one of the available choices"),
    "a bad tag": ({"tags": "a,,b"}, "printable characters"),
    "an unknown outcome": ({"outcomes": ["queued"]}, "not one of the available choices"),
    "no user": ({"user_id": "nobody"}, "valid UUID"),
    "no batch": ({"batch_id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e11"}, "no such batch"),
    "too many of a message": ({"most_jobs": "201"}, "less than or equal to 200"),
    "nothing to hear": ({"hears_jobs": ""}, "hear of nothing"),
    "another scheme": ({"url": "ftp://example.org/"}, "https://"),
}


@every_case("case", BAD, undone=True)
def test_what_no_webhook_can_mean_is_told_at_its_field(case):
    make_project()
    figures, words = BAD[case]
    response = signed_in("administrator").post(ADD, {**FORM, **figures})
    assert response.status_code == 200
    assert words in response.content.decode()
    assert not Webhook.objects.exists()


def test_a_tag_that_nothing_has_so_far_is_said_and_saved():
    make_job(tags=("red",))
    client = signed_in("administrator")
    webhook = make_webhook(make_project(), hears_jobs=True)
    response = client.post(page_of(webhook), {**FORM, "tags": "red, bleu"}, follow=True)
    assert "Nothing of acme has the tags so far: bleu." in response.content.decode()
    webhook.refresh_from_db()
    assert webhook.tags == ["red", "bleu"]


def test_a_kind_that_nobody_carries_out_any_more_is_shown():
    webhook = make_webhook(make_project(), hears_jobs=True, kinds=["gone.kind"])
    client = signed_in("administrator")
    assert 'value="gone.kind"' in client.get(page_of(webhook)).content.decode()
    assert "No handler carries out" in client.post(page_of(webhook), {**FORM, "kinds": ["gone.kind"]}).content.decode()


def test_a_test_is_sent_by_those_who_may_change_it():
    webhook = make_webhook(make_project(), enabled=False)
    viewer, administrator = signed_in("viewer"), signed_in("administrator")
    assert viewer.post(f"{page_of(webhook)[:-7]}test/", {"reason": ""}).status_code == 403
    button = [one for one in administrator.get(page_of(webhook)).content.decode().split('"') if one.endswith("/test/")]
    response = administrator.post(button[0], {"reason": "new receiver", "confirmed": "on"}, follow=True)
    assert "sent a test" in response.content.decode()
    assert WebhookDelivery.objects.get().event == "webhook.test"
    assert AuditEntry.objects.get(action="test_webhook").reason == "new receiver"


def test_a_secret_is_changed_by_those_who_may_and_its_page_says_how_long_both_sign():
    webhook = make_webhook(make_project())
    address = f"{page_of(webhook)[:-7]}change-secret/"
    viewer, administrator = signed_in("viewer"), signed_in("administrator")
    assert viewer.post(address, {"confirmed": "on", "overlap_hours": "1"}).status_code == 403
    assert address in administrator.get(page_of(webhook)).content.decode()
    assert "takes them before and after it knows the new one" in administrator.get(address).content.decode()
    assert open_signing_secret(Webhook.objects.get()) == SIGNING_SECRET, "a look changes nothing"
    changed = administrator.post(address, {"confirmed": "on", "overlap_hours": "2", "reason": "somebody left"})
    webhook.refresh_from_db()
    assert open_signing_secret(webhook) in changed.content.decode()
    assert "no-store" in changed["Cache-Control"]
    assert webhook.former_secret_until is not None
    said = f"Until {webhook.former_secret_until:%Y-%m-%d %H:%M:%S} UTC the former secret signs, too."
    assert said in changed.content.decode()
    assert said in administrator.get(page_of(webhook)).content.decode()
    early = administrator.post(address, {"confirmed": "on", "overlap_hours": "1"}).content.decode()
    assert "the former one still signs" in early
    assert 'value="1"' in early, "what was entered stays"
    administrator.post(address, {"confirmed": "on", "overlap_hours": "0"})
    assert "the former secret signs, too" not in administrator.get(page_of(webhook)).content.decode()
    assert [one.reason for one in AuditEntry.objects.filter(action="change_webhook_secret").order_by("pk")] == [
        "somebody left", "",
    ]  # fmt: skip


def test_messages_are_listed_with_what_they_tell_of_and_found_by_a_job():
    project = make_project()
    webhook, other = make_webhook(project, hears_jobs=True), make_webhook(project)
    told, carrier, of_other = make_job(), make_job(), make_job()
    delivery = WebhookDelivery.objects.create(webhook=webhook, event="jobs.ended", job=carrier, jobs_told=1)
    WebhookDelivery.objects.create(webhook=other, event="webhook.test", job=of_other)
    WebhookJob.objects.create(webhook=webhook, project=project, job_id=told.pk, delivery_id=delivery.pk)
    WebhookJob.objects.create(webhook=webhook, project=project, job_id=of_other.pk)
    Job.objects.filter(pk=carrier.pk).update(last_error_code="webhook_refused")
    client = signed_in("viewer")
    rows = "/admin/jobs/webhookdelivery/"
    listed = client.get(rows).content.decode()
    assert "1 ended job" in listed
    assert str(carrier.pk) in listed
    assert str(of_other.pk) in listed
    for query in (f"q={told.pk}", f"q={delivery.pk}", f"webhook={webhook.pk}", "event=jobs.ended"):
        found = client.get(f"{rows}?{query}").content.decode()
        assert str(carrier.pk) in found
        assert str(of_other.pk) not in found
    assert str(carrier.pk) not in client.get(f"{rows}?q=nonsense").content.decode()
    page = client.get(f"{rows}{delivery.pk}/change/").content.decode()
    assert str(told.pk) in page
    assert "webhook_refused" in page
    hook = client.get(page_of(webhook)).content.decode()
    assert "1 ended job waits to be told" in hook
    assert str(delivery.pk) in hook


def test_what_failed_is_sent_again_by_its_button_which_says_how_much_it_is_about():
    webhook = make_webhook(make_project(), url="https://example.org/hook")
    Webhook.objects.update(failing_since=timezone.now(), paused_at=timezone.now(), paused_because=Webhook.Pause.SILENT)
    payload = f'{{"delivery_id": "{webhook.pk}"}}'
    jobs = [letter.job for letter in make_dead_letters(2, kind="queueops.webhook_jobs", payload=payload)]
    for job in jobs:
        WebhookDelivery.objects.create(webhook=webhook, event="jobs.ended", job=job, jobs_told=1)
    client = signed_in("administrator")
    page = client.get(page_of(webhook)).content.decode()
    assert "it accepted nothing for three days" in page
    assert "2 messages failed" in page
    button = f"{page_of(webhook)[:-7]}send_again/"
    assert button in page
    assert "2 messages failed, the first at" in client.get(button).content.decode()
    assert not AuditEntry.objects.exists(), "only asked"
    response = client.post(button, {"reason": "it is back", "confirmed": "on"}, follow=True)
    assert "2 messages sent again" in response.content.decode()
    webhook.refresh_from_db()
    assert (webhook.paused_at, webhook.paused_because, webhook.failing_since) == (None, "", None)
    assert set(webhook.deliveries.values_list("job__status", "job__origin")) == {("queued", job.pk) for job in jobs}, (
        "they show their latest job"
    )
    assert signed_in("viewer").post(button, {"reason": "", "confirmed": "on"}).status_code == 403
    Webhook.objects.update(enabled=False)
    assert "switch it on first" in client.post(button, {"reason": "", "confirmed": "on"}).content.decode()
