"""Reads off the primary: from a real streaming standby, and from the primary as soon as that one is not fit for it."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import reverse

from dashboards.metrics.samples import Value, read_samples
from dashboards.services.shared.cache import forget_all
from jobs.models import Epoch, Executor, Job
from queueops.core.embedded.cluster import DATABASE_NAME, SUPERUSER
from queueops.core.postgres.replica import REPLICA, from_primary, off_primary
from queueops.core.sql import hot_cursor
from queueops.core.web.read_your_writes import COOKIE, may_lag
from queueops.screens.admin import QueueAdmin
from queueops.site.diagnosis.database import examine_replica
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy.models import Project
from queueops.tenancy.scope import acting_for, reading_for
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.dashboards.live.conftest import web_process
from tests.factories import make_dead_letter, make_jobs, make_project
from tests.support.bad_line import BadLine, bad_line
from tests.support.people import signed_in
from tests.support.processes import manage, wait_for
from tests.support.replica import Replica, known_as_replica, primary_and_replica, trouble
from tests.support.standby import socket_of

PROJECTS = "/admin/tenancy/project/"
NEW_PROJECT = {
    "id": "newcomer", "name": "Newcomer", "weight": "1", "max_waiting_jobs": "1000", "guard_percent": "20",
    "guard_first": "50", "guard_over": "200",
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(django_db_blocker: Any) -> Iterator[Replica]:
    with django_db_blocker.unblock(), primary_and_replica() as running:
        yield running


@pytest.fixture
def replica(servers: Replica, django_db_blocker: Any) -> Iterator[Replica]:
    """Has replayed everything; each test leaves it replaying."""
    with django_db_blocker.unblock():
        forget_all()
        catalogue.forget()
        servers.catch_up()
        assert trouble() == ""
        yield servers
        servers.resume()


def projects_listed(browser: Client) -> set[str]:
    page = browser.get(PROJECTS)
    assert page.status_code == 200
    return {project.pk for project in page.context["cl"].result_list}


def samples() -> dict[str, float]:
    return {one.metric: one.value for one in read_samples() if isinstance(one, Value) and not one.labels}


def test_a_list_is_read_from_the_replica_and_from_the_primary_once_that_lags_too_much(replica: Replica):
    make_project("before")
    browser = signed_in("superuser")
    replica.pause()
    make_project("behind")
    assert {"before", "behind"} & projects_listed(browser) == {"before"}
    with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, replica_max_lag_seconds=0.0)):
        assert "behind" in projects_listed(browser)
        assert "more than QUEUEOPS_REPLICA_MAX_LAG_SECONDS" in trouble()


def test_who_writes_sees_it_while_others_see_what_the_replica_has(replica: Replica):
    writer, other = signed_in("superuser"), signed_in("superuser")
    replica.pause()
    answer = writer.post(f"{PROJECTS}add/", NEW_PROJECT)
    assert answer.status_code == 302
    assert "newcomer" in projects_listed(writer)
    assert "newcomer" not in projects_listed(other)
    mark = writer.cookies[COOKIE]
    assert int(mark["max-age"]) > settings.QUEUEOPS.replica_max_lag_seconds
    del writer.cookies[COOKIE]  # as the browser does then
    assert "newcomer" not in projects_listed(writer)


def test_permissions_are_the_primarys_word(replica: Replica):
    browser = signed_in("viewer")
    assert browser.get(PROJECTS).status_code == 200
    replica.pause()
    person = browser.get(PROJECTS).context["request"].user
    person.groups.clear()
    assert browser.get(PROJECTS).status_code == 403


def test_no_list_of_the_admin_asks_the_replica_for_what_it_cannot_do(replica: Replica, caplog):
    make_dead_letter()
    browser = signed_in("superuser")
    replica.catch_up()
    seen = 0
    with caplog.at_level(logging.WARNING, "queueops.core.postgres.replica"):
        for model, screen in admin.site._registry.items():
            if isinstance(screen, QueueAdmin):
                name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
                assert browser.get(reverse(name), follow=True).status_code == 200, name
                seen += 1
    assert seen > 20
    assert caplog.messages == []
    assert replica.sessions() > 0


def test_what_a_page_reads_as_it_is_drawn_is_read_there_too(replica: Replica):
    @may_lag
    def screen(_: None, request: HttpRequest) -> HttpResponse:
        drawn = engines["django"].from_string("{% for one in projects %}{{ one.pk }} {% endfor %}")
        return TemplateResponse(request, drawn, {"projects": Project.objects.all()})

    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    replica.pause()
    make_project("not-drawn")
    page = screen(None, request).render().content.decode()
    assert "not-drawn" not in page


def test_exports_charts_and_depths_are_read_from_the_replica(replica: Replica):
    browser = signed_in("superuser")
    make_project()
    address = reverse("admin:jobs_deadletter_ndjson")

    def lines() -> int:
        return browser.get(address).getvalue().count(b"\n")

    before, waiting = lines(), samples()["dead_letters_open"]
    replica.pause()
    make_dead_letter()
    assert lines() == before
    assert samples()["dead_letters_open"] == waiting
    assert browser.get("/live/charts.json?span=15m").status_code == 200
    browser.post(reverse("admin:logout"))
    with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, replica_max_lag_seconds=0.0)):
        assert samples()["dead_letters_open"] == waiting + 1


def test_row_security_holds_on_the_replica(replica: Replica):
    make_jobs(2, project="acme")
    make_jobs(3, project="globex")
    replica.catch_up()

    def seen() -> tuple[str, set[str], int]:
        with hot_cursor() as cursor:
            cursor.execute("SELECT count(*) FROM jobs_job WHERE project_id = 'acme'")
            [acme] = cursor.fetchone() or ()
        return connection.alias, set(Job.objects.values_list("project_id", flat=True)), acme

    def seen_in_one_transaction() -> tuple[str, set[str], int]:
        with reading_for("globex"):
            return seen()

    with acting_for("globex"):
        assert off_primary(seen) == (REPLICA, {"globex"}, 0)
    assert off_primary(seen_in_one_transaction) == (REPLICA, {"globex"}, 0)
    with reading_for("globex"):
        assert off_primary(seen) == ("default", {"globex"}, 0)
    alias, projects, acme = off_primary(seen)
    assert (alias, acme > 0) == (REPLICA, True)
    assert projects >= {"acme", "globex"}
    assert connection.alias == "default"


def test_limits_that_decide_are_read_from_the_primary_amidst_a_list(replica: Replica):
    replica.pause()
    limit = Limit.objects.create(
        name="fresh", service="fresh", scope="service", algorithm="fixed_window", capacity=5, window_seconds=60
    )
    catalogue.forget()
    listed, decided = off_primary(
        lambda: (Limit.objects.filter(pk=limit.pk).exists(), "fresh" in catalogue.limited_services())
    )
    assert (listed, decided) == (False, True)
    assert off_primary(from_primary(lambda: connection.alias)) == "default"


def test_a_read_that_the_replays_conflict_cancels_is_carried_out_by_the_primary(replica: Replica, caplog):
    replica.run("ALTER SYSTEM SET max_standby_streaming_delay = '50ms'")
    replica.run("SELECT pg_reload_conf()")
    read_by = []

    def read() -> int:
        read_by.append(connection.alias)
        with transaction.atomic():
            count = Project.objects.count()
            if connection.alias == REPLICA:
                with psycopg.connect(replica.pair.primary.dsn()) as other:
                    other.execute("LOCK TABLE tenancy_project IN ACCESS EXCLUSIVE MODE")
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_sleep(60)")
        return count

    assert off_primary(read) == Project.objects.count()
    assert read_by == [REPLICA, "default"]
    assert "conflict with recovery" in caplog.text
    assert trouble() == ""


def test_what_writes_is_carried_out_by_the_primary(replica: Replica, caplog):
    assert off_primary(lambda: make_project("written").pk) == "written"
    assert "the replica failed a read" in caplog.text
    assert Project.objects.filter(pk="written").exists()


def test_a_server_that_is_no_standby_of_this_database_is_not_read(replica: Replica):
    with known_as_replica(replica.pair.primary.dsn(), max_lag=10):
        assert trouble() == "it is no standby"
    replica.pause()
    Epoch.objects.update(value="after a restore")
    assert trouble() == "it follows another database, or one that was restored since"


def through(line: BadLine) -> str:
    return f"postgresql://{SUPERUSER}@127.0.0.1:{line.port}/{DATABASE_NAME}"


def test_a_replica_that_dies_costs_no_page_and_comes_back_by_itself(servers: Replica, django_db_blocker: Any):
    with django_db_blocker.unblock():
        servers.catch_up()
        assert trouble() == ""
        environ = {"DATABASE_REPLICA_URL": servers.url}
        browser = signed_in("superuser")
        make_project("alive")
        with (
            bad_line(socket_of(servers.server)) as line,
            manage("qcluster", environ={"DATABASE_REPLICA_URL": through(line)}) as workers,
            web_process(**environ) as (address, web),
        ):

            def page(path: str) -> str:
                request = urllib.request.Request(f"{address}{path}")  # noqa: S310 - our own address
                request.add_header("Cookie", f"sessionid={browser.cookies['sessionid'].value}")
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                    return str(answer.read().decode())

            def in_use() -> bool:
                return "queueops_replica_in_use 1.0" in page("/metrics")

            wait_for(in_use, what="the replica's use")
            assert "queueops_replica_lag_seconds" in page("/metrics")
            assert "alive" in page(PROJECTS)
            assert servers.sessions() >= 1, "no connection of the web process"
            assert "from the replica" in page("/admin/")
            servers.stop()
            make_project("afterwards")
            assert "afterwards" in page(PROJECTS)
            assert "Of the replica: it does not answer" in page("/admin/")
            wait_for(lambda: "queueops_replica_in_use 0.0" in page("/metrics"), what="the metric")
            found = examine_replica()
            assert (found.verdict, found.observation) == (
                DoctorVerdict.WARN,
                "it does not answer; everything is read from the primary",
            )
            servers.start()
            wait_for(in_use, what="the replica's return")
            wait_for(lambda: not trouble(), what="this thread's return to it")
            assert web.runs
            wait_for(Executor.objects.exists, what="the executors")
            assert workers.runs
            assert line.carried == 0, "workers opened the replica"
