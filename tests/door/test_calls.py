"""Single calls by the doors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import openai
import pytest
from aiohttp import web
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from openai import OpenAI

from jobs.door.calls import forget_calls, submit_call
from jobs.door.models import DoorCall, Protocol
from jobs.models import Job
from jobs.testing import drain
from queueops.tenancy.models import Credential, ProducerKey, Project
from tests.api.conftest import key_for
from tests.factories import bury, move_along
from tests.support.background import in_background
from tests.support.http_server import serving
from tests.support.processes import RunningProcess, wait_for
from tests.support.sandbox import Sandbox

from .conftest import MODEL
from .within import MESSAGES, Door, door_of, line

BODIES = {
    "chat/completions": '{"messages" :[{"role":"user","content":"H\\u00e9"}],  "top_p":0.70,"seed":1E2,"model":"m-1"}',
    "embeddings": '{"input":["one",  "two"],"model":"m-1","encoding_format":"float"}',
    "responses": '{"model":"m-1","input":"Why?" , "top_p":1.0}',
    "moderations": '{"model":"m-1","input":"Why?"}',
}
MESSAGE = '{"max_tokens": 10,"model":"claude-1", "messages":[{"content":"Why?","role":"user"}],"top_k":5e0}'
ANSWERS: dict[str, Any] = {
    "/v1/chat/completions": {"object": "chat.completion", "choices": [{"message": {"content": "So."}, "index": 0}]},
    "/v1/embeddings": {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "model": "m-1", "usage": {}},
    "/v1/responses": {"object": "response", "status": "completed", "output": [], "id": "resp_theirs"},
    "/v1/moderations": {"results": [{"flagged": False}], "model": "m-1"},
    "/v1/messages": {"type": "message", "content": [{"type": "text", "text": "So."}], "stop_reason": "end_turn"},
}


class Recorder:
    """A provider that notes the bytes of each body, and answers as it is told."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.status = 200
        self.code = "why"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append((await request.read()).decode())
        body = ANSWERS[request.path] if self.status == 200 else {"error": {"message": "No.", "code": self.code}}
        return web.json_response(body, status=self.status)


@pytest.fixture
def provider() -> Recorder:
    return Recorder()


@pytest.fixture
def door(db: None, provider: Recorder) -> Iterator[Door]:
    with in_background(serving(provider.answer)) as url:
        yield door_of("acme", base_url=url)


def ask(door: Door, path: str, body: str, **headers: str) -> Any:
    answer = door.send("POST", path, body, **headers)
    assert answer.status_code == 202, answer.content
    return answer


@pytest.mark.django_db
@pytest.mark.parametrize("path", BODIES)
def test_the_provider_is_sent_the_bytes_that_came_and_its_answer_comes_back(path: str, door: Door, provider: Recorder):
    told = ask(door, path, BODIES[path])
    assert told.headers["Location"] == told.json()["url"]
    assert door.client.get(told.headers["Location"]).status_code == 202
    drain()
    answer = door.client.get(told.headers["Location"])
    assert (answer.status_code, answer.json()) == (200, ANSWERS[f"/v1/{path}"])
    assert provider.bodies == [BODIES[path]]


@pytest.mark.django_db
def test_a_mark_before_a_body_is_not_a_part_of_it(door: Door, provider: Recorder):
    ask(door, "responses", "\ufeff" + BODIES["responses"])
    drain()
    assert provider.bodies == [BODIES["responses"]]


@pytest.mark.django_db
def test_anthropic_is_sent_the_bytes_that_came(door: Door, provider: Recorder):
    told = door.client.post("/anthropic/v1/messages", MESSAGE, content_type="application/json")
    assert told.status_code == 202
    drain()
    assert door.client.get(told.headers["Location"]).json() == ANSWERS["/v1/messages"]
    assert provider.bodies == [MESSAGE]


@pytest.mark.django_db
def test_a_refusal_has_the_providers_status_and_is_not_asked_again(door: Door, provider: Recorder):
    provider.status = 400
    told = ask(door, "chat/completions", BODIES["chat/completions"])
    drain()
    answer = door.client.get(told.headers["Location"])
    assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
    assert "No." in answer.json()["error"]["message"]


@pytest.mark.django_db
def test_a_response_that_was_not_made_in_the_background_is_known_by_its_job_alone(door: Door):
    told = ask(door, "responses", BODIES["responses"])
    drain()
    answer = door.send("GET", "responses/resp_theirs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_such_object")
    assert "background=True" in answer.json()["error"]["message"]
    assert door.send("GET", "responses/resp_" + "0" * 32).json()["error"]["message"].startswith("There is no response")
    assert door.send("GET", f"responses/resp_{UUID(told.json()['id']).hex}").json()["status"] == "completed"


@pytest.mark.django_db
def test_an_input_that_is_too_long_has_openais_own_code(door: Door, provider: Recorder):
    provider.status, provider.code = 400, "context_length_exceeded"
    told = ask(door, "chat/completions", BODIES["chat/completions"])
    drain()
    answer = door.client.get(told.headers["Location"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.django_db
def test_an_answer_is_named_by_its_job_for_both_clients(door: Door):
    told = ask(door, "chat/completions", BODIES["chat/completions"])
    name = f"req_{UUID(told.json()['id']).hex}"
    assert (told.headers["x-request-id"], told.headers["request-id"]) == (name, name)


@pytest.mark.django_db
@pytest.mark.parametrize(("edges", "status"), [(("cancel",), 409), (("dispatch", "start", "fail"), 502)])
def test_a_call_without_an_answer(door: Door, edges: tuple[str, ...], status: int):
    told = ask(door, "chat/completions", BODIES["chat/completions"])
    for edge in edges:
        move_along(edge, [Job.objects.get().pk])
    if edges[-1] == "fail":
        bury([Job.objects.get()], http_status=None)
    answer = door.client.get(told.headers["Location"])
    assert (answer.status_code, answer.headers["x-should-retry"]) == (status, "false")


@pytest.mark.django_db
def test_the_same_key_of_a_request_is_the_same_job(door: Door):
    body = BODIES["chat/completions"]
    ids = {ask(door, "chat/completions", body, Idempotency_Key="k").json()["id"] for _ in range(2)}
    assert len(ids) == Job.objects.count() == 1
    other = door.send("POST", "chat/completions", body.replace("0.70", "0.71"), Idempotency_Key="k")
    error = other.json()["error"]
    assert (other.status_code, error["code"]) == (400, "idempotency_key_reused")
    assert error["message"] == "The Idempotency-Key 'k' was used for another request."


@pytest.mark.django_db
def test_a_call_that_a_client_sends_again_is_the_same_job_for_some_minutes(door: Door):
    def ask_for(tries: str, body: str = BODIES["responses"]) -> str:
        told = ask(door, "responses", body, **{"x-stainless-retry-count": tries})
        return str(told.json()["id"])

    first = ask_for("0")
    assert ask_for("1") == ask_for("2") == first
    assert ask_for("0") != first  # asked for on purpose
    assert ask_for("1", '{"model":"m-1","input":"How?"}') != first
    DoorCall.objects.update(created_at=Now() - timedelta(hours=1))
    assert forget_calls() == DoorCall.objects.count() + 3
    assert ask_for("1") != first


@pytest.mark.django_db
def test_a_call_with_a_key_that_comes_again_gets_the_job_of_its_own_key(door: Door):
    def ask_for(key: str, tries: str) -> str:
        told = ask(door, "responses", BODIES["responses"], Idempotency_Key=key, **{"x-stainless-retry-count": tries})
        return str(told.json()["id"])

    first, second = ask_for("a", "0"), ask_for("b", "0")
    assert (ask_for("a", "1"), ask_for("b", "1"), ask_for("a", "2")) == (first, second, first)
    assert ask_for("c", "1") not in (first, second)  # its first try never arrived


@pytest.mark.django_db
def test_equal_calls_at_once_that_come_again_get_a_job_each(door: Door):
    def ask_for(tries: int) -> UUID:
        told = ask(door, "responses", BODIES["responses"], **{"x-stainless-retry-count": str(tries)})
        return UUID(told.json()["id"])

    first, second, third = (ask_for(0) for _ in range(3))
    DoorCall.objects.update(created_at=F("created_at") - timedelta(minutes=1))
    assert {ask_for(1) for _ in range(3)} == {first, second, third}
    move_along("cancel", [first])
    assert ask_for(2) in (second, third)
    move_along("cancel", [second, third])
    assert ask_for(3) == third


@pytest.mark.django_db
def test_a_client_that_asks_on_for_longer_gets_the_same_job(door: Door):
    def ask_on(tries: int) -> str:
        told = ask(door, "responses", BODIES["responses"], **{"x-stainless-retry-count": str(tries)})
        DoorCall.objects.update(created_at=F("created_at") - timedelta(minutes=20))
        return str(told.json()["id"])

    assert len({ask_on(tries) for tries in range(3)}) == Job.objects.count() == 1


@pytest.mark.django_db
def test_a_client_is_not_let_wait_beyond_its_own_time_out(door: Door):
    told = ask(door, "responses", BODIES["responses"], **{"x-stainless-read-timeout": "20.0"})
    assert told.headers["X-QueueOps-Wait"] == "19"
    told = ask(door, "responses", BODIES["responses"], **{"x-stainless-read-timeout": "600"})
    assert told.headers["X-QueueOps-Wait"] == "60"
    told = ask(door, "responses", BODIES["responses"], **{"x-stainless-timeout": "20"})  # as Node's tell it
    assert told.headers["X-QueueOps-Wait"] == "19"


@pytest.mark.django_db
def test_a_key_that_may_not_read_the_answer_does_not_pay_for_it(door: Door):
    client = Client(headers={"Authorization": f"Bearer {key_for('acme', scopes=['submit'])}"})
    answer = client.post("/openai/v1/responses", BODIES["responses"], content_type="application/json")
    assert (answer.status_code, Job.objects.count()) == (403, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("wait", ["-1", "61", "nan", "soon"])
def test_a_wait_that_is_none_is_refused(door: Door, wait: str):
    answer = door.send("POST", "chat/completions", BODIES["chat/completions"], X_QueueOps_Wait=wait)
    assert answer.status_code == 400
    assert Job.objects.count() == 0


@pytest.mark.django_db
def test_a_response_in_the_background_is_told_cancelled_and_answered_under_its_own_id(door: Door):
    body = '{"model":"m-1","input":"Why?","background":true}'
    first, second = (door.send("POST", "responses", body).json() for _ in range(2))
    assert (first["object"], first["status"], first["background"]) == ("response", "queued", True)
    told = door.send("POST", f"responses/{second['id']}/cancel").json()
    assert (told["id"], told["status"]) == (second["id"], "cancelled")
    drain()
    told = door.send("GET", f"responses/{first['id']}").json()
    assert (told["id"], told["status"]) == (first["id"], "completed")


@pytest.mark.django_db
def test_a_call_goes_on_from_a_response_in_the_background(door: Door, provider: Recorder):
    first = door.send("POST", "responses", '{"model":"m-1","input":"Why?","background":true}').json()["id"]
    body = f'{{"model":"m-1", "previous_response_id":"{first}","input":"And?"}}'
    early = door.send("POST", "responses", body)
    assert (early.status_code, early.json()["error"]["param"]) == (400, "previous_response_id")
    drain()
    ask(door, "responses", body)
    foreign = ask(door, "responses", body.replace(first, "resp_" + "0" * 32))
    drain()
    assert sorted(provider.bodies[1:]) == sorted(
        [body.replace(first, "resp_theirs"), body.replace(first, "resp_" + "0" * 32)]
    )
    assert door.client.get(foreign.headers["Location"]).status_code == 200


@pytest.mark.django_db
def test_a_line_of_a_batch_goes_on_from_a_response_in_the_background(door: Door, provider: Recorder):
    asked = '{"model":"m-1","input":"Why?","background":true}'
    first, unanswered = (door.send("POST", "responses", asked).json()["id"] for _ in range(2))
    door.send("POST", f"responses/{unanswered}/cancel")
    drain()
    body = f'{{"model":"m-1", "previous_response_id":"{first}","input":"And?"}}'
    to = {"url": "/v1/responses"}
    told = door.batch(line("a", body, **to), endpoint=to["url"])
    [job] = Job.objects.filter(batch_id=told["queueops"]["batch"])
    assert job.payload["body"]["previous_response_id"] == "resp_theirs"
    refused = door.batch(line("a", body, **to), line("b", body.replace(first, unanswered), **to), endpoint=to["url"])
    assert refused["status"] == "failed"
    [fault] = refused["errors"]["data"]
    assert (fault["line"], fault["param"]) == (2, "body.previous_response_id")


def test_a_caller_who_waits_is_told_at_the_end_and_one_who_does_not_at_once(
    client: OpenAI, workers: RunningProcess, sandbox: Sandbox
):
    began = time.monotonic()
    sandbox.turn(latency={"mode": "fixed", "milliseconds": 1000})
    told = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert told.choices[0].message.content
    assert time.monotonic() - began > 1
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, extra_headers={"X-QueueOps-Wait": "0"}
    )
    assert raw.http_response.status_code == 202
    assert raw.headers["location"].startswith("/openai/v1/answers/")
    assert Job.objects.count() == 2


def test_an_official_client_asks_on_for_an_answer_that_takes_long(
    client: OpenAI, workers: RunningProcess, sandbox: Sandbox
):
    sandbox.turn(latency={"mode": "fixed", "milliseconds": 2500})
    hasty = client.with_options(timeout=2)  # the door answers after one second
    with pytest.raises(openai.InternalServerError) as refused:
        hasty.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert (refused.value.status_code, refused.value.code) == (504, "not_answered_yet")
    assert "/openai/v1/answers/" in refused.value.message
    told = hasty.with_options(max_retries=20).chat.completions.create(model=MODEL, messages=MESSAGES, user="other")
    assert told.choices[0].message.content
    assert Job.objects.count() == 2


def test_a_call_that_comes_again_while_the_first_is_being_made_waits_for_it(client: OpenAI, key: str, project: Project):
    text = json.dumps({"model": MODEL, "input": "Why?"}, separators=(",", ":"))
    actor = f"key:{ProducerKey.objects.get().prefix}"

    def again() -> str:
        told = {"x-stainless-retry-count": "1", "X-QueueOps-Wait": "0", "Content-Type": "application/json"}
        headers = {**told, "Authorization": f"Bearer {key}"}
        answer = httpx.post(f"{client.base_url}responses", content=text, headers=headers, timeout=60)
        return str(answer.json()["id"])

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            where: Any = {"endpoint": "/v1/responses", "provider": Protocol.OPENAI, "project_id": project.pk}
            first = submit_call(json.loads(text), text, actor=actor, **where)
            asked = threads.submit(again)
            wait_for(waits_for_another, what="the repetition")
        assert asked.result(60) == str(first)
    assert Job.objects.count() == 1


def waits_for_another() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)")
        return bool(cursor.fetchone()[0])


def test_a_refused_call_is_not_repeated_by_a_client_that_repeats(
    address: str, key: str, workers: RunningProcess, project: Project
):
    Credential.objects.update(base_url=f"{address}/nothing")
    client = OpenAI(base_url=f"{address}/openai/v1", api_key=key, max_retries=2)
    with client, pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert Job.objects.count() == 1


def test_a_body_that_is_too_large_is_refused_in_the_doors_form(address: str, key: str):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * 3_000_000}]})
    answer = httpx.post(f"{address}/openai/v1/chat/completions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "invalid_request_error")
    answer = httpx.post(f"{address}/anthropic/v1/messages", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")
