"""Finds the address from which a request came."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """
    Return the peer's address; behind the proxy of QUEUEOPS_TLS_PROXY, the address that the proxy names.

    Only the last entry of X-Forwarded-For is the proxy's own; the client may have sent any entries before it.
    """
    return address_of(request.META.get("REMOTE_ADDR"), str(request.headers.get("X-Forwarded-For", "")))


def address_in(scope: Mapping[str, Any]) -> str:
    """Do what `client_address` does, for an ASGI connection; header names in lower case."""
    client = scope.get("client")
    forwarded = ",".join(value.decode("latin1") for name, value in scope["headers"] if name == b"x-forwarded-for")
    return address_of(client[0] if client else None, forwarded)


def address_of(peer: str | None, forwarded_for: str) -> str:
    """Do what `client_address` does, with the peer's address and the header `X-Forwarded-For` of a request."""
    if settings.QUEUEOPS.tls_proxy:
        nearest = forwarded_for.rpartition(",")[2].strip()
        if nearest:
            return nearest[:64]
    return str(peer or "unknown")
