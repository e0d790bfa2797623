"""Sign-ins after the password and before the second factor. Until the second factor is shown nobody is signed in."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib.auth import load_backend
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

KEY = "pending_sign_in"
LASTS_SECONDS = 600


def begin(request: HttpRequest, user: User, goes_on_to: str) -> None:
    request.session.flush()  # signs out whoever was signed in; a session id that an attacker planted becomes useless
    request.session[KEY] = {
        "user": user.pk,
        "password": user.get_session_auth_hash(),
        "at": int(time.time()),
        "goes_on_to": goes_on_to,
    }


def user_of(request: HttpRequest) -> User | None:
    """Return who is about to sign in; None: nobody, or it took too long, or the password changed meanwhile."""
    pending: dict[str, Any] = request.session.get(KEY) or {}
    if not pending or time.time() - pending["at"] >= LASTS_SECONDS:
        return None
    user = load_backend(settings.AUTHENTICATION_BACKENDS[0]).get_user(pending["user"])
    if not isinstance(user, User) or not constant_time_compare(pending["password"], user.get_session_auth_hash()):
        return None
    return user


def goes_on_to(request: HttpRequest) -> str:
    return str(request.session[KEY]["goes_on_to"])
