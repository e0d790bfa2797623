"""`llm.call` by batch: each endpoint that has a batch API, its line as it was written, its answer whole."""

from __future__ import annotations

import json

import pytest

from jobs.models import Job, ProviderBatch
from ratelimits.models import Spend
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db(transaction=True)

BODIES = {
    ("openai", "/v1/chat/completions"): {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 200},
    ("openai", "/v1/responses"): {"input": "Why?"},
    ("openai", "/v1/embeddings"): {"input": ["Why?", "How?"], "dimensions": 4},
    ("anthropic", "/v1/messages"): {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 200},
    ("gemini", "generateContent"): {"contents": [{"role": "user", "parts": [{"text": "Why?"}]}]},
}


@pytest.mark.parametrize(("provider", "endpoint"), BODIES)
def test_lines_of_each_endpoint_are_answered_and_booked(lane, sandbox, provider, endpoint):
    lane.credential(provider)
    payload = {"provider": provider, "credential": f"{provider}-key", "model": "small-1", "endpoint": endpoint}
    body = json.dumps(BODIES[provider, endpoint])
    lane.submit_payloads(
        "llm.call", [{**payload, "body": json.loads(body.replace("Why", f"Why {n}"))} for n in range(2)]
    )
    lane.tend_until_closed()
    assert lane.states() == ["completed"] * 2
    assert ProviderBatch.objects.count() == 1
    for job in Job.objects.all():
        assert job.result["complete"]
        assert (len(job.result["body"]["data"]) == 2) if "data" in job.result["body"] else job.result["text"]
    assert Spend.objects.filter(kind=Spend.Kind.CALL, via="batch").count() == 2
    assert sandbox.billing()["prompts_paid_again"] == 0


@every_case(
    ("endpoint", "body"),
    [
        ("/v1/moderations", {"input": "Why?"}),
        ("batchEmbedContents", {"requests": [{"model": "models/small-1", "content": {"parts": [{"text": "Why?"}]}}]}),
    ],
)
def test_an_endpoint_without_a_batch_api_goes_live(lane, endpoint, body):
    lane.credential_once()
    provider = "gemini" if endpoint == "batchEmbedContents" else "openai"
    payload = {"provider": provider, "credential": "openai-key", "service": "openai", "model": "small-1"}
    receipt = lane.submit_payloads("llm.call", [{**payload, "endpoint": endpoint, "body": body}], via="auto")
    assert {job.via for job in Job.objects.filter(batch_id=receipt.id)} == {None}
