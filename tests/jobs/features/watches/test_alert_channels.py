"""Alerts in the forms of Slack, Teams and PagerDuty, to real receivers; routes of one project and of some kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from django.conf import settings as django_settings
from django.db.models import F

from jobs.features.watches.notify_alerts import send_test, send_unsent
from jobs.features.watches.watch_letters import watch_dead_letters
from jobs.models import DeadLetter, Job, JobEvent
from jobs.testing import drain
from ratelimits.alerts import alerts
from ratelimits.alerts.alerts import COMES_BACK
from ratelimits.models import AlertRoute, QuotaAlert
from tests.factories import make_dead_letter, make_project, make_route
from tests.ratelimits.counting import make_limit
from tests.support.alerts import resolve_alert
from tests.support.background import in_background
from tests.support.deliveries import deliver
from tests.support.http_server import serving

pytestmark = pytest.mark.django_db

KEY = "0123456789abcdef0123456789ABCDEF"
HOSTILE = "<!channel> <https://evil.example|look> & *bold* [a](https://evil.example)"


@dataclass
class Receiver:
    """A receiver on this machine: what it was sent, and what it answers."""

    url: str = ""
    status: int = 202
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        self.bodies.append(json.loads(await request.read()))
        return web.Response(status=self.status)


@pytest.fixture
def receiver(settings) -> Iterator[Receiver]:
    receiver = Receiver()
    with in_background(serving(receiver.take)) as url:
        receiver.url = url
        settings.QUEUEOPS = replace(
            django_settings.QUEUEOPS, public_url="https://queue.example.org", pagerduty_url=f"{url}/v2/enqueue"
        )
        yield receiver


def route(receiver: Receiver, channel: str, **fields: Any) -> AlertRoute:
    secret = KEY if channel == "pagerduty" else f"{receiver.url}/services/T0/B0/secret"
    return make_route(**{"name": channel, "channel": channel, "target": "…cret", "secret": secret, **fields})


def open_alert(kind: str = "dead_letters", subject: str = "growth", **fields: Any) -> QuotaAlert:
    given = {"severity": "warning", "message": "20 or more dead letters", "figures": {"open": 20}, **fields}
    alert = alerts.open_alert(kind, subject, **given)
    assert alert is not None
    return alert


def tell() -> int:
    told = send_unsent(50)
    drain()
    return told


def pass_time(seconds: float) -> None:
    """As if everything that happened to alerts had happened so long ago."""
    earlier = timedelta(seconds=seconds)
    QuotaAlert.objects.update(opened_at=F("opened_at") - earlier, resolved_at=F("resolved_at") - earlier)


def test_slack_gets_plain_text_with_a_button_and_nobodys_mentions(receiver: Receiver):
    route(receiver, "slack")
    alert = open_alert(message=HOSTILE)
    assert tell() == 1
    [body] = receiver.bodies
    header, section, actions = body["blocks"]
    assert header["text"] == {"type": "plain_text", "text": f"Warning: {HOSTILE}"[:150], "emoji": False}
    assert section["text"]["type"] == "plain_text"
    assert "docs/runbooks/dead_letters.md" in section["text"]["text"]
    assert actions["elements"][0]["url"].endswith(f"/quotaalert/{alert.pk}/change/")
    assert "<" not in body["text"]


def test_a_text_longer_than_slack_takes_is_cut(receiver: Receiver):
    route(receiver, "slack")
    open_alert(message="x" * 9_000)
    tell()
    header, section, _ = receiver.bodies[0]["blocks"]
    assert (len(header["text"]["text"]), len(section["text"]["text"])) == (150, 3_000)


def test_teams_gets_an_adaptive_card_whose_texts_are_no_markdown(receiver: Receiver):
    route(receiver, "teams")
    open_alert(message=HOSTILE, severity="critical")
    tell()
    [attachment] = receiver.bodies[0]["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    first = card["body"][0]["inlines"][0]
    assert (first["type"], first["color"]) == ("TextRun", "attention")
    assert first["text"] == f"Critical: {HOSTILE}"
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["actions"][0]["type"] == "Action.OpenUrl"


def test_pagerduty_opens_an_incident_and_ends_it_though_the_alert_is_no_critical_one(receiver: Receiver):
    route(receiver, "pagerduty")
    make_route(name="wants no ends", channel="slack", secret=f"{receiver.url}/services/other")
    make_dead_letter(error_code="forbidden")
    watch_dead_letters()
    alert = QuotaAlert.objects.get()
    assert tell() == 2
    [opened] = [body for body in receiver.bodies if "routing_key" in body]
    assert opened["routing_key"] == KEY
    assert (opened["event_action"], opened["dedup_key"]) == ("trigger", f"queueops/{alert.pk}")
    payload = opened["payload"]
    assert payload["severity"] == "warning"
    assert payload["summary"].startswith("Warning: failed for good: forbidden")
    assert payload["custom_details"]["figures"]["projects"] == ["acme"]
    assert opened["links"][0]["href"].endswith(f"/{alert.pk}/change/")
    receiver.bodies.clear()
    DeadLetter.objects.update(resolution="discarded")
    watch_dead_letters()
    assert tell() == 1
    assert receiver.bodies == [
        {"routing_key": KEY, "event_action": "resolve", "dedup_key": f"queueops/{alert.pk}"},
    ]
    assert tell() == 0


def test_a_beginning_that_arrives_after_the_end_leaves_no_incident_open(receiver: Receiver):
    route(receiver, "pagerduty")
    alert = open_alert()
    send_unsent(50)
    resolve_alert("dead_letters", "growth")
    send_unsent(50)
    assert [job.payload["event"] for job in Job.objects.order_by("pk")] == ["opened", "resolved"]
    deliver()
    assert [body["event_action"] for body in receiver.bodies] == ["resolve", "resolve"]
    assert {body["dedup_key"] for body in receiver.bodies} == {f"queueops/{alert.pk}"}


def test_an_incident_of_what_comes_and_goes_ends_once_it_does_not_come_back(receiver: Receiver):
    route(receiver, "pagerduty", least_severity="notice")
    open_alert("saturated", "00000001:*")
    pass_time(61)
    assert send_unsent(50) == 1
    resolve_alert("saturated", "00000001:*")
    assert send_unsent(50) == 0  # it may come back
    assert alerts.open_alert("saturated", "00000001:*", severity="warning", message="again", figures={}) is None
    pass_time(61)
    assert send_unsent(50) == 0  # it is the same incident
    resolve_alert("saturated", "00000001:*")
    pass_time(COMES_BACK.total_seconds() + 1)
    assert send_unsent(50) == 1
    assert [job.payload["event"] for job in Job.objects.order_by("pk")] == ["opened", "resolved"]


def test_what_nobody_was_paged_for_ends_without_a_word(receiver: Receiver):
    route(receiver, "pagerduty")
    open_alert(severity="notice")
    resolve_alert("dead_letters", "growth")
    open_alert(subject="size")
    resolve_alert("dead_letters", "size")
    assert tell() == 0
    assert not QuotaAlert.objects.filter(notified_at=None).exists()


def test_a_test_is_an_incident_of_its_own(receiver: Receiver):
    pager = route(receiver, "pagerduty")
    for _ in range(2):
        send_test(pager)
    drain()
    keys = {body["dedup_key"] for body in receiver.bodies}
    assert len(keys) == 2
    assert {body["payload"]["severity"] for body in receiver.bodies} == {"info"}


def test_a_refusal_is_shown_at_the_route_and_the_address_never(receiver: Receiver):
    receiver.status = 404
    slack = route(receiver, "slack")
    open_alert()
    send_unsent(50)
    drain()
    slack.refresh_from_db()
    assert slack.last_error == "the receiver answered 404"
    told = [str(one.message) + str(one.data) for one in JobEvent.objects.filter(data__http_status=404)]
    assert told
    assert not [one for one in [*told, *map(str, Job.objects.values_list("payload", flat=True))] if "services" in one]


def test_a_route_of_some_kinds_is_told_of_no_other(receiver: Receiver):
    route(receiver, "slack", kinds=["outage", "failing"])
    open_alert()
    outage = open_alert("outage", "http", figures={"projects": ["acme"]})
    assert tell() == 1
    assert f"/{outage.pk}/" in json.dumps(receiver.bodies)


def test_a_route_of_a_project_is_told_of_what_is_about_it(receiver: Receiver):
    make_project("acme")
    make_project("globex")
    limit = make_limit(scope="project_user")
    route(receiver, "slack", project="acme")
    mine = [
        open_alert("outage", "http", figures={"projects": ["globex", "acme"]}, message="mine 0"),
        open_alert("oldest_ready", "acme", message="mine 1"),
        open_alert("exceeded", f"{limit.pk:08d}:project:acme/user:u", limit_id=limit.pk, message="mine 2"),
    ]
    for subject in ("project:globex/user:project:acme", "*", "user:acme"):
        open_alert("exceeded", f"{limit.pk:08d}:{subject}", limit_id=limit.pk, message="not mine")
    open_alert("outage", "other", figures={"projects": ["globex"]}, message="not mine")
    open_alert("oldest_ready", "globex", message="not mine")
    open_alert("charge_leak", "*", message="not mine")  # about no project
    make_dead_letter(error_code="of_acme")
    watch_dead_letters()
    assert tell() == len(mine) + 1
    told = json.dumps(receiver.bodies)
    assert "not mine" not in told
    assert all(alert.message in told for alert in mine)
    assert "of_acme" in told


def test_calls_in_flight_that_fill_their_cap_are_no_alert():
    limit = make_limit(unit="in_flight", algorithm="concurrency", capacity=1, lease_seconds=60)
    from ratelimits.limiter.decide import Call, decide
    from ratelimits.limits import catalogue
    from ratelimits.subjects import Subject

    catalogue.forget()
    decide([Call(Subject(limit.service, "read", "acme", ""), kind="http.request")])
    assert not QuotaAlert.objects.exists()
