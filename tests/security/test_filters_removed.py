"""
What the database shows when the code's own filter is wrong.

Somebody of the project globex asks, and the database knows it. To the views the caller lies: they filter by the
project acme, or by no user, as if whoever wrote them had forgotten where the caller comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest
from django.test import Client

from dashboards.live import subjects, viewer
from dashboards.live.subjects import LiveSubject, Refused, open_batch, open_job, open_me
from dashboards.live.viewer import Viewer
from dashboards.views import me
from jobs.models import JobEvent
from jobs.services.explain.event_log import Cursor
from queueops.rest import views
from queueops.tenancy.callers.authentication import Caller, ProducerKeyAuthentication
from queueops.tenancy.models import ProducerKey, Project, Scope
from queueops.tenancy.scope import reading_for
from tests.factories import make_project
from tests.security.addresses import METHODS, Address, every_address, send
from tests.security.world import MARK, PROJECT, World, cursor_before_its_events, everything

# Each statement commits by itself, as in production.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("S1")]

SPY = "globex"
USER = UUID(int=9)
API = [address for address in every_address() if address.route.startswith(("api/", "functions/"))]
# What belongs to no project shows no project's texts and is no project's to hide: limits and the limiter's decisions.
UNCONFINED = {
    ("DecideCalls", "POST"),
    ("SettleCall", "POST"),
    ("LimitList", "POST"),
    ("LimitDetail", "PATCH"),
    ("LimitDetail", "DELETE"),
    ("LimitOverrides", "POST"),
    ("LimitOverrides", "DELETE"),
    ("SimulateLimit", "POST"),
    ("AtOnceCaps", "PUT"),  # of operators alone, as limits are
    ("AtOnceCap", "DELETE"),
    ("AllowanceList", "POST"),  # the quotas of its months change with it, which no key may write
    ("AllowanceDetail", "PATCH"),
    ("AllowanceDetail", "DELETE"),
}


@pytest.fixture
def world() -> World:
    return World.make()


@pytest.fixture
def spy(world: World) -> Client:
    _, secret = ProducerKey.issue(make_project(SPY), name="spy", scopes=list(Scope.values))
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {secret}"})


@pytest.fixture
def lying_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """The views see a caller of acme, whoever calls."""
    told = property(lambda view: replace(cast("Caller", view.request.auth), project_id=PROJECT, user_id=None))
    monkeypatch.setattr(views.CallerView, "caller", told)


def marked(client: Client, method: str, world: World, addresses: list[Address] = API) -> set[str]:
    """The addresses whose answer has a text of acme's."""
    return {address.route for address in addresses if MARK in send(client, method, address, world)[1]}


@pytest.mark.parametrize("method", METHODS)
def test_a_view_with_the_wrong_filter_shows_and_changes_nothing_of_another_project(world, spy, lying_views, method):
    before = everything(project=PROJECT)
    assert marked(spy, method, world) == set()
    assert everything(project=PROJECT) == before


def test_the_same_views_do_show_it_where_the_database_does_not_confine_them(world, spy, lying_views, monkeypatch):
    monkeypatch.setattr(views, "confined", lambda request: lambda handler: handler)
    shown = marked(spy, "GET", world)
    assert {f"api/v1/{rows}/" for rows in ("jobs", "batches", "dead-letters", "operations", "project")} <= shown
    assert len(shown) >= 8, shown


@pytest.mark.parametrize("method", METHODS)
def test_a_view_that_forgets_the_user_shows_and_changes_nothing_of_others(world, lying_views, monkeypatch, method):
    caller = Caller(PROJECT, f"token:1:{USER}", "token", scopes=["read", "submit", "usage"], user_id=USER)
    monkeypatch.setattr(ProducerKeyAuthentication, "authenticate", lambda *_: (caller, caller))
    before = everything(project=PROJECT)
    shown = marked(Client(raise_request_exception=False), method, world)
    assert shown == set()
    assert everything(project=PROJECT) == before


def test_the_projects_own_key_sees_its_rows(world):
    _, secret = ProducerKey.issue(Project.objects.get(pk=PROJECT), name="own", scopes=list(Scope.values))
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    shown = marked(client, "GET", world)
    assert {f"api/v1/{rows}/" for rows in ("jobs", "batches", "dead-letters", "operations", "project")} <= shown


def test_only_what_belongs_to_no_project_is_left_unconfined():
    found = set()
    for address in API:
        view = getattr(address.view, "cls", None)
        if view is not None and issubclass(view, views.CallerView):
            found |= {(view.__name__, method) for method in view.unconfined if hasattr(view, method.lower())}
    assert found == UNCONFINED


# Sockets and the producers' page: what they show comes from here.


def liar(project_id: str = PROJECT) -> Viewer:
    return Viewer(is_staff=False, project_id=project_id, user_id=None, name="spy", identity="key:1")


@pytest.fixture
def lying_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers of globex say that they are of acme, and nothing filters."""
    monkeypatch.setattr(Viewer, "reading", lambda _: reading_for(SPY))
    monkeypatch.setattr(subjects, "_of", lambda _: {})


OPENERS: dict[str, Callable[[Viewer, World], LiveSubject]] = {
    "job": lambda who, world: open_job(who, UUID(world.ids["jobs_job"])),
    "batch": lambda who, world: open_batch(who, UUID(world.ids["jobs_batch"])),
    "me": lambda who, _: open_me(who),
}


def what_a_socket_shows(opener: str, world: World) -> str:
    """The snapshot and the events that came before."""
    try:
        subject = OPENERS[opener](liar(), world)
    except Refused:
        return ""
    return f"{subject.read(Cursor(0, ''))} {subject.missed(cursor_before_its_events())}"


@pytest.mark.parametrize("opener", OPENERS)
def test_a_socket_with_the_wrong_filter_shows_nothing_of_another_project(world, lying_viewers, opener):
    assert MARK not in what_a_socket_shows(opener, world)


@pytest.mark.parametrize("opener", OPENERS)
def test_the_same_socket_does_show_it_where_the_database_does_not_confine_it(world, lying_viewers, monkeypatch, opener):
    monkeypatch.setattr(Viewer, "reading", lambda _: nullcontext())
    assert MARK in what_a_socket_shows(opener, world)


def test_a_socket_that_was_opened_by_mistake_reads_nothing(world, lying_viewers):
    job, batch = UUID(world.ids["jobs_job"]), UUID(world.ids["jobs_batch"])
    for load in (partial(subjects._job, job), partial(subjects._batch, batch)):
        subject = LiveSubject(
            ("x",), ("job", "x"), load, JobEvent.objects.all(), reading=liar().reading, is_indexed=True
        )
        assert subject.read(Cursor(0, "")) is None
        assert subject.missed(0) == []


def test_the_producers_page_with_the_wrong_filter_shows_nothing_of_another_project(world, monkeypatch):
    monkeypatch.setattr(me, "producer_of", lambda _: liar())
    assert MARK in Client().get("/live/me.json").content.decode()
    monkeypatch.setattr(Viewer, "reading", lambda _: reading_for(SPY))
    assert MARK not in Client().get("/live/me.json").content.decode()


def test_what_viewers_are_is_looked_up_outside_of_any_confinement(world):
    """A key's project is found by the key, before anybody is confined."""
    key, secret = ProducerKey.issue(make_project(SPY), name="spy")
    found: Any = viewer.viewer_of_key(secret)
    assert (found.project_id, found.identity) == (SPY, f"key:{key.pk}")
