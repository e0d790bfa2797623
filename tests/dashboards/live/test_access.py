"""Who may open a socket, and for how long."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now

from dashboards.live import viewer
from queueops.access.services import sessions
from queueops.access.session_engine import SessionStore
from queueops.tenancy.models import ProducerKey, Scope
from tests.factories import make_batch, make_job, make_project
from tests.support.awake import awake
from tests.support.event_log import log_event, writer
from tests.support.live import LiveClient
from tests.support.people import session_of, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

RECHECKED_SECONDS = 10.0


def key_of(project: str, **fields: object) -> str:
    return ProducerKey.issue(make_project(project), name="other", **fields)[1]


@pytest.mark.proves("S1")
@pytest.mark.parametrize("of_batch", [False, True], ids=["job", "batch"])
def test_another_projects_work_is_refused_as_if_it_were_not_there(of_batch: bool, client: LiveClient, key: str):
    batch = make_batch()
    path = f"batches/{batch.pk}" if of_batch else f"jobs/{make_job(batch=batch).pk}"
    missing = f"{path.partition('/')[0]}/00000000-0000-0000-0000-000000000001"
    answers = []
    for watcher in (client.watch(path, key=key_of("other")), client.watch(missing, key=key)):
        assert watcher.closed() == 4404
        answers += watcher.messages
    assert answers[0] == answers[1]
    assert client.watch(path, key=key).first("snapshot")


@pytest.mark.proves("S1")
def test_a_key_is_shown_no_event_of_another_project(client: LiveClient, key: str):
    mine = client.watch("me", key=key)
    mine.first("snapshot")
    foreign, own = make_job(project="other"), make_job()
    with writer() as one:
        log_event(one, foreign)
        own_id = log_event(one, own)
    mine.wait_for_events({own_id})
    assert {event["project"] for event in mine.events} == {"acme"}
    for query in ("me?project=other", "me?project=missing"):
        assert client.watch(query, key=key).closed() == 4404


@pytest.mark.parametrize(
    ("path", "code"), [("ops", 4403), ("jobs/00000000-0000-0000-0000-000000000001", 4404)], ids=["ops", "job"]
)
def test_a_key_does_not_open_what_is_for_operators(path: str, code: int, client: LiveClient, key: str):
    assert client.watch(path, key=key).closed() == code


@pytest.mark.parametrize("role", [None, "nobody at all"])
def test_a_session_without_the_permission_counts_for_nothing(role: str | None, client: LiveClient):
    session = session_of(None) if role is None else "x" * 32
    for path in ("ops", "me", f"jobs/{make_job().pk}"):
        watcher = client.watch(path, session=session)
        watcher.send({"auth": {"key": "qo_wrong"}})
        assert watcher.closed() == 4401
        assert not watcher.of_type("snapshot")


def test_whoever_does_not_sign_in_is_sent_away(client: LiveClient):
    watcher = client.watch(f"jobs/{make_job().pk}")
    assert watcher.closed(seconds=10) == 4401
    assert [message["type"] for message in watcher.messages] == ["error"]


@pytest.mark.parametrize("scopes", [[Scope.SUBMIT.value], []])
def test_a_key_that_may_not_read_opens_nothing(scopes: list[str], client: LiveClient):
    assert client.watch("me", key=key_of("acme", scopes=scopes)).closed() == 4401


@pytest.mark.proves("S8")
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_pages_of_elsewhere_get_no_socket(origin: str, client: LiveClient):
    watcher = client.watch("ops", session=session_of("operator"), origin=origin)
    assert watcher.status == 403


def test_a_cookie_that_postgresql_cannot_hold_signs_nobody_in(client: LiveClient):
    assert client.watch("me", session=r'"aaaaaaaa\000aaaaaaaa"').closed(seconds=10) == 4401


@pytest.mark.proves("S8")
def test_a_cookie_without_an_origin_signs_nobody_in(client: LiveClient, key: str):
    watcher = client.watch("ops", session=session_of("operator"), origin=None)
    assert watcher.closed(seconds=10) == 4401
    assert client.watch("me", key=key, origin=None).first("snapshot")


def _log_out(session: str) -> None:
    SessionStore(session).delete()


def _deactivate(session: str) -> None:
    User.objects.filter(pk=_person_of(session).pk).update(is_active=False)


def _withdraw_permission(session: str) -> None:
    _person_of(session).groups.clear()


def _change_password(session: str) -> None:
    person = _person_of(session)
    person.set_password("another long password")
    person.save()


def _person_of(session: str) -> User:
    return User.objects.get(pk=SessionStore(session)["_auth_user_id"])


@pytest.mark.proves("S8")
def test_the_end_of_a_session_closes_its_sockets_within_ten_seconds(client: LiveClient):
    ends = (_log_out, _deactivate, _withdraw_permission, _change_password)
    opened = [session_of("operator") for _ in range(len(ends) + 1)]
    *watchers, stays = [client.watch("ops", session=session) for session in opened]
    for watcher in (*watchers, stays):
        watcher.first("snapshot")
    with awake() as clock:
        began = clock.now()
        for end, session in zip(ends, opened, strict=False):
            end(session)
        assert [watcher.closed() for watcher in watchers] == [4401] * len(ends)
        assert clock.now() - began < RECHECKED_SECONDS
    assert stays.close_code is None


@pytest.mark.proves("S8")
def test_the_end_of_a_key_closes_its_sockets_within_ten_seconds(client: LiveClient, key: str):
    kept = client.watch("me", key=key_of("acme"))
    watcher = client.watch("me", key=key)
    watcher.first("snapshot")
    kept.first("snapshot")
    with awake() as clock:
        began = clock.now()
        ProducerKey.objects.filter(name="producer").update(revoked_at=Now())
        assert watcher.closed() == 4401
        assert clock.now() - began < RECHECKED_SECONDS
    assert kept.close_code is None


def test_a_session_that_holds_a_key_follows_the_keys_project(client: LiveClient):
    browser = signed_in(None)
    browser.logout()
    key, _ = ProducerKey.issue(make_project("acme"), name="browser")
    session = browser.session
    session[sessions.PRODUCER_KEY] = key.pk
    session.save()
    assert session.session_key
    watcher = client.watch("me", session=session.session_key)
    assert watcher.first("snapshot")["data"]["project"] == "acme"
    assert client.watch("ops", session=session.session_key).closed() == 4403
    assert client.watch("jobs/" + str(make_job(project="other").pk), session=session.session_key).closed() == 4404
    ProducerKey.objects.filter(pk=key.pk).update(revoked_at=Now())
    assert watcher.closed(seconds=RECHECKED_SECONDS) == 4401


def test_a_narrowed_viewer_sees_that_project_alone():
    make_project("acme")
    make_project("other")
    staff = viewer.Viewer(True, None, None, "operator", "user:1", "session")
    narrow = viewer.narrowed(staff, project_id="acme", user_id=None)
    assert narrow is not None
    assert narrow.sees(project_id="acme")
    assert not narrow.sees(project_id="other")
    assert viewer.narrowed(narrow, project_id="other", user_id=None) is None
    assert viewer.narrowed(staff, project_id="missing", user_id=None) is None
