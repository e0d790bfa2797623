"""A requeued dead letter keeps its deadline, and its way where the deadline leaves time for it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.operate.dead_letters import requeue_dead_letters
from tests.factories import make_dead_letter
from tests.jobs.features.batch_lane.conftest import Lane
from tests.support.cases import every_case

PAYLOAD = {"provider": "openai", "credential": "openai-key", "model": "small-1", "prompt": "Why?"}


def letter(*, hours: float, via: str | None = "batch") -> DeadLetter:
    made = make_dead_letter(
        kind="llm.generate",
        service="openai",
        model="small-1",
        credential="openai-key",
        payload=json.dumps(PAYLOAD),
    )
    made.job.via, made.job.complete_by = via, timezone.now() + timedelta(hours=hours)
    made.job.save(update_fields=["via", "complete_by"])
    return made


def requeued(one: DeadLetter, **options: Any) -> tuple[Job, list[str]]:
    """The new job, and what its timeline says of its way."""
    result = requeue_dead_letters([one.pk], actor="user:7", **options)
    job = Job.objects.get(pk=result.moved[one.pk])
    notes = JobEvent.objects.filter(job_id=job.pk, event_type="scheduling").values_list("message", flat=True)
    return job, list(notes)


def when_live(one: DeadLetter) -> datetime:
    assert one.job.complete_by is not None
    return one.job.complete_by - timedelta(seconds=settings.QUEUEOPS.batch_margin_seconds)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("via", ["batch", "live"])  # it failed by its batch, or after it had gone live
@pytest.mark.parametrize("options", [{}, {"payload": PAYLOAD | {"prompt": "Why not?"}}])
def test_it_waits_for_a_batch_again(lane: Lane, options: dict[str, Any], via: str) -> None:
    lane.credential()
    one = letter(hours=30, via=via)
    job, notes = requeued(one, **options)
    assert (job.via, job.complete_by, job.scheduled_at) == ("batch", one.job.complete_by, when_live(one))
    assert notes == []
    assert lane.tend_until_closed().succeeded == 1
    assert Job.objects.get(pk=job.pk).status == "completed"


@every_case(
    ("options", "hours", "note"),
    [
        (options, hours, note)
        for options in [{}, {"payload": PAYLOAD | {"prompt": "Why not?"}}, {"spread_seconds": 60}]
        for hours, note in [(-1, "its deadline is over"), (1, "its deadline leaves no time for a batch")]
    ],
    undone=True,
)
def test_it_goes_live_where_there_is_no_time_and_says_so(lane, options, hours, note):
    lane.credential()
    one = letter(hours=hours)
    job, notes = requeued(one, **options)
    assert (job.via, job.complete_by) == (None, one.job.complete_by)
    assert notes == [f"it goes live: {note}"]


def test_one_that_is_spread_over_time_goes_live_and_says_so(lane):
    lane.credential()
    first, second = letter(hours=30), letter(hours=30)
    moved = requeue_dead_letters([first.pk, second.pk], actor="user:7", spread_seconds=60).moved
    assert sorted(Job.objects.filter(pk__in=moved.values()).values_list("via", flat=True), key=str) == [None, "batch"]
    [event] = JobEvent.objects.filter(event_type="scheduling")
    assert event.message == "it goes live: it cannot go by batch as it is"
    assert event.data
    assert event.data["scheduled_at"], "when it goes"


def test_the_deadline_of_one_that_went_live_is_kept(lane):
    lane.credential()
    one = letter(hours=30, via=None)
    job, notes = requeued(one)
    assert (job.via, job.complete_by, job.scheduled_at, notes) == (None, one.job.complete_by, None, [])
