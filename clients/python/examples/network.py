"""A network between the app and QueueOps that can be taken away: a relay on 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Network:
    """Listens on its own port. While it is up, it passes all bytes on to the server."""

    def __init__(self, server: str) -> None:
        target = urlsplit(server)
        self._target = (target.hostname or "127.0.0.1", target.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._is_up = True
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def go_down(self) -> None:
        self._is_up = False
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        self._is_up = True

    def _listen(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if not self._is_up:
                client.close()
                continue
            server = socket.create_connection(self._target)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        self._open.add(source)
        with suppress(OSError):
            while block := source.recv(65_536):
                target.sendall(block)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
