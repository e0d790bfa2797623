"""Quotas that somebody else uses too, keys with quotas of their own, and keys that are revoked."""

import pytest

from sandbox.quotas.book import Quota, QuotaBook, QuotaCost
from sandbox.quotas.windows import WindowRule
from tests.sandbox.providers import SheetsClient, ask, complete, generate, message

AT = 1_000_000_000.0  # a multiple of the minute below
MINUTE = 10.0


def cost(mode, *, hidden=0.3, capacity=100, amount=1):
    rule = WindowRule(mode, MINUTE)
    return QuotaCost(Quota("llm", "TPM", "tokens", capacity, rule, hidden), (("project", "p1"),), amount)


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        ("sliding", [70, 69, 69]),
        ("aligned", [100, 84, 70]),  # a window that resets fills with time: 15, then 29
        ("anchored", [100, 84, 70]),
    ],
)
def test_a_hidden_consumer_takes_its_share_of_what_is_left(mode, left):
    book, found = QuotaBook(), []
    for moment in (0, 5, 9.9):
        found.append(book.room(cost(mode), AT + moment)[0])
        if moment == 0:
            book.charge([cost(mode)], AT)
    assert found == left


@pytest.mark.parametrize(("mode", "wait"), [("sliding", 5.0), ("aligned", 5.0), ("anchored", 5.0)])
def test_it_is_the_reason_of_a_refusal_until_there_is_room(mode, wait):
    book = QuotaBook()
    assert book.charge([cost(mode, amount=70)], AT) == ()
    [refused] = book.charge([cost(mode, amount=20)], AT + 5)
    assert refused.wait_seconds == pytest.approx(wait)
    assert refused.used == (100 if mode == "sliding" else 85)
    assert book.charge([cost(mode, amount=20)], AT + 5 + wait) == ()


def test_it_never_takes_what_others_have_used():
    book = QuotaBook()
    book.charge([cost("aligned", amount=90)], AT)
    assert book.room(cost("aligned"), AT + 9)[0] == 0


@pytest.mark.parametrize("service", ["openai", "anthropic"])
def test_only_the_headers_tell_of_a_hidden_consumer(sandbox, service):
    knobs = {"window_mode": "sliding", "window_seconds": 3600, "requests_per_minute": 10, "hidden_share": 0.3}
    sandbox.turn(**{service: knobs})
    call = complete if service == "openai" else message
    name = {"openai": "x-ratelimit-remaining-requests", "anthropic": "anthropic-ratelimit-requests-remaining"}[service]
    answers = [call(sandbox.url) for _ in range(8)]
    assert [answer.status for answer in answers] == [200] * 7 + [429]
    assert [answer.headers[name] for answer in answers[:2]] == ["6", "5"]
    assert {quota["quota"]: quota["used_now"] for quota in sandbox.usage(service)}[
        "RPM" if service == "anthropic" else "RequestsPerMinute"
    ] == 7


@pytest.mark.parametrize("call", [complete, generate, message])
def test_keys_can_have_quotas_of_their_own(sandbox, call):
    own = {"quotas_per": "key", "window_mode": "sliding", "window_seconds": 3600, "requests_per_minute": 2}
    sandbox.turn(openai=own, gemini=own, anthropic=own)
    name = "token" if call is complete else "key"
    for key in ("project:p1/user:k1", "project:p1/user:k2", "another-key"):
        statuses = [call(sandbox.url, **{name: key}).status for _ in range(3)]
        assert statuses == [200, 200, 429]


def test_a_revoked_key_is_answered_401_until_it_is_restored(sandbox):
    assert sandbox.revoke("project:p1") == ["project:p1"]
    answers = [complete(sandbox.url), generate(sandbox.url), message(sandbox.url)]
    assert [answer.status for answer in answers] == [401] * 3
    assert answers[0].error()["code"] == "invalid_api_key"
    assert answers[2].error()["type"] == "authentication_error"
    assert {call["cause"] for call in sandbox.calls()} == {"revoked_key"}
    assert complete(sandbox.url, token="project:p2").status == 200
    assert ask(f"{sandbox.url}/_sandbox/revoked_keys?key=project:p1", method="DELETE").json()["revoked_keys"] == []
    assert complete(sandbox.url).status == 200


def test_keys_of_the_other_providers_can_be_revoked_too(sandbox):
    sheets = SheetsClient(sandbox.url)
    sandbox.revoke(sheets.token)
    assert sheets.get("A1").status == 401
    assert ask(f"{sandbox.url}/plain/echo", method="POST", body={}, token=sheets.token).status == 401
    assert ask(f"{sandbox.url}/_sandbox/revoked_keys", method="POST", body={}).status == 400
    sandbox.reset()
    assert sheets.get("A1").status == 200
