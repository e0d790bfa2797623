"""Django's application with each request carried out in one thread from its start to its end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.http import HttpResponseBase
from django.urls import set_script_prefix

# Idle ones are reused before another starts; how many may use the database at once is the pool's to bound.
MAX_THREADS = 64

Message = dict[str, Any]


class ThreadedApplication(ASGIHandler):
    """
    For projects whose views are synchronous.

    Django's own handler starts a thread for each request and passes it to the event loop and back for
    every signal, middleware and view, which costs more than a small request itself. Measured with one job
    a POST: twice the requests a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="request")

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 (Django's signature)
        super().load_middleware(is_async=False)

    async def handle(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            request, refusal = self.create_request(scope, body)
            if refusal is not None or request is None:
                await self.send_response(cast("HttpResponseBase", refusal), send)
                return
            # A context of the request's own, or what one request activates would stay with the thread.
            carry_out = contextvars.copy_context().run
            response = await asyncio.get_running_loop().run_in_executor(
                self._threads, carry_out, self._respond, scope, request
            )
            await self.send_response(response, send)
            if response.streaming:
                await sync_to_async(response.close)()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"Django carries out HTTP requests, not {scope['type']}.")
        await self.handle(scope, receive, send)

    def _respond(self, scope: Any, request: ASGIRequest) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        response = self.get_response(request)
        # As Django's handlers do: close() sends request_finished in its name.
        setattr(response, "_handler_class", self.__class__)  # noqa: B010 (the stubs do not know it)
        if not response.streaming:
            response.close()  # here, because it gives this thread's database connection back
        return response
