"""A provider of single sign-on that answers without end, too slowly, or by leading elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import RequestFactory
from requests import RequestException

from queueops.access.services import provider, provider_calls
from queueops.access.services.provider import ProviderUnreachable
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundClient

pytestmark = pytest.mark.proves("S9")

BLOCK = b" " * 1_000_000
BLOCKS = 400
CALLS = ("discovery", "jwks", "token", "userinfo")


class BadProvider:
    """
    Attributes:
        address: Its own.
        faults: How it answers each of CALLS: `endless`, `drip`, or an address to go to.
        sent: Bytes of endless answers.
        asked: Paths, in order.
    """

    def __init__(self) -> None:
        self.address = ""
        self.faults: dict[str, str] = {}
        self.sent = 0
        self.asked: list[str] = []
        self.stops = threading.Event()

    def answer(self, what: str) -> dict[str, Any]:
        if what == "discovery":
            names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
            found = {name: f"{self.address}/{path}" for name, path in names.items()}
            return {"issuer": self.address, "userinfo_endpoint": f"{self.address}/userinfo", **found}
        answers: dict[str, dict[str, Any]] = {
            "jwks": {"keys": []},
            "token": {"access_token": "a", "token_type": "Bearer"},
        }
        return answers.get(what, {"sub": "ann"})


@contextmanager
def serving() -> Iterator[BadProvider]:
    bad = BadProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bad.asked.append(self.path)
            what = "discovery" if self.path.startswith("/.well-known/") else self.path.strip("/")
            fault = bad.faults.get(what, "")
            with suppress(OSError):  # who asked had enough
                self.reply(fault, json.dumps(bad.answer(what)).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def reply(self, fault: str, body: bytes) -> None:
            self.send_response(307 if "://" in fault else 200)
            self.send_header("Content-Type", "application/json")
            if "://" in fault:
                self.send_header("Location", fault)
            if not fault:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if fault == "endless":
                for _ in range(BLOCKS):
                    self.wfile.write(BLOCK)
                    bad.sent += len(BLOCK)
            while fault == "drip" and not bad.stops.wait(0.01):
                self.wfile.write(b" ")
                self.wfile.flush()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    bad.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield bad
    finally:
        bad.stops.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def bad(configure: Any) -> Iterator[BadProvider]:
    with serving() as provided:
        configure(oidc_issuer=provided.address, oidc_client_id="queueops", oidc_roles=(("ops", "operator"),))
        yield provided


def call(what: str) -> None:
    """Make one of CALLS as signing in does. Raises what it raises."""
    provider._client.cache_clear()
    provider.discovered()
    client = provider._client()
    if what == "jwks":
        client.fetch_jwk_set(force=True)
    elif what == "token":
        client.fetch_access_token(code="c", redirect_uri="http://testserver/")
    elif what == "userinfo":
        client.userinfo(token={"access_token": "a", "token_type": "Bearer"})


REFUSED = (ProviderUnreachable, RequestException)


def test_a_provider_that_behaves_is_heard(bad: BadProvider):
    for what in CALLS:
        call(what)
    assert set(bad.asked) == {"/.well-known/openid-configuration", "/jwks", "/token", "/userinfo"}
    bad.faults = {"jwks": f"{bad.address}/userinfo"}
    call("jwks")
    assert bad.asked[-1] == "/userinfo", "a redirect of a read is followed where it may lead"


def test_no_answer_is_read_beyond_its_bound_nor_longer_than_its_time(bad: BadProvider, monkeypatch):
    for what in CALLS:
        bad.faults, bad.sent = {what: "endless"}, 0
        with pytest.raises(REFUSED):
            call(what)
        assert bad.sent < BLOCKS * len(BLOCK) // 4, what
    monkeypatch.setattr(provider_calls, "PROVIDER_SECONDS", 0.2)
    for what in CALLS:
        bad.faults = {what: "drip"}
        with pytest.raises(REFUSED):
            call(what)


def test_no_call_goes_to_an_inner_address(bad: BadProvider, configure):
    with serving() as inner:
        for target in ("http://169.254.169.254/latest/", "http://10.0.0.1/", "http://[fd00:ec2::254]/"):
            for what in ("discovery", "jwks", "userinfo"):
                bad.faults = {what: target}
                with pytest.raises(REFUSED):
                    call(what)
        bad.faults = {"token": f"{inner.address}/token"}
        call("token")  # the redirect is its answer: a code and a secret are sent to nobody else
        configure(debug=False, allow_loopback_targets=False)
        bad.faults = {}
        with pytest.raises(ProviderUnreachable):
            call("discovery")
        assert inner.asked == []


def test_only_the_issuers_host_and_what_the_settings_name_may_be_private(configure, monkeypatch):
    policies = []

    async def noted(self: Any, method: str, url: str, *, policy: Any, **_: Any) -> Any:
        policies.append(policy)
        raise QueueOpsError("noted")

    monkeypatch.setattr(OutboundClient, "send", noted)
    configure(oidc_issuer="https://sso.example.org/realms/staff", oidc_private_targets=("10.1.0.0/16",), debug=False)
    provider._client.cache_clear()
    with pytest.raises(ProviderUnreachable):
        provider.sign_in_address(RequestFactory().get("/"), "http://testserver/")
    [policy] = policies
    allowed = [policy.allows(*one) for one in (("sso.example.org", "10.9.0.1"), ("keys.example.org", "10.1.0.1"))]
    assert allowed == [True, True]
    assert not policy.allows("keys.example.org", "10.9.0.1")
    assert not policy.allows("sso.example.org", "169.254.169.254")
