"""Whether a websocket comes from our own pages: browsers let any page open one, and send our cookie along."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

DEFAULT_PORTS = {"http": "80", "https": "443"}


class Origin(Enum):
    OURS = "ours"
    NONE = "none"  # not sent by a browser: cookies are ignored
    APP = "app"  # a page of QUEUEOPS_CORS_ORIGINS: cookies are ignored
    FOREIGN = "foreign"


def origin_of(scope: Mapping[str, Any]) -> Origin:
    """Compare Origin with Host as Django's CSRF protection does; the host must be in ALLOWED_HOSTS, too."""
    headers = headers_of(scope)
    host = headers.get("host", "").lower()
    domain, _ = split_domain_port(host)
    if not validate_host(domain, settings.ALLOWED_HOSTS):
        return Origin.FOREIGN
    origin = headers.get("origin")
    if origin is None:
        return Origin.NONE
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return Origin.OURS
    if origin in settings.CORS_ALLOWED_ORIGINS:
        return Origin.APP
    try:
        parts = urlsplit(origin.lower())
        port = str(parts.port or DEFAULT_PORTS.get(parts.scheme, ""))
    except ValueError:
        return Origin.FOREIGN
    schemes = {"https"} if settings.QUEUEOPS.tls else {"http", "https"}
    _, own_port = split_domain_port(host)
    is_same = parts.scheme in schemes and _bare(parts.hostname) == _bare(domain)
    return Origin.OURS if is_same and port == (own_port or DEFAULT_PORTS.get(parts.scheme)) else Origin.FOREIGN


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}


def cookies_of(scope: Mapping[str, Any]) -> dict[str, str]:
    try:
        found = SimpleCookie(headers_of(scope).get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}


def _bare(host: str | None) -> str:
    return (host or "").strip("[]")
