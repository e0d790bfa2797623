"""`llm.embed`: texts leave together as one call, limits count the tokens of each, and each job has its vector."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from pydantic import ValidationError

from jobs.classify import REMEDIES_BY_CODE, failure_of, is_outage, is_retryable
from jobs.handlers.errors import ProviderError
from jobs.handlers.http.connections import close
from jobs.handlers.llm.native.embed import LlmEmbed, embed
from jobs.handlers.registry import Bisect, Done, RunningJob
from jobs.models import Job
from jobs.services.submit.submit import submit_batch
from jobs.testing import drain
from queueops.tenancy.secrets.credentials import OpenCredential
from ratelimits.costs import Usage
from ratelimits.models import Spend
from sandbox.llm import vector_of
from tests.support.cases import every_case
from tests.support.documents import PROJECT, TOKENS_PER_MINUTE, Model
from tests.support.http_server import serving
from tests.support.llm import API_KEY, Progress

pytestmark = pytest.mark.django_db

PROVIDERS = ["openai", "gemini"]


def payload_of(text: str, provider: str = "openai", **fields: Any) -> dict[str, Any]:
    return {"provider": provider, "credential": "key", "model": "small-1", "input": text, **fields}


async def carry_out(url: str, texts: list[str], provider: str = "openai", **fields: Any) -> list[Any]:
    jobs = [
        RunningJob(
            id=UUID(int=number),
            payload=LlmEmbed.model_validate(payload_of(text, provider, **fields)),
            project="acme",
            user_id=None,
            effect_key=f"effect-{number}",
            attempt=1,
            report=Progress(),
            credential=OpenCredential("key", provider, {"api_key": API_KEY}, url),
        )
        for number, text in enumerate(texts)
    ]
    try:
        return list(await embed(jobs))
    finally:
        await close()


def answered(answer: Any, texts: list[str], status: int = 200, **fields: Any) -> list[Any]:
    async def say(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    async def ask() -> list[Any]:
        async with serving(say) as url:
            return await carry_out(url, texts, **fields)

    return asyncio.run(ask())


@every_case("provider", PROVIDERS)
def test_each_text_has_its_own_vector_in_the_order_of_the_texts(sandbox, provider):
    found = asyncio.run(carry_out(sandbox.url, ["one", "two", "three"], provider, dimensions=4))
    assert [one.result["embedding"] for one in found] == [vector_of(text, 4) for text in ("one", "two", "three")]
    assert {one.result["dimensions"] for one in found} == {4}


@every_case("provider", PROVIDERS)
def test_base64_holds_the_same_floats(sandbox, provider):
    [found] = asyncio.run(carry_out(sandbox.url, ["one"], provider, dimensions=4, encoding="base64"))
    assert list(struct.unpack("<4f", base64.b64decode(found.result["embedding"]))) == vector_of("one", 4)
    assert found.result["dimensions"] == 4


def test_what_the_call_used_is_divided_among_its_texts_and_nothing_is_lost(sandbox):
    found = asyncio.run(carry_out(sandbox.url, ["a", "b" * 40, "c" * 399]))
    assert sum(one.usage.input_tokens for one in found) == sandbox.calls(accepted="true")[0]["prompt_tokens"]


def test_vectors_are_taken_by_their_place():
    data = [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [0.0]}]
    found = answered({"data": data, "model": "m", "usage": {"prompt_tokens": 2}}, ["a", "b"])
    assert [one.result["embedding"] for one in found] == [[0.0], [1.0]]
    apart = [{"index": 0, "embedding": [float(number)]} for number in range(2)]
    found = answered({"data": apart, "model": "m"}, ["a", "b"])
    assert [one.result["embedding"] for one in found] == [[0.0], [1.0]]


@every_case("places", [(0, 2), (1, 2), (-1, 0)])
def test_a_vector_whose_text_nobody_can_tell_is_given_to_none(places):
    data = [{"index": place, "embedding": [1.0]} for place in places]
    with pytest.raises(ProviderError, match="places that no text has"):
        answered({"data": data, "model": "m"}, ["a", "b"])


@every_case(
    ("answer", "words"),
    [
        ({"data": [{"embedding": [1.0]}]}, "2 texts were sent, and 1 vectors came back"),
        ({"data": [{"embedding": [None]}, {"embedding": None}]}, "an embedding is no list of numbers"),
        ({"data": [1, 2]}, "an embedding is no list of numbers"),
        ({"choices": []}, "of no known form"),
    ],
)
def test_an_answer_that_is_none_is_never_taken_for_one(answer, words):
    with pytest.raises(ProviderError) as error:
        answered(answer, ["a", "b"])
    assert words in error.value.message
    assert error.value.outcome == "unknown"


@every_case(
    "data",
    [
        [{"embedding": [1.0]}],
        [{"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": 2}],
        [1, 2],
        None,
    ],
)
def test_a_call_whose_vectors_fit_no_text_tells_what_it_used(data):
    with pytest.raises(ProviderError) as error:
        answered({"data": data, "usage": {"prompt_tokens": 20, "total_tokens": 20}}, ["a", "b"])
    assert error.value.used == (20, Usage(20, None, 0, 20))


def test_a_text_without_a_vector_fails_alone_with_its_share_and_the_others_have_theirs():
    data = [{"index": 1, "embedding": [None, None]}, {"index": 0, "embedding": [1.0, 2.0]}]
    answer = {"data": data, "model": "m", "usage": {"prompt_tokens": 20}}
    done, failed = answered(answer, ["a" * 40, "b" * 40])
    assert (done.result["embedding"], done.usage.input_tokens) == ([1.0, 2.0], 10)
    assert (failed.code, failed.outcome, failed.used[0], failed.used[1].input_tokens) == (
        "malformed_answer",
        "unknown",
        10,
        10,
    )


@every_case("words", ["unsupported value: NaN", "unsupported value: +Inf"])
def test_a_text_of_which_the_model_makes_no_numbers_is_found_out_and_not_asked_for_again(words):
    error = {"error": {"message": f"failed to encode response: json: {words}", "type": "api_error"}}
    with pytest.raises(Bisect):
        answered(error, ["a", "b"], status=500)
    with pytest.raises(ProviderError) as failed:
        answered(error, ["a"], status=500)
    told = failure_of(failed.value)
    assert (told.code, told.status, told.remedy) == ("no_vector", 400, REMEDIES_BY_CODE["no_vector"])
    assert not is_retryable(told, repeatable=True)
    assert not is_outage(told)
    with pytest.raises(ProviderError):
        answered({"error": "out of memory"}, ["a", "b"], status=500)


def test_where_one_text_is_refused_the_others_go_without_it():
    with pytest.raises(Bisect):
        answered({"error": {"message": "too long"}}, ["a", "b"], status=400)
    with pytest.raises(ProviderError, match="too long"):
        answered({"error": {"message": "too long"}}, ["a"], status=400)


@every_case(
    ("fields", "words"),
    [
        ({"provider": "anthropic"}, "provider"),
        ({"input": ""}, "input"),
        ({"dimensions": 0}, "dimensions"),
        ({"options": {"input": "x"}}, "options: input is a field of the payload"),
        ({"provider": "gemini", "model": "a/b"}, "model: the name of a Gemini model"),
        ({"prompt": "x"}, "prompt"),
    ],
)
def test_wrong_input_names_its_field(fields, words):
    with pytest.raises(ValidationError) as error:
        LlmEmbed.model_validate({**payload_of("a"), **fields})
    assert words in str(error.value)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_waiting_texts_leave_together_and_no_quota_of_tokens_is_passed(sandbox, provider):
    """90 texts of 1,000 tokens through 30,000 tokens a window: three windows, and few calls."""
    model = Model(provider, 1, late_seconds=0.9)
    model.set_up(sandbox)
    fields = {"service": model.service, "credential": "model-key"}
    texts = [f"{number:04}" * 1_000 for number in range(90)]
    submit_batch(
        [{"kind": "llm.embed", "payload": payload_of(text, provider, **fields)} for text in texts],
        project_id=PROJECT,
        actor="key:test",
    )
    drain(seconds=60)
    assert {job.status for job in Job.objects.all()} == {"completed"}
    assert all(job.result["embedding"] == vector_of(job.payload["input"], 16) for job in Job.objects.all())
    calls = sandbox.calls(method="POST")
    assert [call["status"] for call in calls] == [200] * len(calls)
    assert len(calls) < len(texts)
    assert max(call["prompt_tokens"] for call in calls) == TOKENS_PER_MINUTE, "the first call has all the room"
    assert sum(call["prompt_tokens"] for call in calls) == 90 * 1_000
    booked = Spend.objects.filter(kind=Spend.Kind.CALL)
    if provider == "openai":  # Gemini does not tell the use of such a call
        assert (booked.count(), sum(one.input_tokens or 0 for one in booked)) == (len(calls), 90 * 1_000)


def test_a_text_that_is_too_long_fails_alone(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    sandbox.turn(openai={"context_tokens": {"small-1": 500}})
    fields = {"service": model.service, "credential": "model-key"}
    texts = ["a" * 100 * number for number in range(1, 5)] + ["b" * 4_000]
    submit_batch(
        [{"kind": "llm.embed", "payload": payload_of(text, **fields)} for text in texts],
        project_id=PROJECT,
        actor="key:test",
    )
    drain(seconds=30)
    ended = sorted((len(job.payload["input"]), job.status, job.last_error_code) for job in Job.objects.all())
    assert ended == [
        *((100 * number, "completed", "") for number in range(1, 5)),
        (4_000, "failed", "context_too_long"),
    ]


def test_results_are_json_of_the_numbers_that_came():
    [found] = answered({"data": [{"embedding": [0.0023064255, 1e-05]}], "model": "m"}, ["a"])
    assert isinstance(found, Done)
    assert json.dumps(found.result["embedding"]) == "[0.0023064255, 1e-05]"
