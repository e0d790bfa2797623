"""Headers that forbid browsers to do certain things with our pages, by path."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

Policy = dict[str, tuple[str, ...]]

# default-src does not stand in for frame-ancestors, base-uri and form-action.
STRICT: Policy = {
    "default-src": ("'none'",),
    "script-src": ("'self'",),
    "style-src": ("'self'",),
    "connect-src": ("'self'",),
    "img-src": ("'self'",),
    "font-src": ("'self'",),
    "frame-ancestors": ("'none'",),
    "base-uri": ("'none'",),
    "form-action": ("'self'",),
}
RELAXED: dict[str, Policy] = {
    # unfold's pages use Alpine, which evaluates code in attributes; unfold's themes are <style> elements.
    "/admin/": {"script-src": ("'self'", "'unsafe-eval'"), "style-src": ("'self'", "'unsafe-inline'")},
    # Swagger UI writes style attributes and draws its arrows from data: addresses.
    "/api/v1/docs/": {"style-src": ("'self'", "'unsafe-inline'"), "img-src": ("'self'", "data:")},
    # The site's theme draws its icons from data: addresses.
    "/docs/": {"img-src": ("'self'", "data:")},
}
UNUSED_FEATURES = (
    "accelerometer",
    "browsing-topics",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "usb",
)


def _header(policy: Policy) -> str:
    return "; ".join(f"{directive} {' '.join(sources)}" for directive, sources in policy.items())


STRICT_POLICY = _header(STRICT)
RELAXED_POLICIES = {path: _header({**STRICT, **own}) for path, own in RELAXED.items()}
PERMISSIONS_POLICY = ", ".join(f"{feature}=()" for feature in UNUSED_FEATURES)


def policy_of(path: str) -> str:
    """Return the Content-Security-Policy of an address."""
    return next((policy for start, policy in RELAXED_POLICIES.items() if path.startswith(start)), STRICT_POLICY)


class SecurityHeaders:
    """
    Middleware that puts these headers on every response.

    It is first in the list, so that static files, redirects and errors have the headers too. Other security headers are
    Django's own (SecurityMiddleware).
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        response.headers["Content-Security-Policy"] = policy_of(request.path)
        response.headers["Permissions-Policy"] = PERMISSIONS_POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response
