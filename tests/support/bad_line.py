"""A TCP line to a local server that a test cuts, slows down, leads elsewhere, or lets lose what the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.background import in_background

BLOCK_BYTES = 65_536


class BadLine:
    """
    Listens on `port` of 127.0.0.1 and passes on to the server's port or socket.

    Attributes:
        carried: Connections that reached the server.
        answers_lost: Answers that the server gave and nobody got.
    """

    def __init__(self, server: int | Path) -> None:
        self.port = 0
        self.carried = 0
        self.answers_lost = 0
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._delay_seconds = 0.0
        self._bytes_a_second = 0
        self._silent_up_to = 0.0
        self._to_lose = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End every connection and let none through, until it is mended."""
        self._do(partial(self._set_cut, is_cut=True))

    def mend(self) -> None:
        """Work as a line should; what was kept back is lost."""
        self._do(partial(self._set_cut, is_cut=False))
        self._do(partial(setattr, self, "_silent_up_to", 0.0))
        self._do(partial(setattr, self, "_to_lose", 0))
        self.delay(0)
        self.narrow(0)

    def reset(self) -> None:
        """End every connection, and go on."""
        self.cut()
        self._do(partial(self._set_cut, is_cut=False))

    def fall_silent(self) -> None:
        """Take what is sent and pass nothing on, in either direction and on new connections, until it is mended."""
        self._do(partial(setattr, self, "_silent_up_to", float("inf")))

    def forget(self) -> None:
        """Fall silent on the connections that there are; new ones work."""
        self._do(lambda: setattr(self, "_silent_up_to", self.carried))

    def lead_to(self, server: int | Path) -> None:
        """End every connection; new ones go to another server."""
        self._do(partial(setattr, self, "_server", server))
        self.reset()

    def narrow(self, bytes_a_second: int) -> None:
        """Let each connection carry so much in each direction; 0: all there is."""
        self._do(partial(setattr, self, "_bytes_a_second", bytes_a_second))

    def delay(self, seconds: float) -> None:
        """Let every block of bytes take so long, in both directions."""
        self._do(partial(setattr, self, "_delay_seconds", seconds))

    def lose_answers(self, count: int) -> None:
        """Cut so many connections, each at the moment when the server answers: the request was carried out."""
        self._do(partial(setattr, self, "_to_lose", count))

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        self._open.add(writer)
        try:
            if not self._is_cut:
                with suppress(OSError):
                    await self._through(reader, writer)
        finally:
            self._open.discard(writer)
            self._serving.discard(serving)
            writer.transport.abort()

    async def end(self) -> None:
        """End every connection, and return when nothing serves one any more."""
        self._set_cut(is_cut=True)
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._server, Path):
            from_server, to_server = await asyncio.open_unix_connection(self._server)
        else:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server)
        self._open.add(to_server)
        self.carried += 1
        number = self.carried
        ways = (
            asyncio.create_task(self._pass_on(number, reader, to_server)),
            asyncio.create_task(self._pass_on(number, from_server, writer, are_answers=True)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(to_server)
            to_server.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(
        self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, are_answers: bool = False
    ) -> None:
        while block := await source.read(self._bytes_a_second // 10 or BLOCK_BYTES):
            if number <= self._silent_up_to:
                continue
            if are_answers and self._to_lose:
                self._to_lose -= 1
                self.answers_lost += 1
                return
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            if self._bytes_a_second:
                await asyncio.sleep(len(block) / self._bytes_a_second)
            target.write(block)
            await target.drain()

    def _set_cut(self, *, is_cut: bool) -> None:
        self._is_cut = is_cut
        if is_cut:
            self._silent_up_to = 0.0
            for writer in self._open:
                writer.transport.abort()

    def _do(self, change: Callable[[], Any]) -> None:
        """Change something on the line's own event loop, and wait until it is so."""

        async def changed() -> None:
            change()

        asyncio.run_coroutine_threadsafe(changed(), self._loop).result(60)


@contextmanager
def bad_line(server: int | Path) -> Iterator[BadLine]:
    with in_background(_listening(server)) as line:
        yield line


@asynccontextmanager
async def _listening(server: int | Path) -> AsyncIterator[BadLine]:
    line = BadLine(server)
    listener = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    line.port = listener.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        listener.close()
        await line.end()
