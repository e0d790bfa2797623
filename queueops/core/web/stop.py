"""How the web process ends: requests under way may finish, and each client is told."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from types import FrameType
from typing import Any
from weakref import WeakSet

import daphne.server
from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.internet import reactor as twisted_reactor
from twisted.internet.defer import Deferred

from queueops.core.processes.stop_signals import handle_stop

from .leaving import LEAVING

logger = logging.getLogger(__name__)

STOP_LOOK_SECONDS = 0.05
GOING_AWAY = 1001  # RFC 6455, 7.4.1: the server goes down. The dashboard then reconnects by itself.

reactor: Any = twisted_reactor


class Factory(HTTPFactory):
    """Keeps the set of its connections: daphne's list of requests does not name idle ones."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.channels: WeakSet[Any] = WeakSet()

    def buildProtocol(self, address: Any) -> Any:  # noqa: N802 (Twisted's name)
        protocol = super().buildProtocol(address)
        self.channels.add(protocol)
        return protocol

    def log(self, request: Any) -> None:
        """Write nothing: request_log.py logs requests, and Twisted would format a line for each that nobody reads."""


class StoppingServer(daphne.server.Server):
    """
    Daphne with an orderly end: daphne itself drops every connection and request at a signal to stop.

    At SIGTERM, SIGINT or SIGHUP `/readyz` begins to say 503. `leave_seconds` later the server takes no new
    connection, and closes sockets and idle connections. It ends when the requests under way have ended, or
    `grace_seconds` later. The next signal cuts `leave_seconds` short, the one after it `grace_seconds`.

    Attributes:
        cut_off: How many requests had not ended; a thread may still be at work on each.
        refused: Why the server could not listen on its port and therefore did not run; None: it could.
    """

    def __init__(self, *arguments: Any, grace_seconds: float, leave_seconds: float = 0.0, **options: Any) -> None:
        super().__init__(*arguments, signal_handlers=False, **options)
        self.cut_off = 0
        self._grace_seconds = grace_seconds
        self._leave_seconds = leave_seconds
        self._ports: list[Any] = []
        self._until: float | None = None
        self._is_asked = False
        self.refused: OSError | None = None

    def run(self) -> None:
        handle_stop(self._asked)
        super().run()

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self._ports.append(port)

    def listen_error(self, failure: Any) -> None:
        """End, and keep the reason: daphne would let its process end as if all were well."""
        self.refused = getattr(failure.value, "socketError", None) or OSError(0, failure.getErrorMessage())
        self.stop()

    def kill_all_applications(self) -> Deferred[Any]:
        """
        End requests that have not ended within the grace period, as daphne does; daphne's own method fails on a
        finished request.
        """
        tasks = [task for task in map(_task_of, self.connections.values()) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        return Deferred.fromFuture(asyncio.gather(*tasks, return_exceptions=True))

    def _asked(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP and self._is_asked:
            return  # some supervisors send it just behind SIGTERM: it is no second wish
        self._is_asked = True
        reactor.callFromThread(self._leave)

    def _leave(self) -> None:
        """Keep the port open for `leave_seconds`, until proxies find out: a request sent to a closed port is lost."""
        if LEAVING.is_set() or not self._leave_seconds:
            self._begin_to_stop()
            return
        LEAVING.set()
        reactor.callLater(self._leave_seconds, self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        if self._until is not None:
            self._until = time.monotonic()
            return
        LEAVING.set()  # long polls are answered now
        self._until = time.monotonic() + self._grace_seconds
        for port in self._ports:
            port.stopListening()
        if requests := len(self._requests_under_way()):
            logger.info("stopping: %s requests may take up to %g s to end", requests, self._grace_seconds)
        self._look()

    def _look(self) -> None:
        """End if nothing is under way, else look again later: a busy connection may be idle by then."""
        self._close_idle_channels()
        under_way, sockets = self._requests_under_way(), self._open_sockets()
        if (under_way or sockets or self._sends()) and time.monotonic() < (self._until or 0.0):
            reactor.callLater(STOP_LOOK_SECONDS, self._look)
            return
        self.cut_off = len(under_way)
        self.stop()

    def _close_idle_channels(self) -> None:
        for protocol in list(self.http_factory.channels):
            channel = protocol._channel  # noqa: SLF001 (Twisted wraps it, and offers no other way)
            if channel.transport is None:
                continue
            if not channel.requests:
                channel.loseConnection()
                continue
            channel.persistent = False
            for request in channel.requests:
                request.responseHeaders.setRawHeaders(b"connection", [b"close"])

    def _sends(self) -> bool:
        """Whether an answer is still being sent: Twisted drops unsent bytes when it ends."""
        transports = (protocol._channel.transport for protocol in self.http_factory.channels)  # noqa: SLF001
        return any(transport is not None and not transport.disconnected for transport in transports)

    def _requests_under_way(self) -> list[Any]:
        return [
            protocol
            for protocol, details in self.connections.items()
            if isinstance(protocol, WebRequest) and ("disconnected" not in details or _is_at_work(details))
        ]

    def _open_sockets(self) -> list[Any]:
        """Tell each client that the socket ends, and return the sockets whose client has not confirmed yet."""
        sockets = [
            protocol
            for protocol, details in self.connections.items()
            if not isinstance(protocol, WebRequest) and "disconnected" not in details
        ]
        for socket in sockets:
            if socket.state == socket.STATE_OPEN:
                socket.sendCloseFrame(code=GOING_AWAY, reasonUtf8=b"the server stops")
        return sockets


def _task_of(details: dict[str, Any]) -> asyncio.Future[Any] | None:
    return details.get("application_instance")


def _is_at_work(details: dict[str, Any]) -> bool:
    task = _task_of(details)
    return task is not None and not task.done()
