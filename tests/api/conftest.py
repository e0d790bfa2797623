"""An API client for each kind of caller."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from queueops.tenancy.models import ProducerKey
from tests.api import described
from tests.factories import make_allowance, make_project

ROOT = "/api/v1"
ALL_SCOPES = ["read", "submit", "operate", "decide", "limits", "usage", "audit"]
SPEC: dict[str, Any] = {"kind": "http.request", "payload": {"method": "GET", "url": "https://api.example.org/rows/7"}}


def address_of(path: str) -> str:
    """Below /api/v1, unless it is an alias."""
    return path if path.startswith("/functions/") else ROOT + path


class Api:
    """Calls below /api/v1, and below /functions, with one key, or with none."""

    def __init__(self, secret: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self.client = Client(headers=headers, raise_request_exception=False)

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(address_of(path), headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("POST", path, "" if body is None else json.dumps(body), **headers)

    def send(
        self, method: str, path: str, body: bytes | str, content_type: str = "application/json", **headers: str
    ) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.generic(method, address_of(path), body, content_type=content_type, headers=named)

    def lines(self, body: bytes | str, query: str = "", **headers: str) -> Any:
        return self.send("POST", f"/batches/{query}", body, "application/x-ndjson", **headers)


def key_for(project: str, *, scopes: list[str] = ALL_SCOPES, **fields: Any) -> str:
    return ProducerKey.issue(make_project(project), name="test", scopes=scopes, **fields)[1]


def error_of(response: Any, status: int) -> dict[str, Any]:
    """The error of a response in the one shape that all have."""
    assert response.status_code == status, response.content
    body = json.loads(response.content)
    assert set(body) == {"error"}
    assert set(body["error"]) <= {"code", "message", "fields", "details"}
    error: dict[str, Any] = body["error"]
    return error


@pytest.fixture(autouse=True)
def answers_are_as_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare every answer in these tests with the OpenAPI document."""
    ask = Client.request

    def asked(client: Client, **request: Any) -> Any:
        response = ask(client, **request)
        described.check(response)
        return response

    monkeypatch.setattr(Client, "request", asked)


@pytest.fixture
def api(db: None) -> Api:
    """A key of the project acme with every scope."""
    return Api(key_for("acme"))


@pytest.fixture
def key(db: None) -> Api:
    """A key of acme, whose users may use 1,000 tokens a month."""
    make_allowance("acme", unit="tokens")
    return Api(key_for("acme", scopes=["usage"]))
