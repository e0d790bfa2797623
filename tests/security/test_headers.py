"""The headers that tell browsers what our pages never do."""

from __future__ import annotations

import pytest
from django.test import Client, override_settings

from queueops.core.web.security_headers import policy_of
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S7")]

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
STRICT_PATHS = [
    "/",
    "/me/",
    "/api/v1/jobs/",
    "/api/v1/schema/",
    "/api/v1/nothing/",
    "/nothing",
    "/adminis/",
    "/static/jobs/admin.css",
    "/healthz",
]


def test_everything_outside_the_admin_has_the_strict_policy():
    for client in (Client(), signed_in("superuser")):
        policies = {path: client.get(path).headers["Content-Security-Policy"] for path in STRICT_PATHS}
        assert policies == dict.fromkeys(STRICT_PATHS, STRICT)


def test_the_admin_may_compile_attributes_and_have_inline_styles_and_no_more():
    relaxed = STRICT.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")
    relaxed = relaxed.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
    for path in ("/admin/", "/admin/login/", "/admin/jobs/job/", "/admin/nothing/"):
        assert signed_in("superuser").get(path).headers["Content-Security-Policy"] == relaxed, path


def test_the_page_of_the_api_may_have_inline_styles_and_drawn_arrows_and_no_more():
    docs = STRICT.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
    docs = docs.replace("img-src 'self'", "img-src 'self' data:")
    assert Client().get("/api/v1/docs/").headers["Content-Security-Policy"] == docs


def test_no_policy_lets_an_inline_script_run():
    for path in ("/", "/admin/", "/api/v1/docs/"):
        [scripts] = [part for part in policy_of(path).split("; ") if part.startswith("script-src")]
        assert "unsafe-inline" not in scripts
        assert "http" not in scripts


def test_every_answer_forbids_sniffing_framing_and_what_we_never_use():
    for path in ("/", "/admin/login/", "/api/v1/jobs/", "/nothing"):
        headers = Client().get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Referrer-Policy"] == "same-origin", path
        assert headers["X-Frame-Options"] == "DENY", path
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin", path
        assert "camera=()" in headers["Permissions-Policy"], path
        assert "geolocation=()" in headers["Permissions-Policy"], path


@override_settings(SECURE_HSTS_SECONDS=31_536_000, SECURE_HSTS_INCLUDE_SUBDOMAINS=True)
def test_over_tls_browsers_are_told_to_stay_with_it():
    answer = Client().get("/admin/login/", secure=True)
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"
    assert "Strict-Transport-Security" not in Client().get("/admin/login/").headers
