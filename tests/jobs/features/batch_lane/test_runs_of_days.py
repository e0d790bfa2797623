"""What a batch of a provider holds is in progress for as long as that takes: nobody is told that it runs for long."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboards.metrics.samples import Value, read_samples
from jobs.features.watches.watch_runs import watch_runs
from jobs.models import Job
from jobs.states import JobState
from ratelimits.models import QuotaAlert
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)


def longest_run() -> float:
    [value] = [one.value for one in read_samples() if isinstance(one, Value) and one.metric == "longest_run_seconds"]
    return value


def test_a_line_of_a_batch_runs_for_a_day_and_is_no_alert_and_a_job_of_an_executor_is(lane):
    lane.credential()
    lane.submit(3)
    lane.tend()
    assert Job.objects.filter(status=JobState.IN_PROGRESS).update(started_at=timezone.now() - timedelta(days=1)) == 3
    watch_runs()
    assert not QuotaAlert.objects.filter(kind="long_running").exists()
    assert longest_run() == 0.0
    mine = make_job(state=JobState.IN_PROGRESS, kind="slow.read")
    Job.objects.filter(pk=mine.pk).update(started_at=timezone.now() - timedelta(hours=2))
    watch_runs()
    assert QuotaAlert.objects.get(kind="long_running").subject == "slow.read/acme"
    assert 7_190 < longest_run() < 7_300
