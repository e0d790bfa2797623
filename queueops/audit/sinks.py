"""
Where the audit trail can be sent.

A sink returns once the entries have arrived: written through to the disk, or read by the collector to the end of the
connection. If that is not certain, the sink raises OSError, and all entries are sent again.
"""

from __future__ import annotations

import array
import fcntl
import os
import re
import socket
import ssl
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

COLLECTOR_SECONDS = 10.0
PRIORITY = 13 * 8 + 6  # RFC 5424: facility log audit, informational
MAX_UDP_BYTES = 60_000  # in one datagram
NO_PRINTABLE = re.compile(r"[^!-~]")
STDOUT = "-"


@dataclass(frozen=True, slots=True)
class SentEntry:
    """
    An entry as it is sent.

    Attributes:
        text: JSON in ASCII, without a line break.
        short: The same without the values before and after, for messages that must not be longer.
    """

    text: str
    short: str
    at: str
    action: str


class Sink(Protocol):
    def send(self, lines: Sequence[SentEntry]) -> None:
        """
        Raises:
            OSError: It is not certain that all lines have arrived.
        """


def sink_of(target: str) -> Sink:
    parts = urlsplit(target)
    if target == STDOUT:
        return StandardOutput()
    if parts.scheme == "file":
        return AppendedFile(Path(parts.path))
    host, port = str(parts.hostname), int(parts.port or 0)
    if parts.scheme == "syslog+udp":
        return Datagrams(host, port)
    return Connections(host, port, is_tls=parts.scheme == "syslog+tls")


class StandardOutput:
    """Writes each entry as a line of standard output."""

    def send(self, lines: Sequence[SentEntry]) -> None:
        sys.stdout.write("".join(f"{line.text}\n" for line in lines))
        sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class AppendedFile:
    """Appends a line for each entry to a file. The file is opened each time, so that it may be moved away meanwhile."""

    path: Path

    def send(self, lines: Sequence[SentEntry]) -> None:
        with self.path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":
                file.write(b"\n")  # ends the half line of a process that died; its entry is sent again
            file.write("".join(f"{line.text}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Datagrams:
    """Syslog over UDP (RFC 5426), which does not say whether a message has arrived."""

    host: str
    port: int

    def send(self, lines: Sequence[SentEntry]) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as line_to:
            line_to.settimeout(COLLECTOR_SECONDS)
            line_to.connect(address)  # a connected socket reports a host without a collector at the next send
            for line in lines:
                text = line.text if len(line.text) <= MAX_UDP_BYTES else line.short
                line_to.send(syslog_message(line, text))


@dataclass(frozen=True, slots=True)
class Connections:
    """
    Syslog over TCP (RFC 6587) or TLS (RFC 5425), each message with its length before it.

    Syslog has no acknowledgement, and the collector may never read what the kernel has taken. Therefore a connection is
    closed after each batch. The collector closes its own end once it has read everything, and `send` waits for that.
    """

    host: str
    port: int
    is_tls: bool = False

    def send(self, lines: Sequence[SentEntry]) -> None:
        messages = [syslog_message(line, line.text) for line in lines]
        with socket.create_connection((self.host, self.port), timeout=COLLECTOR_SECONDS) as plain:
            if self.is_tls:
                with ssl.create_default_context().wrap_socket(plain, server_hostname=self.host) as sealed:
                    sealed.sendall(_framed(messages))
                    self._wait_for_the_end(_unsealed(sealed))
            else:
                plain.sendall(_framed(messages))
                self._wait_for_the_end(plain)

    @staticmethod
    def _wait_for_the_end(line_to: socket.socket) -> None:
        with line_to:
            line_to.shutdown(socket.SHUT_WR)
            while line_to.recv(4096):
                pass
            # A collector that dies ends the connection, too, but leaves messages in our kernel's send queue.
            left = array.array("i", [0])
            fcntl.ioctl(line_to.fileno(), termios.TIOCOUTQ, left)
            if left[0]:
                raise ConnectionAbortedError("the collector ended the connection before it had read everything")


def syslog_message(line: SentEntry, text: str) -> bytes:
    """Return a message in the form of RFC 5424; the action is its message id."""
    host = NO_PRINTABLE.sub("", socket.gethostname())[:255] or "-"
    kind = NO_PRINTABLE.sub("", line.action)[:32] or "-"
    return f"<{PRIORITY}>1 {line.at} {host} queueops - {kind} - {text}".encode()


def _framed(messages: Sequence[bytes]) -> bytes:
    return b"".join(b"%d %s" % (len(message), message) for message in messages)


def _unsealed(sealed: ssl.SSLSocket) -> socket.socket:
    """
    Close TLS and return the TCP connection below. A collector may also end its side without a closing message of TLS.
    """
    try:
        return sealed.unwrap()
    except ssl.SSLEOFError:
        return socket.socket(fileno=sealed.detach())
