"""How sessions end."""

from __future__ import annotations

import time

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from dashboards.live.viewer import still_allowed_of, viewer_of_session
from queueops.access.services import sessions
from queueops.access.session_engine import SessionStore
from queueops.audit.models import AuditEntry
from tests.factories import make_project
from tests.security.people import PASSWORD, is_signed_in, person, try_password
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock(monkeypatch):
    """A clock of the sessions' own: `clock(minutes)` is so long after the test began."""
    began = time.time()

    def at(minutes: float) -> None:
        monkeypatch.setattr("queueops.access.services.sessions.time.time", lambda: began + minutes * 60)

    at(0)
    return at


def signed_in_by_form(name: str = "ann") -> Client:
    client = Client()
    assert try_password(name, client=client).status_code == 302
    return client


def test_a_session_that_is_not_used_ends_and_one_that_is_used_goes_on(configure, clock):
    configure(session_idle_minutes=30, session_hours=24)
    person()
    used, unused = signed_in_by_form(), signed_in_by_form()
    for minutes in (20, 40, 60):
        clock(minutes)
        assert is_signed_in(used)
    assert not is_signed_in(unused)
    clock(91)
    assert not is_signed_in(used)


def test_a_session_ends_with_its_age_however_much_it_is_used(configure, clock):
    configure(session_idle_minutes=60, session_hours=2)
    person()
    client = signed_in_by_form()
    for minutes in (40, 80, 119):
        clock(minutes)
        assert is_signed_in(client)
    clock(121)
    assert not is_signed_in(client)
    assert not Session.objects.exists()  # its row is gone, not only refused


def test_the_api_takes_no_session_that_is_over(configure, clock):
    configure(session_idle_minutes=30)
    make_project("acme")
    client = signed_in("viewer")
    assert client.get("/api/v1/jobs/?project=acme").status_code == 200
    clock(31)
    assert client.get("/api/v1/jobs/?project=acme").status_code == 401


def test_a_producers_session_ends_alike(configure, clock):
    configure(session_idle_minutes=30)
    client = Client()
    session = client.session
    session[sessions.PRODUCER_KEY] = 7
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key or ""
    client.get("/admin/login/")
    clock(29)
    client.get("/admin/login/")
    assert client.session[sessions.PRODUCER_KEY] == 7
    clock(60)
    client.get("/admin/login/")
    assert sessions.PRODUCER_KEY not in client.session


def test_using_a_session_writes_its_row_once_a_minute(clock, django_assert_num_queries):
    person(role="viewer")
    client = signed_in_by_form()
    clock(0.5)
    seen_at = client.session["seen_at"]
    client.get("/admin/login/")
    assert client.session["seen_at"] == seen_at
    clock(1.5)
    client.get("/admin/login/")
    assert client.session["seen_at"] > seen_at


def test_a_new_password_signs_out_everywhere_but_where_it_was_set():
    person()
    here, there = signed_in_by_form(), signed_in_by_form()
    form = {"old_password": PASSWORD, "new_password1": "quite another secret", "new_password2": "quite another secret"}
    assert here.post("/admin/password_change/", form).status_code == 302
    assert is_signed_in(here)
    assert not is_signed_in(there)


def test_a_password_that_an_administrator_sets_signs_out_everywhere_and_is_audited():
    user = person()
    there = signed_in_by_form()
    form = {"password1": "quite another secret", "password2": "quite another secret", "usable_password": "true"}
    assert signed_in("superuser").post(f"/admin/auth/user/{user.pk}/password/", form).status_code == 302
    assert not is_signed_in(there)
    entry = AuditEntry.objects.get(action="set_password_of_user")
    assert entry.target == f"user {user.pk}"
    assert "secret" not in str(entry.after)


def test_deactivating_somebody_ends_their_sessions_and_is_audited():
    user = person(role="viewer")
    there = signed_in_by_form()
    form = {"username": "ann", "is_staff": "on", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    assert signed_in("superuser").post(f"/admin/auth/user/{user.pk}/change/", form).status_code == 302
    assert not is_signed_in(there)
    entry = AuditEntry.objects.get(action="change_user")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["is_active"], entry.after["is_active"]) == (True, False)
    assert (entry.before["groups"], entry.after["groups"]) == (["viewer"], [])


def test_signing_in_gives_the_session_another_id():
    person()
    client = Client()
    client.get("/admin/login/")
    session = client.session
    session["planted"] = "by somebody else"
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = planted = session.session_key or ""
    assert try_password("ann", client=client).status_code == 302
    assert client.session.session_key != planted
    assert not SessionStore().exists(planted)


def test_a_request_without_a_session_asks_the_database_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        Client().get("/admin/login/")


def test_the_sessions_cookie_is_kept_from_scripts_and_other_sites():
    person()
    cookie = signed_in_by_form().cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_who_looks_by_a_session_that_is_over_looks_no_more(configure, clock):
    configure(session_idle_minutes=30)
    person(role="viewer")
    viewer = viewer_of_session(signed_in_by_form().session)
    assert viewer is not None
    clock(29)
    assert still_allowed_of([viewer])
    clock(31)
    assert not still_allowed_of([viewer])


def test_a_live_page_of_somebody_who_comes_to_owe_a_second_factor_ends(configure):
    person(role="viewer")
    viewer = viewer_of_session(signed_in_by_form().session)
    assert viewer is not None
    configure(second_factor="required")
    assert not still_allowed_of([viewer])


def test_a_cookie_that_is_no_key_of_ours_signs_nobody_in():
    faults = {}
    for cookie in ('"aaaaaaaa\\000aaaaaaaa"', "short", "x" * 5000, "ümlaut-ümlaut"):
        for address in ("/admin/", "/me/", "/", "/live/ops.json", "/api/v1/jobs/"):
            answer = Client(headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}).get(address)
            if answer.status_code not in {200, 302, 401} or answer.wsgi_request.user.is_authenticated:
                faults[cookie[:20], address] = answer.status_code
    assert faults == {}
