"""
Where the policy is enforced: the connector under every outbound call.

Each address is checked in the resolver's answer, and again on the socket about to connect. A name that changes its
address between two look-ups (DNS rebinding) thus gains nothing. A kept connection is checked once more before it is
reused: the call that opened it may have been allowed more.
"""

import socket
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import AddrInfoType, Connection

from .policy import OutboundPolicy, OutboundRefused


@dataclass(slots=True)
class Passage:
    """The policy of one request, and how far the request got."""

    host: str
    policy: OutboundPolicy
    is_connected: bool = False
    refusal: OutboundRefused | None = None

    def check(self, address: str) -> None:
        try:
            self.policy.check(self.host, address)
        except OutboundRefused as refusal:
            # Keep the refusal: aiohttp tries several addresses at once, and wraps the error that an attempt raises.
            self.refusal = refusal
            raise


# No default: a request that is sent without a passage fails.
current_passage: ContextVar[Passage] = ContextVar("current_passage")


def checked_connector(*, resolver: AbstractResolver | None, reuse: bool) -> aiohttp.TCPConnector:
    """Return a connector that connects only where the current passage allows."""
    return _CheckedConnector(
        resolver=_CheckedResolver(resolver or aiohttp.ThreadedResolver()),
        socket_factory=_open_checked_socket,
        use_dns_cache=False,  # a shared look-up would answer one request with another's refusal
        force_close=not reuse,
        limit=0,  # executors limit what runs at once; waiting here would use up the timeout
    )


class _CheckedResolver(AbstractResolver):
    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        answers = await self._inner.resolve(host, port, family)
        for answer in answers:
            current_passage.get().check(answer["host"])
        return answers

    async def close(self) -> None:
        await self._inner.close()


def _open_checked_socket(addr_info: AddrInfoType) -> socket.socket:
    family, kind, proto, _, address = addr_info
    current_passage.get().check(str(address[0]))
    return socket.socket(family, kind, proto)


class _CheckedConnector(aiohttp.TCPConnector):
    async def connect(
        self,
        req: ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (aiohttp's signature)
    ) -> Connection:
        passage = current_passage.get()
        if passage.is_connected:
            # aiohttp by itself sends PUT and DELETE again when a connection breaks: a second call
            # that no limit has counted.
            raise aiohttp.ClientConnectionError("The connection broke.")
        connection = await super().connect(req, traces, timeout)
        if connection.transport is None:
            raise aiohttp.ClientConnectionError("The connection is already closed.")
        try:
            passage.check(str(connection.transport.get_extra_info("peername")[0]))
        except OutboundRefused:
            connection.close()
            raise
        passage.is_connected = True
        return connection
