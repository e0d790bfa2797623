"""Real websocket clients on an event loop of their own, for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import aiohttp

from tests.support.processes import wait_for

Message = dict[str, Any]

ACK_MESSAGES = 50
ACK_SECONDS = 0.2


class Watcher:
    """
    One socket. It acknowledges all it gets and answers pings, unless told otherwise.

    Attributes:
        messages: What it got, in order, pings left out.
        status: Of the handshake; 101 when it became a socket.
        close_code: None while it is open.
    """

    def __init__(self, *, acknowledges: bool, reads: bool) -> None:
        self.messages: list[Message] = []
        self.status = 0
        self.decided = asyncio.Event()
        self.close_code: int | None = None
        self._acknowledges = acknowledges
        self._reads = reads
        self._loop = asyncio.get_running_loop()
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    @property
    def events(self) -> list[Message]:
        return [message["event"] for message in list(self.messages) if message["type"] == "event"]

    @property
    def cursor(self) -> int:
        """Of the newest message."""
        return max((int(message.get("cursor", 0)) for message in list(self.messages)), default=0)

    @property
    def epoch(self) -> str:
        """Of the newest message that has one."""
        return next((str(message["epoch"]) for message in reversed(list(self.messages)) if "epoch" in message), "")

    def resume(self, cursor: object) -> None:
        """Ask for what came after a cursor of the epoch that is known."""
        self.send({"resume": cursor, "epoch": self.epoch})

    def of_type(self, name: str) -> list[Message]:
        return [message for message in list(self.messages) if message["type"] == name]

    def first(self, name: str, *, seconds: float = 60.0) -> Message:
        """The first message of a type, waited for."""
        return wait_for(lambda: self.of_type(name), seconds=seconds, what=f"{name} (got {self.messages[-3:]})")[0]

    def wait_for_events(self, ids: set[int], *, seconds: float = 60.0) -> None:
        def has_all() -> bool:
            assert self.close_code is None, self.messages[-1]
            return ids <= {event["id"] for event in self.events}

        wait_for(has_all, seconds=seconds, what=f"{len(ids)} events")

    def wait_for_more(self, count: int, *, seconds: float = 60.0) -> None:
        """Wait until so many more events came."""
        enough = len(self.events) + count
        wait_for(lambda: len(self.events) >= enough, seconds=seconds, what=f"{count} more events")

    def closed(self, *, seconds: float = 60.0) -> int:
        """The close code, waited for."""
        wait_for(lambda: self.close_code is not None, seconds=seconds, what=f"the close (got {self.messages[-3:]})")
        return self.close_code or 0

    def send(self, message: Any) -> None:
        """Send it, or nothing where the server has just closed: `close_code` says so in a moment."""
        text = message if isinstance(message, str) else json.dumps(message)
        asyncio.run_coroutine_threadsafe(self._send(text), self._loop).result(60)

    def close(self) -> None:
        if self._socket is not None:
            asyncio.run_coroutine_threadsafe(self._socket.close(), self._loop).result(60)

    async def _send(self, text: str) -> None:
        assert self._socket is not None
        # The close frame may arrive between the look at `close_code` and this line.
        with suppress(aiohttp.ClientConnectionResetError):
            await self._socket.send_str(text)

    async def run(self, http: aiohttp.ClientSession, url: str, **options: Any) -> None:
        try:
            self._socket = await http.ws_connect(url, autoping=True, max_msg_size=0, **options)
        except aiohttp.WSServerHandshakeError as error:
            self.status = error.status
            self.decided.set()
            return
        self.status = 101
        self.decided.set()
        if not self._reads:
            # Without this the client would still read what fits into its own buffers.
            self._socket._conn.transport.pause_reading()  # type: ignore[union-attr]
            return
        unacknowledged, due = 0, 0.0
        async for frame in self._socket:
            message = json.loads(frame.data)
            if message["type"] == "ping":
                if self._acknowledges:
                    await self._send('{"pong":true}')
                continue
            self.messages.append(message)
            unacknowledged += 1
            if (
                self._acknowledges
                and "cursor" in message
                and (unacknowledged >= ACK_MESSAGES or time.monotonic() > due)
            ):
                await self._send(json.dumps({"ack": message["cursor"], "epoch": message["epoch"]}))
                unacknowledged, due = 0, time.monotonic() + ACK_SECONDS
        self.close_code = self._socket.close_code


class LiveClient:
    """Opens sockets at one address."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, http: aiohttp.ClientSession) -> None:
        self.address = address
        self._loop = loop
        self._http = http
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(
        self,
        path: str,
        *,
        key: str = "",
        token: str = "",
        session: str = "",
        origin: str | None = "",
        acknowledges: bool = True,
        reads: bool = True,
        address: str = "",
    ) -> Watcher:
        """
        Open `/ws/v1/<path>`, signed in by a key, a user's token or a session's cookie.

        Args:
            origin: That of the process's own pages if empty; None: no header, as programs send none.
            address: Of another process.
        """
        address = address or self.address
        headers = {}
        if origin is not None:
            headers["Origin"] = origin or address
        if session:
            headers["Cookie"] = f"sessionid={session}"
        url = f"{address.replace('http', 'ws')}/ws/v1/{path}"

        async def start() -> Watcher:
            watcher = Watcher(acknowledges=acknowledges, reads=reads)
            task = asyncio.create_task(watcher.run(self._http, url, headers=headers))
            self._tasks.add(task)
            decided = asyncio.create_task(watcher.decided.wait())
            await asyncio.wait({task, decided}, return_when=asyncio.FIRST_COMPLETED)
            if not watcher.status:
                await task
            return watcher

        watcher = asyncio.run_coroutine_threadsafe(start(), self._loop).result(60)
        if key:
            watcher.send({"auth": {"key": key}})
        if token:
            watcher.send({"auth": {"token": token}})
        return watcher


@contextmanager
def live_client(address: str) -> Iterator[LiveClient]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(make: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return make()

        return asyncio.run_coroutine_threadsafe(call(), loop).result(60)

    http: aiohttp.ClientSession = run(lambda: aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    try:
        yield LiveClient(address, loop, http)
    finally:
        asyncio.run_coroutine_threadsafe(http.close(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
