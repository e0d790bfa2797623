"""Anthropic's own client against a running installation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from jobs.models import Batch, Job
from queueops.tenancy.models import Project
from tests.support.processes import RunningProcess, wait_for
from tests.support.sandbox import Sandbox

from .conftest import MODEL, route_to

if TYPE_CHECKING:  # at import it would be a quarter of what the collection of all tests costs
    from anthropic import Anthropic
    from openai import OpenAI

PARAMS: Any = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "Why?"}]}


@pytest.fixture
def claude(address: str, key: str, project: Project, sandbox: Sandbox) -> Iterator[Anthropic]:
    from anthropic import Anthropic

    route_to(sandbox, project, provider="anthropic", pattern="small-1")
    with Anthropic(base_url=f"{address}/anthropic", api_key=key, max_retries=0, timeout=60) as client:
        yield client


def ended(client: Anthropic, batch: str) -> Any:
    def found() -> Any:
        told = client.messages.batches.retrieve(batch)
        return told if told.processing_status == "ended" else None

    return wait_for(found, what="the end of the batch")


def test_requests_become_a_batch_and_their_answers_its_results(
    claude: Anthropic, workers: RunningProcess, sandbox: Sandbox
):
    made = claude.messages.batches.create(
        requests=[{"custom_id": f"row-{number}", "params": PARAMS} for number in range(10)]
    )
    assert made.processing_status == "in_progress"
    sandbox.move_clock(seconds=100_000)
    told = ended(claude, made.id)
    assert (told.request_counts.succeeded, told.request_counts.errored) == (10, 0)
    rows = list(claude.messages.batches.results(made.id))
    assert [row.custom_id for row in rows] == [f"row-{number}" for number in range(10)]
    for row in rows:
        assert row.result.type == "succeeded"
        assert row.result.message.content[0].type == "text"
    assert [batch.id for batch in claude.messages.batches.list()] == [made.id]


def test_one_batch_is_made_of_a_request_that_is_repeated(claude: Anthropic):
    import anthropic

    requests: Any = [{"custom_id": "row", "params": PARAMS}]
    with ThreadPoolExecutor(4) as threads:
        ids = set(threads.map(lambda _: claude.messages.batches.create(requests=requests).id, range(4)))
    assert len(ids) == Batch.objects.count() == Job.objects.count() == 1
    named: Any = {"extra_headers": {"Idempotency-Key": "k"}}
    first = claude.messages.batches.create(requests=requests, **named)
    assert first.id not in ids
    with pytest.raises(anthropic.BadRequestError, match="used for another batch"):
        claude.messages.batches.create(requests=[*requests, {"custom_id": "other", "params": PARAMS}], **named)


def test_a_message_is_answered_as_its_provider_answers(claude: Anthropic, workers: RunningProcess):
    told = claude.messages.create(**PARAMS)
    assert told.content[0].type == "text"
    assert told.usage.output_tokens
    assert told._request_id == f"req_{Job.objects.get().pk.hex}"


def test_a_model_that_a_route_takes_is_found_by_its_name(claude: Anthropic, client: OpenAI, project: Project):
    import anthropic

    assert claude.models.retrieve(MODEL).id == MODEL
    assert client.models.retrieve("small-2").owned_by == "openai"
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("claude-9")


def test_the_beta_client_does_without_betas(claude: Anthropic, workers: RunningProcess):
    import anthropic

    # As Node's client sends it.
    named: Any = {"extra_query": {"beta": "true"}, "extra_headers": {"anthropic-beta": "message-batches-2024-09-24"}}
    assert claude.beta.messages.create(**PARAMS, **named).content[0].type == "text"
    made = claude.beta.messages.batches.create(requests=[{"custom_id": "row", "params": PARAMS}], **named)
    assert claude.beta.messages.batches.retrieve(made.id, **named).id == made.id
    assert [batch.id for batch in claude.beta.messages.batches.list(**named)] == [made.id]
    assert claude.beta.messages.batches.cancel(made.id, **named).cancel_initiated_at
    for create in (
        lambda: claude.beta.messages.create(**PARAMS, betas=["context-1m-2025-08-07"]),
        lambda: claude.beta.messages.batches.create(requests=[], betas=["context-1m-2025-08-07"]),
    ):
        with pytest.raises(anthropic.BadRequestError, match="leave betas out"):
            create()
    assert Job.objects.count() == 2


def test_requests_that_are_not_valid_are_told_with_place_and_field(claude: Anthropic):
    import anthropic

    requests: Any = [
        {"custom_id": "good", "params": PARAMS},
        {"custom_id": "two words", "params": PARAMS},
        {"custom_id": "good", "params": PARAMS},
        {"custom_id": "other", "params": {**PARAMS, "model": "claude-9"}},
    ]
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.batches.create(requests=requests)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    for told in ("requests.1: custom_id", "requests.2: custom_id", "requests.3: model: No route of this project takes"):
        assert told in body["error"]["message"]
    assert (Job.objects.count(), Batch.objects.count()) == (0, 0)


def test_a_stranger_learns_nothing(claude: Anthropic, address: str, key: str):
    import anthropic

    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve("msgbatch_" + "0" * 32)
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=f"{address}/anthropic", api_key="qo_wrong", max_retries=0).messages.create(
            **PARAMS
        )
