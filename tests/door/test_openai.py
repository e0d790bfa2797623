"""OpenAI's own client against a running installation: it changes base_url and key, and nothing else."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import OpenAI

from jobs.models import Batch, Job
from tests.support.processes import RunningProcess, wait_for
from tests.support.sandbox import Sandbox

from .conftest import MODEL

MESSAGES: Any = [{"role": "user", "content": "Why is the sky blue?"}]
EXOTIC = (
    '{"messages" : [{"role":"user","content":"H\\u00e9 \\u2028 é"}],  "temperature":0.70, "seed":1E2,"model":"small-1"}'
)


def line(custom_id: str, body: str = "", **fields: Any) -> str:
    body = body or json.dumps({"model": MODEL, "messages": MESSAGES})
    given = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", **fields}
    return f'{json.dumps(given)[:-1]}, "body": {body}}}'


def upload(client: OpenAI, *lines: str) -> str:
    return client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch").id


def ended(client: OpenAI, batch: str) -> Any:
    def found() -> Any:
        told = client.batches.retrieve(batch)
        return told if told.status in ("completed", "failed", "cancelled") else None

    return wait_for(found, what="the end of the batch")


def test_a_file_becomes_a_batch_and_its_answers_a_file(client: OpenAI, workers: RunningProcess, sandbox: Sandbox):
    name = upload(client, *(line(f"row-{number}") for number in range(20)), line("exotic", EXOTIC))
    stored = client.files.retrieve(name)
    assert (stored.filename, stored.purpose, stored.status) == ("in.jsonl", "batch", "processed")
    made = client.batches.create(
        input_file_id=name,
        endpoint="/v1/chat/completions",
        completion_window="10m",  # type: ignore[arg-type]
        metadata={"team": "support"},
    )
    assert (made.status, made.input_file_id, made.metadata) == ("in_progress", name, {"team": "support"})
    assert [batch.id for batch in client.batches.list()] == [made.id]
    told = ended(client, made.id)
    assert told.status == "completed"
    assert (told.request_counts.total, told.request_counts.completed, told.request_counts.failed) == (21, 21, 0)
    assert told.error_file_id is None
    rows = [json.loads(row) for row in client.files.content(told.output_file_id).text.splitlines()]
    assert [row["custom_id"] for row in rows] == [*(f"row-{number}" for number in range(20)), "exotic"]
    assert all(row["response"]["status_code"] == 200 and row["error"] is None for row in rows)
    assert all(row["response"]["body"]["choices"][0]["message"]["content"] for row in rows)
    assert len(sandbox.calls(path="/v1/chat/completions")) == 21


def test_a_batch_is_cancelled_and_a_file_is_listed_and_deleted(client: OpenAI):
    name = upload(client, *(line(f"row-{number}") for number in range(3)))
    made = client.batches.create(input_file_id=name, endpoint="/v1/chat/completions", completion_window="24h")
    assert client.batches.cancel(made.id).status == "cancelling"
    assert [file.id for file in client.files.list(purpose="batch")] == [name]
    with client.files.with_streaming_response.content(name) as content:
        assert len(list(content.iter_lines())) == 3
    assert client.files.delete(name).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(name)
    with pytest.raises(openai.BadRequestError, match="'assistants'"):
        client.files.create(file=("in.jsonl", b"{}"), purpose="assistants")
    with pytest.raises(openai.NotFoundError, match="QueueOps does not do this"):
        client.fine_tuning.jobs.list()


def test_a_call_is_answered_as_its_provider_answers(client: OpenAI, workers: RunningProcess):
    told = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert told.choices[0].message.content
    assert told.usage
    vectors = client.embeddings.create(model=MODEL, input=["one", "two"])
    assert len(vectors.data) == 2
    assert Job.objects.count() == 2


def test_a_response_in_the_background_is_asked_for_by_its_id(client: OpenAI, workers: RunningProcess):
    begun = client.responses.create(model=MODEL, input="Why?", background=True)
    assert begun.status in ("queued", "in_progress")

    def done() -> Any:
        told = client.responses.retrieve(begun.id)
        return told if told.status == "completed" else None

    told = wait_for(done, what="the response")
    assert (told.id, bool(told.output_text)) == (begun.id, True)


def test_one_batch_is_made_of_requests_that_are_repeated_at_once(client: OpenAI):
    name = upload(client, *(line(f"row-{number}") for number in range(500)))

    def create(_: int) -> str:
        made = client.batches.create(input_file_id=name, endpoint="/v1/chat/completions", completion_window="24h")
        return made.id

    with ThreadPoolExecutor(6) as threads:
        assert len(set(threads.map(create, range(6)))) == 1
    assert (Batch.objects.count(), Job.objects.count()) == (1, 500)


def test_one_key_of_requests_at_once_is_good_for_one_of_two_files(client: OpenAI):
    names = [upload(client, *(line(f"{file}-{number}") for number in range(300))) for file in ("a", "b")]

    def create(name: str) -> str:
        named: Any = {"endpoint": "/v1/chat/completions", "extra_headers": {"Idempotency-Key": "k"}}
        try:
            return client.batches.create(input_file_id=name, completion_window="24h", **named).id
        except openai.BadRequestError as error:
            return str(error.code)

    with ThreadPoolExecutor(2) as threads:
        assert max(threads.map(create, names)) == "idempotency_key_reused"
    assert (Batch.objects.count(), Job.objects.count()) == (1, 300)


def test_models_are_those_of_routes_and_prices(client: OpenAI):
    assert [model.id for model in client.models.list()] == []
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_bad_lines_are_told_with_line_and_field_and_nothing_is_carried_out(client: OpenAI):
    name = upload(client, line("good"), "no json", line("good"), line("far", '{"model": "other", "messages": []}'))
    made = client.batches.create(input_file_id=name, endpoint="/v1/chat/completions", completion_window="24h")
    assert made.status == "failed"
    assert made.errors
    told = [(error.line, error.code, error.param) for error in made.errors.data or ()]
    assert told == [
        (2, "invalid_request", None),
        (3, "invalid_request", "custom_id"),
        (4, "model_not_found", "model"),
    ]
    assert (Job.objects.count(), Batch.objects.count()) == (0, 0)
