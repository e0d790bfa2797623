"""The web process stops with answers still on their way out to a client that reads slowly."""

from __future__ import annotations

import http.client
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus

import pytest

from tests.support.http_server import listens
from tests.support.processes import RunningProcess, free_port, started, wait_for

ANSWER_BYTES = 64_000_000  # more than the sockets of both sides take

SERVER = """
import logging
import sys
from queueops.core.web.requests.body_cap import BodyLimits
from queueops.core.web.leaving import LEAVING
from queueops.core.web.server import serve
from queueops.core.web.requests.spool import SpooledBytes, SpoolLimits

logging.basicConfig(level=logging.INFO)

async def application(scope, receive, send):
    status = 503 if LEAVING.is_set() else 200
    headers = [(b"Content-Length", sys.argv[2].encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * int(sys.argv[2])})
    print("answered", flush=True)

serve(application, host="127.0.0.1", port=int(sys.argv[1]), limits=BodyLimits(1000, {}),
      room=SpooledBytes(SpoolLimits(1000, 1000, 1.0)), grace_seconds=float(sys.argv[3]),
      leave_seconds=float(sys.argv[4]))
"""


@contextmanager
def slow_reader(*, grace_seconds: float) -> Iterator[tuple[RunningProcess, http.client.HTTPResponse]]:
    """The server that has answered and was then asked to stop, and the answer of which only the head is read."""
    port = free_port()
    arguments = (str(port), str(ANSWER_BYTES), str(grace_seconds), "0")
    with started(sys.executable, "-c", SERVER, *arguments, environ={"PYTHONPATH": "."}) as server:
        wait_for(lambda: listens(port), what="the server")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        client.request("GET", "/")
        answer = client.getresponse()
        server.wait_for_output("answered")
        server.send(signal.SIGTERM)
        wait_for(lambda: not listens(port), what="the refusal of a new connection")
        yield server, answer
        client.close()


def test_an_answer_is_sent_to_its_end():
    with slow_reader(grace_seconds=30) as (server, answer):
        assert answer.getheader("server") is None, "the proxy's own is there besides"
        assert len(answer.read()) == ANSWER_BYTES
        assert server.process.wait(120) == 0


@pytest.mark.parametrize("then", [signal.SIGHUP, signal.SIGTERM])
def test_it_stops_in_order_when_its_terminal_is_closed_and_a_hang_up_is_no_second_wish(then):
    port = free_port()
    with started(sys.executable, "-c", SERVER, str(port), "1", "1", "300", environ={"PYTHONPATH": "."}) as server:
        wait_for(lambda: listens(port), what="the server")
        server.send(signal.SIGHUP if then == signal.SIGTERM else signal.SIGTERM)
        wait_for(lambda: asked(port) == HTTPStatus.SERVICE_UNAVAILABLE, what="the word to proxies")
        server.send(signal.SIGHUP)
        assert asked(port) == HTTPStatus.SERVICE_UNAVAILABLE
        server.send(signal.SIGTERM)
        assert server.process.wait(120) == 0


def test_whoever_does_not_read_holds_the_stop_up_for_the_grace_period_at_most():
    with slow_reader(grace_seconds=0.3) as (server, answer):
        assert server.process.wait(120) == 0
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


def test_a_port_that_is_taken_is_told_in_one_sentence_and_is_no_success():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with started(sys.executable, "-c", SERVER, str(port), "1", "1", "0", environ={"PYTHONPATH": "."}) as server:
            assert server.process.wait(120) != 0
            assert f"Port {port} on 127.0.0.1 cannot be used (Address already in use)." in server.output


def test_it_goes_on_taking_requests_and_says_that_it_leaves_until_a_second_signal_or_its_time():
    port = free_port()
    with started(sys.executable, "-c", SERVER, str(port), "1", "1", "300", environ={"PYTHONPATH": "."}) as server:
        wait_for(lambda: listens(port), what="the server")
        server.send(signal.SIGTERM)
        wait_for(lambda: asked(port) == HTTPStatus.SERVICE_UNAVAILABLE, what="the word to proxies")
        server.send(signal.SIGTERM)
        assert server.process.wait(120) == 0


def asked(port: int) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.request("GET", "/")
    with closing(client):
        return client.getresponse().status
