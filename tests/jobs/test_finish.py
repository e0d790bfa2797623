"""What becomes of a job when its attempt ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.postgres.functions import TransactionNow as Now  # the clock of the hot SQL: stands still here
from django.db import connection
from django.db.models import F

from jobs.backoff import Policy
from jobs.classify import REMEDIES, Failure
from jobs.features.outages.breaker import THRESHOLD, tend_breakers
from jobs.features.recovery.event_fold import fold
from jobs.models import DeadLetter, Job, JobEvent, PauseSwitch, RetryPolicy, ServiceBreaker
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import find_lost, record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Progress, Succeeded
from jobs.services.upkeep.upkeep import LOST_WITH_HOST
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from tests.factories import KIND, SERVICE, make_batch, make_job, make_jobs
from tests.support.cases import every_case
from tests.support.finishing import BROKEN, NOT_FOUND, STEADY, claim, started

pytestmark = pytest.mark.django_db


TOO_MANY = Failure("http_429", "ProviderError", "HTTP 429", outcome="answered", status=429)
UNAVAILABLE = Failure("http_503", "ProviderError", "HTTP 503", outcome="answered", status=503)


def failed(job: ClaimedJob, failure: Failure, *, repeatable: bool = True, took_ms: float = 5.0) -> Failed:
    return Failed(job, SERVICE, "moderate", repeatable, failure, took_ms)


def fail(job: ClaimedJob, failure: Failure, **options: Any) -> Job:
    assert record_outcomes([failed(job, failure, **options)], policies=STEADY).lost == set()
    return Job.objects.get(pk=job.id)


def delay_of(job: Job) -> float | None:
    """Seconds until it runs again, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM scheduled_at - now())::float8 FROM jobs_job WHERE id = %s", [job.pk])
        [seconds] = cursor.fetchone()
    return None if seconds is None else float(seconds)


def last_event(job_id: UUID) -> JobEvent:
    return JobEvent.objects.filter(job_id=job_id).order_by("-id")[0]


def test_a_success_keeps_the_result_and_ends_the_job():
    job = started()
    record_outcomes([Succeeded(job, SERVICE, json.dumps({"rows": 3}), 12.34)], policies={})
    row = Job.objects.get(pk=job.id)
    assert (row.status, row.result, row.progress) == (JobState.COMPLETED, {"rows": 3}, 100)
    assert row.finished_at is not None
    assert row.lease_expires_at is None
    data = last_event(job.id).data
    assert data is not None
    assert data.pop("waited_ms") >= 0
    assert data == {"duration_ms": 12.3}
    assert not DeadLetter.objects.exists()


def test_a_failure_is_retried_after_its_backoff_and_costs_an_attempt():
    job = started()
    for number, seconds in enumerate((4, 8, 16), 1):
        row = fail(job, BROKEN)
        assert (row.status, row.retry_count, delay_of(row)) == (JobState.RETRIED, number, seconds)
        assert (row.last_error_code, row.last_error_message) == ("broken", "the connection broke")
        make_due(row)
        job = claim()
    row = fail(job, BROKEN)
    assert row.status == JobState.FAILED
    assert DeadLetter.objects.get().attempts[-1]["gave_up"] == "all 3 retries are used"


def make_due(row: Job) -> None:
    Job.objects.filter(pk=row.pk).update(scheduled_at=Now())
    assert promote_due()[0] == 1


def test_the_event_of_a_failed_attempt_holds_its_figures():
    job = started()
    fail(job, TOO_MANY, took_ms=7.77)
    data = last_event(job.id).data
    assert data is not None
    assert data.pop("scheduled_at")
    assert data.pop("waited_ms") >= 0
    assert data == {
        "calls": [[429, 0]],
        "attempt": 1, "retry_count": 1, "error_class": "ProviderError", "error_code": "http_429", "outcome": "answered",
        "error_message": "HTTP 429", "http_status": 429, "duration_ms": 7.8, "delay_seconds": 4.0,
    }  # fmt: skip


@pytest.mark.parametrize(("asked", "seconds"), [(120.0, 120), (1.0, 4), (None, 4)])
@pytest.mark.parametrize("repeatable", [True, False])
def test_a_429_is_retried_for_any_handler_and_a_longer_retry_after_wins(asked, seconds, repeatable):
    failure = Failure("http_429", "E", "slow down", outcome="answered", status=429, retry_after=asked)
    row = fail(started(), failure, repeatable=repeatable)
    assert row.status == JobState.RETRIED
    assert seconds <= delay_of(row) <= 1.1 * seconds


@pytest.mark.parametrize("failure", [BROKEN, UNAVAILABLE, Failure("timeout", "TimeoutError", "no end")])
def test_work_whose_outcome_is_unknown_and_that_may_not_be_repeated_is_not(failure):
    row = fail(started(), failure, repeatable=False)
    assert (row.status, row.retry_count) == (JobState.FAILED, 0)
    assert DeadLetter.objects.get().attempts[-1]["gave_up"] == "not retryable"


def test_a_dead_letter_holds_everything_needed_to_understand_and_requeue_the_job():
    batch = make_batch()
    job = started(batch=batch, payload='{"method": "GET", "url": "http://127.0.0.1:9/x"}')
    fail(job, BROKEN)
    make_due(Job.objects.get(pk=job.id))
    fail(claim(), NOT_FOUND)
    letter = DeadLetter.objects.get()
    assert (letter.job_id, letter.project_id, letter.batch_id, letter.kind) == (job.id, "acme", batch.pk, KIND)
    assert (letter.error_code, letter.error_class, letter.error_message) == ("http_404", "ProviderError", "HTTP 404")
    assert (letter.http_status, letter.remediation, letter.resolution) == (404, REMEDIES[404], None)
    assert (letter.retry_count, letter.crash_count) == (1, 0)
    assert letter.payload == {"method": "GET", "url": "http://127.0.0.1:9/x"}
    attempts = [(attempt["error_code"], attempt["from"], attempt["to"]) for attempt in letter.attempts]
    assert attempts == [("broken", "in_progress", "retried"), ("http_404", "in_progress", "failed")]
    assert all(attempt["at"] for attempt in letter.attempts)


def test_the_retry_window_counts_from_the_first_attempt():
    job = started()
    Job.objects.filter(pk=job.id).update(first_attempt_at=Now() - timedelta(seconds=490))
    row = fail(job, BROKEN)
    # The claim read its figure before; the next one knows.
    assert row.status == JobState.RETRIED
    make_due(row)
    row = fail(claim(), BROKEN, took_ms=3000)
    assert row.status == JobState.FAILED
    assert "window of 500 s" in DeadLetter.objects.get().attempts[-1]["gave_up"]


@pytest.mark.parametrize("by_promotion", [True, False])
def test_the_retry_window_does_not_count_the_time_a_limit_held_the_job_back(by_promotion):
    job = started()
    row = fail(job, BROKEN)
    make_due(row)
    move_jobs("park", [Move(job.id, delay_seconds=0 if by_promotion else None)])
    an_hour_passes(job)
    if by_promotion:
        promote_due()
    else:
        move_jobs("release", [Move(job.id)])
    again = claim()
    assert again.window_used == pytest.approx(0, abs=1e-3)
    assert Job.objects.get(pk=job.id).deferred_seconds == pytest.approx(3600)
    assert fail(again, BROKEN).status == JobState.RETRIED


def an_hour_passes(job: ClaimedJob) -> None:
    """Move what the job has done an hour back."""
    hour = timedelta(hours=1)
    Job.objects.filter(pk=job.id).update(first_attempt_at=Now() - hour, deferred_since=F("deferred_since") - hour)


def test_a_job_names_its_own_policy_before_the_handlers():
    RetryPolicy.objects.create(name="once", max_retries=0)
    row = fail_by(retry_policies(), started(retry_policy="once"))
    assert row.status == JobState.FAILED
    assert fail_by(retry_policies(), started()).status == JobState.RETRIED


def fail_by(policies: dict[str, Policy], job: ClaimedJob) -> Job:
    record_outcomes([failed(job, BROKEN)], policies=policies)
    return Job.objects.get(pk=job.id)


def test_a_policy_that_was_deleted_falls_back_to_the_template():
    job = started()
    record_outcomes([Failed(job, SERVICE, "gone", True, BROKEN, 1.0)], policies={})
    assert Job.objects.get(pk=job.id).status == JobState.RETRIED


def test_what_is_given_back_costs_neither_attempt_nor_crash_and_may_run_at_once():
    job = started()
    record_outcomes([GivenBack(job, "its executor stops")], policies={})
    row = Job.objects.get(pk=job.id)
    assert (row.status, row.retry_count, row.crash_count, delay_of(row)) == (JobState.RETRIED, 0, 0, 0)
    assert last_event(job.id).message == "its executor stops"


def test_progress_is_written_under_the_lease_and_starts_anew_with_each_attempt():
    job = started()
    assert record_outcomes([], [Progress(job, 40, "row 400 of 1000")], policies={}).lost == set()
    row = Job.objects.get(pk=job.id)
    assert (row.progress, row.progress_message) == (40, "row 400 of 1000")
    event = last_event(job.id)
    assert (event.event_type, event.progress_percent, event.message) == ("progress", 40, "row 400 of 1000")
    make_due(fail(job, BROKEN))
    claim()
    row = Job.objects.get(pk=job.id)
    assert (row.progress, row.progress_message) == (0, "")


def test_progress_of_a_job_with_a_part_of_its_result_goes_on():
    job = started()
    record_outcomes([GivenBack(job, "more", partial="null")], [Progress(job, 40, "two of five")], policies={})
    make_due(Job.objects.get(pk=job.id))
    again = claim()
    make_due(fail(again, BROKEN))
    claim()
    row = Job.objects.get(pk=job.id)
    assert (row.status, row.progress, row.progress_message) == (JobState.IN_PROGRESS, 40, "two of five")
    folded = fold(JobEvent.objects.filter(job_id=job.id).order_by("id"))
    assert (folded.progress, folded.progress_message) == (40, "two of five")


OUTCOMES: dict[str, Callable[[ClaimedJob], Outcome]] = {
    "succeeded": lambda job: Succeeded(job, SERVICE, '"late"', 1.0),
    "failed for good": lambda job: failed(job, NOT_FOUND),
    "failed": lambda job: failed(job, BROKEN),
    "given back": lambda job: GivenBack(job, "stop"),
}


@every_case("outcome", OUTCOMES)
@every_case(
    ("taken_by", "again", "operation"),
    [
        ("cancel", False, "late_answer"),
        ("reset", False, "late_answer"),
        ("reset", True, "late_answer"),
        ("rescue", False, "lease_lost"),
        ("rescue", True, "lease_lost"),
        ("hand_back", True, "lease_lost"),
    ],
    undone=True,
)
def test_a_write_without_the_lease_changes_nothing_and_is_logged_on_the_job(outcome, taken_by, again, operation):
    job = started()
    delay_seconds = None if taken_by == "cancel" else 0
    data = json.dumps({LOST_WITH_HOST: job.token}) if taken_by == "hand_back" else None
    move_jobs(taken_by, [Move(job.id, token=job.token, delay_seconds=delay_seconds, data=data)])
    assert find_lost([job]) == ({(job.id, job.token)} if operation == "lease_lost" else set())
    current = job.token
    if again:
        promote_due()
        current = claim().token
    before = Job.objects.filter(pk=job.id).values().get()
    flushed = record_outcomes([OUTCOMES[outcome](job)], [Progress(job, 99, "late")], policies=STEADY)
    assert flushed.lost == {job.id}
    assert Job.objects.filter(pk=job.id).values().get() == before
    assert not DeadLetter.objects.exists()
    event = last_event(job.id)
    event_type = "error" if operation == "lease_lost" else "audit"
    assert (event.event_type, event.from_status, event.to_status) == (event_type, None, None)
    assert event.data is not None
    assert event.data["operation"] == operation
    assert (event.data["fencing_token"], event.data["current_token"]) == (job.token, current)


@pytest.mark.parametrize(("outcome", "ended"), [("succeeded", "completed"), ("failed for good", "failed")])
def test_a_write_repeated_after_its_answer_was_lost_is_refused_without_an_alarm(outcome, ended):
    job = started()
    record_outcomes([OUTCOMES[outcome](job)], policies=STEADY)
    logged = JobEvent.objects.filter(job_id=job.id).count()
    assert record_outcomes([OUTCOMES[outcome](job)], policies=STEADY).lost == {job.id}
    assert JobEvent.objects.filter(job_id=job.id).count() == logged
    assert Job.objects.get(pk=job.id).status == ended
    assert DeadLetter.objects.count() == (ended == "failed")


def test_one_flush_ends_jobs_of_many_claims_each_in_its_own_way():
    jobs = [started() for _ in range(4)]
    stale = jobs[3]
    move_jobs("cancel", [Move(stale.id)])
    flushed = record_outcomes(
        [Succeeded(jobs[0], SERVICE, None, 1.0), failed(jobs[1], BROKEN), failed(jobs[2], NOT_FOUND),
         Succeeded(stale, SERVICE, None, 1.0)],
        policies=STEADY,
    )  # fmt: skip
    assert flushed.lost == {stale.id}
    states = dict(Job.objects.values_list("pk", "status"))
    assert [states[job.id] for job in jobs] == ["completed", "retried", "failed", "cancelled"]


def test_an_outage_spends_no_attempts_parks_the_rest_and_is_probed():
    make_jobs(THRESHOLD + 3)
    jobs = claim_jobs(uuid4(), wanted=THRESHOLD, lease_seconds=30, turns=ClassTurns())
    record_outcomes([failed(job, UNAVAILABLE) for job in jobs], policies=STEADY)
    assert set(Job.objects.filter(pk__in=[job.id for job in jobs]).values_list("status", "retry_count")) == {
        ("retried", 0)
    }
    assert ServiceBreaker.objects.get().opened_at is not None
    assert claim_jobs(uuid4(), wanted=5, lease_seconds=30, turns=ClassTurns()) == []
    tend_breakers()
    assert Job.objects.filter(status=JobState.RATE_LIMITED).count() == 3
    ServiceBreaker.objects.update(next_probe_at=Now())
    tend_breakers()
    probe = claim()
    record_outcomes([Succeeded(probe, SERVICE, None, 1.0)], policies=STEADY)
    tend_breakers()
    assert Job.objects.filter(status=JobState.QUEUED).count() == 2
    assert not DeadLetter.objects.exists()


def test_a_service_that_answers_now_and_then_keeps_its_breaker_closed():
    for _ in range(THRESHOLD):
        fail(started(), UNAVAILABLE)
        record_outcomes([Succeeded(started(), SERVICE, None, 1.0)], policies={})
    assert not ServiceBreaker.objects.filter(opened_at__isnull=False).exists()
    assert Job.objects.filter(retry_count=1).count() == THRESHOLD


@pytest.mark.parametrize("probes", [0, 5000])
def test_a_probe_passes_over_paused_projects_and_survives_an_outage_of_days(probes):
    paused, other = make_job(project="paused"), make_job(project="other")
    for project in ("paused", "other"):
        ServiceBreaker.objects.create(
            service=SERVICE,
            project_id=project,
            failures=THRESHOLD,
            opened_at=Now(),
            next_probe_at=Now(),
            probes=probes,
        )
    PauseSwitch.objects.create(scope="project", key="paused", paused_by="user:1")
    tend_breakers()
    assert dict(Job.objects.values_list("pk", "status")) == {paused.pk: "rate_limited", other.pk: "queued"}
    assert dict(ServiceBreaker.objects.values_list("project_id", "probe_job_id")) == {"paused": None, "other": other.pk}
