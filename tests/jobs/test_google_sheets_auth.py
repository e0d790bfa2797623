"""Access tokens: stored ones, and those a service account's key is exchanged for."""

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import cache
from typing import Any

import pytest
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from jobs.classify import failure_of, is_retryable
from jobs.handlers.errors import ProviderError
from jobs.handlers.google import auth as google_auth
from jobs.handlers.google.sheets_api import SCOPE
from tests.support.cases import every_case
from tests.support.http_server import serving
from tests.support.sheets_jobs import TOKEN, attempt, closing, credential_of

GET = "google_sheets.values_get"
EMAIL = "robot@acme.example"


@cache
def key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(private):
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class TokenServer:
    """Exchanges assertions for tokens as the provider's endpoint does, and says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.heads: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {}
        self.status = 200
        self.token = TOKEN
        self.url = ""
        self.ahead = 0  # seconds by which its clock differs from this machine's

    async def handle(self, request):
        form = await request.post()
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        head, claims, signature = str(form["assertion"]).split(".")
        try:
            key().public_key().verify(
                decoded(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.heads.append(json.loads(decoded(head)))
        self.asked.append(json.loads(decoded(claims)))
        if abs(self.asked[-1]["iat"] - time.time() - self.ahead) > 60:
            described = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
            told = {"error": "invalid_grant", "error_description": described}
            date = formatdate(time.time() + self.ahead, usegmt=True)
            return web.json_response(told, status=400, headers={"Date": date})
        answer = {"access_token": self.token, "expires_in": 3600, "token_type": "Bearer", **self.answer}
        return web.json_response(answer, status=self.status)

    @asynccontextmanager
    async def running(self):
        async with serving(self.handle) as url:
            self.url = url
            yield self


def account(url, base_url="", **fields):
    secret = {
        "type": "service_account",
        "client_email": EMAIL,
        "private_key": pem(key()),
        "private_key_id": "k1",
        "token_uri": f"{url}/token",
        **fields,
    }
    return credential_of(base_url, name="robot", **secret)


def exchange(server, scenario):
    async def run():
        async with server.running():
            return await closing(scenario(server.url))

    return asyncio.run(run())


def failing(credential):
    with pytest.raises(ProviderError) as failed:
        asyncio.run(closing(google_auth.access_token(credential, scope=SCOPE)))
    return failed.value


def test_a_stored_token_is_shown_as_it_is():
    token = asyncio.run(google_auth.access_token(credential_of("", access_token="ya29.x"), scope=SCOPE))
    assert token == "ya29.x"


def test_a_service_accounts_key_is_exchanged_for_a_token_that_the_api_takes(sandbox):
    server = TokenServer()

    async def scenario(url):
        return await attempt(GET, [{"range": "A1"}], account(url, sandbox.url))

    before = int(time.time())
    [done] = exchange(server, scenario)
    assert done.result["values"] == []
    [claims] = server.asked
    assert (claims["iss"], claims["scope"], claims["aud"]) == (EMAIL, SCOPE, f"{server.url}/token")
    assert before <= claims["iat"] <= time.time()
    assert claims["exp"] - claims["iat"] == 3600
    assert server.heads == [{"alg": "RS256", "typ": "JWT", "kid": "k1"}]
    assert [(call["project"], call["user"]) for call in sandbox.calls()] == [("p1", "u1")]


@pytest.mark.parametrize("ahead", [-7_200, 900])
def test_a_machine_whose_clock_is_wrong_dates_its_assertion_by_the_endpoints_clock(ahead):
    server = TokenServer()
    server.ahead = ahead

    async def scenario(url):
        return await google_auth.access_token(account(url), scope=SCOPE)

    assert exchange(server, scenario) == TOKEN
    assert len(server.asked) == 2
    assert server.asked[1]["exp"] - server.asked[1]["iat"] == 3600


def test_calls_that_need_a_token_at_once_share_one_exchange(sandbox):
    server = TokenServer()

    async def scenario(url):
        credential = account(url, sandbox.url)
        await asyncio.gather(*(attempt(GET, [{"range": "A1"}], credential) for _ in range(10)))
        await attempt(GET, [{"range": "A1"}], account(url, sandbox.url, client_email="other@acme.example"))

    exchange(server, scenario)
    assert sorted(claims["iss"] for claims in server.asked) == ["other@acme.example", EMAIL]


@pytest.mark.parametrize(
    ("expires_in", "passed", "exchanges"),
    [(3600, 3530, 1), (3600, 3541, 2), (90, 40, 1), (90, 46, 2), ("soon", 3530, 1), (-1, 3530, 1), (10**9, 3541, 2)],
)
def test_a_token_is_kept_until_a_minute_before_its_end(monkeypatch, expires_in, passed, exchanges):
    server = TokenServer()
    server.answer = {"expires_in": expires_in}
    clock = [1000.0]
    monkeypatch.setattr(google_auth, "monotonic", lambda: clock[0])

    async def scenario(url):
        credential = account(url)
        await google_auth.access_token(credential, scope=SCOPE)
        clock[0] += passed
        return await google_auth.access_token(credential, scope=SCOPE)

    assert exchange(server, scenario) == TOKEN
    assert len(server.asked) == exchanges


def test_a_kept_token_that_was_revoked_is_exchanged_once_more():
    server, shown = TokenServer(), []

    async def api(request):
        shown.append(request.headers["Authorization"])
        if len(shown) % 2:
            return web.json_response({"error": {"code": 401, "status": "UNAUTHENTICATED"}}, status=401)
        return web.json_response({"valueRanges": [{}]})

    async def scenario(url):
        async with serving(api) as base_url:
            return await attempt(GET, [{"range": "A1"}], account(url, base_url))

    [done] = exchange(server, scenario)
    assert done.result["values"] == []
    assert (len(shown), len(server.asked)) == (2, 2)


def test_a_stored_token_that_is_refused_is_not_shown_again(sandbox):
    shown = []

    async def api(request):
        shown.append(request.headers["Authorization"])
        return web.json_response({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "No."}}, status=401)

    async def scenario():
        async with serving(api) as url:
            return await closing(attempt(GET, [{"range": "A1"}], credential_of(url)))

    with pytest.raises(ProviderError) as failed:
        asyncio.run(scenario())
    assert (failed.value.status, failed.value.code, len(shown)) == (401, "unauthenticated", 1)


@every_case(
    "secret",
    [
        {"api_key": "x"},
        {"access_token": ""},
        {"access_token": 7},
        {"client_email": EMAIL},
        {"client_email": EMAIL, "private_key": "not a key"},
        {"client_email": EMAIL, "private_key": pem(ec.generate_private_key(ec.SECP256R1()))},
    ],
)
def test_a_secret_of_another_form_is_said_to_be_and_not_shown(secret):
    error = failing(credential_of("", **secret))
    assert (error.code, error.outcome) == ("credential_unusable", "refused")
    assert "google-sheets" in error.message
    assert str(secret.get("private_key")) not in error.message
    assert not is_retryable(failure_of(error), repeatable=True)


def refused(status, answer):
    server = TokenServer()
    server.status, server.answer = status, answer

    async def scenario(url):
        with pytest.raises(ProviderError) as failed:
            await google_auth.access_token(account(url), scope=SCOPE)
        return failed.value

    return exchange(server, scenario)


def test_an_account_that_is_gone_ends_the_job_and_says_why():
    error = refused(400, {"error": "invalid_grant", "error_description": "Invalid grant: account not found"})
    assert (error.code, error.outcome) == ("credential_unusable", "refused")
    assert "account not found" in error.message
    assert refused(200, {"access_token": None}).code == "credential_unusable"


@every_case("status", [429, 500, 503])
def test_an_endpoint_that_fails_is_tried_again_for_any_work(status):
    error = refused(status, {})
    assert (error.code, error.outcome) == ("token_endpoint_failed", "not_sent")
    assert is_retryable(failure_of(error), repeatable=False)


def test_nothing_is_sent_to_the_api_where_no_token_can_be_had(sandbox):
    credential = account("http://127.0.0.1:9", sandbox.url)
    with pytest.raises(ProviderError) as failed:
        asyncio.run(closing(attempt(GET, [{"range": "A1"}], credential)))
    assert failed.value.outcome == "not_sent"
    assert sandbox.calls() == []


def test_tokens_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(google_auth, "MAX_TOKENS", 2)
    server = TokenServer()

    async def scenario(url):
        for number in (1, 2, 3, 1):
            await google_auth.access_token(account(url, client_email=f"{number}@acme.example"), scope=SCOPE)

    exchange(server, scenario)
    assert len(server.asked) == 4
