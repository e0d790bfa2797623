"""
Daphne with the cap on bodies where the bytes arrive.

The cap in ASGI (body_cap.py) comes too late under daphne, which spools the whole body and then
queues all of it in memory before the application sees the first byte.
"""

from http import HTTPStatus
from typing import Any

import daphne.server
from daphne.http_protocol import WebRequest
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor as twisted_reactor
from twisted.web.http import RESPONSES

from .body_cap import Application, BodyLimits, too_large
from .refusals import NO_ORIGIN, CrossOrigin, refusal
from .stop import Factory, StoppingServer

LINGER_SECONDS = 5.0
WEBSOCKET_BYTES = 16_384  # of one message from a client

reactor: Any = twisted_reactor

for status in HTTPStatus:  # Twisted knows fewer, and would answer "422 Unknown Status"
    RESPONSES.setdefault(status.value, status.phrase.encode())


def serve(
    application: Application,
    *,
    host: str,
    port: int,
    limits: BodyLimits,
    cross_origin: CrossOrigin = NO_ORIGIN,
    grace_seconds: float = 30.0,
) -> int:
    """
    Serve until SIGINT or SIGTERM.

    Args:
        grace_seconds: How long requests under way may then take to end.

    Returns:
        How many did not; a thread may still be at work on each.
    """

    class Request(CappedRequest):
        body_limits = limits
        readers = cross_origin

    class CappingFactory(Factory):
        def buildProtocol(self, address: Any) -> Any:  # noqa: N802 (Twisted's name)
            protocol = super().buildProtocol(address)
            protocol.requestFactory = Request
            return protocol

    # Server.run names its factory by this module global and takes no other.
    daphne.server.HTTPFactory = CappingFactory
    daphne.server.WebSocketFactory = SocketFactory
    interface = host.strip("[]").replace(":", "\\:")
    server = StoppingServer(
        application,
        endpoints=[f"tcp:port={port}:interface={interface}"],
        websocket_max_message_size=WEBSOCKET_BYTES,
        websocket_max_frame_size=WEBSOCKET_BYTES,
        grace_seconds=grace_seconds,
    )
    server.run()
    return server.cut_off


class Socket(WebSocketProtocol):
    maxMessagePayloadSize: int  # noqa: N815

    def sendMessage(self, *arguments: Any, **options: Any) -> None:  # noqa: N802 (autobahn's name)
        """Send without the cap, which autobahn applies in both directions: a dashboard is larger than that."""
        capped, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*arguments, **options)
        finally:
            self.maxMessagePayloadSize = capped


class SocketFactory(WebSocketFactory):
    protocol = Socket


class CappedRequest(WebRequest):
    """
    Answers 413 as soon as a body is known to be too large, and keeps none of it.

    What the client still sends is thrown away for a few seconds: a connection closed over unread
    bytes is reset, and the client would never see the answer.
    """

    body_limits: BodyLimits
    readers: CrossOrigin

    _received = 0
    _refused = False
    _limit = 0

    def __init__(self, *arguments: Any) -> None:
        """Django parses forms. Twisted would, too: on the loop, all in memory, and refuse one in words of its own."""
        super().__init__(*arguments, parsePOSTFormSubmission=False)

    def gotLength(self, length: int | None) -> None:  # noqa: N802 (Twisted's name)
        super().gotLength(length)
        self._limit = self.body_limits.of(self._path())
        if (length or 0) > self._limit:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
        self._received += len(data)
        if self._refused:
            return
        if self._received > self._limit:
            self._refuse()
            return
        super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        if self._refused:
            self.channel.loseConnection()
            return
        super().requestReceived(command, path, version)

    def _refuse(self) -> None:
        self._refused = True
        self.content.close()
        sent = [(name.lower(), value) for name, values in self.requestHeaders.getAllRawHeaders() for value in values]
        headers, body = refusal(too_large(self._limit), path=self._path(), headers=sent, cross_origin=self.readers)
        lines = [b"HTTP/1.1 413 Content Too Large", b"connection: close", *map(b": ".join, headers), b"", body]
        self.channel.transport.write(b"\r\n".join(lines))
        reactor.callLater(LINGER_SECONDS, self._abort, self.channel)

    def _path(self) -> str:
        """Before Twisted has parsed it."""
        return str(getattr(self.channel, "_path", b"").split(b"?")[0].decode("latin1"))

    @staticmethod
    def _abort(channel: Any) -> None:
        if channel.transport is not None and not channel.transport.disconnected:
            channel.forceAbortClient()
