"""R21: the code of a version before on the tables of a later one, forward without a stop and back again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django_q.models import Schedule
from django_q.tasks import async_task

from jobs.cluster import SkipLockedBroker
from queueops.tenancy import checks, rights
from queueops.tenancy.models import ProducerKey
from queueops.tenancy.row_security import OF_PROJECT
from tests.factories import make_project
from tests.support.processes import ROOT, RunningProcess, database_url, free_port, manage, started, wait_for
from tests.support.templates import connected_to_a_copy

# The last commit that takes a table of a later version for a breach, and ends at a duty that it does not know. Once a
# version after 1.0.0 is released, this is that one, and it goes the way back as well.
BEFORE = "e6e967ab"
APPS = ("access", "audit", "door", "jobs", "ratelimits", "tenancy")
LATER = (
    # A table, a column, a duty that is due, an event.
    "CREATE TABLE jobs_of_later (id bigint, project_id text)",
    "ALTER TABLE jobs_of_later ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    "CREATE POLICY service ON jobs_of_later TO queueops_service USING (true)",
    f"CREATE POLICY api ON jobs_of_later TO queueops_api USING ({OF_PROJECT})",
    "GRANT SELECT, INSERT ON jobs_of_later TO queueops_api",
    "ALTER TABLE jobs_job ADD later int NOT NULL DEFAULT 0",
    "INSERT INTO jobs_jobevent (job_id, project_id, event_type) SELECT id, project_id, 'later' FROM jobs_job LIMIT 1",
)
SETTING = {"QUEUEOPS_ALERT_OF_A_LATER_VERSION": "1", "QUEUEOPS_LOG_FORMAT": "json"}
SETTINGS = {"QUEUEOPS_WORKERS": "1", "QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on", "QUEUEOPS_POLL_SECONDS": "0.05"}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of BEFORE, checked out."""
    code = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", BEFORE], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this checkout has no history: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(code)], input=archive.stdout, check=True)
    return code


@pytest.fixture
def key(before: Path, django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """Connected to a database with the tables of BEFORE; a key of a project."""
    with django_db_blocker.unblock(), connected_to_a_copy("queueops_way_back"):
        _, key = ProducerKey.issue(make_project("acme"), name="producer")
        found = {app: [path.stem for path in (before / folder).glob("0*.py")] for app, folder in folders().items()}
        steps = {app: max(names, default=None) for app, names in found.items()}  # None: it has no such app
        MigrationExecutor(connection).migrate([*steps.items()])
        yield key


def folders() -> dict[str, Path]:
    """Where each app's migrations are, in either version."""
    loader = MigrationExecutor(connection).loader
    found = {}
    for app in APPS:
        module = loader.get_migration(*loader.graph.leaf_nodes(app)[0]).__module__
        found[app] = Path(*module.split(".")[:-1])
    return found


@contextmanager
def web(code: Path, **environ: str) -> Iterator[tuple[RunningProcess, str]]:
    port = free_port()
    with run(code, "web", QUEUEOPS_PORT=str(port), **environ) as process:
        yield process, f"http://127.0.0.1:{port}"


def workers(code: Path, **environ: str) -> Any:
    return run(code, "qcluster", **environ)


def run(code: Path, *arguments: str, **environ: str) -> Any:
    if code == ROOT:
        return manage(*arguments, environ={**SETTINGS, **environ})
    given = {"DATABASE_URL": database_url(), "PYTHONPATH": "", **SETTINGS, **environ}
    return started(sys.executable, str(code / "manage.py"), *arguments, environ=given)


def carried_out(address: str, key: str) -> float:
    """Submit a job as a producer that repeats what is not answered, and wait for its end; how long it took, in s."""
    began = time.monotonic()
    payload = {"method": "GET", "url": f"{address}/healthz"}
    job = wait_for(lambda: ask(f"{address}/api/v1/jobs/", key, {"kind": "http.request", "payload": payload}))
    wait_for(
        lambda: (ask(f"{address}/api/v1/jobs/{job['id']}/", key) or {}).get("state") == "completed", what="its end"
    )
    return time.monotonic() - began


def ask(address: str, key: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        answer = httpx.request("GET" if body is None else "POST", address, json=body, headers=headers, timeout=30)
    except httpx.HTTPError:
        return None
    return answer.json() if answer.is_success else None


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def cut_everybody_off() -> None:
    """As a failover or a restart of the database does: whoever connects again asks what a start asks."""
    execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.proves("R21")
def test_r21_a_version_before_goes_on_through_the_upgrade_and_this_one_works_on_what_a_later_one_leaves(
    before: Path, key: str, figures: Any
):
    with ExitStack() as old, ExitStack() as new, ExitStack() as back:
        _, address = old.enter_context(web(before))
        old_workers = old.enter_context(workers(before))
        carried_out(address, key)

        call_command("migrate", verbosity=0)
        cut_everybody_off()
        carried_out(address, key)
        assert set(rights._given().values()) == {False}, "or the version before would have refused its tables"
        assert "takes no jobs" not in old_workers.output

        new_workers = new.enter_context(workers(ROOT))
        wait_for(
            lambda: set(rights._given().values()) == {True}, what="the rights, which the first of its processes gives"
        )
        with run(before, "web", QUEUEOPS_PORT=str(free_port())) as refused:
            new_web, new_address = new.enter_context(web(ROOT))
            carried_out(new_address, key)
            wait_for(lambda: not refused.runs, what="its end")
            assert refused.process.returncode != 0
            assert "which is not its business" in refused.output, "as the changelog says of 1.0.0"
        old.close()
        carried_out(new_address, key)

        execute(*LATER)
        Schedule.objects.create(name="later", func="jobs.cluster.later", schedule_type=Schedule.MINUTES, minutes=1)
        async_task("jobs.cluster.later", broker=SkipLockedBroker())  # as the scheduler does twice a minute
        assert checks.unsafe() == []
        cut_everybody_off()
        carried_out(new_address, key)
        new_workers.wait_for_output("jobs.cluster.later")
        assert new_workers.runs
        assert new_web.runs

        began = time.monotonic()
        assert new_workers.stop() == new_web.stop() == 0
        call_command("migrate", verbosity=0)
        back.enter_context(workers(ROOT, **SETTING))
        returned, address = back.enter_context(web(ROOT, **SETTING))
        carried_out(address, key)
        seconds = time.monotonic() - began
        lines = [json.loads(line) for line in returned.output.splitlines()]  # warnings as well
        assert "QUEUEOPS_ALERT_OF_A_LATER_VERSION is no setting of version" in str(lines)
        figures(f"the way back: {seconds:.1f} s from the stop of both to a job that is carried out")
