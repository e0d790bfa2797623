"""
Requests with `?wait=`: the answer about a job or batch is held here, without a thread, until its end or a timeout.

Django answers first, as if nobody waited: it checks who may ask, and whether the job or batch has ended. An answer with
Retry-After says that it has not ended. This answer is held, and Django is asked again at the end. A call by a door is
held likewise: Django makes a job of the call, and says where the result will be and how long the caller waits.
An official client gets no such answer, which it would take for the provider's: it is told to send its call again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from django.utils.http import http_date

from jobs.door.errors import NotAnsweredYet
from jobs.door.repeats import CALL
from jobs.services.explain.snapshots import MAX_WAIT_SECONDS
from queueops.core.web.askers import Askers
from queueops.core.web.asking import BODY
from queueops.core.web.error_forms import in_form_of
from queueops.core.web.leaving import LEAVING

from .events import Group
from .hub import the_hub
from .turned_away import CLIENTS_TRIES, CallAsRead, CallsTurnedAway, is_certain_refusal
from .waiters import Waiter

ID = r"([0-9a-fA-F-]{36})"
PATHS: Mapping[str, re.Pattern[str]] = {
    "job": re.compile(rf"/api/v1/jobs/{ID}/?|/(?:openai|anthropic)/v1/answers/{ID}"),
    "batch": re.compile(rf"/api/v1/batches/{ID}/?"),
}
CALLS = re.compile(r"/(openai|anthropic)/v1/(chat/completions|embeddings|moderations|responses|messages)")
OF_A_BODY = frozenset({b"content-length", b"content-type", b"content-encoding", b"transfer-encoding"})
# Headers by which answers to requests for the same address may differ.
TELLING_APART = frozenset(
    {b"authorization", b"x-api-key", b"x-project", b"cookie", b"origin", b"host", b"accept-encoding"}
)

HELD_ANSWER_SECONDS = 600.0  # the longest that an answer is held while nothing happens
LINGER_SECONDS = 5.0
GATHER_SECONDS = 0.01
LOOK_AGAIN_SECONDS = 1.0  # between two looks at a call's answer, after a look was refused

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AwaitedEnd:
    """A job or batch whose end somebody waits for, and for how many seconds."""

    group: Group
    seconds: float


@dataclass(slots=True)
class Answer:
    """An answer, as the ASGI messages that carry it."""

    messages: list[Any] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        """Whether the job or batch in this answer has not ended."""
        is_told = bool(self.messages) and self.messages[0]["status"] in (HTTPStatus.OK, HTTPStatus.ACCEPTED)
        return is_told and self.header(b"retry-after") is not None

    def header(self, wanted: bytes) -> bytes | None:
        headers = self.messages[0]["headers"] if self.messages else ()
        return next((value for name, value in headers if name.lower() == wanted), None)

    async def keep(self, message: Any) -> None:
        self.messages.append(message)

    def sent_now(self) -> Iterator[Any]:
        """Yield the messages with the current date, by which clients correct their clocks."""
        for message in self.messages:
            if message["type"] != "http.response.start":
                yield message
                continue
            others = [(name, value) for name, value in message["headers"] if name.lower() != b"date"]
            yield {**message, "headers": [*others, (b"Date", http_date().encode())]}


class HeldAnswer:
    """
    An answer that is held back, shared by all requests that would get the same one.

    Attributes:
        waiter: Notes events of the job or batch. It starts before Django is asked, so that no event is missed.
        asked: Django's first answer.
        follows: Whether the relay follows the log of events; otherwise nothing shows the end.
        count: How many requests wait.
    """

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.asked: asyncio.Future[Answer]
        self.follows = False
        self.count = 0
        self.until = asyncio.get_running_loop().time() + HELD_ANSWER_SECONDS

    @property
    def goes_on(self) -> bool:
        return not self.asked.done() or (self.asked.exception() is None and self.asked.result().goes_on)

    @property
    def is_fresh(self) -> bool:
        return self.goes_on and not self.waiter.has_news and asyncio.get_running_loop().time() < self.until


class LongPolls:
    """Holds the answers to requests that ask to wait; all other requests pass."""

    def __init__(self, application: Application, askers: Askers) -> None:
        self._application = application
        self._askers = askers
        self._held: dict[bytes, HeldAnswer] = {}
        self._gathering: dict[bytes, asyncio.Future[Answer]] = {}
        self._refused = CallsTurnedAway()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = asked_in(scope)
        if asked is not None:
            answer = await self._answered(asked, scope, receive)
        elif scope["type"] == "http" and scope["method"] == "POST" and CALLS.fullmatch(scope["path"]):
            answer = for_its_client(await self._called(scope, receive), scope)
        else:
            await self._application(scope, receive, send)
            return
        for message in answer.sent_now():
            await send(message)

    async def _called(self, scope: Scope, receive: Receive) -> Answer:
        """
        Return the result of a call by a door; if the time ends first, the answer that says where the result will be.
        """
        answer, call = Answer(), CallAsRead(scope, receive)
        await self._application({**scope, CALL: call}, call.receive, answer.keep)
        if is_certain_refusal(answer.messages):
            await self._refused.note(call, self._askers.known(scope))
        place, seconds = (answer.header(name) if answer.goes_on else None for name in (b"location", b"x-queueops-wait"))
        if place is None or seconds is None:
            return answer
        of_answer = {
            **scope,
            "method": "GET",
            "path": place.decode(),
            "raw_path": place,
            "query_string": b"wait=" + seconds,
            "headers": [(name, value) for name, value in scope["headers"] if name not in OF_A_BODY],
        }
        asked = asked_in(of_answer)
        until = asyncio.get_running_loop().time() + float(seconds)
        while asked is not None:
            found = await self._answered(asked, of_answer, receive)
            # Without this header, the answer refuses the look at the job and not the call. A client that got it would
            # repeat the call.
            if found.header(b"x-queueops-job") is not None:
                return found
            if asyncio.get_running_loop().time() > until or LEAVING.is_set():
                break
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return answer

    async def _answered(self, asked: AwaitedEnd, scope: Scope, receive: Receive) -> Answer:
        key = _digest(scope)
        held = self._held.get(key)
        is_first = held is None or not held.is_fresh
        if held is None or is_first:
            held = self._held[key] = HeldAnswer(the_hub().waiters.enter(asked.group))
            held.asked = asyncio.ensure_future(self._first(held, scope))
        held.count += 1
        try:
            answer = await asyncio.shield(held.asked)  # otherwise a client that leaves would cancel it for the others
            if not answer.goes_on or not held.follows:
                return answer
            asker = self._askers.known(scope)
            with the_hub().waiters.place(asker.name if asker and asker.is_known else None) as has_place:
                if has_place:
                    return await self._waited(held, scope, receive, asked.seconds)
            return answer if is_first else await self._asked(scope)
        finally:
            held.count -= 1
            linger = LINGER_SECONDS if held.goes_on else 0.0
            asyncio.get_running_loop().call_later(linger, self._let_go, key, held)

    async def _first(self, held: HeldAnswer, scope: Scope) -> Answer:
        held.follows = await the_hub().follows()
        return await self._asked(scope)

    def _let_go(self, key: bytes, held: HeldAnswer) -> None:
        """
        Drop an answer that nobody waits for. Until it is dropped, a new request can share it. Calling this again is
        harmless.
        """
        if held.count == 0:
            the_hub().waiters.leave(held.waiter)
            if self._held.get(key) is held:
                del self._held[key]

    async def _waited(self, held: HeldAnswer, scope: Scope, receive: Receive, seconds: float) -> Answer:
        """Return the answer once the job or batch has ended, the time is over, or the client or the process leaves."""
        leaves = asyncio.ensure_future(_until_disconnected(receive))
        until = asyncio.get_running_loop().time() + seconds
        answer, waiter = held.asked.result(), held.waiter
        try:
            while answer.goes_on and await _woken(waiter, leaves, until):
                waiter.woken.clear()
                answer = await self._again(scope)
            if answer.goes_on and waiter.has_news and not leaves.done() and not LEAVING.is_set():
                answer = await self._again(scope)
        finally:
            leaves.cancel()
        return answer

    async def _again(self, scope: Scope) -> Answer:
        """Ask Django once for all requests that get the same answer."""
        key = _digest(scope)
        if key not in self._gathering:
            self._gathering[key] = asyncio.ensure_future(self._gathered(key, scope))
        return await asyncio.shield(self._gathering[key])

    async def _gathered(self, key: bytes, scope: Scope) -> Answer:
        await asyncio.sleep(GATHER_SECONDS)
        del self._gathering[key]  # requests from here on may need a newer answer
        return await self._asked(scope)

    async def _asked(self, scope: Scope) -> Answer:
        body = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            return next(body, None) or await asyncio.Event().wait()

        answer = Answer()
        without_body = {name: value for name, value in scope.items() if name != BODY}  # the body is closed already
        await self._application(without_body, receive, answer.keep)
        return answer


def asked_in(scope: Scope) -> AwaitedEnd | None:
    """Return the job or batch that a request waits for; None: it does not wait, or Django refuses its `wait`."""
    if scope["type"] != "http" or scope["method"] != "GET" or b"wait=" not in scope["query_string"]:
        return None
    try:
        [seconds] = map(float, parse_qs(scope["query_string"].decode("latin1"))["wait"])
        matches = ((kind, path.fullmatch(scope["path"])) for kind, path in PATHS.items())
        groups = [(kind, str(UUID(next(filter(None, found.groups()))))) for kind, found in matches if found]
    except (KeyError, ValueError):
        return None
    return AwaitedEnd(groups[0], seconds) if groups and 0 < seconds <= MAX_WAIT_SECONDS else None  # type: ignore[arg-type]


def for_its_client(answer: Answer, scope: Scope) -> Answer:
    """
    Return the answer to a call by a door as its client understands it.

    An official client takes each 2xx for the provider's answer, so a 202 would look like an answer without content. It
    is told to send the call again, and then gets the same job. A client that names X-QueueOps-Wait knows the 202.
    """
    told = {name.lower() for name, _ in scope["headers"]}
    if not answer.goes_on or CLIENTS_TRIES not in told or b"x-queueops-wait" in told:
        return answer
    place = (answer.header(b"location") or b"").decode()
    error = NotAnsweredYet(f"There is no answer yet. The call goes on: send it again, or ask for {place} later.")
    status, body = in_form_of(scope["path"], error.status, error.as_dict())
    content = json.dumps(body).encode()
    kept = [(name, value) for name, value in answer.messages[0]["headers"] if name.lower() not in OF_A_BODY]
    of_body = [(b"Content-Type", b"application/json"), (b"Content-Length", str(len(content)).encode())]
    start = {**answer.messages[0], "status": status, "headers": [*kept, *of_body, (b"x-should-retry", b"true")]}
    return Answer([start, {"type": "http.response.body", "body": content}])


async def _woken(waiter: Waiter, leaves: asyncio.Future[None], until: float) -> bool:
    """Wait until the waiter is woken; False: the time is over, the client leaves, or the process stops first."""
    woken: asyncio.Future[Any] = asyncio.ensure_future(waiter.woken.wait())
    seconds = max(0.0, until - asyncio.get_running_loop().time())
    try:
        await asyncio.wait([woken, leaves], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return woken.done() and not leaves.done() and not LEAVING.is_set()
    finally:
        woken.cancel()


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _digest(scope: Scope) -> bytes:
    told = sorted((name, value) for name, value in scope["headers"] if name in TELLING_APART)
    return hashlib.sha256(repr((scope["path"], scope["query_string"], told)).encode()).digest()
