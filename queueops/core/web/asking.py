"""The request that is being answered, for what is recorded far from it."""

from __future__ import annotations

from contextvars import ContextVar

from django.http import HttpRequest

from .client_address import client_address

being_answered: ContextVar[HttpRequest | None] = ContextVar("being_answered", default=None)


def asking_address() -> str:
    """The client's address; empty where no request is being answered."""
    request = being_answered.get()
    return client_address(request) if request is not None else ""


def asking_person() -> str:
    """`user:<pk>` of who is signed in, else `system`."""
    request = being_answered.get()
    user = getattr(request, "user", None)
    return f"user:{user.pk}" if user is not None and user.is_authenticated else "system"
