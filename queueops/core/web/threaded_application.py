"""Django's application with each request carried out in one thread from its start to its end."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, cast

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpResponseBase
from django.urls import set_script_prefix

from queueops.core.web.requests.request_queue import Overloaded, RequestQueue

from .askers import Askers, cost_of
from .asking import BODY, ClientLeft, Patience, patience
from .refusals import NO_ORIGIN, CrossOrigin, refusal

# As many as the pool has connections by default: a request that runs need not wait for a connection.
THREADS = 10
PROBE_THREADS = 2
MAX_REQUEST_SECONDS = 120.0

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class ThreadedApplication(ASGIHandler):
    """
    For projects whose views are synchronous.

    Django's own handler starts a thread for each request. It passes the request to the event loop and back for every
    signal, middleware and view, which costs more than a small request itself. Measured with one job a POST, this class
    takes twice as many requests a second.

    A request that finds no thread waits in `queue`, and is not carried out once nobody waits for its answer. A request
    under way learns from `ensure_wanted` that nobody waits for its answer, or that its time is over.
    """

    def __init__(
        self,
        *,
        threads: int = THREADS,
        probes: Collection[str] = (),
        cross_origin: CrossOrigin = NO_ORIGIN,
        askers: Askers | None = None,
        request_seconds: float = MAX_REQUEST_SECONDS,
    ) -> None:
        """
        Args:
            askers: Finds out who asks; by default every asker is an unknown address.
            request_seconds: How long a request may be carried out.
            probes: Paths that are answered however many requests wait, by threads of their own.
            cross_origin: The origins whose pages may read the refusals.
        """
        super().__init__()
        self.queue = RequestQueue(threads)
        self._askers = askers or Askers()
        self._request_seconds = request_seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._probes = frozenset(probes)
        self._probe_threads = ThreadPoolExecutor(PROBE_THREADS, thread_name_prefix="probe")
        self._cross_origin = cross_origin

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 (Django's signature)
        super().load_middleware(is_async=False)

    async def handle(self, scope: Any, receive: Receive, send: Send) -> None:
        body = scope.get(BODY)
        try:
            body = body or await self.read_body(receive)
        except RequestAborted:
            return
        try:
            if scope["path"] in self._probes:
                threads, over = self._probe_threads, _nothing
            else:
                threads, over = self._threads, await self._turn(scope, receive)
        except ClientLeft:
            body.close()
            return
        except Overloaded as error:
            body.close()
            headers, text = refusal(
                error, path=scope["path"], headers=scope["headers"], cross_origin=self._cross_origin
            )
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
            await send({"type": "http.response.body", "body": text})
            return
        except BaseException:
            body.close()
            raise
        # The request has its own context: otherwise settings that it activates would stay with the thread.
        until = Patience(self._request_seconds)
        work = threads.submit(contextvars.copy_context().run, self._respond, scope, body, until)
        loop = asyncio.get_running_loop()
        # Give the turn back when the thread ends: the thread goes on even if the server cancels this coroutine.
        work.add_done_callback(lambda _: _call_on(loop, over))
        leaving = asyncio.ensure_future(_tell_when_disconnected(receive, until))
        try:
            response = await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            until.has_left = True
            raise
        finally:
            leaving.cancel()
        await self.send_response(response, send)
        if response.streaming:
            await sync_to_async(response.close)()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"Django carries out HTTP requests, not {scope['type']}.")
        await self.handle(scope, receive, send)

    async def _turn(self, scope: Any, receive: Receive) -> Callable[[], None]:
        leaves = functools.partial(_until_disconnected, receive)
        asker = await self._askers.find(scope, leaves)
        return await self.queue.turn(asker.name, cost_of(scope), leaves, is_known=asker.is_known)

    def _respond(self, scope: Any, body: IO[bytes], until: Patience) -> HttpResponseBase:
        patience.set(until)
        # The thread closes the body. If the body were closed when the client leaves, reading it would fail like a bug.
        with body:
            request, refused = self.create_request(scope, body)
            if refused is not None or request is None:
                return cast("HttpResponseBase", refused)
            request.META[BODY] = body
            set_script_prefix(get_script_prefix(scope))
            signals.request_started.send(sender=self.__class__, scope=scope)
            response = self.get_response(request)
            # As Django's handlers do: close() sends request_finished with this class as the sender.
            setattr(response, "_handler_class", self.__class__)  # noqa: B010 (the stubs do not know it)
            if not response.streaming:
                response.close()  # here, because it gives this thread's database connection back
            return response


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _tell_when_disconnected(receive: Receive, until: Patience) -> None:
    await _until_disconnected(receive)
    until.has_left = True


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():  # it is closed when the process ends
        loop.call_soon_threadsafe(function)


def _nothing() -> None:
    """Give back nothing: a probe takes no turn in the queue."""
