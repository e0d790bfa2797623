"""Finds out who asks by a request's headers, before the request gets a thread or its body a place."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from django.conf import settings
from django.http import parse_cookie

from queueops.core.web.requests.request_queue import Overloaded, RequestQueue

from .client_address import address_in

logger = logging.getLogger(__name__)

MAX_ASKERS_KNOWN = 10_000
ASKER_KNOWN_SECONDS = 60.0  # so long a key that was revoked counts as its project's; nothing is opened by that
DOOR_THREADS = 2  # a look-up takes a millisecond, and is made once in ASKER_KNOWN_SECONDS for each credential


@dataclass(frozen=True, slots=True)
class ShownCredential:
    """A credential as it came: `bearer` (of Authorization), `key` (of X-Api-Key) or `session` (a cookie)."""

    kind: Literal["bearer", "key", "session"]
    text: str


@dataclass(frozen=True, slots=True)
class Asker:
    """
    A caller whose requests are counted together.

    Attributes:
        name: `project:<id>` of keys and tokens, `user:<pk>` of a session or a personal token, else `address:<address>`.
        is_known: The asker showed a credential that is good. All others share one small part of everything.
        may_be_known: It could not be found out whether the credential is good.
    """

    name: str
    is_known: bool = True
    may_be_known: bool = False


class CannotTell(Exception):
    """The owner of a credential cannot be found out now."""


LookUp = Callable[[ShownCredential], str | None]
"""
For a thread: the name of whom a credential belongs to; None: nobody's. It must not wait for anything but the database.

Raises:
    CannotTell
"""


class Askers:
    """
    Names by the credentials that are shown with a request; used from one event loop.

    The names are for turns and room only, never for access: an answer is therefore believed for a while.
    """

    def __init__(self, look_up: LookUp | None = None) -> None:
        self._look_up = look_up or _nobodys
        self._known: dict[bytes, tuple[Asker, float]] = {}  # by digest, with when it was looked up
        self._again: dict[bytes, asyncio.Task[None]] = {}
        self._door = RequestQueue(DOOR_THREADS)
        self._threads = ThreadPoolExecutor(DOOR_THREADS, thread_name_prefix="door")

    def known(self, scope: Mapping[str, Any]) -> Asker | None:
        """
        Return who asks, if that takes no look-up; None: it takes one.

        An asker who was found long ago is believed once more while they are looked up. Nobody who was known thus waits
        for a database that is away.
        """
        shown = shown_in(scope["headers"])
        if shown is None:
            return Asker(_name_of_address(scope), is_known=False)
        digest = _digest(shown)
        found = self._known.get(digest)
        if found is None:
            return None
        if time.monotonic() - found[1] > ASKER_KNOWN_SECONDS and digest not in self._again:
            self._again[digest] = task = asyncio.ensure_future(self._renew(shown, _name_of_address(scope)))
            task.add_done_callback(lambda _: self._again.pop(digest))
        return found[0]

    async def find(self, scope: Mapping[str, Any], client_leaves: Callable[[], Awaitable[Any]]) -> Asker:
        """
        Raises:
            Overloaded, ClientLeft: As of `RequestQueue.turn`, in which addresses take turns to have theirs looked up.
        """
        if known := self.known(scope):
            return known
        shown, address = shown_in(scope["headers"]), _name_of_address(scope)
        assert shown is not None  # noqa: S101 (else it is known to be nobody's)
        try:
            found = await self._found(shown, address, client_leaves)
        except CannotTell:
            return Asker(address, is_known=False, may_be_known=True)
        return found or Asker(address, is_known=False)

    async def _renew(self, shown: ShownCredential, address: str) -> None:
        with suppress(CannotTell, Overloaded):
            await self._found(shown, address, asyncio.Event().wait)

    async def _found(self, shown: ShownCredential, address: str, leaves: Callable[[], Awaitable[Any]]) -> Asker | None:
        """
        Raises:
            CannotTell, Overloaded, ClientLeft
        """
        over = await self._door.turn(address, 1, leaves)
        try:
            name = await asyncio.get_running_loop().run_in_executor(
                self._threads, contextvars.copy_context().run, self._look_up, shown
            )
        except CannotTell:
            raise
        except Exception as error:
            logger.exception("who shows a credential cannot be found out")  # a bug of ours must lock nobody out
            raise CannotTell from error
        finally:
            over()
        digest = _digest(shown)
        self._known.pop(digest, None)
        if name is None:
            return None
        self._known[digest] = (Asker(name), time.monotonic())
        if len(self._known) > MAX_ASKERS_KNOWN:
            del self._known[next(iter(self._known))]
        return Asker(name)


def shown_in(headers: Iterable[tuple[bytes, bytes]]) -> ShownCredential | None:
    """The credential that counts, as the API's authentication chooses: a key or a token before a session."""
    given = {name: value.decode("latin1") for name, value in headers if name in _CREDENTIALS}
    scheme, _, bearer = given.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return ShownCredential("bearer", bearer.strip())
    if b"x-api-key" in given:
        return ShownCredential("key", given[b"x-api-key"].strip())
    session = parse_cookie(given.get(b"cookie", "")).get(settings.SESSION_COOKIE_NAME)
    return ShownCredential("session", session) if session else None


_CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"cookie"})


def cost_of(scope: Mapping[str, Any]) -> float:
    """Return what a request costs, in small requests: the cost of a list goes by the length of its page."""
    _, found, rest = scope["query_string"].partition(b"page_size=")
    rows = rest.partition(b"&")[0][:9]
    return 1 + int(rows) / 50 if found and rows.isdigit() else 1


def _digest(shown: ShownCredential) -> bytes:
    return hashlib.sha256(f"{shown.kind} {shown.text}".encode()).digest()


def _name_of_address(scope: Mapping[str, Any]) -> str:
    return f"address:{address_in(scope)}"


def _nobodys(_: ShownCredential) -> None:
    """Where nothing is looked up."""
