"""A proxy before the server that cuts answers, refuses sockets and drops connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Proxy:
    """
    Attributes:
        cuts: So many answers are cut: the server has done what it was asked, and the client does not learn it.
        cut_path: Of requests whose heads hold this.
        refuses_sockets: As a proxy that knows nothing of websockets does.
        refuses_wait: As a server of an earlier version does.
        sockets: Opened so far; waits: requests that asked to wait.
    """

    url: str
    cuts: int = 0
    cut_path: str = ""
    refuses_sockets: bool = False
    refuses_wait: bool = False
    sockets: int = 0
    waits: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def drop(self) -> None:
        """End every connection."""
        for writer in list(self.open):
            self.loop.call_soon_threadsafe(writer.transport.abort)


@asynccontextmanager
async def proxy_to(address: str) -> AsyncIterator[Proxy]:
    target = urlsplit(address)
    proxy = Proxy("")

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        proxy.open.add(back)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await client.readuntil(b"\r\n\r\n")
            if b"upgrade: websocket" in head.lower():
                if proxy.refuses_sockets:
                    back.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    await back.drain()
                    back.close()
                    return
                proxy.sockets += 1
            asks_to_wait = b"wait=" in head.splitlines()[0]
            proxy.waits += asks_to_wait
            if proxy.refuses_wait and asks_to_wait:
                refusal = b'{"error": {"code": "invalid_query", "message": "There is no such parameter."}}'
                lines = (b"HTTP/1.1 400 Bad Request", b"Content-Type: application/json", b"Connection: close")
                length = b"Content-Length: %d" % len(refusal)
                back.write(b"\r\n".join([*lines, length, b"", refusal]))
                await back.drain()
                back.close()
                return
            server, forth = await asyncio.open_connection(target.hostname, target.port)
            proxy.open.add(forth)
            cuts = proxy.cuts > 0 and proxy.cut_path.encode() in head
            forth.write(head if b"upgrade:" in head.lower() else _closing(head))
            sending = asyncio.create_task(_copy(client, forth))
            if cuts:
                proxy.cuts -= 1
                await server.read(20)
                back.write(b"HTTP/1.1 20")
            else:
                await _copy(server, back)
            sending.cancel()
            forth.close()
        proxy.open.discard(back)
        back.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        proxy.drop()
        listening.close()


def _closing(head: bytes) -> bytes:
    """One request a connection, so that each is seen."""
    lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while block := await source.read(65_536):
            target.write(block)
            await target.drain()
