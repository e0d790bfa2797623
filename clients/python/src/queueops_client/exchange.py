"""
One request and its answer, without any input or output: what to send, when to send it again, what an answer means.

Everything the client does is written once, as a generator of steps: Send, Pause, Emit, or a function of no arguments.
`transport` carries out the steps, blocking in one class and awaiting in the other, and sends back each outcome.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from queueops_client.errors import ApiError, Unreachable, error_type
from queueops_client.retry import Retry

Value = TypeVar("Value")
Item = TypeVar("Item")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWN_CHARACTERS = 200  # of an answer that did not come from QueueOps


@dataclass(frozen=True, slots=True)
class Send:
    """
    A step: send a request. Its outcome is a Received.

    Attributes:
        content: Bytes, or a function that begins the body anew for every attempt.
        is_safe: Whether carrying the request out twice has the effect of once.
    """

    method: str
    path: str
    content: bytes | Callable[[], Iterator[bytes]] | None = None
    params: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    is_safe: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Generic[Item]):
    """Hand an item to the caller who iterates."""

    item: Item


@dataclass(frozen=True, slots=True)
class Answer:
    """
    Attributes:
        body: The parsed JSON; None without a body.
        headers: Names in lower case.
    """

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait by the Retry-After header; None: there is no readable one."""
        return retry_after_of(self.headers)


class RequestOptions(TypedDict, total=False):
    """
    The options of a request besides its method and path.

    Attributes:
        json: The body as a value, to be sent as JSON.
        content: The body's bytes, instead of `json`; with a content-type among the headers.
        params: The query's parameters. Values that are None are left out; lists are joined by commas.
        timeout: Seconds to wait for the next byte; by default the transport's.
        is_safe: Whether carrying the request out twice has the effect of once. By default true for a request that
            reads, or has an Idempotency-Key.
    """

    json: Any
    content: bytes | Callable[[], Iterator[bytes]] | None
    params: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    timeout: float | None
    is_safe: bool


Steps: TypeAlias = Generator[Any, Any, Value]


def request_of(method: str, path: str, **options: Unpack[RequestOptions]) -> Send:
    content = options.get("content")
    headers = {name.lower(): value for name, value in (options.get("headers") or {}).items()}
    if (body := options.get("json")) is not None:
        content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        headers.setdefault("content-type", "application/json")
    is_safe = options.get("is_safe", method in SAFE_METHODS or "idempotency-key" in headers)
    params = {name: _as_text(value) for name, value in (options.get("params") or {}).items() if value is not None}
    return Send(method, path, content, params or None, headers, options.get("timeout"), is_safe)


def exchange(request: Send, retry: Retry) -> Steps[Answer]:
    """
    Send a request, and repeat it as `retry` allows until it succeeds.

    Raises:
        ApiError, Unreachable: The last attempt's error; an Unreachable has the request's idempotency key.
    """
    began = time.monotonic()
    repeat = 0
    while True:
        try:
            received: Received = yield request
            return answer_of(received)
        except (ApiError, Unreachable) as error:
            repeat += 1
            pause = retry.pause_seconds(error, repeat=repeat, elapsed=time.monotonic() - began, is_safe=request.is_safe)
            if isinstance(error, Unreachable):
                error.idempotency_key = request.headers.get("idempotency-key")
            if pause is None:
                raise
            if retry.told:
                retry.told(error, repeat)
        yield Pause(pause)


def answer_of(received: Received) -> Answer:
    """
    Raises:
        ApiError: Its subclass for the answer's code and status.
    """
    body, is_json = _parsed(received)
    if 200 <= received.status < 300 and is_json:  # noqa: PLR2004
        return Answer(received.status, body, received.headers)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        error = {"code": f"http_{received.status}", "message": _not_ours(received)}
    raise error_type(error["code"], received.status)(
        error["code"],
        str(error.get("message") or error["code"]),
        status=received.status,
        fields=error.get("fields"),
        details=error.get("details"),
        retry_after=retry_after_of(received.headers),
    )


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by a Retry-After header, a number or a date; None: there is no readable one."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _parsed(received: Received) -> tuple[Any, bool]:
    if not received.content:
        return None, True
    try:
        return json.loads(received.content), True
    except ValueError:
        return None, False


def _not_ours(received: Received) -> str:
    if location := received.headers.get("location"):
        return f"The address redirects to {location}; name that one."
    kind = received.headers.get("content-type", "no type")
    shown = " ".join(received.content.decode(errors="replace").split())[:SHOWN_CHARACTERS]
    return f"This is not an answer of QueueOps (status {received.status}, {kind}): {shown}"


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value))
    return str(value)
