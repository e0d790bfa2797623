"""Finds out from a request's headers who sends it, before the request gets a thread or its body gets room."""

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
ASKER_KNOWN_SECONDS = 60.0  # how long a revoked key may count as its project's; it gives no access
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
        is_known: Whether the asker's credential is valid. All askers without one share a small part of the capacity.
        may_be_known: Whether the credential could not be checked, and so may be valid.
    """

    name: str
    is_known: bool = True
    may_be_known: bool = False


class CannotTell(Exception):
    """The owner of a credential cannot be found out now."""


LookUp = Callable[[ShownCredential], str | None]
"""
Called in a thread. Returns the `Asker.name` of a credential's owner, None if it belongs to nobody. It must wait for
nothing but the database.

Raises:
    CannotTell
"""


class Askers:
    """
    Finds a request's asker by the credential that it shows, and keeps the answer for a while; used from one event loop.

    Askers decide turns and room only, never access. An answer may therefore be a little out of date.
    """

    def __init__(self, look_up: LookUp | None = None) -> None:
        self._look_up = look_up or _nobodys
        self._known: dict[bytes, tuple[Asker, float]] = {}  # credential's digest -> asker, and when it was looked up
        self._again: dict[bytes, asyncio.Task[None]] = {}
        self._door = RequestQueue(DOOR_THREADS)
        self._threads = ThreadPoolExecutor(DOOR_THREADS, thread_name_prefix="door")

    def known(self, scope: Mapping[str, Any]) -> Asker | None:
        """
        Return the asker, or None if a look-up must find out.

        An answer older than ASKER_KNOWN_SECONDS is still returned while a new look-up runs. A known asker therefore
        never waits for a database that is down.
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
            Overloaded, ClientLeft: As in `RequestQueue.turn`: addresses take turns at look-ups.
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
    """Return the credential that the API's authentication would use: a key or a token goes before a session."""
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
    """Return a request's cost; a small request costs 1, and a list the more the longer its page is."""
    _, found, rest = scope["query_string"].partition(b"page_size=")
    rows = rest.partition(b"&")[0][:9]
    return 1 + int(rows) / 50 if found and rows.isdigit() else 1


def _digest(shown: ShownCredential) -> bytes:
    return hashlib.sha256(f"{shown.kind} {shown.text}".encode()).digest()


def _name_of_address(scope: Mapping[str, Any]) -> str:
    return f"address:{address_in(scope)}"


def _nobodys(_: ShownCredential) -> None:
    """Look up nothing: each credential counts as nobody's."""
