"""From which address a request came."""

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """
    Return the peer's address; behind the proxy of QUEUEOPS_TLS_PROXY, whom the proxy says it serves.

    Only the last entry of X-Forwarded-For is the proxy's own; those before it are whatever the client sent.
    """
    if settings.QUEUEOPS.tls_proxy:
        nearest = str(request.headers.get("X-Forwarded-For", "")).rpartition(",")[2].strip()
        if nearest:
            return nearest[:64]
    return str(request.META.get("REMOTE_ADDR") or "unknown")
