"""Requests that wait for the end of a job or batch: `?wait=`."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.utils import timezone

from dashboards.live import long_polls, waiters
from dashboards.live.events import Group
from dashboards.live.long_polls import Answer, AwaitedEnd, LongPolls, asked_in
from dashboards.live.waiters import Waiters
from jobs.models import Job
from jobs.services.operate.job_actions import cancel_jobs
from queueops.core.web.askers import Asker, Askers
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_batch, make_job, make_project
from tests.support.cases import every_case
from tests.support.processes import RunningProcess, wait_for

PK = "0198c0de-0000-7000-8000-0000000000ab"
THREADS = 3  # of requests
MANY = 40


class Reply(NamedTuple):
    """The answer to a request, and how long it took."""

    status: int
    headers: dict[str, str]
    body: Any
    seconds: float


def ask(address: str, path: str, key: str) -> Reply:
    began = time.monotonic()
    speaking = http.client.HTTPConnection(urlsplit(address).netloc, timeout=100)
    speaking.request("GET", f"/api/v1/{path}", headers={"Authorization": f"Bearer {key}"} if key else {})
    response = speaking.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, json.loads(response.read()), time.monotonic() - began)


@contextmanager
def asking(address: str, key: str, *paths: str) -> Iterator[list[Future[Reply]]]:
    """Ask for all at once, and go on once they are held."""
    with ThreadPoolExecutor(len(paths)) as threads:
        held = held_by(address, key)
        futures = [threads.submit(ask, address, path, key) for path in paths]
        wait_for(lambda: held_by(address, key) == held + len(paths), what="the requests that wait")
        yield futures


def held_by(address: str, key: str) -> float:
    speaking = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    speaking.request("GET", "/metrics")
    text = speaking.getresponse().read().decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("queueops_waiting_requests "))


def cancel(*jobs: Job) -> None:
    assert len(cancel_jobs([job.pk for job in jobs], actor="user:1", reason="not wanted").moved) == len(jobs)


@pytest.fixture(scope="module")
def web(django_db_setup: None) -> Iterator[tuple[str, RunningProcess]]:
    with web_process(QUEUEOPS_POOL_SIZE=str(THREADS)) as running:
        yield running


@pytest.fixture
def address(web: tuple[str, RunningProcess], transactional_db: None) -> Iterator[str]:
    yield web[0]
    assert web[1].runs, web[1].output


def test_an_answer_comes_when_the_job_or_the_last_of_the_batch_has_ended(address: str, key: str):
    batch = make_batch()
    single, first, last = make_job(), make_job(batch=batch), make_job(batch=batch)
    with asking(address, key, f"jobs/{single.pk}/?wait=60", f"batches/{batch.pk}/?wait=60") as (of_job, of_batch):
        cancel(first, single)
        answer = of_job.result(30)
        assert (answer.status, answer.body["state"]) == (200, "cancelled")
        assert "retry-after" not in answer.headers
        assert not of_batch.done()
        cancel(last)
        assert of_batch.result(30).body["counts"]["cancelled"] == 2


def test_those_who_wait_take_no_thread_and_are_all_told_of_one_end(address: str, key: str):
    batch = make_batch()
    job = make_job(batch=batch)
    with asking(address, key, *[f"batches/{batch.pk}/?wait=60"] * MANY) as answers:
        assert ask(address, "jobs/", key).status == 200
        cancel(job)
        told = [answer.result(30) for answer in answers]
    assert {(one.status, one.body["counts"]["cancelled"]) for one in told} == {(200, 1)}


def test_django_is_asked_once_for_all_who_wait_alike_and_for_those_who_ask_again_soon(transactional_db: None, key: str):
    """Seen by the throttle, which lets three requests of the key through."""
    batch = make_batch()
    job = make_job(batch=batch)
    path = f"batches/{batch.pk}/?wait="
    with web_process(QUEUEOPS_REQUESTS_PER_MINUTE="3") as (address, _):
        assert [ask(address, f"{path}0.2", key).status for _ in range(10)] == [200] * 10
        with asking(address, key, *[f"{path}60"] * 10) as answers:
            cancel(job)
            told = [answer.result(30) for answer in answers]
        assert {(one.status, one.body["counts"]["cancelled"]) for one in told} == {(200, 1)}
        assert ask(address, f"{path}60", key).status == 429


def test_when_the_time_is_over_the_answer_tells_how_it_is_and_when_to_ask_again(address: str, key: str):
    job = make_job()
    answer = ask(address, f"jobs/{job.pk}/?wait=0.5", key)
    assert (answer.status, answer.body["state"]) == (200, "queued")
    assert int(answer.headers["retry-after"]) > 0
    assert answer.seconds >= 0.5


def test_what_has_ended_is_told_at_once(address: str, key: str):
    job = make_job()
    cancel(job)
    assert ask(address, f"jobs/{job.pk}/?wait=60", key).seconds < 30


@every_case(
    ("path", "shown", "status", "code"),
    [
        ("jobs/{foreign}/?wait=60", "good", 404, "not_found"),
        (f"jobs/{PK}/?wait=60", "good", 404, "not_found"),
        (f"batches/{PK}/?wait=60", "good", 404, "not_found"),
        ("jobs/{own}/?wait=60", "qo_wrong", 401, "invalid_key"),
        ("jobs/{own}/?wait=60", "", 401, "not_authenticated"),
        ("jobs/{own}/?wait=61", "good", 400, "invalid_query"),
        ("jobs/{own}/?wait=-1", "good", 400, "invalid_query"),
        ("jobs/{own}/?wait=nan", "good", 400, "invalid_query"),
        ("jobs/{own}/?wait=soon", "good", 400, "invalid_query"),
        ("jobs/{own}/?wait=1&wait=soon", "good", 400, "invalid_query"),
        ("jobs/?wait=60", "good", 400, "invalid_query"),
    ],
)
def test_whoever_may_not_wait_is_told_at_once(address: str, key: str, *, path: str, shown: str, status: int, code: str):
    make_project("other")
    named = path.format(own=make_job().pk, foreign=make_job(project="other").pk)
    answer = ask(address, named, key if shown == "good" else shown)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)
    assert answer.seconds < 30


def test_a_key_that_was_revoked_meanwhile_does_not_learn_the_end(address: str, key: str):
    job = make_job()
    with asking(address, key, f"jobs/{job.pk}/?wait=60") as (answer,):
        ProducerKey.objects.update(revoked_at=timezone.now())
        cancel(job)
        assert answer.result(30).status == 401


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_stops_answers_those_who_wait_as_it_is(signum, transactional_db: None, key: str):
    job = make_job()
    with web_process() as (address, process), asking(address, key, f"jobs/{job.pk}/?wait=60") as (answer,):
        process.send(signum)
        told = answer.result(30)
        assert (told.status, told.body["state"]) == (200, "queued")
        assert process.process.wait(60) == 0


@every_case(
    ("method", "path", "query", "asked"),
    [
        ("GET", f"/api/v1/jobs/{PK}/", "wait=30", AwaitedEnd(("job", PK), 30.0)),
        ("GET", f"/api/v1/jobs/{PK.upper()}/", "wait=0.5", AwaitedEnd(("job", PK), 0.5)),
        ("GET", f"/api/v1/batches/{PK}/", "project=acme&wait=60", AwaitedEnd(("batch", PK), 60.0)),
        ("GET", f"/api/v1/batches/{PK}/", "", None),
        ("GET", f"/api/v1/batches/{PK}/", "wait=", None),
        ("GET", f"/api/v1/batches/{PK}/", "wait=0", None),
        ("GET", f"/api/v1/batches/{PK}/", "wait=inf", None),
        ("GET", f"/api/v1/batches/{PK}/", "wait=nan", None),
        ("GET", f"/api/v1/batches/{PK}/", "wait=1&wait=2", None),
        ("GET", f"/api/v1/batches/{PK}/", "await=30", None),
        ("GET", f"/api/v1/batches/{PK[:-1]}-/", "wait=30", None),
        ("GET", f"/api/v1/batches/{PK}/jobs/", "wait=30", None),
        ("POST", f"/api/v1/jobs/{PK}/", "wait=30", None),
    ],
)
def test_a_request_waits_as_it_says_or_passes(method: str, path: str, query: str, asked: AwaitedEnd | None):
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
    assert asked_in(scope) == asked


def test_an_answer_that_was_held_has_the_date_of_its_end():
    """Clients correct their clocks by it."""
    answer = Answer()
    kept = [(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT")]
    start = {"type": "http.response.start", "status": 200, "headers": kept}
    body = {"type": "http.response.body", "body": b"{}"}
    for message in (start, body):
        asyncio.run(answer.keep(message))
    sent, rest = answer.sent_now()
    [(name, value)] = sent["headers"]
    assert name == b"Date"
    assert parsedate_to_datetime(value.decode()).timestamp() == pytest.approx(time.time(), abs=5)
    assert (rest, kept[0][1]) == (body, b"Thu, 01 Jan 1970 00:00:00 GMT")


def test_no_project_takes_more_than_half_of_the_places(monkeypatch):
    monkeypatch.setattr(waiters, "MAX_WAITERS", 4)
    monkeypatch.setattr(waiters, "MAX_WAITERS_OF_ONE", 2)
    held = Waiters()
    with held.place("a") as first, held.place("a") as second, held.place("a") as third, held.place(None) as nobodys:
        assert (first, second, third, nobodys) == (True, True, False, False)
        with held.place("b") as of_b, held.place("c") as of_c, held.place("d") as of_d:
            assert (of_b, of_c, of_d) == (True, True, False)
            assert len(held) == 4
    assert len(held) == 0


@pytest.mark.django_db(transaction=True)
def test_what_may_have_ended_while_nobody_read_the_log_is_looked_up():
    """After an outage of the database the log is taken up where it is, and no event tells of the end."""
    ended, going, batch = make_job(), make_job(), make_batch()
    cancel(ended)
    held = Waiters()
    groups: list[Group] = [
        ("job", str(ended.pk)),
        ("job", str(going.pk)),
        ("job", str(uuid4())),
        ("batch", str(batch.pk)),
    ]

    async def woken() -> list[bool]:
        entered = [held.enter(group) for group in groups]
        held.lost()
        await held.look()
        found = [one.woken.is_set() for one in entered]
        for one in entered:
            held.leave(one)
        return found

    assert asyncio.run(woken()) == [True, False, True, True]
    assert held.groups == {}


SCOPE = {"type": "http", "method": "GET", "path": f"/api/v1/jobs/{PK}/", "query_string": b"wait=60", "headers": []}


class Stage:
    """Stands for Django: it counts who asks, and answers when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await self.answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Retry-After", b"1")]})
        await send({"type": "http.response.body", "body": b"{}"})


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - there is no event for what is looked at
        await asyncio.sleep(0)


def test_who_is_told_of_an_end_while_django_is_asked_already_asks_anew():
    """The answer that is under way may be of before that end."""

    async def told() -> int:
        stage = Stage()
        polls = LongPolls(stage, Askers())
        first = asyncio.ensure_future(polls._again(SCOPE))
        second = asyncio.ensure_future(polls._again(SCOPE))
        await until(lambda: stage.asked)
        third = asyncio.ensure_future(polls._again(SCOPE))
        await until(lambda: stage.asked == 2)
        stage.answers.set()
        assert await first is await second
        assert await third is not await first
        return stage.asked

    assert asyncio.run(asyncio.wait_for(told(), 30)) == 2


@pytest.mark.parametrize("follows", [True, False])
def test_nobody_is_held_where_the_log_of_events_is_not_followed(follows: bool, monkeypatch: pytest.MonkeyPatch):
    async def held() -> bool:
        class Hub:
            waiters = waiters.Waiters()

            async def follows(self) -> bool:
                return follows

        hub, stage = Hub(), Stage()
        monkeypatch.setattr(long_polls, "the_hub", lambda: hub)
        askers = Askers()
        monkeypatch.setattr(askers, "known", lambda scope: Asker("project:acme", is_known=True))
        stage.answers.set()
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        asking = asyncio.ensure_future(LongPolls(stage, askers)(SCOPE, never, send))
        await until(lambda: sent or len(hub.waiters))
        asking.cancel()
        return not sent

    assert asyncio.run(asyncio.wait_for(held(), 30)) is follows


def test_a_call_by_a_door_that_was_made_is_not_answered_by_a_refusal_to_look_at_it(monkeypatch: pytest.MonkeyPatch):
    """Official clients would make it once more, and pay twice."""
    monkeypatch.setattr(long_polls, "LOOK_AGAIN_SECONDS", 0)
    place = b"/openai/v1/answers/" + PK.encode()
    looks = iter([429, 503, 200])

    async def django(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"X-QueueOps-Job", PK.encode()), (b"Location", place), (b"X-QueueOps-Wait", b"30")]
        status = 202
        if scope["method"] == "GET":
            status = next(looks)
            headers = headers[:1] if status == 200 else []
        else:
            headers.append((b"Retry-After", b"1"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def called() -> list[Any]:
        class Hub:
            waiters = waiters.Waiters()

            async def follows(self) -> bool:
                return True

        hub, sent = Hub(), []
        monkeypatch.setattr(long_polls, "the_hub", lambda: hub)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {**SCOPE, "method": "POST", "path": "/openai/v1/responses", "query_string": b""}
        await LongPolls(django, Askers())(scope, never, send)
        return sent

    assert asyncio.run(asyncio.wait_for(called(), 30))[0]["status"] == 200
