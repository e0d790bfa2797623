"""Alerts reach people: a real mail server, a real webhook, real executors; once, retried, and only those wanted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from aiohttp import web
from django.db import transaction
from django.utils import timezone

from jobs.features.watches import notify_alerts
from jobs.features.watches.notify_alerts import PROJECT, send_test, send_unsent
from jobs.models import DeadLetter, Job
from jobs.testing import drain
from ratelimits.alerts import alerts
from ratelimits.models import AlertRoute, QuotaAlert
from tests.factories import SIGNING_SECRET, make_route
from tests.support.alert_mail import email_route, text_of
from tests.support.background import in_background
from tests.support.deliveries import deliver
from tests.support.http_server import serving
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db


def open_alert(
    severity: str = "warning", subject: str = "growth", message: str = "20 or more dead letters"
) -> QuotaAlert:
    alert = alerts.open_alert("dead_letters", subject, severity=severity, message=message, figures={"open": 20})
    assert alert is not None
    return alert


def test_an_alert_is_mailed_once_with_its_runbook_and_a_link(mail):
    route = email_route()
    alert = open_alert()
    assert send_unsent(10) == 1
    assert send_unsent(10) == 0
    assert not QuotaAlert.objects.filter(notified_at=None).exists()
    drain()
    [message] = mail.messages
    assert message["Subject"] == "[QueueOps] Warning: 20 or more dead letters"
    assert mail.recipients == ["oncall@example.org"]
    assert "What to do: docs/runbooks/dead_letters.md" in text_of(mail)
    assert f"https://queue.example.org/admin/ratelimits/quotaalert/{alert.pk}/change/" in text_of(mail)
    route.refresh_from_db()
    assert route.last_sent_at is not None
    assert Job.objects.get().project_id == PROJECT


def test_a_message_can_hold_no_line_of_its_own_in_the_head(mail):
    email_route()
    open_alert(message="evil\r\nBcc: thief@example.org")
    send_unsent(10)
    drain()
    assert mail.messages[0]["Bcc"] is None
    assert mail.recipients == ["oncall@example.org"]


def test_a_route_hears_of_its_severity_and_above_alone(mail):
    email_route(least_severity="critical")
    email_route(name="off", least_severity="notice", enabled=False)
    open_alert("warning")
    assert send_unsent(10) == 0
    assert not QuotaAlert.objects.filter(notified_at=None).exists()
    open_alert("critical", subject="size")
    assert send_unsent(10) == 1


def test_the_end_is_told_of_critical_alerts_alone(mail):
    email_route()
    for severity in ("warning", "critical"):
        open_alert(severity, subject=severity)
    assert send_unsent(10) == 2
    alerts.resolve(QuotaAlert.objects.all())
    assert send_unsent(10) == 1
    deliver()
    assert sorted(message["Subject"].split(":")[0] for message in mail.messages) == [
        "[QueueOps] Critical",
        "[QueueOps] Resolved",
        "[QueueOps] Warning",
    ]


def test_a_risen_severity_is_told_again(mail):
    email_route(least_severity="notice")
    open_alert("notice")
    send_unsent(10)
    assert alerts.open_alert("dead_letters", "growth", severity="warning", message="worse", figures={}) is None
    assert send_unsent(10) == 1
    assert alerts.open_alert("dead_letters", "growth", severity="warning", message="still", figures={}) is None
    assert send_unsent(10) == 0


def test_marking_and_handing_over_are_one_transaction(mail):
    email_route()
    alert = open_alert()
    with transaction.atomic():
        assert send_unsent(10) == 1
        transaction.set_rollback(True)
    alert.refresh_from_db()
    assert alert.notified_at is None
    assert not Job.objects.exists()


def test_an_alert_that_cannot_be_told_keeps_no_other_back(mail, monkeypatch):
    email_route()
    bad = open_alert()
    good = alerts.open_alert("oldest_ready", "acme", severity="warning", message="late", figures={})
    assert good is not None
    whole = notify_alerts._submit

    def submit(route, event, key, content):
        if content["alert"] == bad.pk:
            raise LookupError("no such thing")
        return whole(route, event, key, content)

    monkeypatch.setattr(notify_alerts, "_submit", submit)
    assert send_unsent(10) == 1
    assert Job.objects.get().payload["alert"] == good.pk
    assert not QuotaAlert.objects.filter(notified_at=None).exists()


def test_the_same_event_is_never_handed_over_twice(mail):
    email_route()
    open_alert()
    assert send_unsent(10) == 1
    QuotaAlert.objects.update(notified_at=None)
    assert send_unsent(10) == 0
    assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_leaders_at_once_hand_over_each_alert_once(mail):
    email_route()
    for number in range(40):
        open_alert(subject=f"s{number}")

    def lead(_: int) -> int:
        submitted = 0
        while sent := send_unsent(3):
            submitted += sent
        return submitted

    assert sum(run_together(4, lead)) == Job.objects.count() == 40


def test_a_busy_mail_server_is_asked_again_and_a_final_refusal_is_a_dead_letter(mail, settings):
    route = email_route()
    mail.refusals["oncall@example.org"] = ["451 try later"]
    open_alert()
    send_unsent(10)
    drain()
    assert mail.recipients == ["oncall@example.org"]
    mail.refusals["oncall@example.org"] = ["550 no such mailbox"]
    open_alert(subject="size")
    send_unsent(10)
    drain()
    assert DeadLetter.objects.get().error_code == "mail_refused"
    route.refresh_from_db()
    assert route.last_error == "the mail server refused the address with 550"


def test_a_webhook_gets_a_signed_message():
    received: list[tuple[dict[str, str], bytes]] = []

    async def keep(request: web.Request) -> web.Response:
        received.append((dict(request.headers), await request.read()))
        return web.Response(status=204)

    with in_background(serving(keep)) as url:
        make_route(target=f"{url}/alerts")
        alert = open_alert()
        assert send_unsent(10) == 1
        drain()
    [(headers, body)] = received
    head = {name.lower(): value for name, value in headers.items()}
    key = base64.b64decode(SIGNING_SECRET.removeprefix("whsec_"))
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert head["webhook-signature"] == f"v1,{expected}"
    content = json.loads(body)
    assert content["type"] == "alert.opened"
    assert content["data"]["alert"] == alert.pk
    assert content["data"]["runbook"] == "docs/runbooks/dead_letters.md"


def test_a_route_that_is_out_does_not_hold_up_the_others(mail):
    make_route(name="down")
    email_route()
    for number in range(8):
        open_alert(subject=f"s{number}")
    assert send_unsent(20) == 16
    services = set(Job.objects.values_list("service", flat=True))
    assert len(services) == 2
    Job.objects.filter(payload__route=AlertRoute.objects.get(name="down").pk).update(scheduled_at=timezone.now())
    mails = Job.objects.exclude(payload__route=AlertRoute.objects.get(name="down").pk)
    Job.objects.exclude(pk__in=mails).update(held=True)
    drain()
    assert len(mail.messages) == 8


def test_a_test_message_says_that_nothing_is_wrong(mail):
    send_test(email_route())
    drain()
    assert mail.messages[0]["Subject"] == "[QueueOps] Test of an alert route"
    assert "Nothing is wrong." in text_of(mail)
