"""The request that is being answered, for code that records it but does not get it as an argument."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from django.http import HttpRequest

from queueops.core.errors import QueueOpsError

from .client_address import client_address

BODY = "queueops.body"  # key in an ASGI scope and in a request's META: the file with the body, which may be reread


class ClientLeft(QueueOpsError):
    """The client has closed its connection. Nobody reads this."""

    code = "client_left"
    status = 400


class OutOfTime(QueueOpsError):
    """The request takes longer than one may. Nothing was stored; send less at once."""

    code = "out_of_time"
    status = 413
    detail_fields = ("limit_seconds",)


@dataclass(slots=True)
class Patience:
    """
    How long a request may keep its thread.

    Attributes:
        seconds: The limit, counted from `began`.
        has_left: Whether the client has left, so that nobody waits for the answer any more.
    """

    seconds: float
    has_left: bool = False
    began: float = field(default_factory=time.monotonic)


being_answered: ContextVar[HttpRequest | None] = ContextVar("being_answered", default=None)
patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


def ensure_wanted() -> None:
    """
    Call this in loops whose length a request decides, because a thread cannot be stopped from outside.

    Raises:
        ClientLeft, OutOfTime
    """
    left = patience.get()
    if left is None:
        return
    if left.has_left:
        raise ClientLeft
    if time.monotonic() - left.began > left.seconds:
        raise OutOfTime(
            f"The request takes longer than the {left.seconds:g} s it may. Nothing was stored; send less at once.",
            limit_seconds=left.seconds,
        )


def asking_address() -> str:
    """Return the client's address; empty where no request is being answered."""
    request = being_answered.get()
    return client_address(request) if request is not None else ""


def asking_person() -> str:
    """Return `user:<pk>` of the person who is signed in, else `system`."""
    request = being_answered.get()
    user = getattr(request, "user", None)
    return f"user:{user.pk}" if user is not None and user.is_authenticated else "system"
