"""
Browsers in which somebody has signed in before. Other people's wrong passwords do not lock the account for these
browsers.

Such a browser gets a signed cookie that names the account. Its attempts have a count of their own, and lock this
browser alone. Somebody who steals the cookie has only as many guesses as from one address. Somebody without the cookie
can lock the account only for other browsers.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse

COOKIE = "queueops_known_browser"
SALT = "queueops.access.known_browser"
KNOWN_FOR_SECONDS = 180 * 86_400


def remember(response: HttpResponse, request: HttpRequest, user: User) -> HttpResponse:
    """Set the cookie that shows that this person has signed in with the browser."""
    told = {"user": user.pk, "browser": known_to(request, user.get_username()) or secrets.token_hex(8)}
    response.set_cookie(
        COOKIE,
        signing.dumps(told, salt=SALT),
        max_age=KNOWN_FOR_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def known_to(request: HttpRequest | None, username: str) -> str:
    """Return the browser's id if `username` has signed in with it; else empty."""
    text = request.COOKIES.get(COOKIE, "") if request is not None else ""
    if not text:
        return ""
    try:
        told: Any = signing.loads(text, salt=SALT, max_age=KNOWN_FOR_SECONDS)
        owner, browser = told["user"], str(told["browser"])
    except (signing.BadSignature, KeyError, TypeError, ValueError):
        return ""
    return browser if User.objects.filter(pk=owner, username=username).exists() else ""
