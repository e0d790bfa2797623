import asyncio
import threading
from typing import Any

import pytest
from django.core import signals
from django.http import HttpResponse

from queueops.core.errors import QueueOpsError
from queueops.core.web.askers import Asker, Askers, CannotTell, ShownCredential, cost_of
from queueops.core.web.asking import ClientLeft, ensure_wanted
from queueops.core.web.threaded_application import ThreadedApplication
from tests.support.played import played
from tests.support.processes import wait_for


def ask(application: ThreadedApplication, path: str) -> list[dict[str, Any]]:
    """One GET by ASGI; the messages it sent."""
    return asyncio.run(asked(application, scope_of(path), asyncio.Event()))


async def asked(
    application: ThreadedApplication, scope: dict[str, Any], leaves: asyncio.Event, body: bytes = b""
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
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

    def read_late(request: Any) -> HttpResponse:
        begun.set()
        goes_on.wait(20)
        read.append(request.read())
        return HttpResponse()

    application.get_response = read_late  # type: ignore[method-assign]
    task = asyncio.create_task(asked(application, scope_of("/", "POST"), asyncio.Event(), b"abc"))
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


def told_to_stop(request: Any) -> HttpResponse:
    """Work without an end of its own."""
    try:
        while True:
            ensure_wanted()
    except QueueOpsError as error:
        return HttpResponse(error.code, status=error.status)


@pytest.mark.filterwarnings("ignore:No directory at")
@played
async def test_work_ends_when_its_client_leaves_or_its_time_is_spent():
    begun, leaves = threading.Event(), asyncio.Event()
    application = ThreadedApplication()

    def work(request: Any) -> HttpResponse:
        begun.set()
        return told_to_stop(request)

    application.get_response = work  # type: ignore[method-assign]
    left = asyncio.create_task(asked(application, scope_of("/", "POST"), leaves))
    await asyncio.to_thread(begun.wait, 20)
    leaves.set()
    assert (await left)[0]["status"] == ClientLeft.status
    short = ThreadedApplication(request_seconds=0.001)
    short.get_response = told_to_stop  # type: ignore[method-assign]
    late = await asked(short, scope_of("/", "POST"), asyncio.Event())
    assert (late[0]["status"], late[1]["body"]) == (413, b"out_of_time")


def shown(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"headers": list(headers), "client": ["10.0.0.1", 1]}


KEY = shown((b"authorization", b"Bearer qo_a"))
SAME_PROJECT = shown((b"x-api-key", b"qo_b"))
MADE_UP = shown((b"authorization", b"Bearer qo_x"), (b"x-api-key", b"qo_b"), (b"cookie", b"sessionid=s"))
SESSION = shown((b"cookie", b"theme=dark; sessionid=s"))
PROJECT, PERSON, ADDRESS = Asker("project:a"), Asker("user:1"), Asker("address:10.0.0.1", is_known=False)


class Door:
    """Looks up two keys of one project and a session."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.is_away = False

    def __call__(self, credential: ShownCredential) -> str | None:
        if self.is_away:
            raise CannotTell
        self.looked_up.append(credential.text)
        return {"qo_a": "project:a", "qo_b": "project:a", "s": "user:1"}.get(credential.text)


@played
async def test_a_credential_is_known_before_its_first_request_has_a_place():
    door = Door()
    askers = Askers(door)
    never = asyncio.Event().wait
    found = [await askers.find(one, never) for one in (KEY, SAME_PROJECT, SESSION, KEY, MADE_UP, MADE_UP, shown())]
    assert found == [PROJECT, PROJECT, PERSON, PROJECT, ADDRESS, ADDRESS, ADDRESS]
    assert door.looked_up == ["qo_a", "qo_b", "s", "qo_x", "qo_x"], "what is known is not looked up again"
    assert askers.known(shown((b"cookie", b"sessionid=s; theme=light"))) == PERSON
    assert askers.known(MADE_UP) is None
    door.is_away = True
    assert await askers.find(MADE_UP, never) == Asker("address:10.0.0.1", is_known=False, may_be_known=True)
    assert await askers.find(KEY, never) == PROJECT


@played
async def test_who_was_known_long_ago_does_not_wait_to_be_looked_up_again(monkeypatch):
    monkeypatch.setattr("queueops.core.web.askers.ASKER_KNOWN_SECONDS", -1.0)
    door = Door()
    askers = Askers(door)
    never = asyncio.Event().wait
    await askers.find(KEY, never)
    door.is_away = True
    assert askers.known(KEY) == PROJECT
    await asyncio.gather(*askers._again.values())
    assert askers.known(KEY) == PROJECT, "nothing was found out"
    door.is_away = False
    door.looked_up.clear()
    await asyncio.gather(*askers._again.values())
    assert door.looked_up == ["qo_a"]
