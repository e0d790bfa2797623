"""Alerts of many users reach people as one message of their project; seldom enough, and none is lost."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from aiohttp import web
from django.db import transaction
from django.db.models.functions import Now

from jobs.features.watches.notify_alerts import DIGEST_EVERY, PROJECT, send_unsent
from jobs.models import Job
from jobs.testing import drain
from ratelimits.alerts import alerts
from ratelimits.models import QuotaAlert
from ratelimits.usage.allowance_alerts import tend_allowance_alerts
from tests.factories import make_allowance, make_project, make_route, make_usage_event
from tests.support.alert_mail import email_route, text_of
from tests.support.background import in_background
from tests.support.deliveries import deliver
from tests.support.http_server import serving
from tests.support.people import signed_in
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def allowances(db: None) -> None:
    make_allowance(quota=10)


def use(amount: int, *, users: int = 1, project: str = "acme") -> None:
    """So many new users of the project have used this much; their alerts are open."""
    for _ in range(users):
        make_usage_event(uuid4(), amount=amount, project=project)
    tend_allowance_alerts()


def pass_time() -> None:
    """The digests sent until now become old enough for the next."""
    Job.objects.update(created_at=Now() - DIGEST_EVERY - timedelta(seconds=1))


def unsent() -> int:
    return QuotaAlert.objects.filter(notified_at=None).count()


def subjects(sink: Any) -> list[str]:
    return sorted(" ".join(message["Subject"].split()) for message in sink.messages)


def test_users_who_reach_a_level_are_told_of_in_one_mail(mail):
    email_route()
    use(8, users=7)
    assert (send_unsent(50), unsent()) == (1, 0)
    drain()
    assert subjects(mail) == ["[QueueOps] Warning: acme, 7 users: a user comes near the month's quota"]
    text = text_of(mail)
    assert text.count("8 of 10 requests") == 5
    assert "and 2 more" in text
    assert "What to do: docs/runbooks/allowance.md" in text
    assert "https://queue.example.org/admin/ratelimits/quotaalert/?project=acme&kind=allowance&severity=warning" in text


def test_the_link_leads_to_the_alerts_of_that_project(mail):
    email_route()
    make_allowance("other", quota=10)
    use(8, users=2)
    send_unsent(50)
    drain()
    use(8, project="other")
    [link] = [line.split()[1] for line in text_of(mail).splitlines() if line.startswith("Alerts: ")] or [""]
    where = urlsplit(link)
    listed = signed_in("viewer").get(f"{where.path}?{where.query}").content.decode()
    assert listed.count("acme, user ") == 2
    assert "other, user " not in listed


def test_each_project_kind_and_severity_has_its_own_message(mail):
    email_route(least_severity="notice")
    make_allowance("other", quota=10)
    for amount in (6, 8, 12):  # the last are critical, and overage as well
        use(amount, users=2)
    use(6, users=2, project="other")
    assert send_unsent(50) == Job.objects.count() == 5


def test_one_user_is_told_of_like_any_alert(mail):
    email_route()
    use(8)
    send_unsent(50)
    drain()
    assert f"/admin/ratelimits/quotaalert/{QuotaAlert.objects.get().pk}/change/" in text_of(mail)


@pytest.mark.parametrize("first", [1, 2])
def test_the_next_of_a_group_wait_and_are_then_told_together(mail, first):
    email_route()
    use(8, users=first)
    assert send_unsent(50) == 1
    for _ in range(2):
        use(8, users=2)
        assert send_unsent(50) == 0
    assert unsent() == 4
    pass_time()
    assert (send_unsent(50), unsent()) == (1, 0)
    drain()
    assert any("acme, 4 users" in subject for subject in subjects(mail))


def test_critical_ones_do_not_wait_and_their_end_is_one_message(mail):
    email_route()
    for _ in range(2):
        use(10, users=2)
        assert send_unsent(50) == 1
    alerts.resolve(QuotaAlert.objects.all())
    assert send_unsent(50) == 1
    deliver()
    assert [subject.split(": ")[0] for subject in subjects(mail)] == ["[QueueOps] Critical"] * 2 + [
        "[QueueOps] Resolved"
    ]
    assert "acme, 4 users" in subjects(mail)[-1]


def test_lesser_ones_that_end_while_they_wait_are_not_told(mail):
    email_route()
    use(8)
    send_unsent(50)
    use(8, users=2)
    alerts.resolve(QuotaAlert.objects.all())
    assert (send_unsent(50), unsent()) == (0, 0)


def test_a_group_that_waits_holds_up_no_other_alert(mail):
    email_route()
    use(8)
    send_unsent(50)
    use(8, users=3)
    alerts.open_alert("dead_letters", "growth", severity="warning", message="many", figures={})
    use(10)
    assert send_unsent(1) == 2
    assert unsent() == 3


def test_a_crash_between_marking_and_handing_over_loses_none(mail):
    email_route()
    use(8, users=3)
    with transaction.atomic():
        assert send_unsent(50) == 1
        transaction.set_rollback(True)
    assert (unsent(), Job.objects.count()) == (3, 0)
    assert send_unsent(50) == 1


@pytest.mark.django_db(transaction=True)
def test_another_leader_sends_no_digest_beside_one_that_is_not_committed(mail):
    email_route()
    make_project(PROJECT)
    use(8, users=2)

    def lead(_: int) -> int:
        use(8, users=2)
        return send_unsent(50)

    with transaction.atomic():
        assert send_unsent(50) == 1
        assert run_together(1, lead) == [0]
    assert (send_unsent(50), unsent()) == (0, 2)


def test_a_webhook_gets_the_count_and_the_first_users():
    received: list[dict[str, Any]] = []

    async def keep(request: web.Request) -> web.Response:
        received.append(json.loads(await request.read()))
        return web.Response(status=204)

    with in_background(serving(keep)) as url:
        make_route(target=f"{url}/alerts")
        use(8, users=7)
        send_unsent(50)
        drain()
    [content] = received
    data = content["data"]
    assert (content["type"], data["project"], data["kind"], data["severity"], data["count"]) == (
        "alerts.opened",
        "acme",
        "allowance",
        "warning",
        7,
    )
    assert [alert["figures"]["used"] for alert in data["alerts"]] == [8] * 5
