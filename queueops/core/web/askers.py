"""Who asks, as far as it can be known before a request is carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.http import parse_cookie

from .client_address import address_of

ASKER = "queueops.asker"  # in a request's META: whoever authenticates it says who it was
MOST_ASKERS_KNOWN = 10_000

_CREDENTIALS = (b"authorization", b"x-api-key")


class Askers:
    """
    Names by the credentials that were shown with a request.

    Only for turns, never for access: a credential is told apart from made-up ones by having been accepted before, and
    until then counts as its address.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def name(self, scope: Mapping[str, Any]) -> str:
        known = self._names.get(_digest(scope["headers"]))
        return known or f"address:{_address(scope)}"

    def learn(self, scope: Mapping[str, Any], name: str | None) -> None:
        """Remember whose credentials these are; None: whose they are was not found out."""
        digest = _digest(scope["headers"])
        if name is None or not digest:
            return
        self._names.pop(digest, None)
        self._names[digest] = name
        if len(self._names) > MOST_ASKERS_KNOWN:
            del self._names[next(iter(self._names))]


def cost_of(scope: Mapping[str, Any]) -> float:
    """Return what a request costs, in small ones: a list costs as its page is long."""
    _, found, rest = scope["query_string"].partition(b"page_size=")
    rows = rest.partition(b"&")[0][:9]
    return 1 + int(rows) / 50 if found and rows.isdigit() else 1


def _digest(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    for name, value in headers:
        shown = value if name in _CREDENTIALS else _session(value) if name == b"cookie" else b""
        if shown:
            return hashlib.sha256(shown).digest()
    return b""


def _session(cookies: bytes) -> bytes:
    return parse_cookie(cookies.decode("latin1")).get(settings.SESSION_COOKIE_NAME, "").encode("latin1")


def _address(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    forwarded = ",".join(value.decode("latin1") for name, value in scope["headers"] if name == b"x-forwarded-for")
    return address_of(client[0] if client else None, forwarded)
