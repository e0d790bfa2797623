"""What pages elsewhere may do, as a browser sees it: through the real web process."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from itertools import product

import pytest

from tests.dashboards.live.conftest import web_process
from tests.support.issuers import make_issuer, shared_token

APP, EVIL = "https://app.example.org", "https://evil.example.org"
ASKED = "authorization, content-type, idempotency-key, x-project"


@pytest.fixture(scope="module")
def address(django_db_setup: None, django_db_blocker: object) -> Iterator[str]:
    with web_process(QUEUEOPS_CORS_ORIGINS=f"{APP}, http://localhost:5173") as (address, _):
        yield address


def ask(method: str, url: str, *, origin: str, **headers: str) -> tuple[int, Message]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers={"Origin": origin, **named})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 - our own address
            return response.status, response.headers
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers


def preflight(url: str, *, origin: str, method: str = "POST") -> Message:
    _, headers = ask(
        "OPTIONS",
        url,
        origin=origin,
        Access_Control_Request_Method=method,
        Access_Control_Request_Headers=ASKED,
    )
    return headers


def test_a_preflight_of_an_allowed_origin_is_answered(address):
    paths = ("/api/v1/jobs/", "/api/v1/usage/reserve", "/functions/reserve-usage", "/api/v1/nothing-here/")
    for path, origin in product(paths, (APP, "http://localhost:5173")):
        headers = preflight(address + path, origin=origin)
        assert headers["Access-Control-Allow-Origin"] == origin
        assert {"GET", "POST", "PATCH", "DELETE"} <= set(headers["Access-Control-Allow-Methods"].split(", "))
        assert set(ASKED.split(", ")) <= set(headers["Access-Control-Allow-Headers"].split(", "))
        assert headers["Access-Control-Allow-Credentials"] is None
        assert "origin" in headers["Vary"].lower()


STRANGERS = [EVIL, "null", APP.replace("https", "http"), f"{APP}:8443", f"{APP}.evil.example.org", APP.upper() + "x"]
CLOSED = ["/", "/me/", "/admin/login/", "/live/ops/", "/healthz", "/apiary/", "/static/dashboards/limits.css"]


def test_no_other_origin_is_answered_and_nothing_but_the_api_is_opened(address):
    asked = [*(("/api/v1/jobs/", origin) for origin in STRANGERS), *((path, APP) for path in CLOSED)]
    for path, origin in asked:
        assert preflight(address + path, origin=origin)["Access-Control-Allow-Origin"] is None, (path, origin)
        assert ask("GET", address + path, origin=origin)[1]["Access-Control-Allow-Origin"] is None, (path, origin)


@pytest.mark.django_db(transaction=True)
def test_an_answer_can_be_read_with_the_headers_that_matter_and_so_can_a_refusal(address):
    make_issuer()
    for token, status in ((shared_token(), 200), ("a.b.c", 401)):
        answered, headers = ask("GET", f"{address}/api/v1/jobs/", origin=APP, Authorization=f"Bearer {token}")
        assert answered == status
        assert headers["Access-Control-Allow-Origin"] == APP
        assert headers["Access-Control-Allow-Credentials"] is None
        exposed = set(headers["Access-Control-Expose-Headers"].split(", "))
        assert {"Retry-After", "Idempotency-Replayed"} <= exposed
