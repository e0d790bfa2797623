"""How long a session lasts, and which second factor it must have shown."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from . import second_factor

BEGAN_AT, SEEN_AT = "began_at", "seen_at"
SECOND_FACTOR = "second_factor"  # identifier of the second factor that was shown when signing in
BY_PROVIDER = "provider"  # stored instead of an identifier: the provider has asked for a second factor
FRESH_SECONDS = 600  # people without a password prove who they are by a sign-in within this time
PRODUCER_KEY = "producer_key"  # the id of a producer's key, for producers without an account
TOUCH_SECONDS = 60  # at most one write of a session's row in this time


def stands(session: SessionBase, user: AbstractBaseUser | AnonymousUser | None) -> bool:
    """
    Return whether a session may still be used.

    It may not when it is older than QUEUEOPS_SESSION_HOURS, was not used for QUEUEOPS_SESSION_IDLE_MINUTES, or
    lacks a second factor that has become required since it began. A session without a sign-in may always be used.
    """
    if not signed_in(session):
        return True
    config, now = settings.QUEUEOPS, time.time()
    began_at, seen_at = session.get(BEGAN_AT, now), session.get(SEEN_AT, now)
    if now - began_at >= config.session_hours * 3600 or now - seen_at >= config.session_idle_minutes * 60:
        return False
    return not (user and user.is_authenticated and owes_second_factor(session, user))


def owes_second_factor(session: SessionBase, user: Any) -> bool:
    shown = session.get(SECOND_FACTOR)
    if settings.QUEUEOPS.oidc_issuer and shown == BY_PROVIDER:
        return False
    if factors := second_factor.factors_of(user):
        return shown not in factors
    return second_factor.is_required_of(user)


def note_factors(session: SessionBase, user: Any) -> None:
    """Store a current factor in the session of somebody who has just changed their second factors."""
    factors = second_factor.factors_of(user)
    if session.get(SECOND_FACTOR) not in (*factors, BY_PROVIDER):
        session[SECOND_FACTOR] = next(iter(factors), None)


def signed_in(session: SessionBase) -> bool:
    return SESSION_KEY in session or PRODUCER_KEY in session


def is_fresh(session: SessionBase) -> bool:
    """Whether the sign-in is less than FRESH_SECONDS ago."""
    return bool(time.time() - session.get(BEGAN_AT, 0) < FRESH_SECONDS)


def touch(session: SessionBase) -> None:
    """Note that a session is used, at most once a minute."""
    now = int(time.time())
    if signed_in(session) and now - session.get(SEEN_AT, 0) >= TOUCH_SECONDS:
        session.setdefault(BEGAN_AT, now)
        session[SEEN_AT] = now


def begin_session(request: HttpRequest, **told: Any) -> None:
    """Receive Django's `user_logged_in`: note the time from which the session's age counts."""
    request.session[BEGAN_AT] = request.session[SEEN_AT] = int(time.time())
