"""What waits for its time is told apart from what waits for its turn, with until when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.features.outages.outages import shown_state
from jobs.models import Batch, Job
from jobs.services.explain.batch_report import read_report
from jobs.services.explain.depths import waiting_depths
from jobs.services.explain.snapshots import batch_snapshots
from jobs.services.operate import scheduled_jobs
from jobs.services.operate.job_filter import UNFINISHED, Counted, JobFilter, count_jobs
from jobs.services.operate.scheduled_jobs import NOTHING_SCHEDULED, Scheduled, count_scheduled, scheduled_of_projects
from jobs.states import OUTAGE, SCHEDULED, JobState, told_apart
from tests.factories import foreseen, make_batch, make_jobs

pytestmark = pytest.mark.django_db

SOON = timezone.now() + timedelta(hours=1)
LATER = SOON + timedelta(hours=1)


def make_a_mixture(batch: Batch) -> list[Job]:
    """Of one batch, three scheduled jobs, and of all that is not scheduled some."""
    first, *others = make_jobs(3, batch=batch, scheduled_at=LATER)
    Job.objects.filter(pk=first.pk).update(scheduled_at=SOON)
    make_jobs(2, batch=batch)
    [due] = make_jobs(1, batch=batch, scheduled_at=LATER)
    Job.objects.filter(pk=due.pk).update(scheduled_at=timezone.now() - timedelta(minutes=1))  # and not promoted yet
    make_jobs(1, batch=batch, state=JobState.RETRIED, scheduled_at=LATER)
    [by_batch] = make_jobs(1, batch=batch, scheduled_at=LATER)
    Job.objects.filter(pk=by_batch.pk).update(via="batch")  # waits for a batch of its provider
    make_jobs(2, project="globex", scheduled_at=LATER)
    return [first, *others]


def test_of_a_batch_a_project_and_everybody_the_scheduled_are_counted_with_the_first_and_the_last():
    batch, without = make_batch(), make_batch()
    make_a_mixture(batch)
    snapshots = batch_snapshots([batch, without])
    assert snapshots[batch.pk].scheduled == Scheduled(3, SOON, LATER)
    assert snapshots[without.pk].scheduled == NOTHING_SCHEDULED
    assert count_scheduled("acme") == Scheduled(3, SOON, LATER)
    assert count_scheduled() == Scheduled(5, SOON, LATER)
    assert scheduled_of_projects(["acme", "globex", "empty"]).keys() == {"acme", "globex"}
    assert (snapshots[batch.pk].counts["queued"], snapshots[batch.pk].apart["queued"]) == (7, 4)


def test_more_than_is_counted_is_told_as_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scheduled_jobs, "MAX_SCHEDULED_COUNTED", 2)
    monkeypatch.setattr(scheduled_jobs, "MIN_SCHEDULED_COUNTED", 2)
    make_jobs(3, scheduled_at=LATER)
    assert (count_scheduled().jobs, count_scheduled().more, count_scheduled().last) == (2, True, LATER)


def test_counts_told_apart_keep_their_sum_and_none_is_below_zero():
    counts: dict[str, int] = {**dict.fromkeys(JobState.values, 0), JobState.QUEUED: 5, JobState.RATE_LIMITED: 2}
    apart = told_apart(counts, held_by_outage=1, scheduled=3)
    assert (apart["queued"], apart[SCHEDULED], apart["rate_limited"], apart[OUTAGE]) == (2, 3, 1, 1)
    crossed = told_apart(counts, held_by_outage=0, scheduled=9)
    assert (crossed["queued"], crossed[SCHEDULED], sum(crossed.values())) == (0, 5, 7)


def test_a_job_is_shown_as_scheduled_until_its_time_comes():
    later = make_a_mixture(make_batch())
    shown = {job.pk: shown_state(job, set()) for job in Job.objects.of_project("acme")}
    assert {pk for pk, state in shown.items() if state == SCHEDULED} == {job.pk for job in later}


@pytest.mark.parametrize(("is_scheduled", "count"), [(True, 3), (False, 4)])
def test_the_filter_of_operations_means_the_jobs_that_are_counted(is_scheduled: bool, count: int):
    batch = make_batch()
    make_a_mixture(batch)
    for narrowed in ({"project_id": "acme"}, {"batch_id": batch.pk}, {"project_id": "acme", "priority": "normal"}):
        wanted = JobFilter(state=JobState.QUEUED, scheduled=is_scheduled, **narrowed)
        assert wanted.jobs(UNFINISHED).count() == count
        assert count_jobs(wanted, UNFINISHED) == Counted(count, is_least=False)


def test_a_report_and_the_depths_for_metrics_tell_them_apart():
    batch = make_batch()
    make_a_mixture(batch)
    assert read_report(batch, now=timezone.now()).groups["scheduled"] == 3
    depths = {(depth.state, depth.priority): depth.jobs for depth in waiting_depths()}
    assert depths == {("queued", "normal"): 2, ("scheduled", "normal"): 5}


def test_a_batch_ends_no_sooner_than_its_last_scheduled_job_begins():
    batch = make_batch(rate_per_second=1.0)
    make_jobs(2, batch=batch)
    make_jobs(1, batch=batch, scheduled_at=LATER)
    assert foreseen(batch).eta == pytest.approx(LATER, abs=timedelta(seconds=1))
    Job.objects.filter(scheduled_at=LATER).update(scheduled_at=None)
    eta = foreseen(batch).eta
    assert eta is not None
    assert eta < SOON
