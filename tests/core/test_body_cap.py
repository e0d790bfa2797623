"""The cap in ASGI, and the one where daphne's bytes arrive, over a real socket."""

import asyncio
import http.client
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from queueops.core.web.body_cap import BodyCap, BodyLimits
from tests.support.http_server import listens
from tests.support.processes import free_port, started, wait_for

pytestmark = pytest.mark.proves("S4")

LIMITS = BodyLimits(default_bytes=1_000, path_bytes={"/large/": 5_000})

SERVER = """
import sys
from queueops.core.web.body_cap import BodyLimits
from queueops.core.web.refusals import CrossOrigin
from queueops.core.web.server import serve

async def application(scope, receive, send):
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})

print("serving", flush=True)
serve(application, host="127.0.0.1", port=int(sys.argv[1]), limits=BodyLimits(1000, {"/large/": 5000}),
      cross_origin=CrossOrigin(r"^/(api|large)/", {"https://app.example.org"}, ("Retry-After",)))
"""


def exchange(path: str, chunks: list[bytes], *, headers: dict[bytes, bytes] | None = None):
    """Send chunks through the cap, and return (bytes the application read, what was sent)."""
    read: list[bytes] = []
    sent: list[dict[str, Any]] = []
    pending = list(chunks)

    async def application(scope, receive, send):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            read.append(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"taken"})

    async def receive():
        body = pending.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(pending)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": list((headers or {}).items())}
    asyncio.run(BodyCap(application, LIMITS)(scope, receive, send))
    return b"".join(read), sent


def test_a_body_at_the_limit_passes():
    read, sent = exchange("/", [b"x" * 600, b"x" * 400])
    assert len(read) == 1_000
    assert sent[0]["status"] == 200


def test_a_declared_length_above_the_limit_is_refused_before_a_byte_is_read():
    read, sent = exchange("/", [b"x" * 2_000], headers={b"content-length": b"2000"})
    assert read == b""
    assert sent[0]["status"] == 413


def test_a_chunked_body_is_refused_at_the_first_byte_beyond_the_limit():
    read, sent = exchange("/", [b"x" * 1_000, b"x", b"x" * 1_000_000])
    assert len(read) == 1_000
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"]) == {
        "error": {
            "code": "body_too_large",
            "message": "The body may have at most 1,000 bytes.",
            "details": {"limit_bytes": 1_000},
        }
    }


def test_a_path_may_have_its_own_limit():
    for path in ("/large/", "/large"):
        assert exchange(path, [b"x" * 5_000])[1][0]["status"] == 200
        assert exchange(path, [b"x" * 5_001])[1][0]["status"] == 413


def test_other_paths_do_not_inherit_a_limit():
    assert exchange("/large/more/", [b"x" * 1_001])[1][0]["status"] == 413


@pytest.fixture(scope="module")
def server_port() -> Iterator[int]:
    port = free_port()
    with started(sys.executable, "-c", SERVER, str(port), environ={"PYTHONPATH": "."}) as server:
        server.wait_for_output("serving")
        wait_for(lambda: listens(port), what="the server")
        yield port


def post(port: int, path: str, body: bytes | Iterator[bytes], *, content_type: str = "text/plain") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body=body, headers={"Content-Type": content_type})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_daphne_passes_bodies_within_the_limit(server_port: int):
    assert post(server_port, "/", b"x" * 1_000) == (200, b"1000")
    assert post(server_port, "/large/?a=b", b"x" * 5_000) == (200, b"5000")


def test_a_form_that_nobody_can_parse_is_the_applications_to_refuse(server_port: int):
    for form in ("multipart/form-data; boundary=x", "multipart/form-data"):
        assert post(server_port, "/", b"no form", content_type=form) == (200, b"7")


def test_daphne_refuses_a_declared_length_above_the_limit(server_port: int):
    status, body = post(server_port, "/", b"x" * 1_000_000)
    assert status == 413
    assert json.loads(body)["error"]["code"] == "body_too_large"


def test_pages_elsewhere_may_read_a_refusal_where_they_may_read_answers(server_port: int):
    ours = "https://app.example.org"
    for path, origin, allowed in (
        ("/large/?a=b", ours, ours),
        ("/large/", "https://elsewhere.example", None),
        ("/other/", ours, None),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", server_port, timeout=20)
        connection.request("POST", path, body=b"x" * 10_000, headers={"Origin": origin})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (413, allowed)
        assert answer.headers["Vary"] == (None if path == "/other/" else "origin")
        connection.close()


def test_daphne_refuses_a_chunked_body_above_the_limit(server_port: int):
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    status, body = post(server_port, "/", chunks())
    assert status == 413
    assert json.loads(body)["error"]["details"] == {"limit_bytes": 1_000}
