"""`llm.call` by batch: each endpoint that has a batch API, its line as it was written, its answer whole."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.features.batch_lane.steps.collect import collect_waiting
from jobs.handlers.llm.native.call import BATCH_APIS
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


CHATS, RESPONSES = ("openai", "/v1/chat/completions"), ("openai", "/v1/responses")


def payloads_of(key: tuple[str, str], count: int, word: str = "") -> list[dict[str, Any]]:
    provider, endpoint = key
    payload = {"provider": provider, "credential": f"{provider}-key", "model": "small-1", "endpoint": endpoint}
    body = json.dumps(BODIES[key])
    return [{**payload, "body": json.loads(body.replace("Why", f"Why {word}{n}"))} for n in range(count)]


def test_jobs_of_two_endpoints_that_wait_together_each_go_by_a_batch_of_their_own(lane, sandbox):
    lane.credential()
    chats, responses = payloads_of(CHATS, 3), payloads_of(RESPONSES, 2)
    lane.submit_payloads("llm.call", [chats[0], responses[0], chats[1], responses[1], chats[2]])
    lane.tend_until_closed()
    assert lane.states() == ["completed"] * 5
    assert set(ProviderBatch.objects.values_list("provider", "lines", "succeeded")) == {
        ("openai", 3, 3),
        ("openai-responses", 2, 2),
    }
    assert set(Job.objects.values_list("via", flat=True)) == {"batch"}, "none went live at the full price"


def test_an_endpoint_is_not_starved_by_more_urgent_jobs_of_another(lane):
    lane.credential()
    later = (timezone.now() + timedelta(hours=48)).isoformat()
    lane.submit_payloads("llm.call", payloads_of(RESPONSES, 1), complete_by=later)
    lane.submit_payloads("llm.call", payloads_of(CHATS, 1))
    assert len(collect_waiting(["llm.call"])) == 2


def test_a_batch_keeps_to_the_bounds_of_its_own_api(lane, monkeypatch):
    monkeypatch.setattr(BATCH_APIS["openai-responses"], "most_lines", 2)
    lane.credential()
    lane.submit_payloads("llm.call", payloads_of(CHATS, 1))
    lane.submit_payloads("llm.call", payloads_of(RESPONSES, 3))
    collect_waiting(["llm.call"])
    assert sorted(ProviderBatch.objects.values_list("provider", "lines")) == [("openai", 1), ("openai-responses", 2)]
    collect_waiting(["llm.call"])
    assert sorted(ProviderBatch.objects.values_list("lines", flat=True)) == [1, 1, 2], "the rest by the next batch"
