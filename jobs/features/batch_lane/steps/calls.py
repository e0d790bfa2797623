"""Calls to batch APIs, made on an event loop of their own; the calling thread may wait for their answers."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, TypeVar

from django.conf import settings

from jobs.handlers.errors import ProviderError, retry_after_of, unanswered
from jobs.handlers.http.answers import excerpt_of, secrets_in
from jobs.handlers.http.payload import outbound_policy
from queueops.core.outbound.client import OutboundClient, OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import OutboundRefused

T = TypeVar("T")

FETCH_SECONDS = 1800.0
MAX_KEPT_BYTES = 50_000_000  # the most bytes of an answer that is kept in memory
# More than the results of any batch, none of which is kept in memory. Gemini sends each result twice.
MAX_FETCHED_BYTES = 100_000_000_000
MAX_LINE_BYTES_SENT = 25_000_000
ITEMS_AHEAD = 500
QUEUE_LOOK_SECONDS = 0.2
ROOM_LOOK_SECONDS = 0.05
CLOSE_SECONDS = 3.0
UPLOADED_A_SECOND = 200_000  # bytes, in a slow upload: a call's time limit grows with the size of its body
SPEED_SECONDS = 60.0  # of waiting for results: at least MIN_BYTES must come in this time
MIN_BYTES = 60_000

# Waits until at most ITEMS_AHEAD items of this context's call are left for its reader. None: the call has no reader.
_room: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("_room", default=None)


def call_seconds(sent_bytes: int = 0) -> float:
    """How long a call may take that sends so many bytes."""
    return settings.QUEUEOPS.batch_call_seconds + sent_bytes / UPLOADED_A_SECOND


class CallLoop:
    """
    Makes calls on an event loop in a thread of its own, until `close` cuts them off. Its methods may block the caller.

    Raises:
        CancelledError: The loop was closed before or during the method's call.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = OutboundClient()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="batch-calls", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._begin(work).result()

    def stream(self, work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]) -> Iterator[T]:
        """
        Yield the items that `work` gives to its argument, as they come. A slow reader slows the call down.

        Raises:
            ProviderError: The call failed; the items that had come were yielded.
        """
        items: queue.SimpleQueue[T] = queue.SimpleQueue()

        async def room() -> None:
            while items.qsize() > ITEMS_AHEAD:  # noqa: ASYNC110 - the reader is in another thread
                await asyncio.sleep(ROOM_LOOK_SECONDS)

        async def flow() -> None:
            _room.set(room)
            await work(items.put)

        future = self._begin(flow())
        try:
            yield from _until_done(items, future)
            future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=2 * CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._loop.is_running():
            self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise CancelledError

    async def _end(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_SECONDS)
        await self._client.close()

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        on_line: Callable[[bytes], None] | None = None,
        on_piece: Callable[[bytes], None] | None = None,
    ) -> OutboundResponse:
        """See `Send` of handlers/batch_form.py."""
        lines = None if on_line is None else _Lines(on_line)
        on_piece = on_piece if lines is None else lines.cut
        pieces = None if on_piece is None else _Pieces(on_piece)
        try:
            response = await self._client.send(
                method,
                url,
                policy=outbound_policy(),
                headers=headers,
                body=body,
                timeout_seconds=call_seconds(len(body or b"")) if pieces is None else FETCH_SECONDS,
                max_response_bytes=MAX_KEPT_BYTES if pieces is None else MAX_FETCHED_BYTES,
                piece_seconds=None if pieces is None else settings.QUEUEOPS.batch_call_seconds,
                on_piece=None if pieces is None else pieces.take,
                keeps_body=pieces is None,
            )
        except (OutboundRefused, OutboundFailed) as error:
            raise unanswered(error) from error
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refused(response, secrets_in(headers))
        if response.is_truncated:
            raise ProviderError(None, "the answer is too large", code="malformed_answer", outcome="unknown")
        if lines is not None:
            lines.end()
        return response


def _until_done(items: queue.SimpleQueue[T], future: Future[None]) -> Iterator[T]:
    while True:
        try:
            yield items.get(timeout=QUEUE_LOOK_SECONDS if not future.done() else 0)
        except queue.Empty:
            if future.done() and items.empty():
                return


class _Pieces:
    """
    Passes on a streamed body, piece by piece, at the pace of its reader.

    A body that comes too slowly is a ProviderError; time in which the reader takes what came does not count.
    """

    def __init__(self, on_piece: Callable[[bytes], None]) -> None:
        self._on_piece = on_piece
        self._since = time.monotonic()
        self._waited, self._came = 0.0, 0

    async def take(self, piece: bytes) -> None:
        self._check_speed(len(piece))
        self._on_piece(piece)
        if (room := _room.get()) is not None:
            await room()
        self._since = time.monotonic()

    def _check_speed(self, size: int) -> None:
        self._waited += time.monotonic() - self._since
        self._came += size
        if self._waited < SPEED_SECONDS:
            return
        if self._came < MIN_BYTES:
            raise ProviderError(None, "its results come too slowly", code="timeout", outcome="unknown")
        self._waited, self._came = 0.0, 0


class _Lines:
    """Cuts a streamed body into lines. A line that is too long is passed on empty, so that it counts as unreadable."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._rest = bytearray()
        self._is_too_long = False

    def cut(self, piece: bytes) -> None:
        *whole, rest = piece.split(b"\n")
        for part in whole:
            self._rest += part
            self._give()
        if len(self._rest) + len(rest) > MAX_LINE_BYTES_SENT:
            self._is_too_long = True
            self._rest.clear()
        else:
            self._rest += rest

    def end(self) -> None:
        self._give()

    def _give(self) -> None:
        line, self._rest = bytes(self._rest), bytearray()
        if self._is_too_long or line.strip():
            self._on_line(b"" if self._is_too_long else line)
        self._is_too_long = False


def _refused(response: OutboundResponse, secrets: tuple[str, ...]) -> ProviderError:
    excerpt = excerpt_of(response, secrets)
    return ProviderError(
        response.status,
        f"answered {response.status}: {excerpt}" if excerpt else f"answered {response.status}",
        code=f"http_{response.status}",
        retry_after=retry_after_of(response),
        outcome="answered",
    )
