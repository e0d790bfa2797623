import asyncio
import threading
from typing import Any

import pytest
from django.core import signals

from queueops.core.threaded_application import ThreadedApplication


def ask(application: ThreadedApplication, path: str) -> list[dict[str, Any]]:
    """One GET by ASGI; the messages it sent."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ["127.0.0.1", 1],
        "server": ["127.0.0.1", 80],
    }
    asyncio.run(application(scope, receive, send))
    return sent


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
