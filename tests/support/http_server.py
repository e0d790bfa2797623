"""Small HTTP and TCP servers on 127.0.0.1, run on the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress

from aiohttp import web


@asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    """Answer every request with `handler`; yields the base URL without a trailing slash."""
    app = web.Application(client_max_size=10_000_000)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Canary:
    """Counts the connections made to a port that nobody may reach."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0

    def _connected(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
        writer.close()


@asynccontextmanager
async def canary() -> AsyncIterator[Canary]:
    """Listen on 127.0.0.1 and, where there is IPv6, on the same port of ::1."""
    bird = Canary()
    servers = [await asyncio.start_server(bird._connected, "127.0.0.1", 0)]
    bird.port = servers[0].sockets[0].getsockname()[1]
    with suppress(OSError):  # a machine without IPv6
        servers.append(await asyncio.start_server(bird._connected, "::1", bird.port))
    try:
        yield bird
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


@asynccontextmanager
async def raw_server(answer: bytes, *, stay_open: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Send `answer` after each request's head, then close; yields the URL and the heads received."""
    heads: list[bytes] = []
    released = asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
            if stay_open:
                await released.wait()

    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        released.set()
        server.close()
        await server.wait_closed()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
