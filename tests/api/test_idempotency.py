"""R12 of the promises: one effect an Idempotency-Key, whatever happens to the answer."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from signal import SIGKILL
from threading import Barrier
from typing import Any

import pytest

from jobs.models import Batch, Job
from tests.api.conftest import SPEC, Api, error_of, key_for
from tests.factories import make_job
from tests.support.processes import RunningProcess, free_port, manage, wait_for

pytestmark = pytest.mark.proves("R12")

BODY = json.dumps(SPEC)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    replayed: bool


@contextmanager
def web() -> Iterator[tuple[int, RunningProcess]]:
    port = free_port()
    with manage("web", environ={"QUEUEOPS_PORT": str(port)}) as process:
        process.wait_for_output("Listening on TCP address")
        yield port, process


def request(port: int, secret: str, body: str, *, path: str = "/api/v1/jobs/", kind: str = "application/json") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: {kind}\r\nIdempotency-Key: once\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body.encode()


def post(port: int, secret: str, body: str) -> Answer:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request(port, secret, body))
        response = http.client.HTTPResponse(connection)
        response.begin()
        return Answer(
            response.status, json.loads(response.read()), response.headers.get("Idempotency-Replayed") == "true"
        )


@pytest.mark.django_db(transaction=True)
def test_fifty_parallel_posts_with_one_key_have_one_effect():
    secret = key_for("acme")
    barrier = Barrier(50)

    def together(body: str) -> Answer:
        barrier.wait(timeout=30)
        return post(port, secret, body)

    with web() as (port, _), ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(together, [BODY] * 50))
        other = post(port, secret, json.dumps({**SPEC, "priority": "low"}))
    job = Job.objects.get()
    assert {answer.status for answer in answers} == {201}
    assert {str(answer.body["id"]) for answer in answers} == {str(job.pk)}
    assert sum(not answer.replayed for answer in answers) == 1
    assert (other.status, other.body["error"]["code"]) == (422, "idempotency_key_reused")


@pytest.mark.django_db(transaction=True)
def test_a_server_killed_between_commit_and_answer_answers_the_repetition_from_the_store():
    secret = key_for("acme")
    with web() as (port, process), socket.create_connection(("127.0.0.1", port), timeout=30) as unread:
        unread.sendall(request(port, secret, BODY))
        job = wait_for(Job.objects.first, what="the commit")
        process.stop(SIGKILL)
    assert job is not None
    with web() as (port, _):
        repeated = post(port, secret, BODY)
    told = {"id": str(job.pk), "created": True, "outcome": "created", "url": f"/api/v1/jobs/{job.pk}/"}
    assert repeated == Answer(201, told, replayed=True)
    assert Job.objects.get() == job


def test_a_stream_is_answered_once_and_another_stream_with_the_key_is_refused(api: Api):
    first = api.lines(f"{BODY}\n{BODY}\n", **{"Idempotency-Key": "k"})
    second = api.lines(f"{BODY}\n{BODY}\n", **{"Idempotency-Key": "k"})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert ("Idempotency-Replayed" in first.headers, second["Idempotency-Replayed"]) == (False, "true")
    assert error_of(api.lines(f"{BODY}\n", **{"Idempotency-Key": "k"}), 422)["code"] == "idempotency_key_reused"
    options = api.lines(f"{BODY}\n{BODY}\n", "?partial=1", **{"Idempotency-Key": "k"})
    assert error_of(options, 422)["code"] == "idempotency_key_reused"
    assert Batch.objects.count() == 1


def test_a_key_belongs_to_its_project_and_a_refused_request_leaves_it_free(api: Api):
    key = {"Idempotency-Key": "k"}
    assert api.post("/jobs/", {"kind": "no.such"}, **key).status_code == 422
    assert api.post("/jobs/", SPEC, **key).status_code == 201
    other = Api(key_for("other")).post("/jobs/", SPEC, **key)
    assert (other.status_code, "Idempotency-Replayed" in other.headers) == (201, False)


def test_an_action_repeated_with_its_key_is_answered_from_the_store(api: Api):
    path = f"/jobs/{make_job().pk}/cancel/"
    first, second = (api.post(path, {"reason": "x"}, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert api.post(path, {"reason": "x"}).status_code == 409


@pytest.mark.parametrize("key", ["", "x" * 201, "tab\there", "ü"])
def test_a_key_that_cannot_be_stored_is_refused(api: Api, key):
    error = error_of(api.post("/jobs/", SPEC, **{"Idempotency-Key": key}), 400)
    assert error["code"] == "invalid_idempotency_key"
    assert not Job.objects.exists()
