"""The cap in ASGI, and the one where daphne's bytes arrive, over a real socket."""

import asyncio
import http.client
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from queueops.core.web.askers import Asker
from queueops.core.web.requests.body_cap import BodyCap, BodyLimits
from queueops.core.web.requests.request_queue import Overloaded
from queueops.core.web.requests.spool import SpooledBytes, SpoolLimits
from tests.support.http_server import listens
from tests.support.processes import RunningProcess, free_port, started, wait_for

pytestmark = pytest.mark.proves("S4")

LIMITS = BodyLimits(default_bytes=1_000, path_bytes={"/large/": 5_000})

SERVER = """
import sys
from django.conf import settings
settings.configure(SESSION_COOKIE_NAME="sessionid", QUEUEOPS=type("", (), {"tls_proxy": False}))
from queueops.core.web import server
from queueops.core.web.askers import Askers
from queueops.core.web.requests.body_cap import BodyLimits
from queueops.core.web.refusals import CrossOrigin
from queueops.core.web.requests.spool import SpooledBytes, SpoolLimits

async def application(scope, receive, send):
    message = await receive()
    with scope["queueops.body"] as body:
        size = len(body.read() + message["body"])
    if "hold" in scope["path"]:
        while message["type"] != "http.disconnect":
            message = await receive()
        print("left", flush=True)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})

server.BODY_GRACE_SECONDS, server.BODY_LOOK_SECONDS = 0.0, float(sys.argv[2])
limits = SpoolLimits(total_bytes=8_000_000, asker_bytes=600_000, least_rate=1e9 if sys.argv[2] == "0.05" else 1)
room = SpooledBytes(limits)
print("serving", flush=True)
server.serve(application, host="127.0.0.1", port=int(sys.argv[1]),
      limits=BodyLimits(1000, {"/large/": 5000, "/huge/": 1_000_000}), room=room,
      askers=Askers(lambda shown: "project:" + shown.text if shown.text.startswith("good") else None),
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


@contextmanager
def serving(look_seconds: str = "60") -> Iterator[tuple[int, RunningProcess]]:
    port = free_port()
    with started(sys.executable, "-c", SERVER, str(port), look_seconds, environ={"PYTHONPATH": "."}) as server:
        server.wait_for_output("serving")
        wait_for(lambda: listens(port), what="the server")
        yield port, server


@pytest.fixture(scope="module")
def server_port() -> Iterator[int]:
    with serving() as (port, _):
        yield port


def post(
    port: int, path: str, body: bytes | Iterator[bytes], *, content_type: str = "text/plain", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body=body, headers={"Content-Type": content_type, **headers})
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


def chunked(size: int) -> Iterator[bytes]:
    return iter([b"x" * 50_000] * (size // 50_000))


def begun(port: int, key: str, *, length: int, sent: bytes = b"", path: str = "/huge/") -> socket.socket:
    """A request whose body has not come."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(12).split()[1])


def test_who_sends_is_asked_before_a_large_body_is_read(server_port: int):
    size = 300_000
    for body in (b"x" * size, chunked(size)):
        status, answer = post(server_port, "/huge/", body, Authorization="Bearer bad")
        assert (status, json.loads(answer)["error"]["code"]) == (401, "not_authenticated")
    for body in (b"x" * size, chunked(size)):
        assert post(server_port, "/huge/", body, Authorization="Bearer good") == (200, str(size).encode())
    assert post(server_port, "/large/", b"x" * 5_000, Authorization="Bearer bad") == (200, b"5000")
    with begun(server_port, "bad", length=size) as nothing_sent:
        assert status_of(nothing_sent) == 401


def test_what_bodies_take_is_bounded_for_each_who_sends_and_given_back(server_port: int):
    with begun(server_port, "good", length=400_000):
        wait_for(lambda: post(server_port, "/huge/", b"x" * 300_000, Authorization="Bearer good")[0] == 503)
        assert post(server_port, "/huge/", chunked(300_000), Authorization="Bearer good")[0] == 503
        status, answer = post(server_port, "/huge/", b"x" * 300_000, Authorization="Bearer good-too")
        assert (status, answer) == (200, b"300000")
    wait_for(lambda: post(server_port, "/huge/", b"x" * 300_000, Authorization="Bearer good")[0] == 200)


def test_a_body_that_comes_too_slowly_loses_its_place():
    with serving(look_seconds="0.05") as (port, _), begun(port, "good", length=400_000, sent=b"x") as drip:
        assert status_of(drip) == 408


def test_a_client_that_leaves_is_noticed_though_it_was_not_known_yet():
    with serving() as (port, server):
        begun(port, "good", length=1, sent=b"x", path="/hold/").close()
        server.wait_for_output("left")


def test_whom_nobody_knows_have_an_eighth_of_the_room_and_one_address_a_quarter_of_it():
    room = SpooledBytes(SpoolLimits(total_bytes=3_200, asker_bytes=2_900, least_rate=1))
    strangers = [Asker(f"address:{number}", is_known=False) for number in range(5)]
    project = Asker("project:a")

    def takes(asker: Asker, size: int) -> bool:
        try:
            room.take(asker, size)
        except Overloaded:
            return False
        return True

    assert [takes(strangers[0], size) for size in (100, 1)] == [True, False]
    assert [takes(one, 100) for one in strangers[1:]] == [True, True, True, False]
    assert [takes(project, size) for size in (2_800, 101)] == [True, False], "more than one may have"
    assert not takes(Asker("project:b"), 1), "more than there is"
    room.give_back(strangers[0], 100)
    assert takes(Asker("project:b"), 100)
    assert (room.total, room.refused) == (3_200, 4)
