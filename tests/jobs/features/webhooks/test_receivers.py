"""Receivers of webhooks and alerts that refuse, are away, come back, or are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from django.utils import timezone

from jobs import backoff
from jobs.features.watches.notify_alerts import send_test as send_test_alert
from jobs.features.watches.notify_alerts import send_unsent
from jobs.features.webhooks import webhooks
from jobs.features.webhooks.errors import UnknownWebhook
from jobs.features.webhooks.send_again import send_route_again, send_webhook_again
from jobs.features.webhooks.tell import WebhooksDuty, send_batch_webhooks
from jobs.features.webhooks.watch import watch_receivers
from jobs.models import DeadLetter, Job, RetryPolicy, Webhook, WebhookDelivery, WebhookJob
from jobs.services.upkeep.upkeep import prepare_database
from jobs.states import JobState
from jobs.testing import drain
from queueops.audit.models import AuditEntry
from queueops.tenancy.receivers import note_refused
from ratelimits.alerts import alerts
from ratelimits.models import AlertRoute, Limit, QuotaAlert
from ratelimits.models import Counter as LimitCounter
from tests.factories import make_batch, make_job, make_project, make_route, make_webhook
from tests.support.background import in_background
from tests.support.http_server import serving

pytestmark = pytest.mark.django_db

A_DAY = timedelta(days=1)


class Receivers:
    """Answers by path, what is asked for each in turn; the last of them for ever."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, list[Any]] = {}
        self.seen: list[tuple[str, str]] = []  # path and id of each message
        self.taken: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.strip("/")
        self.seen.append((path, request.headers.get("webhook-id", "")))
        answers = self.answers.get(path, [200])
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        status, headers = told if isinstance(told, tuple) else (told, {})
        self.taken[path] += status == 200
        return web.Response(status=status, headers=headers)

    def __getitem__(self, path: str) -> str:
        return f"{self.url}/{path}"


@pytest.fixture
def at() -> Iterator[Receivers]:
    receivers = Receivers()
    with in_background(serving(receivers.answer)) as url:
        receivers.url = url
        yield receivers


def announce(*, batches: int = 1) -> None:
    """End batches of acme, and tell whoever hears of them."""
    for _ in range(batches):
        send_batch_webhooks(make_batch(finished_at=timezone.now()))


def job_of(webhook: Webhook) -> Job:
    return WebhookDelivery.objects.filter(webhook=webhook).latest("pk").job


def test_a_receiver_that_says_429_silences_no_other_and_is_heard(at):
    project = make_project()
    at.answers["busy"] = [(429, {"Retry-After": "3600", "RateLimit-Remaining": "0"})]
    busy, other = make_webhook(project, url=at["busy"]), make_webhook(project, url=at["other"])
    announce(batches=5)
    drain()
    announce()
    drain()
    assert at.taken == {"busy": 0, "other": 6}
    assert set(other.deliveries.values_list("job__status", flat=True)) == {JobState.COMPLETED}
    for delivery in busy.deliveries.select_related("job"):
        assert (delivery.job.status, delivery.job.retry_count) == (JobState.RETRIED, 1)
        assert delivery.job.scheduled_at is not None
        assert 3590 < (delivery.job.scheduled_at - timezone.now()).total_seconds() < 3700
    assert not Limit.objects.exists()
    assert not LimitCounter.objects.filter(blocked_until__isnull=False).exists()
    assert not QuotaAlert.objects.exists()


@pytest.mark.parametrize("status", [301, 401, 404, 409, 429, 503])
def test_what_a_receiver_refuses_is_repeated_until_it_takes_it(at, status):
    webhook, route = make_webhook(make_project(), url=at["hook"]), make_route(target=at["route"])
    at.answers = {"hook": [status, status, 200], "route": [status, 200]}
    announce()
    alerts.open_alert("dead_letters", "x", severity="warning", message="many", figures={})
    send_unsent(10)
    drain(seconds=100)
    assert at.taken == {"hook": 1, "route": 1}
    assert len({message for path, message in at.seen if path == "hook"}) == 1
    assert job_of(webhook).status == JobState.COMPLETED
    webhook.refresh_from_db()
    route.refresh_from_db()
    assert (webhook.failing_since, route.failing_since, route.last_error) == (None, None, "")


def test_a_message_is_repeated_for_three_days_with_growing_pauses():
    prepare_database()
    RetryPolicy.objects.filter(name="receiver").delete()
    prepare_database()
    assert RetryPolicy.objects.get(name="receiver").window_seconds == 3 * 86_400, "older installations get it"
    policy, used = backoff.TEMPLATES["receiver"], 0.0
    delays: list[float] = []
    while True:
        pause = backoff.delay(policy, len(delays), chance=0.5)
        if backoff.exhausted(policy, len(delays), window_used=used, next_delay=pause):
            break
        delays.append(pause)
        used += pause
    assert 2.7 * 86_400 < used <= 3 * 86_400
    assert all(later >= earlier for earlier, later in pairwise(delays))
    assert sum(delays[:5]) < 600, "one that is away for minutes has its message within minutes"
    assert 15 < len(delays) < 30


def test_one_that_is_away_is_paused_with_an_alert_and_gets_all_when_it_is_back(at):
    project = make_project()
    webhook = make_webhook(project, url=at["hook"], hears_jobs=True)
    other = make_webhook(project, url=at["other"])
    at.answers["hook"] = [503]
    announce(batches=2)
    drain(seconds=0.5)
    first = Webhook.objects.get(pk=webhook.pk).failing_since
    assert first is not None
    watch_receivers()
    assert not QuotaAlert.objects.exists(), "three days are not over"

    Webhook.objects.update(failing_since=first - 3 * A_DAY - timedelta(minutes=1))
    Webhook.objects.filter(pk=other.pk).update(failing_since=None)
    watch_receivers()
    alert = QuotaAlert.objects.get(resolved_at=None)
    assert (alert.kind, set(alert.projects)) == ("receiver", {"acme"})
    assert at["hook"] in alert.message
    assert "accepted nothing for three days" in alert.message
    assert AuditEntry.objects.get(action="pause_webhook").target == f"webhook {webhook.pk}"

    asked = len(at.seen)
    announce()
    Job.objects.filter(status=JobState.RETRIED).update(scheduled_at=timezone.now())
    WebhookJob.objects.create(webhook=webhook, project=project, job_id=make_job(state=JobState.COMPLETED).pk)
    WebhooksDuty().do()
    drain(seconds=0.5)
    assert [path for path, _ in at.seen[asked:]] == ["other"], "one that is paused is not asked"
    assert set(DeadLetter.objects.values_list("error_code", flat=True)) == {"receiver_paused"}
    letters = DeadLetter.objects.count()
    assert letters == 3

    at.answers["hook"] = [200]
    found = send_webhook_again(webhook.pk, project_id="acme", actor="user:1", reason="their server is back")
    assert (found.sent, found.left) == (3, 0)
    WebhooksDuty().do()
    drain()
    assert at.taken["hook"] == 4, "three that failed, and what waited meanwhile"
    assert set(webhook.deliveries.values_list("job__status", flat=True)) == {JobState.COMPLETED}
    assert {str(pk) for pk in webhook.deliveries.values_list("pk", flat=True)} == {
        message for path, message in at.seen if path == "hook"
    }, "under the ids that they had"
    watch_receivers()
    alert.refresh_from_db()
    assert alert.resolved_at is not None
    assert AuditEntry.objects.get(action="send_webhook_again").after == {"sent": 3, "left": 0}


def test_a_receiver_that_says_it_is_gone_is_switched_off(at):
    webhook, route = make_webhook(make_project(), url=at["hook"]), make_route(target=at["route"])
    at.answers = {"hook": [410], "route": [410]}
    announce(batches=2)
    alerts.open_alert("dead_letters", "x", severity="warning", message="many", figures={})
    send_unsent(10)
    drain()
    assert Counter(path for path, _ in at.seen)["route"] == 1
    for row in (webhook, route):
        row.refresh_from_db()
        assert (row.enabled, row.paused_because) == (False, "gone")
    assert DeadLetter.objects.filter(error_code="webhook_gone").count() >= 2
    watch_receivers()
    told = QuotaAlert.objects.filter(kind="receiver").values_list("message", flat=True)
    assert len(told) == 2
    assert all("410 Gone" in message for message in told)
    with pytest.raises(UnknownWebhook):
        send_webhook_again(webhook.pk, project_id="globex", actor="user:1")
    webhooks.save_webhook(webhook.pk, {"url": at["new"], "enabled": True}, project_id="acme", actor="user:1")
    watch_receivers()
    assert not QuotaAlert.objects.filter(kind="receiver", resolved_at=None, subject__startswith="webhook").exists()
    send_webhook_again(webhook.pk, project_id="acme", actor="user:1")
    drain()
    assert at.taken["new"] >= 1


@pytest.mark.parametrize("by", ["a person", "its own 410"])
def test_what_is_under_way_to_one_that_is_switched_off_is_sent_again_when_it_is_on(at, by: str):
    webhook, route = make_webhook(make_project(), url=at["hook"]), make_route(target=at["route"])
    announce()
    alerts.open_alert("dead_letters", "x", severity="warning", message="many", figures={})
    send_unsent(10)
    for model, row in ((Webhook, webhook), (AlertRoute, route)):
        if by == "a person":
            model.objects.update(enabled=False)
        else:
            note_refused(model, row.pk, is_gone=True)
    drain()
    assert at.seen == []
    assert set(DeadLetter.objects.values_list("error_code", flat=True)) == {"receiver_is_off"}
    assert DeadLetter.objects.count() == 2

    for model in (Webhook, AlertRoute):
        model.objects.update(enabled=True)
    assert send_webhook_again(webhook.pk, project_id="acme", actor="user:1").sent == 1
    assert send_route_again(route.pk, actor="user:1").sent == 1
    drain()
    assert at.taken == {"hook": 1, "route": 1}
    assert str(webhook.deliveries.get().pk) in {message for path, message in at.seen if path == "hook"}


def test_alerts_that_a_route_did_not_take_are_sent_again(at):
    route = make_route(target=at["route"], kinds=["long_running"])
    at.answers["route"] = [503]
    alerts.open_alert("long_running", "x", severity="warning", message="many", figures={})
    send_unsent(10)
    drain(seconds=0.5)
    AlertRoute.objects.update(failing_since=timezone.now() - 4 * A_DAY)
    watch_receivers()
    assert QuotaAlert.objects.get(kind="receiver").subject == f"route/{route.pk}"
    Job.objects.filter(status=JobState.RETRIED).update(scheduled_at=timezone.now())
    drain(seconds=0.5)
    assert DeadLetter.objects.get().error_code == "receiver_paused"
    at.answers["route"] = [200]
    assert send_route_again(route.pk, actor="user:1").sent == 1
    drain()
    assert at.taken["route"] == 1
    route.refresh_from_db()
    assert (route.paused_at, route.failing_since) == (None, None)


def test_a_test_that_is_refused_says_so_at_once_and_pauses_nobody(at):
    webhook, route = make_webhook(make_project(), url=at["hook"]), make_route(target=at["route"])
    at.answers = {"hook": [404, 200], "route": [404, 200]}
    webhooks.send_test(webhook.pk, project_id="acme", actor="user:1")
    send_test_alert(route)
    drain()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.FAILED}
    for row in (webhook, route):
        row.refresh_from_db()
        assert row.failing_since is None
