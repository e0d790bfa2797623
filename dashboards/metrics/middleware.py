"""`/healthz`, `/readyz` and `/metrics`: for probes and scrapers, which do not sign in and call by IP address."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from ipaddress import ip_address

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from psycopg import Error as DriverError

from queueops.core.errors import error_body
from queueops.core.version import VERSION

from .exposition import exposition
from .probes import ReadinessProbe

logger = logging.getLogger(__name__)

PROBES = ("/healthz", "/readyz", "/metrics")
FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP")


class Monitoring:
    """
    Answers before any other middleware handles the request.

    Probes name a container's address as their host and come without TLS. The host check would refuse them, and a
    redirect would send them elsewhere. No session is opened, and nothing is read but the token.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._probe = ReadinessProbe()
        answers: tuple[Callable[[HttpRequest], HttpResponse], ...] = (self._healthz, self._readyz, self._metrics)
        self._pages = dict(zip(PROBES, answers, strict=True))

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        page = self._pages.get(request.path_info)
        if page is None:
            return self._get_response(request)
        if request.method not in {"GET", "HEAD"}:
            response: HttpResponse = JsonResponse(
                error_body("method_not_allowed", "Only GET."), status=405, headers={"Allow": "GET, HEAD"}
            )
        else:
            response = page(request)
        response["Cache-Control"] = "no-store"
        return response

    def _healthz(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({"status": "alive", "version": VERSION})

    def _readyz(self, request: HttpRequest) -> HttpResponse:
        found = self._probe.ask()
        status = "ready" if found.is_ready else "not_ready"
        body: dict[str, object] = {"status": status, "reasons": found.reasons, "executors": found.executors}
        if found.warnings:
            body["warnings"] = found.warnings
        return JsonResponse(body, status=200 if found.is_ready else 503)

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        if not may_read_metrics(request):
            body = error_body("metrics_refused", "Send the token: `Authorization: Bearer …` (QUEUEOPS_METRICS_TOKEN).")
            return JsonResponse(body, status=401, headers={"WWW-Authenticate": "Bearer"})
        try:
            return HttpResponse(exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
        except (DatabaseError, DriverError):
            logger.warning("metrics cannot be read", exc_info=True)
            body = error_body("database_unavailable", "The database does not answer.")
            return JsonResponse(body, status=503)


def may_read_metrics(request: HttpRequest) -> bool:
    """
    Whether the request shows QUEUEOPS_METRICS_TOKEN. If no token is set, whether the request comes from this machine
    without a proxy.
    """
    expected = settings.QUEUEOPS.metrics_token
    if expected:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        is_same = hmac.compare_digest(given.strip().encode(errors="replace"), expected.encode())
        return scheme.lower() == "bearer" and is_same
    if any(request.META.get(header) for header in FORWARDED):
        return False
    try:
        return ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
