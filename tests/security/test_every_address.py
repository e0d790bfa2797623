"""Every address, by every method, for everybody who has no business there."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from queueops.tenancy.models import ProducerKey, Project, Scope
from tests.factories import make_project
from tests.security.addresses import METHODS, every_address, send
from tests.security.people import person
from tests.security.world import MARK, PROJECT, World, everything
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar"), pytest.mark.proves("S1")]

ADDRESSES = every_address()
OWN = {
    "admin/",
    "admin/jsi18n/",
    "admin/password_change/",
    "admin/password_change/done/",
    "admin/search/",
    "admin/second-factor/",
    "admin/second-factor/passkeys/",
}
# What somebody whom nobody knows may open. Whoever adds to it shows the world something.
PUBLIC = {
    "admin/login/",
    "api/v1/docs/",
    "api/v1/schema/",
    "healthz",
    "me/",
    "readyz",
}


def strange_answers(
    client: Client, method: str, world: World, *, may_open: set[str], person_in: User | None = None
) -> dict[str, Any]:
    """What was shown that should not have been: the mark, a page, or an error of ours."""
    strange = {}
    for address in ADDRESSES:
        if person_in is not None and settings.SESSION_COOKIE_NAME not in client.cookies:
            client.force_login(person_in)  # the last address was to sign out
        status, text = send(client, method, address, world)
        shown = method in {"GET", "HEAD"} and status == 200 and address.route not in may_open
        if MARK in text or status >= 500 or shown:
            strange[address.route] = (status, MARK in text)
    return strange


@pytest.fixture
def world() -> World:
    return World.make()


def test_the_addresses_are_those_there_are():
    routes = {address.route for address in ADDRESSES}
    assert {"", "me/", "admin/", "admin/jobs/job/", "api/v1/jobs/<uuid:pk>/", "healthz"} <= routes
    assert len(routes) > 150


@pytest.mark.parametrize("method", METHODS)
def test_a_stranger_sees_nothing_and_changes_nothing(world, method):
    before = everything()
    assert strange_answers(Client(raise_request_exception=False), method, world, may_open=PUBLIC) == {}
    assert everything() == before


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("is_staff", [True, False], ids=["staff without a role", "superuser who is not staff"])
@pytest.mark.matrix
def test_an_account_that_may_nothing_sees_nothing_and_changes_nothing(world, method, is_staff):
    nobody = person("nobody", is_staff=is_staff, is_superuser=not is_staff)
    before = everything(signed_in=nobody)
    client = Client(raise_request_exception=False)
    own = PUBLIC | (OWN if is_staff else set())
    assert strange_answers(client, method, world, may_open=own, person_in=nobody) == {}
    assert everything(signed_in=nobody) == before


@pytest.mark.parametrize("method", METHODS)
def test_the_key_of_another_project_finds_nothing_of_this_one(world, method):
    key, secret = ProducerKey.issue(make_project("globex"), name="spy", scopes=list(Scope.values))
    before = everything(project=PROJECT)
    strange = {}
    for address in ADDRESSES:
        if address.route.startswith("admin/"):
            continue  # asks for accounts alone: the stranger's test
        # Both ways at once: the key in the header, and the session that the key signed in to.
        client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {secret}"})
        session = client.session
        session["producer_key"] = key.pk
        session.save()
        status, text = send(client, method, address, world)
        if MARK in text or status >= 500:
            strange[address.route] = status
    assert strange == {}
    assert everything(project=PROJECT) == before


def test_the_rows_of_the_doors_are_there_to_be_seen_by_their_own_key(world):
    _, secret = ProducerKey.issue(Project.objects.get(pk=PROJECT), name="own", scopes=list(Scope.values))
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {secret}"})
    unseen = {}
    for address in ADDRESSES:
        if address.route.split("/")[0] in {"openai", "anthropic"} and "<" in address.route:
            status, text = send(client, "GET", address, world)
            if status != (405 if address.route.endswith("/cancel") else 200):
                unseen[address.route] = (status, text[:200])
    assert unseen == {}


def test_a_viewer_changes_nothing(world):
    client = signed_in("viewer")
    client.raise_request_exception = False
    user = User.objects.get(pk=client.session["_auth_user_id"])
    before = everything(signed_in=user)
    strange = strange_answers(client, "POST", world, may_open=set(), person_in=user)
    assert {route: found for route, found in strange.items() if found[0] >= 500} == {}
    assert everything(signed_in=user) == before
