"""
A syslog collector over TCP as a process of its own: what it has read it appends to a file, whole messages alone.

`python -m tests.support.syslog_receiver PORT FILE [CERTIFICATE]`.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any


class Collector:
    """The process, as a test speaks to it; started again it listens at the same port."""

    def __init__(self, file: Path, *, certificate: Path | None = None) -> None:
        self.file = file
        self.certificate = certificate
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        extra = [str(self.certificate)] if self.certificate else []
        command = [sys.executable, "-m", "tests.support.syslog_receiver", str(self.port), str(self.file), *extra]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(120)

    def messages(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


def serve(port: int, file: Path, certificate: str | None) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - who started it reads it
    context = None
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    with file.open("a") as kept:
        while True:
            line: Any = listener.accept()[0]
            try:
                if context:
                    line = context.wrap_socket(line, server_side=True)
                read_all(line, kept)
            except (OSError, ValueError):
                pass
            finally:
                line.close()


def read_all(line: Any, kept: Any) -> None:
    """Slowly, so that a kill comes between two messages as a rule."""
    unread = b""
    while more := line.recv(700):
        unread += more
        while b" " in unread:
            length, _, rest = unread.partition(b" ")
            if len(rest) < int(length):
                break
            message, unread = rest[: int(length)], rest[int(length) :]
            kept.write(message.decode() + "\n")
            kept.flush()
            os.fsync(kept.fileno())


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
