"""Published keys: rotation, outages, cool-down, one fetch for all, and what is kept of an answer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.db import connection, connections
from django.db.models.functions import Now
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from queueops.core.outbound.client import OutboundFailed
from queueops.core.outbound.policy import OutboundRefused
from queueops.tenancy.callers import issuer_keys
from queueops.tenancy.callers.issuer_keys import (
    COOL_DOWN_SECONDS,
    FRESH_SECONDS,
    MAX_JWKS_BYTES,
    SEATS,
    USABLE_SECONDS,
    BadKeySet,
    IssuerKeysUnavailable,
    fetch_keys,
    read_key_set,
)
from queueops.tenancy.callers.tokens import InvalidToken, verify_token
from queueops.tenancy.models import Issuer
from tests.support.issuers import USER, KeyServer, Signer, make_issuer, publishing
from tests.support.processes import wait_for
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db

OLD, NEW = Signer("old"), Signer("new")


@pytest.fixture
def server(db: None) -> Any:
    with publishing(OLD) as server:
        make_issuer(jwks_url=server.url)
        yield server


def pass_time(seconds: float) -> None:
    """As if what happened to the issuer's keys had happened so much earlier."""
    row = Issuer.objects.get()
    for name in ("jwks_fetched_at", "jwks_tried_at"):
        if moment := getattr(row, name):
            Issuer.objects.update(**{name: moment - timedelta(seconds=seconds)})


def is_accepted(token: str) -> bool:
    try:
        return verify_token(token).user_id == USER
    except InvalidToken as refused:
        return bool(refused.details["reason"] != "unknown_key")


def break_down(server: KeyServer) -> None:
    server.status, server.body = 500, b"out of order"


def test_keys_are_fetched_once_and_kept(server):
    for _ in range(5):
        assert is_accepted(OLD.token())
    assert server.fetches == 1


def test_a_new_key_is_taken_without_a_restart(server):
    assert is_accepted(OLD.token())
    server.keys = [OLD.jwk, NEW.jwk]
    pass_time(COOL_DOWN_SECONDS + 1)
    assert is_accepted(NEW.token())
    assert is_accepted(OLD.token())
    assert server.fetches == 2


def test_a_withdrawn_key_is_refused_when_the_keys_are_no_longer_fresh(server):
    assert is_accepted(OLD.token())
    server.keys = [NEW.jwk]
    pass_time(FRESH_SECONDS - 5)
    assert is_accepted(OLD.token())
    pass_time(6)
    assert not is_accepted(OLD.token())
    assert is_accepted(NEW.token())


def test_a_stream_of_unknown_names_costs_one_fetch_in_a_cool_down(server):
    assert is_accepted(OLD.token())
    for round_ in range(1, 4):
        pass_time(COOL_DOWN_SECONDS + 1)
        for number in range(10):
            assert not is_accepted(Signer(f"made-up-{number}").token())
        assert server.fetches == 1 + round_


def test_keys_stay_in_use_while_the_endpoint_is_down_but_not_for_ever(server):
    assert is_accepted(OLD.token())
    break_down(server)
    pass_time(FRESH_SECONDS + 1)
    for _ in range(3):
        assert is_accepted(OLD.token())
    assert server.fetches == 2  # tried again, once in the cool-down
    assert Issuer.objects.get().jwks_error == "The address answered with status 500."
    pass_time(USABLE_SECONDS)
    with pytest.raises(IssuerKeysUnavailable):
        verify_token(OLD.token())
    server.status, server.body = 200, None
    pass_time(COOL_DOWN_SECONDS + 1)
    assert is_accepted(OLD.token())
    assert Issuer.objects.get().jwks_error == ""


def test_without_any_key_the_answer_is_to_come_back_and_not_that_the_token_is_bad(server):
    break_down(server)
    for _ in range(3):
        with pytest.raises(IssuerKeysUnavailable) as refused:
            verify_token(OLD.token())
    assert refused.value.details["retry_after"] > 0
    assert server.fetches == 1


def test_a_token_that_names_no_key_means_the_only_one(server):
    nameless = Signer(None)
    server.keys = [nameless.jwk]
    assert is_accepted(nameless.token())
    server.keys = [nameless.jwk, OLD.jwk]
    pass_time(FRESH_SECONDS + 1)
    assert not is_accepted(nameless.token())


def test_keys_of_an_address_that_was_replaced_meanwhile_do_not_come_back(server):
    with publishing(NEW) as other:
        server.gate.clear()
        with ThreadPoolExecutor(1) as threads:
            fetching = threads.submit(issuer_keys._fetch, server.url)
            assert server.asked.wait(10)
            Issuer.objects.update(jwks_url=other.url)
            server.gate.set()
            fetching.result(10)
        fetch_keys(Issuer.objects.get().pk, server.url)
        assert Issuer.objects.get().jwks == []


@pytest.mark.django_db(transaction=True)
def test_requests_at_once_fetch_once_and_all_are_answered():
    with publishing(OLD) as server:
        make_issuer(jwks_url=server.url)
        token = OLD.token()
        assert run_together(8, lambda _: verify_token(token).user_id) == [USER] * 8
        assert server.fetches == 1


@pytest.mark.django_db(transaction=True)
def test_a_slow_endpoint_keeps_waiting_only_those_who_have_no_key():
    with publishing(OLD) as server:
        make_issuer(jwks_url=server.url)
        verify_token(OLD.token())
        pass_time(FRESH_SECONDS + 1)
        server.asked.clear()
        server.gate.clear()
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(outcome, OLD.token())
            assert server.asked.wait(10)
            assert verify_token(OLD.token()).user_id == USER  # while the fetch hangs
            assert not first.done()
            server.gate.set()
            assert first.result(10) == "accepted"


def test_a_fetch_that_another_process_has_begun_is_waited_for_by_coming_back(server):
    """Or a genuine token would be called bad because its key is on the way."""
    assert is_accepted(OLD.token())
    pass_time(COOL_DOWN_SECONDS + 1)
    Issuer.objects.update(jwks_tried_at=Now())
    with pytest.raises(IssuerKeysUnavailable):
        verify_token(NEW.token())
    assert is_accepted(OLD.token())
    assert server.fetches == 1


@pytest.mark.django_db(transaction=True)
def test_a_hanging_endpoint_holds_a_few_requests_and_sends_the_others_away():
    with publishing(OLD) as server, ThreadPoolExecutor(20) as threads:
        make_issuer(jwks_url=server.url)
        server.gate.clear()
        asking = [threads.submit(outcome, OLD.token()) for _ in range(20)]
        sent_away = list(islice(as_completed(asking, timeout=10), 20 - SEATS))
        assert [future.result() for future in sent_away] == ["come back"] * (20 - SEATS)
        server.gate.set()
        assert sorted(future.result() for future in asking) == ["accepted"] * SEATS + ["come back"] * (20 - SEATS)
        assert server.fetches == 1


@pytest.mark.django_db(transaction=True)
def test_whoever_waits_for_keys_keeps_no_connection():
    with publishing(OLD) as server, ThreadPoolExecutor(1) as threads:
        make_issuer(jwks_url=server.url)
        server.gate.clear()
        waiting = threads.submit(outcome, OLD.token())
        assert server.asked.wait(10)
        wait_for(lambda: others_connected() == 0, what="the end of its connection")  # of which the server hears later
        assert not waiting.done()
        server.gate.set()
        assert waiting.result(10) == "accepted"


def outcome(token: str) -> str:
    try:
        verify_token(token)
    except IssuerKeysUnavailable:
        return "come back"
    finally:
        connections.close_all()
    return "accepted"


def others_connected() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


def published(key: Any, **fields: Any) -> dict[str, Any]:
    kind: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": "k", **fields}


def rsa_key(bits: int) -> Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def test_only_keys_that_may_sign_tokens_are_kept():
    good = published(ec.generate_private_key(ec.SECP256R1()))
    others = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"},
        published(rsa_key(1024)),
        published(ec.generate_private_key(ec.SECP384R1())),
        published(ec.generate_private_key(ec.SECP256K1())),
        published(ec.generate_private_key(ec.SECP256R1()), use="enc"),
        published(rsa_key(2048), alg="RS512"),
        published(rsa_key(2048), alg="RSA-OAEP"),
        published(rsa_key(2048), n="!"),
        published(rsa_key(2048), kid=7),
        published(rsa_key(2048), kid="\0"),
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {"kty": None},
        {},
        "RSA",
        None,
    ]
    for jwk in others:
        assert len(read_key_set(json.dumps({"keys": [jwk, good]}).encode())) == 1, jwk
        with pytest.raises(BadKeySet):
            read_key_set(json.dumps({"keys": [jwk]}).encode())


def test_the_private_part_of_a_key_that_was_published_by_mistake_is_not_kept():
    key = rsa_key(2048)
    whole = {**RSAAlgorithm.to_jwk(key, as_dict=True), "kid": "k"}
    assert "d" in whole
    [kept] = read_key_set(json.dumps({"keys": [whole]}).encode())
    assert set(kept) == {"kty", "kid", "n", "e"}


def test_an_answer_that_is_no_key_set_is_called_so():
    for body in (b"", b"[]", b'{"keys": 7}', b'{"keys": null}', b"{}", b"\xff", b"[" * 100_000):
        with pytest.raises(BadKeySet):
            read_key_set(body)


def test_an_endless_answer_is_cut_off(server):
    server.body = b" " * (MAX_JWKS_BYTES + 1)
    with pytest.raises(BadKeySet, match="more than 256,000 bytes"):
        fetch_keys(Issuer.objects.get().pk, server.url)


def test_keys_are_fetched_from_nowhere_private(db):
    issuer = make_issuer(jwks_url="https://example.org/")
    for url in ("http://169.254.169.254/jwks", "http://10.0.0.1/jwks", "http://100.100.100.200/", "ftp://example.org/"):
        Issuer.objects.update(jwks_url=url, jwks_tried_at=None)
        with pytest.raises(OutboundRefused):
            fetch_keys(issuer.pk, url)
        with pytest.raises(IssuerKeysUnavailable):
            verify_token(OLD.token())


def test_a_redirect_leads_to_nothing_private(server):
    server.status, server.location = 302, "http://169.254.169.254/latest/meta-data"
    with pytest.raises(OutboundRefused):
        fetch_keys(Issuer.objects.get().pk, server.url)


def test_a_dead_address_is_told_of_in_the_row(db):
    issuer = make_issuer(jwks_url="http://127.0.0.1:9/jwks")
    with pytest.raises(OutboundFailed):
        fetch_keys(issuer.pk, issuer.jwks_url)
    assert Issuer.objects.get().jwks_error == "127.0.0.1: no connection."
