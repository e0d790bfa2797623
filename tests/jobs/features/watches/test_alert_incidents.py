"""Incidents follow the life of an alert, in order; receivers that refuse what their documentation does not have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from django.conf import settings as django_settings
from django.db import connection

from jobs.features.watches.notify_alerts import KIND, send_test, send_unsent
from jobs.models import DeadLetter, Job, RetryPolicy
from jobs.states import JobState
from jobs.testing import drain
from ratelimits.alerts import alerts
from ratelimits.models import AlertRoute, QuotaAlert
from tests.factories import make_route
from tests.support.alert_receivers import Receivers
from tests.support.alerts import resolve_alert
from tests.support.background import in_background
from tests.support.deliveries import deliver
from tests.support.http_server import serving
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db

KEY = "0123456789abcdef0123456789abcdef"


class Slow(Receivers):
    """PagerDuty answers a trigger after some seconds, or once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.seconds = 0.0
        self.is_asked = False

    async def accept(self, channel: str, message: dict[str, Any]) -> web.Response:
        if channel == "pagerduty" and message["event_action"] == "trigger":
            self.is_asked = True
            until = time.monotonic() + self.seconds
            while time.monotonic() < until and self.seconds:  # noqa: ASYNC110 - another thread lets it go
                await asyncio.sleep(0.02)
        return await super().accept(channel, message)


@pytest.fixture
def receivers(settings) -> Iterator[Slow]:
    receivers = Slow()
    with in_background(serving(receivers.take)) as url:
        settings.QUEUEOPS = replace(
            django_settings.QUEUEOPS, public_url="https://queue.example.org", pagerduty_url=f"{url}/v2/enqueue"
        )
        receivers.url = url
        yield receivers


def route(receivers: Slow, channel: str, **fields: Any) -> AlertRoute:
    secret = KEY if channel == "pagerduty" else f"{receivers.url}/{channel}"
    return make_route(**{"name": channel, "channel": channel, "target": "…cret", "secret": secret, **fields})


def open_alert(**fields: Any) -> QuotaAlert:
    """Of a kind that no watch resolves meanwhile."""
    given = {
        "severity": "warning",
        "message": "calls of a model cost what nobody knows",
        "figures": {"calls": 2},
        **fields,
    }
    alert = alerts.open_alert("missing_price", "svc", **given)
    assert alert is not None
    return alert


def resolve() -> None:
    assert resolve_alert("missing_price", "svc") == 1


def tell() -> None:
    """Hand over what is to be told, and carry it out: what waits for another message, too."""
    send_unsent(50)
    deliver()


@contextmanager
def drained_beside() -> Iterator[None]:
    """Carry out what there is meanwhile, to its end."""

    def carry_out() -> None:
        try:
            drain(seconds=60)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(carry_out)
        yield
        draining.result(60)


def actions(receivers: Slow) -> list[str]:
    return [message["event_action"] for message in receivers.taken["pagerduty"]]


def test_an_incident_is_opened_acknowledged_and_resolved_by_one_key(receivers: Slow):
    route(receivers, "pagerduty")
    route(receivers, "slack")
    alert = open_alert()
    tell()
    assert receivers.incidents == {f"queueops/{alert.pk}": "triggered"}
    alerts.acknowledge_alerts([alert.pk], actor="user:1")
    tell()
    tell()
    assert receivers.incidents == {f"queueops/{alert.pk}": "acknowledged"}
    resolve()
    tell()
    assert receivers.incidents == {f"queueops/{alert.pk}": "resolved"}
    assert actions(receivers) == ["trigger", "acknowledge", "resolve"]
    assert (len(receivers.taken["slack"]), receivers.refused) == (1, [])


def test_what_was_acknowledged_before_it_was_told_is_told_and_acknowledged(receivers: Slow):
    route(receivers, "pagerduty")
    alert = open_alert()
    alerts.acknowledge_alerts([alert.pk], actor="user:1")
    tell()
    assert actions(receivers) == ["trigger", "acknowledge"]


def test_nobody_is_told_that_somebody_looks_after_what_they_were_not_told_of(receivers: Slow):
    route(receivers, "pagerduty", least_severity="critical")
    alert = open_alert()
    alerts.acknowledge_alerts([alert.pk], actor="user:1")
    tell()
    assert not Job.objects.filter(kind=KIND).exists()


@pytest.mark.django_db(transaction=True)
def test_an_end_waits_for_a_beginning_that_is_still_on_its_way(receivers: Slow):
    receivers.seconds = 5.0
    route(receivers, "pagerduty")
    alert = open_alert()
    send_unsent(50)
    with drained_beside():
        wait_for(lambda: receivers.is_asked, what="the trigger's way to the receiver")
        resolve()
        send_unsent(50)
    tell()
    assert actions(receivers) == ["trigger", "resolve"]
    assert receivers.incidents == {f"queueops/{alert.pk}": "resolved"}


def test_the_end_of_what_could_not_be_told_is_told_all_the_same(receivers: Slow):
    # The receiver refuses the key, and is not asked again for three days.
    pager = route(receivers, "pagerduty", secret="short")
    never = {"initial_seconds": 1, "multiplier": 1, "max_delay_seconds": 1, "max_retries": 0, "jitter": "none"}
    RetryPolicy.objects.update_or_create(name="receiver", defaults=never)
    alert = open_alert()
    send_unsent(50)
    resolve()
    assert Job.objects.get(payload__event="opened").status == JobState.QUEUED
    tell()
    assert Job.objects.filter(kind=KIND, held=True).count() == 0
    assert DeadLetter.objects.filter(kind=KIND, job__payload__alert=alert.pk).count() == 2
    pager.refresh_from_db()
    assert "answered 400" in pager.last_error


@pytest.mark.parametrize("channel", ["slack", "teams", "pagerduty"])
@pytest.mark.parametrize("message", ["refused calls", "\N{FIRE}" * 20_000, "line\n" * 5_000])
def test_each_receiver_takes_what_it_is_sent_whatever_the_alert_says(receivers: Slow, channel: str, message: str):
    only = route(receivers, channel)
    open_alert(message=message)
    send_test(only)
    tell()
    assert (receivers.refused, len(receivers.taken[channel])) == ([], 2)


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_hangs_delays_no_other_and_none_of_the_alerts(receivers: Slow):
    receivers.seconds = 30.0
    route(receivers, "pagerduty")
    route(receivers, "slack")
    open_alert()
    send_unsent(50)
    with drained_beside():
        wait_for(lambda: receivers.taken["slack"], seconds=10, what="the message by the other route")
        assert alerts.open_alert("missing_price", "other", severity="critical", message="m", figures={}) is not None
        send_unsent(50)
        wait_for(lambda: len(receivers.taken["slack"]) == 2, seconds=10, what="the next alert")
        assert actions(receivers) == []
        receivers.seconds = 0.0
