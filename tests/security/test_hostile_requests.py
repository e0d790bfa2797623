"""What nobody's browser sends: hostile values in every filter, search, page, ordering and path of the pages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.db import transaction
from django.test import Client, RequestFactory
from django.urls import reverse

from jobs.models import BulkOperation
from queueops.audit.models import AuditEntry
from queueops.core.web.requests.unreadable import OF_EVERY_LIST
from tests.factories import make_job
from tests.security.addresses import PARAMETER, every_address
from tests.security.world import World
from tests.support import screens
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar")]

HOSTILE = (
    "\0",
    "a\0b",
    "9" * 30,
    "-1",
    "9223372036854775808",
    "1e400",
    "2026-01-01T00:00:00+23:59",
    "2026-01-01 00:00:00-16:00",
    "0001-01-01",
    "9999-12-31",
    "10000-01-01",
    "9999-99",
    "00000000-0000-0000-0000-000000000000",
    "{}",
    "[",
    "\\",
    "\ud800",
    "x" * 5000,
    ",",
    "²",
    "_5F",
    "-0.1.2",
    "0001-01-01T00:00:00+23:59_00000000-0000-0000-0000-000000000000",
)
LOOKUPS = ("", "__exact", "__gte", "__in", "__isnull", "__range", "__regex", "__year", "__date", "__contains", "__x")
PLACES = (*sorted(OF_EVERY_LIST), "_changelist_filters", "no such")
FEW = 300  # requests of the short form


def encoded(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def lists() -> Iterator[tuple[str, list[str]]]:
    """The address of each list, and the parameters of its filters, of every list, and of its columns as lookups."""
    request = RequestFactory().get("/")
    for model, screen in screens.registered():
        names = list(PLACES)
        for one in screen.get_list_filter(request):
            name: Any = one[0] if isinstance(one, tuple) else getattr(one, "parameter_name", one)
            names += [name, *(f"{name}_{end}_{part}" for end in ("from", "to") for part in (0, 1))]
        names += [field.name + lookup for field in model._meta.concrete_fields for lookup in LOOKUPS]
        yield reverse(f"admin:{screens.address_name(model)}_changelist"), names


def filled(route: str, value: str) -> str:
    return "/" + PARAMETER.sub(lambda _: encoded(value), route)


def pages() -> Iterator[str]:
    """Every address that is no part of the API, hostile values in the places of its parameters and besides."""
    for address in every_address():
        if not address.route.startswith(("api/", "functions/")) and "logout" not in address.route:
            for value in HOSTILE:
                path = filled(address.route, value)
                yield path
                for name in ("project", "user", "month", "span", "state", "q", "next", "created_at_from_0", "key"):
                    yield f"{path}?{name}={encoded(value)}"


def requests() -> list[str]:
    """All there are; those of the lists' own parameters first."""
    found = [f"{path}?{name}={encoded(value)}" for path, names in lists() for name in names for value in HOSTILE]
    return [*found, *pages()]


def sampled(start: int, count: int) -> list[str]:
    return random.Random(start).sample(requests(), count)  # noqa: S311 - no secret


def errors_of(client: Client, paths: list[str]) -> dict[str, int]:
    found = {}
    for path in paths:
        with transaction.atomic():  # an error of the database would break the test's own transaction
            status = client.get(path).status_code
            transaction.set_rollback(status >= 400)
        if status >= 500:
            found[path[:200]] = status
    return found


@pytest.fixture
def superuser() -> Client:
    World.make()
    client = signed_in("superuser")
    client.raise_request_exception = False
    return client


@pytest.mark.matrix
def test_no_hostile_request_ends_as_an_error_of_ours(superuser: Client):
    assert errors_of(superuser, sampled(1, FEW)) == {}


@pytest.mark.matrix
def test_every_list_answers_every_hostile_value_of_its_own_parameters(superuser: Client):
    """Each parameter once, with a value that changes from one to the next."""
    paths: list[str] = []
    for path, names in lists():
        for name in dict.fromkeys([*("q", "p", "o", "before", "after"), *names[len(PLACES) :][:10]]):
            paths.append(f"{path}?{name}={encoded(HOSTILE[len(paths) % len(HOSTILE)])}")
    assert errors_of(superuser, paths) == {}


@pytest.mark.matrix
def test_every_list_takes_the_parameters_of_its_own_filters(superuser: Client):
    for path, _ in lists():
        for spec in superuser.get(path).context["cl"].filter_specs:
            for name in spec.expected_parameters():
                assert superuser.get(f"{path}?{name}=1").status_code in {200, 302}, (path, name)


@pytest.mark.soak
def test_no_hostile_request_of_many_thousands_does(superuser: Client):
    start = random.SystemRandom().randrange(2**32)
    print(f"seed {start}")  # noqa: T201 - to repeat it
    assert errors_of(superuser, sampled(start, 20_000)) == {}


def test_a_filter_that_narrows_nothing_starts_no_action_on_everything():
    make_job()
    browser = signed_in("administrator")
    for query in ("user_id=", "state=%20", "projct=acme", "created_at_from_0=soon", "priority=most"):
        for action in ("jobs/job/all-cancel", "jobs/deadletter/all-discard"):
            answer = browser.post(f"/admin/{action}/?{query}", {"confirmed": "yes", "reason": "because"}, follow=True)
            assert query.partition("=")[0].removesuffix("_from_0") in answer.content.decode()
        assert not BulkOperation.objects.exists(), query
        exported = browser.get(f"/admin/jobs/deadletter/export.csv?{query}")
        assert (exported.status_code, AuditEntry.objects.exists()) == (302, False), query


def test_the_links_to_actions_leave_out_what_the_form_left_empty():
    page = signed_in("administrator").get("/admin/jobs/job/?state=queued&user_id=&kind=").content.decode()
    assert "all-cancel/?state=queued&quot;" in page or 'all-cancel/?state=queued"' in page


def test_a_filter_that_cannot_be_read_finds_nothing():
    job = make_job()
    browser = signed_in("viewer")
    assert str(job.pk) in browser.get("/admin/jobs/job/").content.decode()
    for query in ("user_id=%20", "state=done", "created_at_from_0=soon", "kind=%20", "service=%20"):
        assert str(job.pk) not in browser.get(f"/admin/jobs/job/?{query}").content.decode(), query


@pytest.mark.parametrize("query", ["user=", "user=me"])
def test_the_producers_page_takes_no_user_that_is_none_for_everybody(query: str):
    make_job()
    assert signed_in("viewer").get(f"/live/me.json?project=acme&{query}").status_code == 400
