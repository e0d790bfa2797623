"""One websocket to the server, blocking and asynchronous: open, hear, say, close."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import InvalidHandshake, WebSocketException
from websockets.sync.client import ClientConnection, connect

from queueops_client.errors import ClientError

OPEN_SECONDS = 10.0
CLOSE_SECONDS = 1.0
MAX_MESSAGE_BYTES = 64_000_000  # a snapshot holds the job's payload and result
OPTIONS: dict[str, Any] = {
    "subprotocols": ["queueops.v1"],
    "close_timeout": CLOSE_SECONDS,
    "max_size": MAX_MESSAGE_BYTES,
    "user_agent_header": "queueops-client",
}


class LineLost(ClientError):
    """
    The socket could not be opened, or was closed.

    Attributes:
        refused: Whether the server, or a proxy before it, answered and refused a socket.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class AnyLine(Protocol):
    """Each method is a step: the transport that takes the steps calls or awaits it."""

    def open(self, url: str, seconds: float) -> Any: ...
    def hear(self, seconds: float) -> Any: ...
    def say(self, message: dict[str, Any]) -> Any: ...
    def close(self) -> Any: ...


class Line:
    def __init__(self) -> None:
        self._opening = ExitStack()
        self._connection: ClientConnection | None = None

    def open(self, url: str, seconds: float) -> None:
        """
        Raises:
            LineLost
        """
        try:
            self._connection = self._opening.enter_context(connect(url, open_timeout=seconds, **OPTIONS))
        except (OSError, WebSocketException) as error:
            raise _lost(error) from error

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """
        Return the next message; None: no message came within `seconds`.

        Raises:
            LineLost
        """
        try:
            return _parsed(self._opened().recv(timeout=seconds))
        except TimeoutError:
            return None
        except (OSError, WebSocketException) as error:
            raise _lost(error) from error

    def say(self, message: dict[str, Any]) -> None:
        """
        Raises:
            LineLost
        """
        try:
            self._opened().send(json.dumps(message))
        except (OSError, WebSocketException) as error:
            raise _lost(error) from error

    def close(self) -> None:
        self._connection = None
        self._opening.close()

    def _opened(self) -> ClientConnection:
        if self._connection is None:
            raise LineLost("There is no socket.")
        return self._connection


class AsyncLine:
    """The same as Line, for asyncio."""

    def __init__(self) -> None:
        self._connection: AsyncConnection | None = None

    async def open(self, url: str, seconds: float) -> None:
        try:
            self._connection = await connect_async(url, open_timeout=seconds, **OPTIONS)
        except (OSError, WebSocketException) as error:
            raise _lost(error) from error

    async def hear(self, seconds: float) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(seconds):
                return _parsed(await self._opened().recv())
        except TimeoutError:
            return None
        except (OSError, WebSocketException) as error:
            raise _lost(error) from error

    async def say(self, message: dict[str, Any]) -> None:
        try:
            await self._opened().send(json.dumps(message))
        except (OSError, WebSocketException) as error:
            raise _lost(error) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _opened(self) -> AsyncConnection:
        if self._connection is None:
            raise LineLost("There is no socket.")
        return self._connection


def _parsed(text: str | bytes) -> dict[str, Any]:
    """
    Raises:
        LineLost: The other end speaks another protocol.
    """
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise LineLost("What answers is not QueueOps.", refused=True)
    return message


def _lost(error: Exception) -> LineLost:
    return LineLost(str(error) or type(error).__name__, refused=isinstance(error, InvalidHandshake))
