"""Incidents against a real provider and a real cluster: what each surface says of them after 10, 30 and 60 s."""

from __future__ import annotations

import html
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from dashboards.services.ops import ops_snapshot
from jobs.models import Batch
from ratelimits.models import QuotaAlert
from tests.faults.app import handlers  # noqa: F401 - registers the kinds of OF_FAULTS
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.incidents import (
    INCIDENTS,
    OF_FAULTS,
    SETTINGS,
    continue_all,
    live_through_healthy_day,
    live_through_night,
    paged,
    prepare_healthy_day,
)
from tests.support.people import signed_in
from tests.support.sandbox import Sandbox, running_sandbox

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("transactional_db")]

LOOKS = (10, 30, 60)  # seconds after it began
AS_VARIABLES: dict[str, Any] = {name.removeprefix("QUEUEOPS_").lower(): value for name, value in SETTINGS.items()}


@dataclass(frozen=True)
class Told:
    """What the surfaces say at one moment."""

    headline: str
    everything: str
    alerts: list[str]
    admin: str
    batch_page: str
    command: str
    api: dict[str, Any]
    waiting: list[dict[str, Any]]
    card: dict[str, Any]

    @property
    def holds(self) -> str:
        """What holds most of the batch, as the API says; empty: nothing does."""
        return next((lane["reasons"][0]["text"] for lane in self.waiting if lane["reasons"]), "")


def look(client: Client, batch: Batch) -> Told:
    snapshot = ops_snapshot()
    health = snapshot["health"]
    address, api = reverse("admin:jobs_batch_change", args=[batch.pk]), f"/api/v1/batches/{batch.pk}/"
    command = io.StringIO()
    call_command("watch_batch", str(batch.pk), once=True, stdout=command)
    return Told(
        headline=health["text"],
        everything=" ".join([health["text"], health["cause"], *(one["text"] for one in health["also"])]),
        alerts=sorted(QuotaAlert.objects.filter(resolved_at=None).values_list("kind", flat=True)),
        admin=html.unescape(client.get(reverse("admin:index")).content.decode()),
        batch_page=html.unescape(client.get(address).content.decode()),
        command=command.getvalue(),
        api=client.get(f"{api}?project=acme").json(),
        waiting=client.get(f"{api}waiting/?project=acme").json()["results"],
        card=next(one for one in snapshot["batches"] if one["id"] == str(batch.pk)),
    )


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with running_sandbox() as running:
        yield running


@pytest.mark.parametrize("name", [*INCIDENTS, *OF_FAULTS])
def test_every_surface_tells_of_it_alike_and_one_alert_does(
    ledger: Ledger, sandbox: Sandbox, name: str, figures: Callable[[str], None]
):
    incident, client, told = (INCIDENTS | OF_FAULTS)[name], signed_in("superuser"), {}
    with paged() as pager, cluster(ledger, **AS_VARIABLES):
        batch, began = incident.begin(sandbox, name=name), time.monotonic()
        for seconds in LOOKS:
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            one = told[seconds] = look(client, batch)
            figures(
                f"after {seconds} s: {one.headline!r}; open alerts {one.alerts}; "
                f"API: {one.api['progress']} %, eta {one.api['eta']}, {one.holds!r}; command: {one.command.strip()!r}"
            )
        continue_all()
    figures("messages: " + ", ".join(f"{kind} after {at - began:.1f} s" for at, kind in pager.opened()))
    for seconds, one in told.items():
        assert one.headline in one.admin, f"{seconds} s: the admin's first page says something else"
        has_ended = one.api["progress"] == 100  # between the two looks
        assert one.card["eta"] is None or one.api["eta"] or has_ended, f"{seconds} s: card and API differ"
        assert one.card["held_by_outage"] == one.api["held_by_outage"] or seconds < LOOKS[-1]
    everything = " ".join(one.everything for one in told.values())
    assert incident.headline in everything
    last = told[LOOKS[-1]]
    assert incident.reason in last.batch_page
    assert incident.reason in last.holds or not last.holds, "the API tells another reason than the page"
    assert last.holds in last.command, "the command tells another reason than the API"
    assert [kind for _, kind in pager.opened()] == [incident.alert] * bool(incident.alert)


def test_five_causes_of_a_night_are_five_messages_whatever_was_acknowledged_before(
    ledger: Ledger, sandbox: Sandbox, figures: Callable[[str], None]
):
    with paged() as pager, cluster(ledger, **AS_VARIABLES):
        told = live_through_night(sandbox, pager)
    figures("messages: " + "; ".join(told))
    assert len(told) == 5
    assert len(set(told)) == 5


def test_a_healthy_day_is_told_in_few_words_and_its_ends_are_foreseen(
    ledger: Ledger, sandbox: Sandbox, figures: Callable[[str], None]
):
    prepare_healthy_day(sandbox)
    with paged() as pager, cluster(ledger, **AS_VARIABLES):
        judged = live_through_healthy_day(240)
    worst = max(error for _, error in judged)
    figures(f"{len(judged)} forecasts, the worst {worst:.1%} off; messages: {[kind for _, kind in pager.opened()]}")
    assert len(pager.opened()) <= 3
    assert worst <= 0.15
