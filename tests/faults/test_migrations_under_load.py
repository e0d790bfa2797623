"""R17: what the last release does goes on while each later migration is applied, and after it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.apps.registry import Apps
from django.db import OperationalError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState
from django.utils import timezone
from psycopg.errors import LockNotAvailable, QueryCanceled

from queueops.core.database import connect_directly
from queueops.tenancy.database_roles import make_roles
from tests.support.awake import AwakeClock, awake
from tests.support.processes import wait_for

pytestmark = pytest.mark.proves("R17")

# The newest migration of each app in the last release, from which one upgrades; for one that is not named, its first.
RELEASED: dict[str, str] = {}
RELEASE = "queueops_released"
APPS = ("access", "audit", "jobs", "ratelimits", "tenancy")
REQUEST_SECONDS = 3.0
REQUESTERS = 3
LEAST = 30  # requests before each migration, and after the last
JOBS = 2_000

Node = tuple[str, str]


@pytest.fixture(scope="module")
def last_release(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[Apps, list[Node]]]:
    """A database of the last release with some jobs, to be copied: its models, and the migrations since in order."""
    with django_db_blocker.unblock(), database(RELEASE):
        executor = MigrationExecutor(connection)
        graph = executor.loader.graph
        base = [(label, RELEASED[label]) if label in RELEASED else graph.root_nodes(label)[0] for label in APPS]
        make_roles()
        executor.migrate(base)
        apps = executor.loader.project_state(base).apps
        project: Any = apps.get_model("tenancy", "Project")
        project.objects.create(pk="acme", name="acme")
        job: Any = apps.get_model("jobs", "Job")
        job.objects.bulk_create([a_job(job) for _ in range(JOBS)])
        plan = MigrationExecutor(connection).migration_plan(graph.leaf_nodes())
        connection.close()  # a template has no guests
        yield apps, [(step.app_label, step.name) for step, _ in plan]


@pytest.fixture
def requests(last_release: tuple[Apps, list[Node]], django_db_blocker: Any) -> Iterator[Requests]:
    """Who asks of a copy of it, to which this process is connected."""
    with django_db_blocker.unblock(), database("queueops_later", f"TEMPLATE {RELEASE}"), awake() as clock:
        yield Requests(last_release[0], clock)


@contextmanager
def database(name: str, options: str = "") -> Iterator[None]:
    """Make a database and be connected to it."""
    connection.close()
    before = connection.settings_dict["NAME"]
    with connect_directly(dbname="postgres") as admin:
        admin.execute(f"CREATE DATABASE {name} {options}".encode())
        connection.settings_dict["NAME"] = name
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = before
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


class Requests:
    """
    Threads that do what the last release's web and workers do, with its own models.

    One whose statement takes longer than REQUEST_SECONDS has failed, unless the machine stood still meanwhile.
    """

    def __init__(self, apps: Apps, clock: AwakeClock) -> None:
        self.clock = clock
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.longest_seconds = 0.0
        self._models: list[Any] = [model for label in APPS for model in apps.get_app_config(label).get_models()]
        self._job: Any = apps.get_model("jobs", "Job")
        self._over = threading.Event()

    @contextmanager
    def coming(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._come) for _ in range(REQUESTERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def wait_for_more(self) -> None:
        enough = self.done + LEAST
        wait_for(lambda: self.done >= enough, what=f"{LEAST} more requests")

    def _come(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = '{REQUEST_SECONDS:g}s'")
        while not self._over.wait(0.005):
            begun = time.monotonic()
            try:
                self._ask()
            except Exception as error:  # noqa: BLE001 (counted, and shown by the test)
                if not (is_timeout(error) and self.clock.stood_still(since=begun)):
                    self.failed[f"{type(error).__name__}: {error}"] += 1
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - begun)
            self.done += 1
        connections.close_all()

    def _ask(self) -> None:
        job = a_job(self._job)
        job.save(force_insert=True)
        self._job.objects.filter(pk=job.pk).update(priority="low")
        model = self._models[self.done % len(self._models)]
        list(model.objects.all()[:20])


def a_job(model: Any) -> Any:
    return model(project_id="acme", kind="http.request", service="http", payload={}, eligible_since=timezone.now())


def migrate(node: Node, clock: AwakeClock, before: ProjectState | None) -> ProjectState:
    """
    As docs/how-to/upgrade.md says: with a bound, and again where the machine stood still until it was reached.

    It goes on from the state that the one before left, as one command does that applies them all.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
    begun = time.monotonic()
    try:
        return MigrationExecutor(connection).migrate([node], state=before)
    except OperationalError as error:
        if not (is_timeout(error) and clock.stood_still(since=begun)):
            raise
        return migrate(node, clock, None)  # that state has a part of this one


def is_timeout(error: Exception) -> bool:
    return isinstance(error.__cause__, LockNotAvailable | QueryCanceled)


@pytest.mark.matrix
def test_the_last_releases_requests_go_on_while_and_after_each_later_migration(
    last_release: tuple[Apps, list[Node]], requests: Requests, figures: Any
):
    _, later = last_release
    state = None
    with requests.coming():
        for node in later:
            requests.wait_for_more()
            state = migrate(node, requests.clock, state)
            assert not requests.failed, f"{node}: {requests.failed}"
        requests.wait_for_more()
    assert not requests.failed
    figures(f"{len(later)} migrations, {requests.done} requests, none failed, {requests.longest_seconds:.2f} s at most")


@pytest.mark.parametrize(
    "careless",
    [
        "ALTER TABLE jobs_job DROP COLUMN progress",
        "ALTER TABLE jobs_job ADD careless int NOT NULL DEFAULT 0; ALTER TABLE jobs_job ALTER careless DROP DEFAULT",
        "LOCK TABLE jobs_job",
    ],
    ids=["drops a column that is read", "adds a column that has no default", "holds a table for long"],
)
def test_a_careless_migration_is_found(requests: Requests, careless: str):
    with requests.coming():
        requests.wait_for_more()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(careless)
            if "LOCK" in careless:
                wait_for(lambda: requests.failed, what="a request that was kept waiting for too long")
        requests.wait_for_more()
    assert requests.failed
