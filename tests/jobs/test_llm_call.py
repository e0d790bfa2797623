"""`llm.call`: a body goes out as it was written, its answer comes back whole, and both are counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from django.db import connection
from pydantic import TypeAdapter, ValidationError

from jobs.classify import failure_of, is_retryable
from jobs.handlers.errors import ProviderError
from jobs.handlers.http.connections import close
from jobs.handlers.llm.batches.calls import compact
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.dialect import Generation
from jobs.handlers.llm.native import call as native
from jobs.handlers.llm.native.endpoints import ENDPOINTS
from jobs.handlers.llm.native.measure import measure
from jobs.handlers.llm.native.payload import LlmCall
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.reading import AnswerReader
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Continue, Done, RunningJob, find_handler
from jobs.models import Job
from jobs.services.submit.prepare import prepare_job
from jobs.services.submit.spec import InvalidJob, JobSpec, WrittenJob
from jobs.services.submit.submit import submit_batch
from jobs.testing import drain
from queueops.core.values.written import member
from queueops.tenancy.credential_pools import server_settings
from queueops.tenancy.secrets.credentials import OpenCredential
from ratelimits.costs import Usage
from tests.factories import make_project
from tests.support.cases import every_case
from tests.support.documents import PROJECT, Model
from tests.support.http_server import serving
from tests.support.llm import API_KEY, Progress, payload_of

CHAT = '{"messages" : [{"role":"user","content":"H\\u00e9 \\u2028 é"}],  "temperature":0.70, "seed":1E2,\n"model":"m"}'
REFUSALS = list(map(json.loads, Path(__file__).with_name("wire").joinpath("refusals.ndjson").read_text().splitlines()))
RECORDED = json.loads(Path(__file__).with_name("wire").joinpath("requests.json").read_text())
NEEDED = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Why?"}]},
    "/v1/responses": {"input": "Why?"},
    "/v1/embeddings": {"input": ["Why?", "How?"]},
    "/v1/moderations": {"input": "Some violence"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 200},
    "generateContent": {"contents": [{"parts": [{"text": "Why?"}]}]},
    "batchEmbedContents": {"requests": [{"model": "models/m", "content": {"parts": [{"text": "Why?"}]}}]},
}
EVERY = [(provider, name) for provider, known in ENDPOINTS.items() for name in known]


def payload_text(provider: str, body: str, **fields: Any) -> str:
    given = json.dumps({"provider": provider, "credential": "key", **fields})
    return f'{given[:-1]}, "body":{body}}}'


async def carry_out(url: str, text: str, *, step: int = 0) -> Done | Continue:
    payload = LlmCall.model_validate_json(text)
    if step:
        payload = payload.ways()[step - 1].payload
    credential = OpenCredential("key", payload.service_name, {"api_key": API_KEY}, url)
    job = RunningJob(
        id=UUID(int=1),
        payload=payload,
        project="acme",
        user_id=None,
        effect_key="effect-1",
        attempt=1,
        report=Progress(),
        credential=credential,
        payload_text=text,
        fallback_step=step,
    )
    try:
        return await native.call(job)
    finally:
        await close()


def received(text: str, **options: Any) -> tuple[bytes, str]:
    """The body and the address that reach the provider."""
    found: list[tuple[bytes, str]] = []

    async def note(request: web.Request) -> web.Response:
        found.append((await request.read(), request.path_qs))
        return web.json_response({"error": {"message": "noted"}}, status=400)

    async def ask() -> None:
        async with serving(note) as url:
            with pytest.raises(ProviderError):
                await carry_out(url, text, **options)

    asyncio.run(ask())
    return found[0]


@every_case(
    ("provider", "body"),
    [("openai", CHAT), ("gemini", '{"contents":[{"parts":[{"text":"a"}]}], "generationConfig":{"topK":1e1}}')]
    + [(one["provider"], json.dumps(one["body"], indent=1)) for one in RECORDED],
)
def test_a_body_reaches_the_provider_byte_for_byte(provider, body):
    model = {} if '"model":' in body.replace('"model" :', '"model":') else {"model": "m"}
    assert received(payload_text(provider, body, **model))[0] == body.encode()


def test_a_server_that_takes_no_stream_options_is_asked_again_without_them():
    server_settings.forget()
    form = next(one for one in REFUSALS if one["name"] == "stream_options_422")
    text = payload_text("openai", CHAT, stream=True)
    bodies: list[bytes] = []

    async def refuse(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.json_response(form["body"], status=form["status"])

    async def twice() -> list[Any]:
        async with serving(refuse) as url:
            return [await carry_out(url, text), await _refused(url, text)]

    told = asyncio.run(twice())
    server_settings.forget()
    assert isinstance(told[0], Continue)
    assert told[0].cost == 0
    assert [b"stream_options" in body for body in bodies] == [True, False]
    assert bodies[1].decode() == CHAT[:-1] + ',"stream":true}'


async def _refused(url: str, text: str) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await carry_out(url, text)
    return raised.value


def test_a_fallback_and_a_stream_change_their_own_members_alone():
    text = payload_text("openai", CHAT, stream=True, fallback=[{"model": "other"}])
    sent, _ = received(text, step=1)
    stream = ',"stream":true,"stream_options":{"include_usage":true}}'
    assert sent.decode() == CHAT.replace('"model":"m"', '"model":"other"')[:-1] + stream


def test_a_line_of_a_batch_has_the_body_as_it_was_written():
    text = payload_text("openai", CHAT)
    line = compact({"custom_id": "1", "body": native._as_written(LlmCall.model_validate_json(text), text)})
    assert line.decode() == '{"custom_id":"1","body":' + CHAT.replace("\n", " ") + "}"


@every_case(
    ("provider", "endpoint", "path"),
    [
        ("openai", "/v1/responses", "/v1/responses"),
        ("openai", None, "/v1/chat/completions"),
        ("anthropic", None, "/v1/messages"),
        ("gemini", None, "/v1beta/models/m:generateContent"),
        ("gemini", "batchEmbedContents", "/v1beta/models/m:batchEmbedContents"),
    ],
)
def test_each_endpoint_has_its_address(provider, endpoint, path):
    body = json.dumps(NEEDED[endpoint or next(iter(ENDPOINTS[provider]))])
    assert received(payload_text(provider, body, endpoint=endpoint, model="m"))[1] == path


def nested(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return inner


def test_a_body_of_ninety_levels_is_taken_and_an_answer_that_repeats_it_can_be_stored():
    body = {"messages": [1], "tools": nested(89)}
    payload = LlmCall.model_validate({"provider": "openai", "credential": "key", "model": "m", "body": body})
    answer = {"choices": [{"message": {"content": "blue"}, "finish_reason": "stop"}], "repeated": [body]}
    form = find_handler("llm.call").batch
    assert form is not None
    assert form.read(payload, answer, ()).result["body"] == answer


@every_case("kind", ["llm.call", "llm.generate"])
def test_an_answer_that_is_nested_too_deeply_to_be_stored_fails_once_and_is_booked(kind):
    arguments = json.dumps({"a": nested(100)})
    called = [{"id": "c", "function": {"name": "f", "arguments": arguments}}]
    answer = {
        "choices": [{"message": {"tool_calls": called}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    }
    asked = {"body": {"messages": [1]}} if kind == "llm.call" else {"prompt": "x"}
    handler = find_handler(kind)
    assert handler.batch is not None
    payload = handler.schema.validate_python({"provider": "openai", "credential": "key", "model": "m", **asked})
    with pytest.raises(ProviderError, match="nested deeper than 100 levels") as error:
        handler.batch.read(payload, answer, ())
    assert error.value.used == (8, Usage(5, None, 3, 8))
    assert not is_retryable(failure_of(error.value, ()), repeatable=True)


@every_case(
    ("fields", "words"),
    [
        (
            {"endpoint": "/v1/audio"},
            "endpoint: '/v1/audio' is none that is known of openai; known: /v1/chat/completions",
        ),
        ({"body": {}}, "body.messages is missing"),
        ({"body": {"messages": [1], "tools": nested(90)}}, "body: it is nested deeper than 90 levels"),
        ({"body": {"messages": []}}, "body.messages must be a list that is not empty"),
        ({"body": {"messages": [1], "stream": True}}, "body.stream is set by the payload's stream"),
        ({"body": {"messages": [1], "service_tier": "flex"}}, "body.service_tier is chosen by the way"),
        ({"body": {"messages": [1], "serviceTier": "flex"}}, "body.serviceTier is chosen by the way"),
        ({"body": {"messages": [1], "model": "other"}}, "body.model is not the payload's model, m"),
        ({"body": {"messages": [1], "max_tokens": "9"}}, "body.max_tokens must be a whole number from 1"),
        ({"body": {"messages": [1], "n": 0}}, "body.n must be a whole number from 1 to 128"),
        (
            {"endpoint": "/v1/responses", "body": {"input": "a", "background": True}},
            "body.background would be answered",
        ),
        ({"endpoint": "/v1/embeddings", "body": {"input": ["a"] * 2049}}, "body.input has 2,049 entries"),
        (
            {"endpoint": "/v1/embeddings", "body": {"input": "a"}, "stream": True},
            "stream: this endpoint answers in one",
        ),
        ({"body": {"messages": [1], "n": 2}, "stream": True}, "stream: the pieces of several answers come mixed"),
        ({"provider": "anthropic", "body": {"messages": [1]}}, "body.max_tokens is missing"),
        ({"provider": "gemini", "model": "a/b", "body": {"contents": [1]}}, "model: the name of a Gemini model"),
        (
            {"provider": "gemini", "endpoint": "batchEmbedContents", "body": {"requests": [{"content": {}}]}},
            'body.requests.0.model must be "models/m"',
        ),
        ({"fallback": [{"provider": "gemini", "model": "x"}]}, "another provider would need another body"),
    ],
)
def test_a_body_that_the_provider_would_refuse_is_refused_at_submission_with_its_place(fields, words):
    given = {"provider": "openai", "credential": "key", "model": "m", "body": {"messages": [1]}, **fields}
    with pytest.raises(ValidationError) as error:
        LlmCall.model_validate(given)
    assert words in str(error.value)


def test_the_model_is_that_of_the_body_where_the_payload_names_none():
    given = {"provider": "openai", "credential": "key", "body": {"model": "m", "messages": [1]}}
    assert LlmCall.model_validate(given).model == "m"
    with pytest.raises(ValidationError, match="model"):
        LlmCall.model_validate({**given, "body": {"messages": [1]}})


@every_case(
    ("provider", "body", "counts", "is_known"),
    [
        ("openai", {"messages": [{"role": "user", "content": "a" * 40}]}, (11, 1_000), True),
        ("openai", {"messages": [{"role": "user", "content": "a" * 40}], "max_tokens": 7, "n": 3}, (11, 21), True),
        (
            "openai",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * 400}}]}]},
            (1_106, 1_000),
            False,
        ),
        (
            "anthropic",
            {"messages": [{"role": "user", "content": [{"type": "document"}]}], "max_tokens": 9},
            (1, 9),
            False,
        ),
        (
            "gemini",
            {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "x" * 99}}]}]},
            (258, 1_000),
            False,
        ),
    ],
)
def test_a_body_is_counted(provider, body, counts, is_known):
    payload = LlmCall.model_validate({"provider": provider, "credential": "key", "model": "m", "body": body})
    cost = payload.cost()
    assert (cost.units["input_tokens"], cost.units["output_tokens"]) == counts
    assert (payload.most().input_tokens is not None) == is_known


def test_an_embedding_has_no_output_and_tokens_given_as_numbers_count():
    body = {"input": [[1, 2, 3], [4]], "model": "m"}
    payload = LlmCall.model_validate(
        {"provider": "openai", "credential": "key", "endpoint": "/v1/embeddings", "body": body}
    )
    assert (payload.cost().known, payload.cost().unknown, payload.cost().units["output_tokens"]) == (4, 0, 0)


@every_case(("provider", "endpoint"), EVERY)
def test_the_answer_of_each_endpoint_comes_back_whole_with_its_use(sandbox, provider, endpoint):
    body = json.dumps(NEEDED[endpoint])
    done = asyncio.run(carry_out(sandbox.url, payload_text(provider, body, endpoint=endpoint, model="m")))
    assert isinstance(done, Done)
    result = done.result
    assert result["status"] == 200
    assert result["complete"]
    vectors = {"/v1/embeddings": "data", "/v1/moderations": "results", "batchEmbedContents": "embeddings"}
    if endpoint in vectors:
        assert "text" not in result
        assert len(result["body"][vectors[endpoint]]) == (2 if endpoint == "/v1/embeddings" else 1)
    else:
        assert result["text"]
        assert done.usage is not None
        assert done.usage.output_tokens is not None
        assert done.usage.output_tokens > 0
    if endpoint != "batchEmbedContents":
        assert result["model"] == "m"


@every_case(
    ("provider", "endpoint"), [(provider, name) for provider, name in EVERY if ENDPOINTS[provider][name].streams]
)
def test_a_stream_brings_the_same_text(sandbox, provider, endpoint):
    body = json.dumps(NEEDED[endpoint])
    text = payload_text(provider, body, endpoint=endpoint, model="m")
    whole = asyncio.run(carry_out(sandbox.url, text))
    streamed = asyncio.run(carry_out(sandbox.url, text.replace("{", '{"stream": true, ', 1)))
    assert isinstance(whole, Done)
    assert isinstance(streamed, Done)
    assert (streamed.result["text"], streamed.result["complete"]) == (whole.result["text"], True)
    assert streamed.usage == whole.usage
    assert streamed.result["body"] is None


def test_a_response_that_was_cut_says_so(sandbox):
    body = json.dumps({"input": "Why?", "max_output_tokens": 3})
    done = asyncio.run(carry_out(sandbox.url, payload_text("openai", body, endpoint="/v1/responses", model="m")))
    assert isinstance(done, Done)
    assert (done.result["complete"], done.result["finish_reason"]) == (False, "max_output_tokens")


TEXT = {"type": "response.output_text.delta", "delta": "Blue."}


def response(status: str = "completed", **members: Any) -> dict[str, Any]:
    counts = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}
    told = {"object": "response", "status": status, "output": [], "usage": counts, "error": None, **members}
    return {"type": f"response.{status}", "response": told}


def read(*events: Any, endpoint: str = "/v1/responses", provider: str = "openai") -> Generation:
    reader = AnswerReader(ENDPOINTS[provider][endpoint].dialect, service=provider, secrets=())
    lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
    body = "".join(f"data: {line}\n\n" for line in lines).encode()
    reader.take(body)
    reader.end(body)
    return reader.answer


def test_a_stream_of_responses_may_end_with_done():
    answer = read(TEXT, response(), "[DONE]")
    assert (answer.text, answer.result()["complete"], answer.usage["total_tokens"]) == ("Blue.", True, 6)


def test_a_long_response_is_kept_alive_by_events_that_say_nothing():
    answer = read({"type": "keepalive", "sequence_number": 3}, TEXT, "", {"type": "keepalive"}, response())
    assert (answer.text, answer.usage["total_tokens"]) == ("Blue.", 6)


CALLED = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'}
OTHER = {**CALLED, "id": "fc_2", "call_id": "call_2", "arguments": '{"a": 2}'}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


@every_case(
    "events",
    [
        [response(output=[CALLED, OTHER])],
        [done(0, CALLED), done(1, OTHER), response(output=[CALLED, OTHER])],
        [done(0, CALLED), done(1, OTHER), response(output=[])],
        [done(0, CALLED), done(0, OTHER), response(output=None)],
        [done(1, CALLED), response(output=[OTHER])],
    ],
)
def test_calls_of_tools_are_told_once_whether_a_gateway_repeats_them_at_the_end_or_not(events):
    told = read(*events).result()
    assert [(call["id"], call["arguments"]["a"]) for call in told["tool_calls"]] == [("call_1", 1), ("call_2", 2)]
    assert told["complete"] is True


def test_a_stream_of_responses_may_end_without_its_output():
    end = response()
    del end["response"]["output"]
    answer = read(TEXT, done(0, {"type": "message"}), end)
    assert (answer.text, answer.result()["complete"], answer.usage["total_tokens"]) == ("Blue.", True, 6)


def message(*parts: tuple[str, str]) -> dict[str, Any]:
    named = {"output_text": "text", "refusal": "refusal"}
    return {"type": "message", "content": [{"type": kind, named[kind]: text} for kind, text in parts]}


@every_case(
    ("events", "text", "is_blocked"),
    [
        ([done(0, message(("output_text", "Bl"), ("output_text", "ue."))), response(output=[])], "Blue.", False),
        ([TEXT, done(0, message(("output_text", "Blue."))), response(output=[])], "Blue.", False),
        ([TEXT, response(output=[message(("output_text", "Blue."))])], "Blue.", False),
        ([response(output=[message(("output_text", "No."))] * 2)], "No.No.", False),
        ([response(output=[message(("refusal", "I will not."))])], "I will not.", True),
        ([{"type": "response.refusal.delta", "delta": "I will not."}, response(output=[])], "I will not.", True),
    ],
)
def test_a_message_or_a_refusal_is_read_once_from_wherever_it_comes(events, text, is_blocked):
    answer = read(*events)
    assert (answer.text, answer.is_blocked, answer.result()["complete"]) == (text, is_blocked, True)


@every_case(
    ("provider", "answer"),
    [
        ("openai", {"content": None, "audio": {"id": "a", "data": "AA==", "transcript": "Blue."}}),
        (
            "openai",
            {"content": "", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        ),
        ("gemini", {"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
    ],
)
def test_a_picture_or_a_sound_is_an_answer_where_the_result_has_it(provider, answer):
    given = NEEDED["/v1/chat/completions" if provider == "openai" else "generateContent"]
    payload = LlmCall.model_validate_json(payload_text(provider, json.dumps(given), model="m"))
    said = {
        "openai": {"choices": [{"message": answer, "finish_reason": "stop"}]},
        "gemini": {"candidates": [{"content": {"parts": [answer]}, "finishReason": "STOP"}]},
    }[provider]
    result = native._read(payload, said, ()).result
    assert (result["complete"], "empty" in result, result["body"]) == (True, False, said)
    asked = LlmGenerate.model_validate(payload_of(provider=provider))
    assert batch_form(DIALECTS).read(asked, said, ()).result["empty"] is True, "its result has text alone"


LIMITED = {"code": "rate_limit_exceeded", "message": "slow down"}


@every_case(
    ("events", "told"),
    [
        ([TEXT, response("failed", error=LIMITED)], ("rate_limit_exceeded", 429, "answered")),
        ([response("failed"), {"type": "error", "error": LIMITED}], ("rate_limit_exceeded", 429, "answered")),
        ([{"type": "error", **LIMITED}], ("rate_limit_exceeded", 429, "answered")),
        ([{"error": LIMITED, "response": {"error": None}}], ("rate_limit_exceeded", 429, "answered")),
        ([{"type": "error", "code": "server_error", "message": "oh"}], ("server_error", 500, "unknown")),
        ([response("failed", error={"code": "insufficient_quota", "message": ""})], ("credit_gone", 402, "answered")),
        ([TEXT, response("failed")], ("response_failed", None, "unknown")),
    ],
)
def test_a_response_that_failed_is_a_failure_in_the_providers_words(events, told):
    with pytest.raises(ProviderError) as failed:
        read(*events)
    error = failed.value
    assert (error.code, error.status, error.outcome) == told


def test_a_whole_response_that_failed_without_a_word_is_a_failure():
    reader = AnswerReader(ENDPOINTS["openai"]["/v1/responses"].dialect, service="openai", secrets=())
    with pytest.raises(ProviderError) as failed:
        reader.take_whole(json.dumps(response("failed")["response"]).encode())
    assert failed.value.code == "response_failed"


def test_what_tools_of_google_bring_is_input():
    counts = {"promptTokenCount": 27, "candidatesTokenCount": 45, "thoughtsTokenCount": 31}
    first = {"candidates": [{"content": {"parts": [{"text": "Blue."}]}}], "usageMetadata": {"promptTokenCount": 27}}
    usage = {**counts, "toolUsePromptTokenCount": 10_309, "totalTokenCount": 10_412}
    last = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    used = read(first, last, last, endpoint="generateContent", provider="gemini").used()
    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.tokens) == (10_336, 76, 10_412)


@every_case(
    ("tools", "is_known"),
    [
        ([{"functionDeclarations": [{"name": "weather"}]}], True),
        ([{"name": "weather", "input_schema": {}}], True),
        ([{"type": "function", "function": {"name": "weather"}}], True),
        ([{"urlContext": {}}], False),
        ([{"functionDeclarations": [], "googleSearch": {}}], False),
        ([{"type": "web_search_20250305", "name": "web_search"}], False),
    ],
)
def test_tools_of_a_provider_bring_input_that_nobody_knows(tools, is_known):
    assert measure({"contents": [], "tools": tools}).is_known == is_known
    generate = LlmGenerate.model_validate(payload_of(provider="gemini", options={"tools": tools}))
    assert (generate.most().input_tokens is not None) == is_known


@pytest.mark.django_db
def test_a_job_is_kept_sent_and_counted_as_its_producer_wrote_it(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    text = payload_text("openai", CHAT.replace('"m"', '"small-1"'), service="llm").replace('"key"', '"model-key"')
    job = {"kind": "llm.call", "payload": json.loads(text)}
    submit_batch([WrittenJob(job, f'{{"payload":{text}}}')], project_id=PROJECT, actor="key:test")
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload_text FROM jobs_job")
        [[stored]] = cursor.fetchall()
    assert member(stored, "body") == CHAT.replace('"m"', '"small-1"')
    drain(seconds=30)
    ended = Job.objects.get()
    assert (ended.status, ended.result["body"]["object"]) == ("completed", "chat.completion")
    assert [call["output_tokens"] for call in sandbox.calls(accepted="true")] == [64]


@pytest.mark.django_db
def test_wrong_input_names_its_place_and_nothing_is_stored():
    make_project()
    payload = {"provider": "openai", "credential": "key", "model": "m", "body": {"messages": "Why?"}}
    with pytest.raises(InvalidJob) as error:
        prepare_job(JobSpec(kind="llm.call", payload=payload), project_id="acme")
    assert "body.messages must be a list" in json.dumps(error.value.fields)
    assert not Job.objects.exists()


def test_the_schema_of_the_payload_can_be_written_down():
    assert TypeAdapter(LlmCall).json_schema(by_alias=True)["required"] == ["provider", "credential", "model", "body"]
