"""One forecast a batch: stored by upkeep, and told alike by every surface."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from dashboards.services.batches import batch_rows
from jobs.lanes import lane_name
from jobs.models import Batch
from jobs.services.explain.batch_report import read_report
from jobs.services.explain.queues import clears_at, queues_behind
from jobs.services.explain.snapshots import FORECAST_HOLDS, batch_snapshot
from jobs.services.upkeep import batches
from jobs.services.upkeep.batches import foresee_batches
from jobs.states import JobState
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limits import catalogue
from ratelimits.limits.catalogue import rules_of
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.factories import foreseen, make_batch, make_job, make_jobs
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

SUBJECT = Subject("google-sheets", "write", "acme", "")
LANE = lane_name(SUBJECT, project="acme", user="")


@pytest.fixture(autouse=True)
def slow_limit(db: None) -> Iterator[Limit]:
    """One call each ten seconds."""
    Limit.objects.all().delete()
    made = Limit.objects.create(
        name="slow",
        service="google-sheets",
        algorithm="token_bucket",
        capacity=1,
        refill_per_second=0.1,
        scope="project",
    )
    catalogue.forget()
    yield made
    catalogue.forget()


def limited(count: int, batch: Batch) -> None:
    make_jobs(count, service="google-sheets", lane=LANE, batch=batch)


def seconds_until(moment: datetime | None) -> float:
    assert moment is not None
    return (moment - timezone.now()).total_seconds()


def test_pages_lists_cards_the_api_and_reports_tell_the_same():
    batch = make_batch(rate_per_second=5.0)
    limited(60, batch)
    foresee_batches()
    batch.refresh_from_db()
    ends_at = batch.ends_at
    assert ends_at is not None
    now = timezone.now()
    told: dict[str, Any] = {
        "snapshot": batch_snapshot(batch).eta,
        "card": datetime.fromisoformat(batch_rows()[0]["eta"]),
        "report": (report := read_report(batch, now=now)).left and now + report.left,
    }
    client = signed_in("superuser")
    api: dict[str, Any] = client.get(f"/api/v1/batches/{batch.pk}/?project=acme").json()
    listed = client.get("/api/v1/batches/?project=acme").json()["results"][0]
    told |= {"api": datetime.fromisoformat(api["eta"]), "list": datetime.fromisoformat(listed["eta"])}
    for surface, moment in told.items():
        assert moment is not None, surface
        assert abs((moment - ends_at).total_seconds()) < 1, surface
    for page in ("/admin/jobs/batch/", f"/admin/jobs/batch/{batch.pk}/change/"):
        assert ends_at.isoformat() in client.get(page).content.decode(), page


def test_where_speed_and_limits_differ_much_both_are_told():
    """An unlimited job keeps the limit from deciding alone."""
    batch = make_batch(rate_per_second=1.0)
    limited(60, batch)
    make_job(batch=batch)
    told = foreseen(batch)
    assert seconds_until(told.eta) == pytest.approx(590, abs=5)
    assert seconds_until(told.eta_earliest) == pytest.approx(61, abs=5)
    page = signed_in("superuser").get(f"/admin/jobs/batch/{batch.pk}/change/").content.decode()
    assert "at its speed so far" in page


@pytest.mark.parametrize("rate", [0.12, 0.02])
def test_where_they_agree_or_speed_is_what_holds_it_one_time_is_told(rate):
    batch = make_batch(rate_per_second=rate)
    limited(60, batch)
    make_job(batch=batch)
    told = foreseen(batch)
    assert seconds_until(told.eta) == pytest.approx(max(590, 61 / rate), abs=5)
    assert told.eta_earliest is None


@pytest.mark.parametrize(
    "change",
    [
        {"paused": True},
        {"foreseen_at": timezone.now() - FORECAST_HOLDS * 2},
        {"foreseen_at": None},
        {"finished_at": timezone.now()},
    ],
    ids=["paused", "old", "none yet", "ended"],
)
def test_nothing_is_told_of_what_moves_no_more(change):
    batch = make_batch(rate_per_second=1.0)
    limited(60, batch)
    assert foreseen(batch).eta is not None
    Batch.objects.filter(pk=batch.pk).update(**change)
    batch.refresh_from_db()
    assert batch_snapshot(batch).eta is None


def test_a_paused_batch_forgets_what_was_foreseen():
    batch = make_batch(rate_per_second=1.0)
    limited(60, batch)
    foresee_batches()
    Batch.objects.filter(pk=batch.pk).update(paused=True)
    foresee_batches()
    batch.refresh_from_db()
    assert batch.ends_at is None
    foreseen_at = batch.foreseen_at
    foresee_batches()
    batch.refresh_from_db()
    assert batch.foreseen_at == foreseen_at, "written for nothing"


def test_a_time_that_has_passed_is_now():
    batch = make_batch(rate_per_second=1.0, foreseen_at=timezone.now(), ends_at=timezone.now() - timedelta(seconds=9))
    make_job(batch=batch, state=JobState.IN_PROGRESS)
    assert abs(seconds_until(batch_snapshot(batch).eta)) < 2


def test_a_pass_takes_a_bounded_time_and_the_oldest_forecast_first(monkeypatch):
    monkeypatch.setattr(batches, "FORESEE_SECONDS", 0.0)
    made = [make_batch(rate_per_second=1.0) for _ in range(3)]
    for batch in made:
        limited(5, batch)
    seen: list[UUID] = []
    for _ in range(4):
        foresee_batches()
        seen.append(Batch.objects.exclude(foreseen_at=None).latest("foreseen_at").pk)
    assert seen == [*(batch.pk for batch in made), made[0].pk]


def test_the_limits_card_and_the_batch_tell_the_same_end(slow_limit: Limit):
    decide([Call(SUBJECT)])
    batch = make_batch(rate_per_second=1.0)
    limited(60, batch)
    [gauge] = gauges([slow_limit.pk])
    queue = queues_behind(rules_of([slow_limit]))[slow_limit.pk][gauge.key]
    assert seconds_until(clears_at(queue, gauge)) == pytest.approx(seconds_until(foreseen(batch).eta), abs=2)
