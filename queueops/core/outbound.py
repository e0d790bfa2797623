"""
The one way out: HTTP calls to addresses that somebody else chose.

Each address is checked three times: in the URL where it is written out, in the resolver's answer,
and on the socket about to connect. A name that changes its address between two look-ups (DNS
rebinding) therefore gains nothing. A kept connection is checked again before it is reused, since
the call that opened it may have been allowed more.
"""

import asyncio
import re
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import AddrInfoType, Connection
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from queueops.core.errors import QueueOpsError
from queueops.core.outbound_policy import OutboundPolicy, OutboundRefused, parse_target

MAX_REDIRECTS = 5
CONNECT_TIMEOUT_SECONDS = 10.0
USER_AGENT = "queueops (gzip)"  # Google compresses only for agents that name gzip

SENSITIVE_HEADER = re.compile(
    r"auth|cookie|token|secret|password|credential|signature|api-?key|(?<!idempotency)-key$",
    re.IGNORECASE,
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE_IN_HEADER_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REDIRECTS_OF_READS = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_OF_WRITES = frozenset({307, 308})

FailureReason = Literal[
    "dns_failed", "tls_failed", "connect_timeout", "connect_failed", "timeout", "connection_broken"
]


class OutboundFailed(QueueOpsError):
    """
    An outbound call got no complete answer.

    `outcome` is `not_sent` while no connection had been made, `unknown` from then on.
    """

    code = "outbound_failed"
    status = 502
    detail_fields = ("reason", "outcome", "host")


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """A provider's answer; `body` is decompressed and holds at most what the caller asked for."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    is_truncated: bool
    charset: str | None


@dataclass(slots=True)
class _Hop:
    """One request of a call, as seen by the connector that carries it."""

    host: str
    policy: OutboundPolicy
    is_connected: bool = False
    refusal: OutboundRefused | None = None

    def check(self, address: str) -> None:
        try:
            self.policy.check(self.host, address)
        except OutboundRefused as refusal:
            # Kept because the connector wraps what is raised while it races addresses.
            self.refusal = refusal
            raise


# No default: a request made past `send` finds no policy and fails.
_hop: ContextVar[_Hop] = ContextVar("outbound_hop")


class _CheckedResolver(AbstractResolver):
    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        answers = await self._inner.resolve(host, port, family)
        for answer in answers:
            _hop.get().check(answer["host"])
        return answers

    async def close(self) -> None:
        await self._inner.close()


def _open_checked_socket(addr_info: AddrInfoType) -> socket.socket:
    family, kind, proto, _, address = addr_info
    _hop.get().check(str(address[0]))
    return socket.socket(family, kind, proto)


class _CheckedConnector(aiohttp.TCPConnector):
    async def connect(
        self, req: ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        hop = _hop.get()
        if hop.is_connected:
            # aiohttp sends PUT and DELETE again by itself when a connection breaks; such a second
            # call is one that no limit has counted.
            raise aiohttp.ClientConnectionError("The connection broke.")
        connection = await super().connect(req, traces, timeout)
        peer = connection.transport and connection.transport.get_extra_info("peername")
        try:
            hop.check(str(peer[0]) if peer else "")
        except OutboundRefused:
            connection.close()
            raise
        hop.is_connected = True
        return connection


@dataclass(slots=True)
class OutboundClient:
    """
    Sends guarded calls from one event loop. Close it on that loop.

    Args:
        resolver: Looks names up; the system's resolver unless a test brings its own.
    """

    resolver: AbstractResolver | None = None
    _sessions: dict[bool, aiohttp.ClientSession] = field(default_factory=dict)

    async def send(
        self,
        method: str,
        url: str,
        *,
        policy: OutboundPolicy,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_seconds: float,
        max_response_bytes: int,
        follow_redirects: bool = False,
        reuse_connection: bool = True,
    ) -> OutboundResponse:
        """
        Make one call. It is never repeated here.

        301, 302 and 303 are followed for GET and HEAD, 307 and 308 for every method, at most
        MAX_REDIRECTS times, never from https to http. Headers that carry credentials stay behind
        when the origin changes. A redirect that is not followed is the answer.

        Args:
            timeout_seconds: For the whole call, redirects included. Connecting has at most
                CONNECT_TIMEOUT_SECONDS of it.
            max_response_bytes: Of the decompressed body; the rest is not read.
            reuse_connection: Turn off for calls that may not be repeated: a kept connection that
                the provider closes at this moment would leave their outcome unknown.

        Raises:
            OutboundRefused: The target, a redirect's target or a header is not allowed.
            OutboundFailed: No complete answer.
        """
        sent_headers = checked_headers(headers or {})
        target = parse_target(url, policy=policy)
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        for _ in range(MAX_REDIRECTS + 1):
            hop = _Hop(host=target.raw_host or "", policy=policy)
            token = _hop.set(hop)
            try:
                response = await self._send_once(
                    hop, method, target, sent_headers, body, deadline, max_response_bytes,
                    reuse_connection=reuse_connection,
                )  # fmt: skip
            finally:
                _hop.reset(token)
            if not follow_redirects or not _is_redirect(method, response):
                return response
            following = _redirect_target(target, response, policy=policy)
            if following.origin() != target.origin():
                sent_headers = _without_credentials(sent_headers)
            target = following
        raise OutboundRefused(f"More than {MAX_REDIRECTS} redirects.", host=target.raw_host)

    async def close(self) -> None:
        """Close every kept connection."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()

    async def _send_once(
        self,
        hop: _Hop,
        method: str,
        target: URL,
        headers: CIMultiDict[str],
        body: bytes | None,
        deadline: float,
        max_response_bytes: int,
        *,
        reuse_connection: bool,
    ) -> OutboundResponse:
        remaining = max(deadline - asyncio.get_running_loop().time(), 0.001)
        timeout = aiohttp.ClientTimeout(
            total=remaining, sock_connect=min(remaining, CONNECT_TIMEOUT_SECONDS), ceil_threshold=60
        )
        try:
            async with self._session(reuse_connection=reuse_connection).request(
                method, target, headers=headers, data=body, timeout=timeout, allow_redirects=False
            ) as response:
                content, is_truncated = await _read(response, max_response_bytes)
                return OutboundResponse(
                    response.status, response.headers, content, is_truncated, response.charset
                )
        except aiohttp.InvalidURL:
            raise OutboundRefused("The URL cannot be called.", host=hop.host) from None
        except (aiohttp.ClientError, OSError) as error:
            raise hop.refusal or _failure(hop, error) from error

    def _session(self, *, reuse_connection: bool) -> aiohttp.ClientSession:
        if reuse_connection not in self._sessions:
            connector = _CheckedConnector(
                resolver=_CheckedResolver(self.resolver or aiohttp.ThreadedResolver()),
                socket_factory=_open_checked_socket,
                # A cached answer would be looked up, and checked, for another call's policy.
                use_dns_cache=False,
                force_close=not reuse_connection,
                limit=0,  # executors bound what runs at once; waiting here would eat the timeout
            )
            self._sessions[reuse_connection] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
                trust_env=False,
            )
        return self._sessions[reuse_connection]


def checked_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """
    Return the headers, refusing names and values that could smuggle another header.

    Raises:
        OutboundRefused: A header's name is no token, or its value has a control character.
    """
    checked: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise OutboundRefused(f"{name[:100]!r} is not a header name.")
        if _UNSAFE_IN_HEADER_VALUE.search(value):
            raise OutboundRefused(f"The value of header {name} has a control character.")
        if name in checked:
            raise OutboundRefused(f"Header {name} is given twice.")
        checked[name] = value
    return checked


async def _read(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    content = bytearray()
    try:
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > limit:
                response.close()
                return bytes(content[:limit]), True
    except (aiohttp.ClientError, OSError):
        # The status of a refusal is the answer, whole body or not: a 429 must stay a 429.
        if response.status < 400:
            raise
        return bytes(content), True
    return bytes(content), False


def _is_redirect(method: str, response: OutboundResponse) -> bool:
    followed = _REDIRECTS_OF_READS if method in {"GET", "HEAD"} else _REDIRECTS_OF_WRITES
    return response.status in followed and "Location" in response.headers


def _redirect_target(target: URL, response: OutboundResponse, *, policy: OutboundPolicy) -> URL:
    try:
        joined = str(target.join(URL(response.headers["Location"])))
    except ValueError:
        raise OutboundRefused("A redirect's URL cannot be parsed.", host=target.raw_host) from None
    following = parse_target(joined, policy=policy)
    if target.scheme == "https" and following.scheme != "https":
        raise OutboundRefused("A redirect leads from https to http.", host=target.raw_host)
    return following


def _without_credentials(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if not SENSITIVE_HEADER.search(name)
    )


def _failure(hop: _Hop, error: Exception) -> OutboundFailed:
    reason, words = _reason(hop, error)
    return OutboundFailed(
        f"{hop.host}: {words}.",
        reason=reason,
        outcome="unknown" if hop.is_connected else "not_sent",
        host=hop.host,
    )


def _reason(hop: _Hop, error: Exception) -> tuple[FailureReason, str]:
    is_timeout = isinstance(error, TimeoutError)
    if hop.is_connected:
        if is_timeout:
            return "timeout", "no complete answer in time"
        return "connection_broken", "the connection broke before a complete answer"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns_failed", "the name could not be resolved"
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls_failed", "no TLS connection (certificate or protocol)"
    if is_timeout:
        return "connect_timeout", "no connection in time"
    return "connect_failed", "no connection"
