"""A provider's refusal for its quota: the limits' mistake, also where there is none yet, and never an attempt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.classify import Failure
from jobs.models import Job
from jobs.services.claim.claim import promote_due
from jobs.services.claim.quota_feedback import cool_down
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed
from jobs.states import JobState
from ratelimits.feedback import PushBack, Violation
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit
from ratelimits.tuning import proposed_limits
from tests.jobs import merging
from tests.jobs.merging import KIND, claim, submit
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ACTOR = "executor:1"
PER_MINUTE = PushBack((Violation("PerMinutePerProject", "project", "requests", "write"),), 30.0)


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    merging.declare(monkeypatch)
    Limit.objects.all().delete()
    catalogue.forget()
    yield
    catalogue.forget()


def limited(**figures) -> None:
    Limit.objects.create(**{"name": "limit", "service": "svc", "call_type": "write", "capacity": 10, **figures})
    catalogue.forget()


def refuse(jobs: list[ClaimedJob]) -> None:
    failure = Failure("http_429", "ProviderError", "slow down", outcome="answered", status=429, push_back=PER_MINUTE)
    outcomes = [Failed(job, "svc", "moderate", True, failure, 1.0) for job in jobs]
    assert not record_outcomes(cool_down(outcomes, actor=ACTOR), policies=retry_policies()).lost


def test_a_refusal_of_a_limited_call_spends_no_attempt_and_cools_its_counter_down():
    limited()
    submit(kind=merging.ALONE)
    refuse(claim())
    job = Job.objects.get()
    assert (job.status, job.retry_count, job.last_error_code) == (JobState.RETRIED, 0, "http_429")
    assert job.scheduled_at is not None
    counter = Counter.objects.get()
    assert counter.blocked_until is not None
    assert 29 < (counter.blocked_until - counter.updated_at).total_seconds() <= 33
    assert counter.pressure < 1


def test_what_was_refused_goes_again_when_the_counter_has_cooled_down_and_not_before():
    limited()
    submit(kind=merging.ALONE)
    refuse(claim())
    Job.objects.update(scheduled_at="2020-01-01T00:00:00Z")
    promote_due()
    assert claim() == []
    assert Job.objects.get().status in {JobState.QUEUED, JobState.RATE_LIMITED}
    Counter.objects.update(blocked_until=None)
    assert len(claim()) == 1


@every_case("figures", [None, {"service": "other"}, {"enabled": False}], undone=True)
def test_without_a_limit_a_refusal_spends_no_attempt_and_holds_its_lane(figures):
    if figures is not None:
        limited(**figures)
    for _ in range(2):
        submit(kind=merging.ALONE)
    refuse(claim(1))
    job = Job.objects.get(status=JobState.RETRIED)
    assert (job.retry_count, job.last_error_code) == (0, "http_429")
    made = Limit.objects.get(proposed_at__isnull=False)
    assert (made.service, made.shadow) == ("svc", True)
    assert claim() == []
    assert Job.objects.filter(status=JobState.RATE_LIMITED).count() == 1
    Counter.objects.update(blocked_until=None)
    assert len(claim()) == 1


def test_where_nothing_can_be_prepared_a_refused_job_waits_by_itself(monkeypatch):
    monkeypatch.setattr(proposed_limits, "MAX_PROPOSED", 0)
    submit(kind=merging.ALONE)
    refuse(claim())
    job = Job.objects.get()
    assert (job.status, job.retry_count) == (JobState.RETRIED, 0)
    assert job.scheduled_at is not None
    assert 29 < (job.scheduled_at - job.updated_at).total_seconds() <= 33


def test_jobs_that_left_as_one_call_are_one_refusal():
    limited()
    for _ in range(3):
        submit(kind=KIND)
    refuse(claim())
    counter = Counter.objects.get()
    assert counter.pressure == pytest.approx(0.7)
    assert set(Job.objects.values_list("retry_count", flat=True)) == {0}


def test_only_what_the_provider_named_is_slowed():
    limited()
    limited(name="user", scope="user")
    limited(name="reads", call_type="read")
    submit(kind=merging.ALONE)
    refuse(claim())
    assert dict(Counter.objects.filter(pressure__lt=1).values_list("limit__name", "key")) == {"limit": "project:acme"}
