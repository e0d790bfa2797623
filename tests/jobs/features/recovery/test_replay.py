"""Rows that differ from their log are found, column by column, and written anew from it; nothing else is touched."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from jobs.features.recovery import replay as service
from jobs.features.recovery.replay import choose_jobs, compare, repair
from jobs.models import Job, JobEvent
from jobs.services.explain.snapshots import project_counts
from jobs.services.operate.job_actions import schedule_jobs
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core import sql
from tests.factories import make_batch, make_job, make_jobs

pytestmark = pytest.mark.django_db(transaction=True)


def run(**options: Any) -> tuple[str, bool]:
    """What it says, and whether it ends well."""
    out = StringIO()
    try:
        call_command("replay", stdout=out, **options)
    except CommandError as error:
        return f"{out.getvalue()}{error}", False
    return out.getvalue(), True


def tamper(job: Job, **columns: Any) -> None:
    Job.objects.filter(pk=job.pk).update(**columns)


def test_rows_of_every_state_agree_with_their_log(monkeypatch):
    monkeypatch.setattr(service, "COMPARED_AT_ONCE", 5)
    for state in JobState:
        make_jobs(3, state=state)
    told, well = run()
    assert well
    assert f"{3 * len(JobState)} jobs were compared" in told


def test_a_difference_is_told_by_its_column_and_repaired_and_logged():
    job, untouched = make_job(state=JobState.FAILED), make_job()
    before = Job.objects.filter(pk=job.pk).values().get()
    counts = project_counts("acme")
    tamper(job, retry_count=7, last_error_code="x", started_at=None, progress=3)
    told, well = run()
    assert not well
    assert "1  retry_count" in told
    assert "retry_count: the row has 7, its log" in told
    assert Job.objects.get(pk=job.pk).retry_count == 7
    assert run(repair=True, yes=True)[1]
    after = Job.objects.filter(pk=job.pk).values().get()
    assert {**after, "updated_at": None} == {**before, "updated_at": None}
    event = JobEvent.objects.get(job_id=job.pk, event_type="audit")
    assert event.data is not None
    assert event.data["repaired"]["retry_count"] == [7, before["retry_count"]]
    assert AuditEntry.objects.get(action="repair_jobs").moved == 1
    assert project_counts("acme") == counts
    assert not JobEvent.objects.filter(job_id=untouched.pk, event_type="audit").exists()
    assert run()[1]


def test_a_status_that_no_move_leads_back_from_is_repaired_and_the_guard_stands_as_before():
    job = make_job()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET status = 'cancelled', finished_at = now() WHERE id = %s", [job.pk])
    assert not run()[1]
    assert run(repair=True, yes=True)[1]
    row = Job.objects.get(pk=job.pk)
    assert (row.status, row.finished_at) == (JobState.QUEUED, None)
    tamper(job, status="cancelled", finished_at="2026-01-01T00:00:00Z")
    with pytest.raises(IntegrityError, match="illegal transition"), transaction.atomic():
        tamper(job, status="queued", finished_at=None)


def test_what_runs_is_told_and_left_alone():
    job = make_job(state=JobState.IN_PROGRESS)
    tamper(job, retry_count=7)
    told, well = run(repair=True, yes=True)
    assert not well
    assert "which runs" in told
    assert Job.objects.get(pk=job.pk).retry_count == 7
    assert list(repair([job.pk])) == [0]


def test_jobs_older_than_the_log_are_counted_and_a_log_that_lacks_its_beginning_is_a_difference():
    old, headless = make_job(state=JobState.COMPLETED), make_job(state=JobState.COMPLETED)
    JobEvent.objects.filter(job_id=old.pk).delete()
    tamper(old, created_at="2020-01-01T00:00:00Z")
    told, well = run()
    assert well
    assert "1 older jobs cannot be judged" in told
    first = JobEvent.objects.filter(job_id=headless.pk).order_by("id")[0]
    JobEvent.objects.filter(pk=first.pk).delete()
    told, well = run(repair=True, yes=True)
    assert not well
    assert f"1 jobs have no beginning in the log: {headless.pk}" in told


def test_only_what_is_chosen_is_looked_at():
    batch = make_batch()
    in_batch, elsewhere = make_job(batch=batch), make_job(project="globex")
    for job in (in_batch, elsewhere):
        tamper(job, progress=1)
    assert "1 differ" in run(batch=str(batch.pk))[0]
    assert "1 differ" in run(project="globex")[0]
    assert "2 differ" in run(since="2020-01-01T00:00:00Z")[0]
    assert "0 jobs were compared" in run(until="2020-01-01T00:00:00Z")[0]
    assert "There is no batch 'x'" in run(batch="x")[0]
    assert "There is no project 'x'" in run(project="x")[0]
    assert "--since: Write a date, a time and its offset" in run(since="yesterday")[0]
    assert "Nobody is there to ask" in run(repair=True)[0]


def test_work_that_goes_on_is_no_difference(monkeypatch):
    """Rows and log are read as of one moment."""
    job = make_job(delay_seconds=60)
    read = sql.run_sql_as

    def read_late(*arguments: Any) -> Any:
        with_another_connection(job)
        return read(*arguments)

    monkeypatch.setattr(service, "run_sql_as", read_late)
    assert [some.differences for some in compare(choose_jobs())] == [[]]


def with_another_connection(job: Job) -> None:
    def work() -> None:
        schedule_jobs([job.pk], delay=timedelta(hours=1), actor="user:1")
        connection.close()

    other = Thread(target=work)
    other.start()
    other.join()
