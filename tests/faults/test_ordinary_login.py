"""A login role that is no superuser owns the database: all works, and FORCE holds it to the policies."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from jobs.models import Job
from queueops.core.database import UnsuitableDatabase
from queueops.tenancy import checks
from queueops.tenancy.models import ProducerKey, Scope
from queueops.tenancy.scope import acting_for
from tests.factories import make_job, make_project
from tests.faults.clusters import cluster
from tests.faults.records import statuses, submit_work, wait_until_drained
from tests.security.people import person
from tests.support.ordinary_login import LOGIN
from tests.support.processes import free_port, manage, wait_for

ALL = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}


@pytest.mark.usefixtures("migrated")
def test_the_api_the_admin_and_the_workers_work_for_a_login_that_policies_confine(ledger):
    _, secret = ProducerKey.issue(make_project("acme"), name="producer", scopes=list(Scope.values))
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    submitted = client.post("/api/v1/jobs/", ALL, content_type="application/json")
    assert submitted.status_code == 201
    make_job(project=make_project("globex").pk)
    assert [job["id"] for job in client.get("/api/v1/jobs/").json()["results"]] == [submitted.json()["id"]]
    operator = Client()
    operator.force_login(person("op", is_superuser=True))
    for page in (
        "jobs/job",
        "jobs/batch",
        "audit/auditentry",
        "tenancy/producerkey",
        "tenancy/project",
        "jobs/webhook",
    ):
        answer = operator.get(f"/admin/{page}/")
        assert answer.status_code == 200, page
    assert operator.get("/live/ops.json").status_code == 200
    Job.objects.all().delete()
    with cluster(ledger, executors=1):
        submit_work(20, "write")
        wait_until_drained()
    assert statuses() == {"completed": 20}


@pytest.mark.usefixtures("migrated")
def test_the_login_role_owns_the_tables_and_is_held_to_the_policies_all_the_same():
    make_job(project=make_project("acme").pk)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tableowner, rolsuper FROM pg_tables JOIN pg_roles ON rolname = tableowner "
            "WHERE tablename = 'jobs_job'"
        )
        assert cursor.fetchone() == (LOGIN, False)
    assert Job.objects.count() == 1
    with acting_for("globex"):
        assert Job.objects.count() == 0
    with connection.cursor() as cursor:
        cursor.execute("DROP POLICY service ON jobs_job")
    assert Job.objects.count() == 0
    with pytest.raises(UnsuitableDatabase, match="changed on jobs_job"):
        checks.ensure_projects_are_kept_apart()


@pytest.mark.usefixtures("migrated")
def test_web_and_workers_refuse_a_database_that_keeps_no_project_apart():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job NO FORCE ROW LEVEL SECURITY")
    connection.close()
    with (
        manage("web", environ={"QUEUEOPS_PORT": str(free_port())}) as web,
        manage("qcluster", environ={"QUEUEOPS_WORKERS": "1"}) as workers,
    ):
        wait_for(lambda: not web.runs, what="the web process's end", seconds=60)
        assert "Row-level security is off or changed on jobs_job" in web.output
        workers.wait_for_output("takes no jobs: Row-level security is off or changed on jobs_job", seconds=60)
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobs_job FORCE ROW LEVEL SECURITY")
        workers.wait_for_output("is ready with", seconds=60)
