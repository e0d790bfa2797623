"""Incidents against a real provider and a real cluster: what each surface says of them after 10, 30 and 60 s."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from dashboards.services.ops import ops_snapshot
from jobs.models import Batch
from jobs.services.submit.submit import submit_batch
from ratelimits.models import QuotaAlert
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.people import signed_in
from tests.support.sandbox import Sandbox, running_sandbox

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("transactional_db")]

LOOKS = (10, 30, 60)  # seconds after it began
JOBS = 60


@dataclass(frozen=True)
class Incident:
    """
    Attributes:
        strike: Makes it happen.
        row: What the rows are called that its jobs write.
        alert: The one kind of alert that tells of it.
        headline, reason: What the first line, and a job of it or a cause on the batch's page, say.
    """

    strike: Callable[[Sandbox], object]
    alert: str
    headline: str
    reason: str
    row: str = "row"


INCIDENTS = {
    "a service answers 503": Incident(
        lambda sandbox: sandbox.turn(outage={"seconds": 3600, "mode": "503"}),
        alert="outage",
        headline="does not answer",
        reason="does not answer",
    ),
    "a service breaks connections": Incident(
        lambda sandbox: sandbox.turn(outage={"seconds": 3600, "mode": "close"}),
        alert="outage",
        headline="does not answer",
        reason="does not answer",
    ),
    "many jobs fail of one cause": Incident(
        lambda sandbox: sandbox.turn(row_errors=[{"pattern": "gone*", "status": 404}]),
        alert="dead_letters",
        headline="dead letters",
        reason="http_404",
        row="gone",
    ),
}


@dataclass(frozen=True)
class Told:
    """What the surfaces say at one moment."""

    headline: str
    everything: str
    alerts: list[str]
    admin: str
    batch_page: str
    api: dict[str, Any]
    card: dict[str, Any]


def look(client: Client, batch: Batch) -> Told:
    snapshot = ops_snapshot()
    health = snapshot["health"]
    address = reverse("admin:jobs_batch_change", args=[batch.pk])
    return Told(
        headline=health["text"],
        everything=" ".join([health["text"], health["cause"], *(one["text"] for one in health["also"])]),
        alerts=sorted(QuotaAlert.objects.filter(resolved_at=None).values_list("kind", flat=True)),
        admin=html.unescape(client.get(reverse("admin:index")).content.decode()),
        batch_page=html.unescape(client.get(address).content.decode()),
        api=client.get(f"/api/v1/batches/{batch.pk}/?project=acme").json(),
        card=next(one for one in snapshot["batches"] if one["id"] == str(batch.pk)),
    )


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with running_sandbox() as running:
        yield running


@pytest.mark.parametrize("name", INCIDENTS)
def test_every_surface_tells_of_it_alike_and_one_alert_does(
    ledger: Ledger, sandbox: Sandbox, name: str, figures: Callable[[str], None]
):
    incident, client = INCIDENTS[name], signed_in("superuser")
    make_project("acme")
    with cluster(ledger):
        incident.strike(sandbox)
        specs = [
            {
                "kind": "http.request",
                "payload": {"method": "PUT", "url": sandbox.row_url("acme", f"{incident.row}-{n}"), "json": n},
            }
            for n in range(JOBS)
        ]
        submitted = submit_batch(specs, project_id="acme", actor="key:test", name=name)
        batch = Batch.objects.get(pk=submitted.id)
        began, told = time.monotonic(), {}
        for seconds in LOOKS:
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            told[seconds] = look(client, batch)
            figures(f"after {seconds} s: {told[seconds].headline} alerts: {told[seconds].alerts}")
    for seconds, one in told.items():
        assert one.headline in one.admin, f"{seconds} s: the admin's first page says something else"
        assert one.card["eta"] is None or one.api["eta"] is not None, f"{seconds} s: card and API differ"
        assert one.card["held_by_outage"] == one.api["held_by_outage"] or seconds < LOOKS[-1]
    last = told[LOOKS[-1]]
    assert incident.headline in last.everything
    assert incident.reason in last.batch_page
    assert last.alerts == [incident.alert]
    told_of = QuotaAlert.objects.filter(kind=incident.alert).count()
    assert told_of == 1, "told more than once"
