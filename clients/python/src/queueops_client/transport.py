"""HTTP with kept-alive connections, blocking and asynchronous. `exchange` decides what to send, and when again."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import urlsplit

import httpx

from queueops_client.errors import BadConfiguration, ClientError, Unreachable
from queueops_client.exchange import Answer, Emit, Pause, Received, RequestOptions, Send, Steps, exchange, request_of
from queueops_client.retry import Retry
from queueops_client.trace import trace_headers

Value = TypeVar("Value")
Token = str | Callable[[], str]
AsyncToken = str | Callable[[], str | Awaitable[str]]

DEFAULT_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 10.0
API_ROOT = "/api/v1"


def base_url_of(given: str) -> str:
    """
    Return the installation's address without the API's path and without a slash at its end.

    Raises:
        BadConfiguration
    """
    try:
        url = httpx.URL(given.strip())
        urlsplit(given)  # refuses characters that the line above would escape
    except (httpx.InvalidURL, ValueError):
        raise BadConfiguration(f"{given!r} is not an address.") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise BadConfiguration(f"{given!r} is not an address; give one such as https://queue.example.org.")
    if url.userinfo or url.query or url.fragment:
        raise BadConfiguration("The address may have no user, query or fragment.")
    return str(url).rstrip("/").removesuffix(API_ROOT).rstrip("/")


def _arguments(request: Send, token: str) -> dict[str, Any]:
    if not token.isascii() or not token.isprintable():
        # The key itself is not shown, because messages get into logs.
        raise BadConfiguration("The key or token holds characters that no header can carry.")
    headers = {**trace_headers(), **request.headers}
    if token:
        headers["authorization"] = f"Bearer {token}"
    timeout = httpx.USE_CLIENT_DEFAULT if request.timeout is None else request.timeout
    return {
        "method": request.method,
        "url": request.path,
        "params": request.params,
        "headers": headers,
        "timeout": timeout,
    }


def resumed(steps: Steps[Any], outcome: Any) -> Any:
    """Pass an outcome to the steps, an expected error as an exception, and return the next step."""
    return steps.throw(outcome) if isinstance(outcome, ClientError) else steps.send(outcome)


def _unreachable(error: httpx.RequestError) -> Unreachable:
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    cause = str(error) or type(error).__name__
    return Unreachable(f"{error.request.url.copy_with(query=None)}: {cause}", may_have_arrived=not never_sent)


def _received(response: httpx.Response) -> Received:
    return Received(
        response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content
    )


class _Common:
    """The part that both transports share."""

    def __init__(self, base_url: str, *, timeout: float, retry: Retry | None) -> None:
        self.base_url = base_url_of(base_url)
        self.retry = retry or Retry()
        self.options: dict[str, Any] = {
            "base_url": self.base_url,
            "timeout": httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT_SECONDS)),
            "headers": {"user-agent": "queueops-client"},
            # Each thread that waits keeps a connection: by default the 101st request would wait for one of them.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"

    def steps_of(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Steps[Answer]:
        return exchange(request_of(method, path, **options), self.retry)


class Transport(_Common):
    """
    The blocking transport; any number of threads may share one. It must not be used on both sides of a fork.

    Args:
        base_url: The installation's address, such as `https://queue.example.org`.
        token: A producer key or JWT, or a function that returns one, which is called before each attempt.
        timeout: Seconds to wait for the next byte, not for a request as a whole.
        retry: When a request is repeated; `retry.NEVER` for callers with a schedule of their own.
    """

    def __init__(
        self,
        base_url: str,
        token: Token = "",
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(base_url, timeout=timeout, retry=retry)
        self._token = token
        self._http = httpx.Client(**self.options)

    def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Answer:
        """
        Send a request, and repeat it where that is safe and may help.

        Args:
            path: Below the installation's address: `/api/v1/jobs/`.

        Raises:
            ApiError: The server refused; its subclass says in which way.
            Unreachable: No answer came.
        """
        return self.run(self.steps_of(method, path, **options))

    def run(self, steps: Steps[Value]) -> Value:
        """Carry out all steps and return what they return."""
        try:
            step = next(steps)
            while True:
                step = resumed(steps, self.take(step))
        except StopIteration as end:
            value: Value = end.value
            return value
        finally:
            steps.close()

    def iterate(self, steps: Steps[None]) -> Iterator[Any]:
        """Carry out all steps and yield the items that they emit."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Emit):
                    yield step.item
                step = resumed(steps, self.take(step))
        except StopIteration:
            return
        finally:
            steps.close()

    def token(self) -> str:
        return self._token() if callable(self._token) else self._token

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def take(self, step: Any) -> Any:
        """Return the outcome of a step. An expected error is returned, too: the steps deal with it."""
        try:
            if isinstance(step, Send):
                return self._send(step)
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            if callable(step):
                return step()
        except ClientError as error:
            return error
        return None

    def _send(self, request: Send) -> Received:
        content = request.content() if callable(request.content) else request.content
        try:
            return _received(self._http.request(**_arguments(request, self.token()), content=content))
        except httpx.RequestError as error:
            raise _unreachable(error) from error


class AsyncTransport(_Common):
    """
    The transport for asyncio; it belongs to the event loop that it is first used on.

    Args:
        token: As for Transport; the function may be asynchronous.
    """

    def __init__(
        self,
        base_url: str,
        token: AsyncToken = "",
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(base_url, timeout=timeout, retry=retry)
        self._token = token
        self._http = httpx.AsyncClient(**self.options)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        """As Transport.request."""
        return await self.run(self.steps_of(method, path, **options))

    async def run(self, steps: Steps[Value]) -> Value:
        """As Transport.run."""
        try:
            step = next(steps)
            while True:
                step = resumed(steps, await self.take(step))
        except StopIteration as end:
            value: Value = end.value
            return value
        finally:
            steps.close()

    async def iterate(self, steps: Steps[None]) -> AsyncIterator[Any]:
        """As Transport.iterate."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Emit):
                    yield step.item
                step = resumed(steps, await self.take(step))
        except StopIteration:
            return
        finally:
            steps.close()

    async def token(self) -> str:
        token = self._token() if callable(self._token) else self._token
        return await token if inspect.isawaitable(token) else token

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def take(self, step: Any) -> Any:
        try:
            if isinstance(step, Send):
                return await self._send(step)
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            if callable(step):
                return await step()
        except ClientError as error:
            return error
        return None

    async def _send(self, request: Send) -> Received:
        content = _later(request.content()) if callable(request.content) else request.content
        token = await self.token()
        try:
            return _received(await self._http.request(**_arguments(request, token), content=content))
        except httpx.RequestError as error:
            raise _unreachable(error) from error


async def _later(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block
