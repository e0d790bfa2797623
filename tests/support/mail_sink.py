"""A mail server on 127.0.0.1 that keeps what it is given: enough of RFC 5321 for Python's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message


@dataclass
class MailSink:
    """`refusals`: reply to RCPT by address, such as `550 no such mailbox`; each address is refused so often."""

    port: int = 0
    messages: list[Message] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    refusals: dict[str, list[str]] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            await _say(writer, "220 sink ESMTP")
            while line := (await reader.readline()).decode().strip():
                verb = line.split(" ", 1)[0].upper()
                if verb == "RCPT":
                    await _say(writer, self._take_recipient(line))
                elif verb == "DATA":
                    await _say(writer, "354 go on")
                    text = await reader.readuntil(b"\r\n.\r\n")
                    self.messages.append(message_from_bytes(text.removesuffix(b".\r\n")))
                    await _say(writer, "250 kept")
                elif verb == "QUIT":
                    await _say(writer, "221 bye")
                    return
                else:
                    await _say(writer, "250 sink")

    def _take_recipient(self, line: str) -> str:
        address = line.split("<", 1)[1].split(">", 1)[0]
        if waiting := self.refusals.get(address):
            return waiting.pop(0)
        self.recipients.append(address)
        return "250 welcome"


async def _say(writer: asyncio.StreamWriter, reply: str) -> None:
    writer.write(f"{reply}\r\n".encode())
    await writer.drain()


@asynccontextmanager
async def mail_sink() -> AsyncIterator[MailSink]:
    sink = MailSink()
    server = await asyncio.start_server(sink.serve, "127.0.0.1", 0)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
        await server.wait_closed()
