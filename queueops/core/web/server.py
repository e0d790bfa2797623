"""
Daphne with guards that refuse bodies where their bytes arrive.

The cap in ASGI (body_cap.py) comes too late under daphne. Daphne spools the whole body, then queues all of it in
memory, before the application sees the first byte.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from io import BytesIO
from typing import IO, Any, cast

import daphne.server
from daphne.http_protocol import WebRequest
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor as twisted_reactor
from twisted.web.http import RESPONSES

from queueops.core.errors import QueueOpsError
from queueops.core.web.requests.body_cap import Application, BodyLimits, too_large
from queueops.core.web.requests.spool import FREE_BYTES, STRANGER_BYTES, BodyTooSlow, Spool, SpooledBytes, sign_in_first

from .askers import Asker, Askers
from .asking import BODY
from .ports import PortTaken
from .refusals import NO_ORIGIN, CrossOrigin, refusal
from .stop import Factory, StoppingServer

LINGER_SECONDS = 5.0
BODY_LOOK_SECONDS = 5.0  # between two looks at how fast a body comes
BODY_GRACE_SECONDS = 15.0  # a phone on a train is silent for a while
WEBSOCKET_BYTES = 16_384  # of one message from a client

reactor: Any = twisted_reactor

for status in HTTPStatus:  # Twisted lacks some of these, and would answer "422 Unknown Status"
    RESPONSES.setdefault(status.value, status.phrase.encode())


def serve(
    application: Application,
    *,
    host: str,
    port: int,
    limits: BodyLimits,
    room: SpooledBytes,
    askers: Askers | None = None,
    cross_origin: CrossOrigin = NO_ORIGIN,
    grace_seconds: float = 30.0,
    leave_seconds: float = 0.0,
) -> int:
    """
    Serve until SIGINT, SIGTERM or SIGHUP. A request's body is in its scope, under BODY.

    Args:
        room: The bytes that bodies may take.
        askers: Finds out who sends a body; by default every sender is an unknown address.
        leave_seconds: How long the server goes on after that signal, with LEAVING set.
        grace_seconds: How long requests under way may then take to end.

    Returns:
        How many requests did not end in time; a thread may still be at work on each.

    Raises:
        PortTaken
    """

    known = askers or Askers()

    class Request(GuardedRequest):
        body_limits = limits
        readers = cross_origin

    Request.askers, Request.room = known, room

    class GuardingFactory(Factory):
        def buildProtocol(self, address: Any) -> Any:  # noqa: N802 (Twisted's name)
            protocol = super().buildProtocol(address)
            protocol.requestFactory = Request
            return protocol

    # Replace the globals of daphne's module: Server.run takes its factories from nowhere else.
    daphne.server.HTTPFactory = GuardingFactory
    daphne.server.WebSocketFactory = SocketFactory
    interface = host.strip("[]").replace(":", "\\:")
    server = Server(
        application,
        endpoints=[f"tcp:port={port}:interface={interface}"],
        websocket_max_message_size=WEBSOCKET_BYTES,
        websocket_max_frame_size=WEBSOCKET_BYTES,
        grace_seconds=grace_seconds,
        leave_seconds=leave_seconds,
        server_name="",  # no `Server` header: the proxy adds its own
    )
    server.run()
    if server.refused:
        raise PortTaken(host=host, port=port, reason=server.refused.strerror or str(server.refused))
    return server.cut_off


class Server(StoppingServer):
    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        if isinstance(protocol, GuardedRequest):
            scope[BODY] = protocol.hand_over()
        return super().create_application(protocol, scope)


class Socket(WebSocketProtocol):
    maxMessagePayloadSize: int  # noqa: N815

    def sendMessage(self, *arguments: Any, **options: Any) -> None:  # noqa: N802 (autobahn's name)
        """Send without the cap, which autobahn applies in both directions: a dashboard is larger than the cap."""
        capped, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*arguments, **options)
        finally:
            self.maxMessagePayloadSize = capped


class SocketFactory(WebSocketFactory):
    protocol = Socket


class GuardedRequest(WebRequest):
    """
    A request that refuses its body as early as it can, and keeps no byte of a refused body.

    It refuses a body that is too large, comes too slowly or finds no room, and one of more than STRANGER_BYTES from an
    unknown sender. The sender is looked up by the headers; meanwhile nothing more is read.

    Bytes that the client still sends are thrown away for a few seconds. A connection closed over unread bytes is reset,
    and the client would never see the answer.
    """

    body_limits: BodyLimits
    readers: CrossOrigin
    askers: Askers
    room: SpooledBytes

    content: Any  # a Spool, until it is handed over
    _received = 0
    _refused = False
    _is_whole = False
    _limit = 0
    _beyond: QueueOpsError | None = None  # the error for a body above `_limit`; None: `too_large`
    _asker: Asker | None = None
    _looking: asyncio.Future[None] | None = None
    _began = 0.0
    _watch: Any = None

    def __init__(self, *arguments: Any) -> None:
        """Leave forms to Django: Twisted would parse them on the loop, in memory, and word refusals in its own way."""
        super().__init__(*arguments, parsePOSTFormSubmission=False)

    def gotLength(self, length: int | None) -> None:  # noqa: N802 (Twisted's name)
        self.content = Spool(self.room)
        if length == 0:
            return
        self._limit = self.body_limits.of(self._path())
        if (length or 0) > self._limit:
            self._refuse(too_large(self._limit))
            return
        self._began = time.monotonic()
        self._watch = reactor.callLater(BODY_LOOK_SECONDS, self._look)
        if (asker := self.askers.known(self._scope())) is not None:
            self._admit(asker, length)
        else:
            self.channel._networkProducer.pauseProducing()  # noqa: SLF001 (as Twisted itself does between requests)
            self._looking = asyncio.ensure_future(self._find(length))

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
        self._received += len(data)
        if self._refused:
            return
        if self._received > self._limit:
            self._refuse(self._beyond or too_large(self._limit))
            return
        if self._asker is not None:
            self._take(self._asker, len(data))
        if not self._refused:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        self._is_whole = True
        if self._looking is not None and not self._looking.done():
            self.channel._networkProducer.resumeProducing()  # noqa: SLF001 (who does not read hears of no end)
        self._give_up()
        if self._refused:
            self.channel.loseConnection()
            return
        super().requestReceived(command, path, version)

    def connectionLost(self, reason: Any) -> None:  # noqa: N802
        self._give_up()
        super().connectionLost(reason)

    def hand_over(self) -> IO[bytes]:
        """Return the body's file, for the application to close; daphne would read all of it into memory."""
        body = self.content
        self.content = BytesIO()
        return cast("IO[bytes]", body)

    async def _find(self, length: int | None) -> None:
        try:
            asker = await self.askers.find(self._scope(), asyncio.Event().wait)
        except QueueOpsError as error:
            self._refuse(error)
        else:
            self._admit(asker, length)
        if self.channel is not None and not self._is_whole:
            self.channel._networkProducer.resumeProducing()  # noqa: SLF001

    def _admit(self, asker: Asker, length: int | None) -> None:
        if not asker.is_known and not asker.may_be_known:
            if self._limit > STRANGER_BYTES:
                self._limit, self._beyond = STRANGER_BYTES, sign_in_first()
            if self._beyond is not None and (length or 0) > self._limit:
                self._refuse(self._beyond)
                return
        if length is None:
            self._asker = asker  # the length is unknown: each piece is counted as it comes
            length = self._received
        if length > FREE_BYTES:
            self._take(asker, length)

    def _take(self, asker: Asker, size: int) -> None:
        try:
            self.content.hold(asker, size)
        except QueueOpsError as error:
            self._refuse(error)

    def _look(self) -> None:
        """Refuse a body that comes too slowly, but not while its sender is looked up: that delay is ours."""
        self._watch = reactor.callLater(BODY_LOOK_SECONDS, self._look)
        seconds, least = time.monotonic() - self._began - BODY_GRACE_SECONDS, self.room.limits.least_rate
        if (self._looking is None or self._looking.done()) and self._received < seconds * least and not self._refused:
            self._refuse(BodyTooSlow(bytes_per_second=least))

    def _give_up(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._looking is not None:
            self._looking.cancel()

    def _refuse(self, error: QueueOpsError) -> None:
        self._refused = True
        self.content.close()
        headers, body = refusal(error, path=self._path(), headers=self._sent(), cross_origin=self.readers)
        status = HTTPStatus(error.status)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"connection: close"]
        self.channel.transport.write(b"\r\n".join([*lines, *map(b": ".join, headers), b"", body]))
        reactor.callLater(LINGER_SECONDS, self._abort, self.channel)

    def _scope(self) -> dict[str, Any]:
        """Return the part of a request's scope that is known before its body has come."""
        peer = self.channel.getPeer()
        return {"headers": self._sent(), "client": [getattr(peer, "host", None), getattr(peer, "port", None)]}

    def _sent(self) -> list[tuple[bytes, bytes]]:
        return [(name.lower(), value) for name, values in self.requestHeaders.getAllRawHeaders() for value in values]

    def _path(self) -> str:
        """Return the request's path, which Twisted has not parsed yet."""
        return str(getattr(self.channel, "_path", b"").split(b"?")[0].decode("latin1"))

    @staticmethod
    def _abort(channel: Any) -> None:
        if channel.transport is not None and not channel.transport.disconnected:
            channel.forceAbortClient()
