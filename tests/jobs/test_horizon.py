"""Transactions that stay open, and dead rows: told of by the alert, the metrics and `doctor`, from real ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection

from dashboards.metrics.samples import Value, read_samples
from jobs.features.watches import watch
from jobs.features.watches.watch import watch_horizon
from jobs.models import Job
from queueops.core.postgres.horizon import most_dead_rows, oldest_transaction
from queueops.site.diagnosis import database
from queueops.site.diagnosis.database import examine_notifications, examine_transactions
from queueops.site.diagnosis.finding import DoctorVerdict
from ratelimits.models import QuotaAlert
from tests.factories import make_jobs
from tests.support.processes import database_url, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def after_a_tenth_of_a_minute(settings) -> None:
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, alert_transaction_minutes=1e-4)


@pytest.fixture
def somebody() -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url(), application_name="a notebook") as one:
        yield one


def told() -> dict[str, str]:
    watch_horizon()
    return dict(QuotaAlert.objects.filter(kind="horizon", resolved_at=None).values_list("subject", "message"))


def test_a_transaction_that_stays_open_is_named_until_it_ends(somebody: psycopg.Connection):
    somebody.execute("SELECT count(*) FROM jobs_job")
    wait_for(lambda: (found := oldest_transaction()) and found.seconds > 0.01, what="its age")
    message = told()["transaction"]
    assert f"A transaction of a notebook (process {somebody.info.backend_pid}, idle in transaction)" in message
    finding = examine_transactions()
    assert finding.verdict is DoctorVerdict.WARN
    assert "one of a notebook has been open" in finding.observation
    assert f"pg_terminate_backend({somebody.info.backend_pid})" in finding.advice
    assert Value("oldest_transaction_seconds", (), 0.0) not in read_samples()
    somebody.rollback()
    assert told() == {}
    assert examine_transactions().verdict is DoctorVerdict.OK


def test_a_short_one_is_nothing(somebody: psycopg.Connection, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, alert_transaction_minutes=30.0)
    somebody.execute("SELECT 1")
    assert told() == {}
    assert examine_transactions().verdict is DoctorVerdict.OK


def test_a_session_that_listens_and_reads_nothing_is_told_of_before_the_queue_is_full(
    somebody: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watch, "MAX_NOTIFICATIONS_SHARE", 1e-7)
    monkeypatch.setattr(database, "MAX_NOTIFICATIONS_SHARE", 1e-7)
    assert examine_notifications().verdict is DoctorVerdict.OK
    somebody.execute("LISTEN queueops_test")
    somebody.commit()
    somebody.execute("SELECT 1")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('queueops_test', repeat('x', 7900) || i) FROM generate_series(1, 20) AS i")
    assert "queue of notifications is 0% full, as a session that listens" in told()["notifications"]
    assert examine_notifications().verdict is DoctorVerdict.WARN
    somebody.rollback()
    somebody.execute("UNLISTEN *")
    somebody.commit()
    with connection.cursor() as cursor:  # the queue's tail moves on with a notification that finds it read
        cursor.execute("SELECT pg_notify('queueops_test', repeat('x', 7900) || i) FROM generate_series(1, 20) AS i")
    wait_for(lambda: "notifications" not in told(), seconds=20, what="its end")


def test_a_pile_of_dead_rows_is_told_of_and_measured(monkeypatch: pytest.MonkeyPatch, nobody_clears: None):
    monkeypatch.setattr(watch, "MAX_DEAD_ROWS", 50)
    jobs = make_jobs(40)
    for step in range(3):
        Job.objects.update(progress=step)
    Job.objects.filter(pk__in=[job.pk for job in jobs[5:]]).delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")

    def jobs_table() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
        return any(one.table == "jobs_job" and one.dead > max(50, one.live) for one in most_dead_rows(1))

    wait_for(jobs_table, seconds=20, what="the count of dead rows")
    assert "jobs_job has" in told()["dead rows"]
    values = {one.labels: one.value for one in read_samples() if isinstance(one, Value) and one.metric == "dead_rows"}
    assert values["jobs_job",] > 50
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (INDEX_CLEANUP ON) jobs_job")

    wait_for(lambda: "dead rows" not in told(), seconds=20, what="its end")
