"""
A login role that is no superuser owns the database: all works, and FORCE holds it to the policies.

Other tests connect as a superuser, whom no policy confines before it takes on a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from jobs.models import Job
from queueops.core.database import UnsuitableDatabase
from queueops.core.embedded.cluster import SUPERUSER, EmbeddedServer
from queueops.site import diagnosis
from queueops.tenancy import checks
from queueops.tenancy.database_roles import RolesMissing, missing_roles
from queueops.tenancy.models import ProducerKey, Scope
from queueops.tenancy.scope import acting_for
from tests.factories import make_job, make_project
from tests.faults.clusters import cluster
from tests.faults.records import statuses, submit_work, wait_until_drained
from tests.security.people import person
from tests.support.embedded import throw_away_data_dir
from tests.support.processes import free_port, manage, wait_for

LOGIN = "ann's queue"  # a name that must be quoted
DATABASE = "ours"
ALL = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}

Administrator = Callable[[str], object]


@contextmanager
def connected_as_the_login(server: EmbeddedServer) -> Iterator[None]:
    connection.close()
    before = dict(connection.settings_dict)
    connection.settings_dict.update(NAME=DATABASE, USER=LOGIN, PASSWORD="", HOST=str(server.socket_dir), PORT="")
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


@pytest.fixture(scope="module")
def fresh_server() -> Iterator[EmbeddedServer]:
    """A cluster that has none of the roles yet."""
    with throw_away_data_dir() as data_dir, EmbeddedServer(data_dir).use() as running:
        yield running


@pytest.fixture
def administrator(fresh_server: EmbeddedServer) -> Iterator[Administrator]:
    with psycopg.connect(fresh_server.dsn(SUPERUSER), autocommit=True) as admin:
        yield lambda statement: admin.execute(statement.encode())


@pytest.fixture(params=["NOCREATEROLE", pytest.param("CREATEROLE", marks=pytest.mark.soak)])
def login(
    request: Any, fresh_server: EmbeddedServer, administrator: Administrator, django_db_blocker: Any
) -> Iterator[str]:
    """Connected as an ordinary role that owns an empty database; no role of ours exists."""
    administrator(f'CREATE ROLE "{LOGIN}" LOGIN {request.param}')
    administrator(f'CREATE DATABASE {DATABASE} OWNER "{LOGIN}"')
    with django_db_blocker.unblock(), connected_as_the_login(fresh_server):
        yield request.param
    administrator(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    for role in ("queueops_api", "queueops_anonymous", "queueops_service", f'"{LOGIN}"'):
        administrator(f"DROP ROLE IF EXISTS {role}")


@pytest.fixture
def migrated(login: str, administrator: Administrator) -> None:
    """By itself where the login may make roles; where it may not, after an administrator did as told."""
    if login == "NOCREATEROLE":
        with pytest.raises(RolesMissing) as refused:
            call_command("migrate", verbosity=0)
        told = refused.value.message
        assert told in diagnosis.examine_row_security().advice
        asked_for = [line.strip() for line in told.splitlines() if line.endswith(";")]
        assert asked_for[:2] == ["CREATE ROLE queueops_service NOLOGIN;", "CREATE ROLE queueops_api NOLOGIN;"]
        for statement in asked_for:
            administrator(statement)
    call_command("migrate", verbosity=0)
    assert missing_roles() == []
    assert checks.unsafe() == []


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
    with manage("web", environ={"QUEUEOPS_PORT": str(free_port())}) as web:
        wait_for(lambda: not web.runs, what="the web process's end", seconds=60)
        assert "Row-level security is off or changed on jobs_job" in web.output
    with manage("qcluster", environ={"QUEUEOPS_WORKERS": "1"}) as workers:
        workers.wait_for_output("takes no jobs: Row-level security is off or changed on jobs_job", seconds=60)
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobs_job FORCE ROW LEVEL SECURITY")
        workers.wait_for_output("is ready with", seconds=60)
