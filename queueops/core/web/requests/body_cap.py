"""The cap on request bodies, in ASGI, because Django and DRF would first hold a body in memory."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from queueops.core.errors import QueueOpsError
from queueops.core.web.refusals import NO_ORIGIN, CrossOrigin, refusal

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyTooLarge(QueueOpsError):
    """The request's body is larger than this address takes."""

    code = "body_too_large"
    status = 413
    detail_fields = ("limit_bytes",)


def too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body may have at most {limit_bytes:,} bytes.", limit_bytes=limit_bytes)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """
    How large a body may be.

    Attributes:
        default_bytes: The limit of every path not named below.
        path_bytes: Path -> its own limit; named with a trailing slash, matched with and without.
    """

    default_bytes: int
    path_bytes: Mapping[str, int]

    def of(self, path: str) -> int:
        return self.path_bytes.get(path if path.endswith("/") else f"{path}/", self.default_bytes)


class BodyCap:
    """
    Middleware that answers 413 as soon as a body is known to be too large. With a Content-Length, that is before a byte
    of the body is read. Without a Content-Length (chunked), that is at the first byte beyond the limit.
    """

    def __init__(self, application: Application, limits: BodyLimits, cross_origin: CrossOrigin = NO_ORIGIN) -> None:
        self._application = application
        self._limits = limits
        self._cross_origin = cross_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = self._limits.of(scope["path"])

        async def refuse() -> None:
            error = too_large(limit)
            headers, body = refusal(
                error, path=scope["path"], headers=scope["headers"], cross_origin=self._cross_origin
            )
            headers.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        if _declared_length(scope) > limit:
            await refuse()
            return
        await _Guarded(limit, receive, send, refuse).run(self._application, scope)


class _Guarded:
    """One request whose body is counted while it is read."""

    def __init__(self, limit: int, receive: Receive, send: Send, refuse: Callable[[], Awaitable[None]]) -> None:
        self._limit = limit
        self._receive = receive
        self._send = send
        self._refuse = refuse
        self._received = 0
        self._answered = False
        self._refused = False

    async def run(self, application: Application, scope: Scope) -> None:
        await application(scope, self._counted_receive, self._guarded_send)

    async def _counted_receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._limit and not self._refused:
                self._refused = True
                if not self._answered:
                    await self._refuse()
        # The application takes its client for disconnected, and stops reading.
        return {"type": "http.disconnect"} if self._refused else message

    async def _guarded_send(self, message: Message) -> None:
        if not self._refused:
            self._answered = True
            await self._send(message)


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length":
            # The server refuses a length that is no number; the bytes are counted while they are read anyway.
            return int(value) if value.isdigit() else 0
    return 0
