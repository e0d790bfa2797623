"""What a later version has left: this one, put back after it, works beside it and destroys none of it."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.urls import reverse
from django_q.models import Schedule

from jobs import cluster
from jobs.features.watches.watch import tend_alerts
from jobs.models import BulkOperation, Executor, Job, JobEvent, PauseSwitch, ProviderBatch, RetryPolicy
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate import bulk_run
from jobs.services.operate.pauses import release_uncovered
from queueops.site.roles import make_groups, remember_permissions
from queueops.tenancy import checks, rights
from queueops.tenancy.scope import API_ROLE
from ratelimits.models import QuotaAlert, UsageReservation
from tests.factories import make_job, make_provider_batch, make_reservation, make_route
from tests.support.people import signed_in
from tests.support.undone import undone

pytestmark = pytest.mark.django_db

LATER = "later"
LISTS = (
    "jobs_job",
    "jobs_bulkoperation",
    "jobs_pauseswitch",
    "jobs_providerbatch",
    "ratelimits_alertroute",
    "ratelimits_quotaalert",
    "ratelimits_usagereservation",
)


def run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def job() -> Job:
    """It waits beside rows that have a word of the later version where this one has a list of words."""
    job = make_job()
    run("INSERT INTO jobs_jobevent (job_id, project_id, event_type) SELECT id, project_id, 'later' FROM jobs_job")
    PauseSwitch.objects.create(scope=LATER, key=job.kind, paused_by="user:1")
    BulkOperation.objects.create(action=LATER, parameters={"filter": {}}, actor="user:1", total=1)
    make_provider_batch(state=LATER)
    make_reservation(uuid4(), status=LATER)
    make_route(kinds=[LATER])
    QuotaAlert.objects.create(kind=LATER, subject="s", severity="warning", message="of a later version")
    RetryPolicy.objects.create(name=LATER, initial_seconds=1, multiplier=2, max_delay_seconds=9, max_retries=1)
    Schedule.objects.create(name=LATER, func="jobs.cluster.later", schedule_type=Schedule.MINUTES, minutes=1)
    permission = Permission.objects.first()
    assert permission
    Group.objects.get(name="viewer").permissions.add(permission)
    return job


def test_rows_of_a_later_version_break_no_page_and_no_duty_and_stay(job: Job):
    operation = BulkOperation.objects.get()
    waiting = explain_waiting(job)
    assert waiting
    assert "paused" not in {reason.code for reason in waiting.reasons}
    for _ in range(bulk_run.MAX_FAILURES_IN_A_ROW + 1):
        bulk_run.run_bulk_chunk(operation.pk)
    release_uncovered()
    tend_alerts()
    remember_permissions()
    make_groups()
    cluster.begin_version()
    admin = signed_in("superuser")
    for name in LISTS:
        page = admin.get(reverse(f"admin:{name}_changelist"), {"all": "1"})
        assert page.status_code == 200, name
    for name, key in (("jobs_job", job.pk), ("jobs_providerbatch", ProviderBatch.objects.get().pk)):
        assert admin.get(reverse(f"admin:{name}_change", args=[key])).status_code == 200, name
    operation.refresh_from_db()
    assert (operation.status, operation.failures) == ("running", 0), "it waits for a worker that knows it"
    assert JobEvent.objects.filter(job_id=job.pk, event_type=LATER).exists()
    assert PauseSwitch.objects.get().scope == ProviderBatch.objects.get().state == LATER
    assert UsageReservation.objects.get().status == LATER
    assert QuotaAlert.objects.get(kind=LATER).resolved_at is None
    assert Schedule.objects.filter(name=LATER).exists()
    assert RetryPolicy.objects.filter(name=LATER).exists()


def test_a_migration_beside_work_plants_no_duty_and_gives_no_right_and_the_first_process_does():
    name = next(iter(cluster.HOUSE_KEEPING))
    with undone():
        for table in rights.RIGHTS:
            run(f"REVOKE ALL ON {table} FROM {API_ROLE}")
        Schedule.objects.filter(name=name).delete()
        old = Executor.objects.create(host="h", pid=1, process_started_at=0, cluster_pid=1, slots=5)
        cluster.begin_version_unless_others_work()
        assert not Schedule.objects.filter(name=name).exists()
        assert set(rights._given().values()) == {False}
        assert cluster.begin_version(), "as a process of this version starts"
        assert Schedule.objects.filter(name=name).exists()
        assert set(rights._given().values()) == {True}
        assert checks.unsafe() == []
    with undone():
        Schedule.objects.filter(name=name).delete()
        old.delete()
        cluster.begin_version_unless_others_work()
        assert Schedule.objects.filter(name=name).exists(), "nobody is at work who could take it badly"
    with undone():
        run("DROP TABLE tenancy_credentialsetting")
        Schedule.objects.filter(name=name).delete()
        assert not cluster.begin_version(), "its tables are still to come"
        assert not Schedule.objects.filter(name=name).exists()
