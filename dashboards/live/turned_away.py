"""
Notes calls by a door that were refused before a job was made of them.

An official client sends a refused call again, as it does with one whose answer was lost. The second gets the job that
it made; the first made none, and would get the job of an equal call.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from django.db import DatabaseError

from jobs.door.calls import note_refused
from queueops.core.web.askers import Asker, shown_in
from queueops.core.web.requests.request_queue import Overloaded

from .threads import in_thread

logger = logging.getLogger(__name__)

CLIENTS_TRIES = b"x-stainless-retry-count"  # every official client sends it; docs/reference/wire-facts.md
GATHER_SECONDS = 0.01  # a process that has too much to do refuses many calls at once


class CallAsRead:
    """A call by a door, with a digest of its body as it is read."""

    def __init__(self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Any]]) -> None:
        told = dict(scope["headers"])
        tries = told.get(CLIENTS_TRIES, b"")
        self.tries = int(tries) if tries.isdigit() and len(tries) < 6 else None  # noqa: PLR2004
        self.is_whole = False
        self._named = repr((scope["path"], shown_in(scope["headers"])))
        self._body = hashlib.sha256()
        self._receive = receive

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._body.update(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
        return message

    @property
    def digest(self) -> str:
        return self.digest_at(self.tries)

    def digest_at(self, tries: int | None) -> str:
        """Return the digest of this call when it is sent for the `tries`th time again."""
        return hashlib.sha256(f"{self._named} {self._body.hexdigest()} {tries}".encode()).hexdigest()


class CallsTurnedAway:
    """Notes refused calls, many in one statement; used from one event loop."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] = []
        self._noted: asyncio.Future[None]

    async def note(self, call: CallAsRead, asker: Asker | None) -> None:
        """Return once the call is noted, so that its client is not told, and does not send it again, before that."""
        kind, _, project = asker.name.partition(":") if asker else ("", "", "")
        if kind != "project" or call.tries is None or not call.is_whole:
            return
        self._calls.append((project, call.digest_at(call.tries + 1)))
        if len(self._calls) == 1:
            self._noted = asyncio.ensure_future(self._note_all())
        await asyncio.shield(self._noted)  # a client that leaves must not stop it for the others

    async def _note_all(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        calls, self._calls = self._calls, []
        try:
            await in_thread(partial(note_refused, calls))
        except DatabaseError as error:
            logger.warning("%s refused calls could not be noted: %s", len(calls), error)


def is_certain_refusal(messages: Sequence[Any]) -> bool:
    """
    Whether an answer says that no job was made of a call. A 503 because of the database does not say it: its last word
    may have been lost.
    """
    status = messages[0]["status"] if messages else None
    if status != HTTPStatus.SERVICE_UNAVAILABLE:
        return status == HTTPStatus.TOO_MANY_REQUESTS
    try:
        told = json.loads(b"".join(message.get("body", b"") for message in messages[1:]))
        return bool(told["error"]["code"] == Overloaded.code)
    except (ValueError, LookupError, TypeError):
        return False
