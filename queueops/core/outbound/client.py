"""
The only HTTP client for addresses that somebody else chose.

`policy` decides what may be called, `connector` enforces it at every connection, and
this module limits what a URL cannot show: redirects, sizes, time, headers.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Literal
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from queueops.core.errors import QueueOpsError
from queueops.core.values.masking import is_secret_header
from queueops.core.values.retry_after import MAY_SPEAK_OF_A_QUOTA

from .connector import Passage, checked_connector, current_passage
from .encodings import ACCEPTED, Inflater, UnreadableEncoding
from .origin_secret import OriginSecret
from .policy import OutboundPolicy, OutboundRefused, ascii_of, parse_target

MAX_REDIRECTS = 5
MAX_HEADER_BYTES = 65_536  # of one header: a page's Content-Security-Policy alone may exceed the usual 8 kB
OPEN_END_SECONDS = 1.0  # how long a complete stream may take to close, so that its connection can be reused
MAX_REFUSAL_BYTES = 1_000_000  # kept of a body that is no success, where a success is passed on and not kept
CONNECT_TIMEOUT_SECONDS = 10.0
USER_AGENT = "queueops (gzip)"  # Google compresses only for agents that name gzip

# Headers that the connection sets or removes: no caller may choose them.
RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE_IN_HEADER_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_REDIRECTS_OF_READS = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_OF_WRITES = frozenset({307, 308})
_FIRST_ERROR_STATUS = 400

FailureReason = Literal[
    "dns_failed",
    "tls_failed",
    "connect_timeout",
    "connect_failed",
    "timeout",
    "connection_broken",
    "unreadable_encoding",
]


class OutboundFailed(QueueOpsError):
    """
    An outbound call got no complete answer.

    `outcome` is `not_sent` while no connection had been made, and `unknown` from then on. It is `answered`, with
    `answered_status`, if the answer came and cannot be read. `reason` is a FailureReason.
    """

    code = "outbound_failed"
    status = 502
    detail_fields = ("reason", "outcome", "host", "answered_status")


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """
    A provider's answer. `body` is decompressed and no longer than the caller asked for; `host` is the host that
    answered.
    """

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    is_truncated: bool
    charset: str | None
    host: str = ""


class CallNotes:
    """
    The outcome of the calls of one context.

    Attributes:
        answers: The status and body size in bytes of each call's answer; status 0: there was no answer.
        refusal: The last answer whose status may speak of a quota.
        headers: The headers of the last answer that was no 429.
    """

    __slots__ = ("answers", "headers", "refusal")

    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []
        self.refusal: OutboundResponse | None = None
        self.headers: CIMultiDictProxy[str] | None = None


# None: calls are not noted.
call_notes: ContextVar[CallNotes | None] = ContextVar("call_notes", default=None)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: URL
    headers: CIMultiDict[str]
    body: bytes | None
    max_response_bytes: int
    on_piece: Callable[[bytes], Awaitable[None] | None] | None
    keeps_body: bool
    piece_seconds: float | None
    is_complete: Callable[[], bool] | None
    shown: OriginSecret


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
        on_piece: Callable[[bytes], Awaitable[None] | None] | None = None,
        keeps_body: bool = True,
        piece_seconds: float | None = None,
        is_complete: Callable[[], bool] | None = None,
        shown: OriginSecret | None = None,
    ) -> OutboundResponse:
        """
        Make one call. It is never repeated here.

        301, 302 and 303 are followed for GET and HEAD, 307 and 308 for every method, at most
        MAX_REDIRECTS times, never from https to http. Headers that carry credentials stay behind
        when the origin changes. A redirect that is not followed is returned as the answer.

        Args:
            timeout_seconds: For the whole call, redirects included. Connecting has at most
                CONNECT_TIMEOUT_SECONDS of it.
            max_response_bytes: The most that is read of the decompressed body.
            reuse_connection: Turn off for calls that may not be repeated: a kept connection that
                the provider closes at this moment would leave their outcome unknown.
            on_piece: Called with each piece of a success's body as it arrives; an error that it raises ends the call.
                If it returns something to await, the next piece waits for that.
            keeps_body: Off: the body of a success is for `on_piece` alone, and empty in the answer.
            piece_seconds: The longest wait for each piece of the answer, within `timeout_seconds`.
            is_complete: Called before each piece. Once it is True, the end is awaited for OPEN_END_SECONDS at most.
            shown: A secret for this origin alone. A redirect that would take it to another one is refused.

        Raises:
            OutboundRefused: The target, a redirect's target or a header is not allowed.
            OutboundFailed: There was no complete answer.
        """
        shown = shown or OriginSecret()
        target = shown.on(parse_target(url, policy=policy))
        request = _Request(
            method,
            target,
            checked_headers({**(headers or {}), **shown.headers}),
            body,
            max_response_bytes,
            on_piece,
            keeps_body,
            piece_seconds,
            is_complete,
            shown,
        )
        session = self._session(reuse_connection=reuse_connection)
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        for _ in range(MAX_REDIRECTS + 1):
            response = await _send_once(session, request, policy=policy, deadline=deadline)
            if not follow_redirects or not _is_redirect(request, response):
                return response
            request = _redirected(request, response, policy=policy)
        raise OutboundRefused(f"More than {MAX_REDIRECTS} redirects.", host=target.raw_host)

    async def close(self) -> None:
        """Close every kept connection."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()

    def _session(self, *, reuse_connection: bool) -> aiohttp.ClientSession:
        if reuse_connection not in self._sessions:
            self._sessions[reuse_connection] = aiohttp.ClientSession(
                connector=checked_connector(resolver=self.resolver, reuse=reuse_connection),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": ACCEPTED},
                auto_decompress=False,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                trust_env=False,  # a proxy would connect where no check is made
            )
        return self._sessions[reuse_connection]


def checked_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """
    Return the headers, refusing names and values that could smuggle another header.

    Raises:
        OutboundRefused: A name is no token or given twice, or a value has a control character.
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


async def _send_once(
    session: aiohttp.ClientSession, request: _Request, *, policy: OutboundPolicy, deadline: float
) -> OutboundResponse:
    remaining = max(deadline - asyncio.get_running_loop().time(), 0.001)
    timeout = aiohttp.ClientTimeout(
        total=remaining, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=request.piece_seconds
    )
    passage = Passage(host=request.target.raw_host or "", policy=policy)
    token = current_passage.set(passage)
    try:
        async with session.request(
            request.method,
            request.target,
            headers=request.headers,
            data=request.body,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            try:
                body, is_truncated = await _read(response, request)
            except UnreadableEncoding as error:
                _note(response.status, 0)
                raise OutboundFailed(
                    f"{passage.host} answered {response.status} and cannot be read: {error.message}.",
                    reason="unreadable_encoding",
                    outcome="answered",
                    host=passage.host,
                    answered_status=response.status,
                ) from None
            _note(response.status, len(body))
            answer = OutboundResponse(
                response.status, response.headers, body, is_truncated, response.charset, passage.host
            )
            if (notes := call_notes.get()) is not None:
                if answer.status in MAY_SPEAK_OF_A_QUOTA:
                    notes.refusal = answer
                if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                    notes.headers = answer.headers
            return answer
    except aiohttp.InvalidURL:
        raise OutboundRefused("The URL cannot be called.", host=passage.host) from None
    except asyncio.CancelledError:
        _note(0, 0)
        raise
    except (aiohttp.ClientError, OSError) as error:
        if passage.refusal is None:
            _note(0, 0)
        raise passage.refusal or _failure(passage, error) from error
    finally:
        current_passage.reset(token)


def _note(status: int, size: int) -> None:
    notes = call_notes.get()
    if notes is not None:
        notes.answers.append((status, size))


async def _read(response: aiohttp.ClientResponse, request: _Request) -> tuple[bytes, bool]:
    content, limit, size = bytearray(), request.max_response_bytes, 0
    wants_pieces = response.status < HTTPStatus.MULTIPLE_CHOICES
    keeps = request.keeps_body or not wants_pieces
    if keeps and not request.keeps_body:
        limit = min(limit, MAX_REFUSAL_BYTES)
    try:
        inflater = Inflater("" if request.method == "HEAD" else response.headers.get("Content-Encoding", ""))
        while piece := await _next(response, request.is_complete if wants_pieces else None):
            chunk = inflater.feed(piece, limit - size)
            size += len(chunk)
            if keeps:
                content += chunk
            if request.on_piece is not None and wants_pieces and chunk:
                taken = request.on_piece(chunk)
                if taken is not None:
                    await taken
            if size > limit:
                response.close()
                return bytes(content[:limit]), True
    except (aiohttp.ClientError, OSError, UnreadableEncoding):
        # An error status counts even if its body is cut off: a 429 must stay a 429.
        if response.status < _FIRST_ERROR_STATUS:
            raise
        return bytes(content), True
    return bytes(content), False


async def _next(response: aiohttp.ClientResponse, is_complete: Callable[[], bool] | None) -> bytes:
    """Return the next piece of a body; empty: the body has ended, or is complete though its stream stays open."""
    if is_complete is None or not is_complete():
        return await response.content.readany()
    try:
        async with asyncio.timeout(OPEN_END_SECONDS) as lingering:
            return await response.content.readany()
    except TimeoutError:
        if not lingering.expired():
            raise
        response.close()
        return b""


def _is_redirect(request: _Request, response: OutboundResponse) -> bool:
    # After a POST, a 303 says that the POST was done: following the redirect could fail and hide that.
    followed = _REDIRECTS_OF_READS if request.method in {"GET", "HEAD"} else _REDIRECTS_OF_WRITES
    return response.status in followed and "Location" in response.headers


def _redirected(request: _Request, response: OutboundResponse, *, policy: OutboundPolicy) -> _Request:
    host = request.target.raw_host
    try:
        location = _joined(request.target, ascii_of(response.headers["Location"].strip()))
    except ValueError:
        raise OutboundRefused("A redirect's URL cannot be parsed.", host=host) from None
    target = parse_target(location, policy=policy)
    if request.target.scheme == "https" and target.scheme != "https":
        raise OutboundRefused("A redirect leads from https to http.", host=host)
    shown = request.shown
    if target.origin() == request.target.origin():
        return replace(request, target=shown.on(target))
    if shown.is_in(location):
        raise OutboundRefused("A redirect would take the credential to another host.", host=host)
    own = {name.lower() for name in shown.headers}
    kept = (item for item in request.headers.items() if not is_secret_header(item[0]) and item[0].lower() not in own)
    return replace(request, target=target, headers=CIMultiDict(kept), shown=OriginSecret())


def _joined(base: URL, location: str) -> str:
    """Return a redirect's target; a full URL, or a path from the host's root, keeps its spelling."""
    if location.startswith("/") and not location.startswith("//"):
        return f"{base.origin()}{location}"
    return urljoin(str(base), location)


def _failure(passage: Passage, error: Exception) -> OutboundFailed:
    reason, words = _reason(passage, error)
    return OutboundFailed(
        f"{passage.host}: {words}.",
        reason=reason,
        outcome="unknown" if passage.is_connected else "not_sent",
        host=passage.host,
    )


def _reason(passage: Passage, error: Exception) -> tuple[FailureReason, str]:
    is_timeout = isinstance(error, TimeoutError)
    if passage.is_connected:
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
