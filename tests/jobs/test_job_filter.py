"""Actions on every job that a filter means."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from jobs.errors import InvalidDelay, InvalidFilter
from jobs.models import BulkOperation, Job
from jobs.services.operate import bulk, bulk_run, job_filter
from jobs.services.operate.dead_letter_filter import parse_filter
from jobs.services.operate.job_filter import UNFINISHED, Counted, count_jobs, parse_job_filter
from jobs.states import JobState, Priority
from queueops.audit.models import AuditEntry
from queueops.core.values.reasons import ReasonRequired
from tests.factories import make_batch, make_job, make_jobs
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ACTOR = "user:7"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch) -> None:
    monkeypatch.setattr(bulk_run, "BULK_CHUNK", 4)
    monkeypatch.setattr(job_filter, "WINDOW", 5)
    monkeypatch.setattr(job_filter, "COUNT_SECONDS", 60.0)  # or a busy machine would say "at least"
    monkeypatch.setattr(job_filter, "MAX_WINDOWS_OF_A_CHUNK", 2)


def run_to_the_end(operation: BulkOperation) -> BulkOperation:
    while bulk_run.run_bulk_chunk(operation.pk):
        pass
    operation.refresh_from_db()
    return operation


def test_every_job_that_fits_is_cancelled_however_thin_they_are_sown():
    make_jobs(30, state=JobState.COMPLETED)
    wanted = make_jobs(2, priority="low")
    make_jobs(30, state=JobState.COMPLETED)
    wanted += make_jobs(9, priority="low", state=JobState.RATE_LIMITED)
    others = [*make_jobs(3), *make_jobs(2, priority="low", project="globex")]
    operation = bulk.start_bulk_cancel({"project_id": "acme", "priority": "low"}, actor=ACTOR, reason="wrong data")
    run_to_the_end(operation)
    assert (operation.total, operation.done, operation.skipped, operation.status) == (11, 11, 0, "done")
    assert set(Job.objects.filter(status="cancelled").ids()) == {job.pk for job in wanted}
    assert Job.objects.filter(pk__in=[job.pk for job in others], status="queued").count() == 5
    ended = AuditEntry.objects.order_by("id").last()
    assert ended is not None
    assert (ended.action, ended.moved, ended.reason, ended.project_id) == (
        "bulk_cancel_jobs", 11, "wrong data", "acme",
    )  # fmt: skip


def test_jobs_that_come_after_the_start_are_left_alone():
    make_jobs(6)
    operation = bulk.start_bulk_cancel({}, actor=ACTOR, reason="x")
    Job.objects.update(created_at="2020-01-01T00:00:00Z")
    late = make_job()
    Job.objects.filter(pk=late.pk).update(created_at="2999-01-01T00:00:00Z")
    assert run_to_the_end(operation).done == 6
    late.refresh_from_db()
    assert late.status == "queued"


@every_case("field", ["user_id", "kind", "state", "batch_id", "priority"], undone=True)
def test_a_filter_means_the_jobs_that_fit(field):
    user, batch = uuid4(), make_batch()
    make_jobs(3)
    fields: dict[str, Any] = {"user_id": user, "batch": batch, "kind": "other.kind", "priority": Priority.URGENT}
    [wanted] = make_jobs(1, state=JobState.RETRIED, **fields)
    value = {"state": "retried", "batch_id": str(batch.pk), "user_id": str(user)}.get(field) or str(fields[field])
    operation = run_to_the_end(bulk.start_bulk_cancel({field: value}, actor=ACTOR, reason="x"))
    assert (operation.total, operation.done) == (1, 1)
    wanted.refresh_from_db()
    assert wanted.status == "cancelled"


def test_waiting_jobs_are_scheduled_and_get_another_priority():
    make_jobs(9)
    running = make_job(state=JobState.IN_PROGRESS)
    later = bulk.start_bulk_schedule({}, delay=timedelta(hours=1), actor=ACTOR, reason="tonight")
    assert run_to_the_end(later).done == 9
    assert Job.objects.filter(scheduled_at__isnull=False).count() == 9
    assert run_to_the_end(bulk.start_bulk_schedule({}, delay=timedelta(), actor=ACTOR)).done == 9
    assert not Job.objects.filter(scheduled_at__isnull=False).exists()
    assert run_to_the_end(bulk.start_bulk_priority({}, priority=Priority.URGENT, actor=ACTOR)).done == 9
    running.refresh_from_db()
    assert (running.priority, running.status) == ("normal", "in_progress")
    again = run_to_the_end(bulk.start_bulk_priority({}, priority=Priority.URGENT, actor=ACTOR))
    assert (again.done, again.skipped) == (0, 9)


def test_a_count_comes_from_the_kept_counts_or_from_bounded_windows(django_assert_max_num_queries, monkeypatch):
    make_jobs(12, priority="low")
    make_jobs(12)
    make_jobs(40, state=JobState.COMPLETED)

    def counted(**given: str) -> Counted:
        return count_jobs(parse_job_filter(given), UNFINISHED)

    with django_assert_max_num_queries(1):
        assert counted(project_id="acme") == Counted(24, is_least=False)
        assert counted(state="completed") == Counted(0, is_least=False)
    assert counted(priority="low") == Counted(12, is_least=False)
    monkeypatch.setattr(job_filter, "COUNT_SECONDS", 0)
    seen = counted(priority="low")
    assert seen.is_least
    assert seen.count < 12
    operation = bulk.start_bulk_cancel({"priority": "low"}, actor=ACTOR, reason="x")
    assert operation.total_is_least
    run_to_the_end(operation)
    assert (operation.total, operation.total_is_least, operation.done) == (12, False, 12)


def test_what_is_not_understood_starts_nothing():
    for given in ({"status": "queued"}, {"state": "lost"}, {"batch_id": "x"}):
        with pytest.raises(InvalidFilter):
            bulk.start_bulk_cancel(given, actor=ACTOR, reason="x")
    with pytest.raises(ReasonRequired):
        bulk.start_bulk_cancel({}, actor=ACTOR, reason=" ")
    with pytest.raises(InvalidDelay):
        bulk.start_bulk_schedule({}, delay=timedelta(days=-1), actor=ACTOR)
    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize("parse", [parse_job_filter, parse_filter])
@pytest.mark.parametrize("field", ["project_id", "kind", "service"])
def test_a_value_that_nothing_can_have_is_refused_and_widens_no_filter(parse, field):
    with pytest.raises(InvalidFilter) as caught:
        parse({field: "a\0"})
    assert list(caught.value.fields) == [field]
