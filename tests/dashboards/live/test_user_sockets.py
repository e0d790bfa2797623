"""Sockets of end users: what they see, for how long, and from which pages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dashboards.live import hub
from dashboards.live.messages import MAX_SIGN_IN_BYTES
from queueops.tenancy.callers.tokens import MAX_TOKEN_CHARACTERS
from queueops.tenancy.models import Issuer
from tests.dashboards.live.conftest import web_process
from tests.factories import make_batch, make_dead_letter, make_job
from tests.support.awake import awake
from tests.support.event_log import log_event, writer
from tests.support.issuers import OTHER_USER, USER, Signer, make_issuer, publishing, shared_token
from tests.support.live import LiveClient, Watcher, live_client
from tests.support.people import session_of
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

RECHECKED_SECONDS = 10.0
APP = "https://app.example.org"


@pytest.fixture
def issuer(transactional_db: None) -> Issuer:
    return make_issuer()


def test_a_users_page_shows_their_own_work_alone(client: LiveClient, issuer):
    own, foreign = make_batch(user_id=USER, name="mine"), make_batch(user_id=OTHER_USER)
    mine = make_job(user_id=USER, batch=own)
    for user_id in (OTHER_USER, None):
        make_job(user_id=user_id, batch=foreign)
        make_dead_letter(batch=foreign)
    shown = client.watch("me", token=shared_token()).first("snapshot")["data"]
    assert (shown["project"], shown["counts"]) == ("acme", None)
    assert [job["id"] for job in shown["jobs"]] == [str(mine.pk)]
    assert [batch["id"] for batch in shown["batches"]] == [str(own.pk)]
    assert shown["dead_letters"] == []


def test_a_user_is_told_of_their_own_jobs_alone(client: LiveClient, issuer):
    watcher = client.watch("me", token=shared_token())
    watcher.first("snapshot")
    with writer() as one:
        for user_id in (OTHER_USER, None):
            log_event(one, make_job(user_id=user_id))
        own_id = log_event(one, make_job(user_id=USER))
    watcher.wait_for_events({own_id})
    assert {event["user"] for event in watcher.events} == {str(USER)}


@pytest.mark.proves("S1")
@pytest.mark.parametrize("of", [OTHER_USER, None], ids=["another user", "nobody in particular"])
@pytest.mark.parametrize("what", ["jobs", "batches"])
def test_another_users_work_is_refused_as_if_it_were_not_there(client: LiveClient, issuer, what: str, of: Any):
    foreign, own = make_batch(user_id=of), make_batch(user_id=USER)
    rows = {
        "batches": (foreign, own),
        "jobs": tuple(make_job(batch=batch, user_id=batch.user_id) for batch in (foreign, own)),
    }
    assert client.watch(f"{what}/{rows[what][0].pk}", token=shared_token()).closed() == 4404
    assert client.watch(f"{what}/{rows[what][1].pk}", token=shared_token()).first("snapshot")


@pytest.mark.parametrize(
    ("path", "code"),
    [(f"me?user={OTHER_USER}", 4404), ("me?project=globex", 4404), ("ops", 4403)],
    ids=["another user", "another project", "operators"],
)
def test_a_user_looks_at_nothing_else(client: LiveClient, issuer, path: str, code: int):
    make_job(project="globex")
    assert client.watch(path, token=shared_token()).closed() == code


def test_a_user_may_name_themselves(client: LiveClient, issuer):
    assert client.watch(f"me?user={USER}&project=acme", token=shared_token()).first("snapshot")


@pytest.mark.parametrize(
    ("token", "said"),
    [("a.b.c", "unknown"), (shared_token(aud="x"), "unknown"), (shared_token(exp=1), "expired"), ("", "Sign in first")],
    ids=["no token", "another audience", "expired", "none"],
)
def test_a_bad_token_opens_nothing(client: LiveClient, issuer, token: str, said: str):
    watcher = client.watch("me", token=token)
    if not token:
        watcher.send({"auth": {"token": 7}})
    assert watcher.closed() == 4401
    assert said in watcher.of_type("error")[0]["detail"]
    assert not watcher.of_type("snapshot")


def test_users_of_an_issuer_that_may_not_read_see_nothing(client: LiveClient, issuer):
    Issuer.objects.update(scopes=["usage"])
    assert client.watch("me", token=shared_token()).closed() == 4401


def test_a_long_token_signs_in_and_a_longer_message_does_not(client: LiveClient, issuer):
    long = shared_token(app_metadata="x" * (MAX_TOKEN_CHARACTERS * 3 // 4 - 400))
    assert client.watch("me", token=long).first("snapshot")
    assert client.watch("me", token="x" * MAX_SIGN_IN_BYTES).closed() == 4400


@pytest.mark.proves("S8")
def test_an_expired_token_closes_its_sockets_within_ten_seconds(client: LiveClient, issuer):
    lasting = client.watch("me", token=shared_token())

    def opened() -> list[Watcher]:
        """None where the machine stood still until the token had expired."""
        watcher = client.watch("me", token=shared_token(exp=int(time.time()) + 2))
        wait_for(lambda: watcher.messages, what="an answer")
        return [watcher] if watcher.of_type("snapshot") else []

    with awake() as clock:
        [watcher] = wait_for(opened, what="a socket that is open")
        began = clock.now()
        assert watcher.closed() == 4401
        assert clock.now() - began < 2 + RECHECKED_SECONDS
    assert lasting.first("snapshot")


@pytest.mark.parametrize("end", [{"enabled": False}, {"scopes": ["usage"]}], ids=["turned off", "may not read"])
def test_an_issuer_that_is_taken_back_closes_its_users_sockets_within_ten_seconds(client: LiveClient, issuer, end: Any):
    watcher = client.watch("me", token=shared_token())
    watcher.first("snapshot")
    with awake() as clock:
        Issuer.objects.update(**end)
        began = clock.now()
        assert watcher.closed() == 4401
        assert clock.now() - began < RECHECKED_SECONDS


def test_one_user_takes_few_of_the_sockets(client: LiveClient, issuer):
    for _ in range(hub.MAX_OF_USER):
        client.watch("me", token=shared_token()).first("snapshot")
    assert client.watch("me", token=shared_token()).closed() == 4429
    assert client.watch("me", token=shared_token(OTHER_USER)).first("snapshot")


def test_keys_that_cannot_be_fetched_hold_up_nobody_else(client: LiveClient, key: str):
    with publishing(Signer()) as server:
        make_issuer(jwks_url=server.url)
        server.gate.clear()
        waiting = [client.watch("me", token=Signer().token()) for _ in range(3)]
        assert server.asked.wait(60)
        assert client.watch("me", key=key).first("snapshot")
        assert {watcher.close_code for watcher in waiting} == {None}, "it came before the fetch was given up"
        server.status = 500
        server.gate.set()
        assert {watcher.closed() for watcher in waiting} == {4503}


def test_a_page_of_an_allowed_origin_signs_in_by_message_and_never_by_cookie(transactional_db: None, issuer):
    session = session_of("viewer")
    with web_process(QUEUEOPS_CORS_ORIGINS=APP) as (address, _), live_client(address) as client:
        assert client.watch("me", origin=APP, token=shared_token()).first("snapshot")
        by_cookie = client.watch("ops", origin=APP, session=session)
        by_cookie.send({"ack": 0})
        assert by_cookie.closed() == 4401
        assert client.watch("ops", session=session).first("snapshot")
        for stranger in ("https://evil.example.org", f"{APP}.evil.example.org", "null", APP.replace("https", "http")):
            assert client.watch("me", origin=stranger).status == 403
