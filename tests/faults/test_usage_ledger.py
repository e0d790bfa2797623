"""R11: usage reported again and again in any order, reserved by many at once, with kills: each is counted once."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db.models import Count, F, Sum
from django.db.models.functions import Now
from django.utils import timezone

from ratelimits.models import UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.ingest import Reported
from ratelimits.usage.ledger import check_ledger
from ratelimits.usage.release import expire_reservations
from tests.factories import make_allowance
from tests.faults.usage_apps import PROJECT, App, report_all, reserve_all, run_killing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("R11")]


@dataclass(frozen=True)
class Form:
    events: int
    quota: int
    reporting: int
    reserving: int
    senders: int
    batch: int
    reservers: int
    threads: int
    flows: int
    kills: int
    every: tuple[float, float]


SHORT = Form(
    2_000,
    40,
    reporting=20,
    reserving=3,
    senders=3,
    batch=200,
    reservers=2,
    threads=12,
    flows=5,
    kills=4,
    every=(0.1, 0.5),
)
LONG = Form(
    10_000,
    500,
    reporting=50,
    reserving=20,
    senders=4,
    batch=100,
    reservers=4,
    threads=50,
    flows=40,
    kills=40,
    every=(0.3, 1.5),
)


def test_counters_are_the_ledger_and_the_set_of_events_though_apps_are_killed(figures):
    figures(storm(SHORT))


@pytest.mark.soak
def test_two_hundred_reserving_clients_and_ten_thousand_events_with_kills(figures):
    figures(storm(LONG))


def storm(form: Form) -> str:
    make_allowance(quota=form.quota, unit="tokens")
    drawn = random.Random(form.events)  # noqa: S311 - no secret
    reporting, reserving = ([uuid4() for _ in range(count)] for count in (form.reporting, form.reserving))
    events = [
        Reported(uuid4(), drawn.choice(reporting), drawn.randint(0, 9), timezone.now()) for _ in range(form.events)
    ]
    sent = [event for event in events for _ in range(drawn.randint(1, 5))]
    drawn.shuffle(sent)
    begun = time.monotonic()
    apps = [App(report_all(batches_of(sent[number :: form.senders], form.batch))) for number in range(form.senders)]
    apps += [
        App(reserve_all(reserving, threads=form.threads, flows=form.flows, at_once=40)) for _ in range(form.reservers)
    ]
    over = 0

    def look() -> None:
        nonlocal over
        expire_reservations()
        of_reserving = UsageTracking.objects.filter(user_id__in=reserving)
        over += of_reserving.filter(used__gt=F("quota") - F("reserved")).count()

    run_killing(apps, kills=form.kills, every=form.every, meanwhile=look)
    # What killed apps have left behind.
    UsageReservation.objects.filter(status="active").update(expires_at=Now() - timedelta(seconds=1))
    while expire_reservations():
        pass
    look()
    assert over == 0, "more was reserved than the quota"
    assert check_ledger(PROJECT).differences == []
    assert used_by(reporting) == expected_of(events)
    assert UsageTracking.objects.aggregate(reserved=Sum("reserved"))["reserved"] == 0
    counts = dict(UsageReservation.objects.values_list("status").annotate(Count("pk")))
    named = UsageEvent.objects.filter(user_id__in=reserving)
    assert named.values("reservation").distinct().count() == named.count() == counts["confirmed"]
    refused = UsageTracking.objects.aggregate(refused=Sum("refused"))["refused"]
    kills = sum(app.kills for app in apps)
    assert kills
    assert refused
    return (
        f"{len(events):,} events sent {len(sent):,} times, {sum(counts.values()):,} reservations ({counts}), "
        f"{refused:,} refused, {kills} apps killed, {time.monotonic() - begun:.0f} s: "
        "counters = ledger = events, 0 over"
    )


def batches_of(events: list[Reported], size: int) -> list[list[Reported]]:
    return [events[start : start + size] for start in range(0, len(events), size)]


def used_by(users: list[UUID]) -> dict[UUID, int]:
    return dict(UsageTracking.objects.filter(user_id__in=users).values_list("user_id", "used"))


def expected_of(events: list[Reported]) -> dict[UUID, int]:
    expected: dict[UUID, int] = {}
    for event in events:
        expected[event.user_id] = expected.get(event.user_id, 0) + event.tokens
    return expected
