"""A small HTTP server for the tests: it answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int  # which of the client's connections it came over

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """Cut: the connection ends in the middle of the answer."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


Answer = Callable[[Asked], Reply]


def refusal(status: int, code: str, *, headers: dict[str, str] | None = None, **error: Any) -> Reply:
    return Reply(status, {"error": {"code": code, "message": f"It is {code}.", **error}}, headers or {})


class StandIn:
    """
    Attributes:
        answers: Given first, one a request; then `answer` is asked.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[Reply] = []
        self.answer: Answer = lambda _: Reply()
        self.url = ""

    def will_reply(
        self, status: int = 200, body: Any = None, *, headers: dict[str, str] | None = None, cut: bool = False
    ) -> None:
        self.answers.append(Reply(status, {} if body is None else body, headers or {}, cut))

    def will_refuse(self, status: int, code: str, *, times: int = 1, retry_after: str = "", **error: Any) -> None:
        headers = {"Retry-After": retry_after} if retry_after else {}
        self.answers += [refusal(status, code, headers=headers, **error) for _ in range(times)]

    def reply_to(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        return self.answers.pop(0) if self.answers else self.answer(asked)


@contextmanager
def stand_in() -> Iterator[StandIn]:
    server_of = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open

        def respond(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply = server_of.reply_to(
                Asked(
                    self.command,
                    parts.path,
                    {name: values[0] for name, values in parse_qs(parts.query).items()},
                    {name.lower(): value for name, value in self.headers.items()},
                    body,
                    self.client_address[1],
                )
            )
            raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw) + reply.cut))
            self.end_headers()
            self.wfile.write(raw)
            self.close_connection = reply.cut

        do_GET = do_POST = respond  # noqa: N815 (the base class's names)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server_of.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server_of
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
