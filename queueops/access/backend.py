"""Checks passwords as Django does, behind the guard that locks out people who guess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef
from django.http import HttpRequest

from queueops.core.web.client_address import client_address
from queueops.screens.attribute import TypedAttribute

from .models import Passkey
from .services.guard import Found, Purpose, SignInLocked, guarded
from .services.known_browsers import known_to

ONLY = "superusers"
sign_in_locked = TypedAttribute[SignInLocked]("sign_in_locked")  # set on a request, so that its page can show the lock


def may_use_password(user: Any) -> bool:
    """
    Whether somebody may sign in with a password. Superusers always may: otherwise nobody could sign in while the
    provider is down.
    """
    return bool(user.has_usable_password() and (user.is_superuser or settings.QUEUEOPS.password_sign_in != ONLY))


def check_password_of(username: str, check: Callable[[], Found | None], request: HttpRequest | None) -> Found | None:
    """
    Check a password behind the guard, with the request's address and known browser.

    Raises:
        SignInLocked: The request keeps the error, too, so that its page can show the lock.
    """
    address = client_address(request) if request else ""
    try:
        return guarded(Purpose.PASSWORD, check, account=username, address=address, browser=known_to(request, username))
    except SignInLocked as locked:
        if request:
            sign_in_locked.set(request, locked)
        raise


class GuardedBackend(ModelBackend):
    """
    Every call of `authenticate()` comes here. A form that compares a password itself must call `check_password_of`:
    otherwise it bypasses the guard.
    """

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> Any:
        if username is None or password is None:
            return None

        def check() -> Any:
            user = super(GuardedBackend, self).authenticate(request, username=username, password=password, **kwargs)
            return user if user is not None and may_use_password(user) else None

        try:
            return check_password_of(username, check, request)
        except SignInLocked as locked:
            raise PermissionDenied from locked  # no other backend is asked

    def get_user(self, user_id: Any) -> User | None:
        # Read the second factors with the user: otherwise every request of a session would need more queries for them.
        keys = ArraySubquery(Passkey.objects.filter(user=OuterRef("pk")).values("pk"))
        user = User.objects.select_related("authenticator").annotate(passkey_ids=keys).filter(pk=user_id).first()
        return user if user and self.user_can_authenticate(user) else None
