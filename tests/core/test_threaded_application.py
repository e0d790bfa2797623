import asyncio
import threading
from typing import Any

import pytest
from django.core import signals
from django.http import HttpResponse

from queueops.core.web.askers import Askers, cost_of
from queueops.core.web.threaded_application import ThreadedApplication
from tests.support.played import played
from tests.support.processes import wait_for


def ask(application: ThreadedApplication, path: str) -> list[dict[str, Any]]:
    """One GET by ASGI; the messages it sent."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application(scope_of(path), receive, send))
    return sent


def scope_of(path: str, method: str = "GET") -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ["127.0.0.1", 1],
        "server": ["127.0.0.1", 80],
    }


@pytest.mark.filterwarnings("ignore:No directory at")
def test_a_request_starts_and_finishes_in_one_thread_that_is_not_the_loops():
    threads: list[str] = []

    def note(**kwargs: Any) -> None:
        threads.append(threading.current_thread().name)

    signals.request_started.connect(note)
    signals.request_finished.connect(note)
    try:
        sent = ask(ThreadedApplication(), "/api/nothing/")
    finally:
        signals.request_started.disconnect(note)
        signals.request_finished.disconnect(note)
    assert sent[0]["status"] == 404
    assert len(threads) == 2
    assert set(threads) == {"request_0"}


@pytest.mark.filterwarnings("ignore:No directory at", "ignore:StreamingHttpResponse must consume")
def test_a_streamed_answer_arrives_whole():
    sent = ask(ThreadedApplication(), "/static/drf_spectacular_sidecar/swagger-ui-dist/favicon-32x32.png")
    assert sent[0]["status"] == 200
    assert b"".join(message.get("body", b"") for message in sent).startswith(b"\x89PNG")
    assert sent[-1].get("more_body", False) is False


def test_only_http_is_carried_out():
    with pytest.raises(ValueError, match="websocket"):
        asyncio.run(ThreadedApplication()({"type": "websocket"}, None, None))


@pytest.mark.filterwarnings("ignore:No directory at")
@played
async def test_a_body_outlives_the_server_giving_up_on_its_request():
    begun, goes_on, read = threading.Event(), threading.Event(), []
    application = ThreadedApplication()
    messages = iter([{"type": "http.request", "body": b"abc", "more_body": False}])

    def read_late(request: Any) -> HttpResponse:
        begun.set()
        goes_on.wait(20)
        read.append(request.read())
        return HttpResponse()

    async def receive() -> dict[str, Any]:
        return next(messages)

    application.get_response = read_late  # type: ignore[method-assign]
    task = asyncio.create_task(application(scope_of("/", "POST"), receive, None))
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    goes_on.set()
    await asyncio.to_thread(wait_for, lambda: read)
    assert read == [b"abc"]


def test_a_list_costs_as_its_page_is_long():
    queries = (b"", b"page_size=500", b"a=b&page_size=50&c=d", b"page_size=x", b"page_size=-1")
    assert [cost_of({"query_string": query}) for query in queries] == [1, 11, 2, 1, 1]


def test_only_credentials_that_were_accepted_have_turns_of_their_own():
    askers = Askers()

    def scope(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
        return {"headers": list(headers), "client": ["10.0.0.1", 1]}

    key, other = scope((b"authorization", b"Bearer qo_a")), scope((b"x-api-key", b"qo_b"))
    assert askers.name(key) == askers.name(other) == "address:10.0.0.1"
    askers.learn(key, "project:a")
    askers.learn(other, None)
    assert askers.name(key) == "project:a"
    assert askers.name(other) == "address:10.0.0.1"
    session = scope((b"cookie", b"theme=dark; sessionid=s"))
    askers.learn(session, "user:1")
    assert askers.name(scope((b"cookie", b"sessionid=s; theme=light"))) == "user:1"
