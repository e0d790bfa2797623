"""
Answers in forms that providers and the servers that copy them really send; sources in docs/reference/wire-facts.md.

What is in `wire/` is sent as it is. What each form means is said here: its text, its end, its usage, or its failure.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from jobs.classify import failure_of, is_outage, is_retryable
from jobs.handlers.batch_form import Access, Remote
from jobs.handlers.errors import ANSWER_BLOCKED, SCHEMA_MISMATCH, ProviderError
from jobs.handlers.fallback import CONTEXT_TOO_LONG
from jobs.handlers.llm.batches.calls import compact
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.batches.gemini import GeminiBatches
from jobs.handlers.llm.batches.inlined import Inlined
from jobs.handlers.llm.batches.openai import OpenAiBatches
from jobs.handlers.llm.dialect import Generation
from jobs.handlers.llm.native.endpoints import ENDPOINTS
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.reading import AnswerReader
from jobs.handlers.llm.requests.payload import LlmGenerate
from ratelimits.costs import Usage
from tests.support.cases import every_case
from tests.support.http_server import raw_server, serving
from tests.support.llm import ask, payload_of

WIRE = Path(__file__).parent / "wire"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"

# file, provider: text, complete, input tokens, output tokens
READ = {
    ("mistral-whole.json", "openai"): ("final answer", True, 12, 9),
    ("stream-mistral-chunks.sse", "openai"): ("Good morning.", True, 12, 9),
    ("stream-anthropic-text-at-start.sse", "anthropic"): ("It is Fine.", True, 1900, 7),
    ("stream-anthropic-without-usage-at-end.sse", "anthropic"): ("All of a long answer.", True, 40, None),
    ("stream-usage-in-choice.sse", "openai"): ("Yes.", True, 19, 3),
    ("stream-empty-but-stop.sse", "openai"): ("", False, 36_000, 0),
    ("stream-no-done-stays-open.sse", "openai"): ("All of it.", True, 5, 3),
    ("stream-heartbeats.sse", "openai"): ("Still there.", True, 8, 2),
    ("xai-whole.json", "openai"): ("Paris.", True, 32, 103),
    ("gemini-only-thoughts.json", "gemini"): ("", False, 40, 1000),
    ("gemini-blocked-prompt.json", "gemini"): ("", False, 40, 0),
}
# file, provider: code, status, outcome
FAILED = {
    ("stream-error-at-top.sse", "openai"): ("internalservererror", 500, "answered"),
    ("stream-error-at-top-after-text.sse", "openai"): ("internalservererror", 500, "answered"),
    ("stream-error-text-code.sse", "openai"): ("none", 429, "answered"),
    ("stream-only-done.sse", "openai"): ("stream_cut", None, "unknown"),
}


def answered(name: str, provider: str, *, breaks: bool = False) -> Any:
    body, stream = (WIRE / name).read_bytes(), name.endswith(".sse")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/event-stream" if stream else "application/json")

    async def scenario() -> Any:
        if breaks:
            async with raw_server(HEAD + body) as (url, _):
                return await ask(url, provider=provider, stream=stream)
        async with serving(answer) as url:
            return await ask(url, provider=provider, stream=stream)

    return asyncio.run(scenario())


def failure(*given: Any, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        answered(*given, **options)
    return failed.value


def told(done: Any) -> tuple[Any, ...]:
    return done.result["text"], done.result["complete"], done.usage.input_tokens, done.usage.output_tokens


def test_what_is_answered_is_read_whole_or_told_as_what_it_is():
    assert {form: told(answered(*form)) for form in READ} == READ
    failures = {form: failure(*form) for form in FAILED}
    assert {form: (one.code, one.status, one.outcome) for form, one in failures.items()} == FAILED


def test_a_line_of_a_batch_is_read_as_a_live_answer_is():
    form = batch_form(DIALECTS)
    for (name, provider), meaning in READ.items():
        if name.endswith(".json"):
            payload = LlmGenerate.model_validate(payload_of(provider=provider))
            assert told(form.read(payload, json.loads((WIRE / name).read_text()), ())) == meaning, name


def test_an_answer_of_no_text_says_so_though_the_model_has_stopped():
    assert answered("stream-empty-but-stop.sse", "openai").result["empty"] is True
    assert "empty" not in answered("mistral-whole.json", "openai").result


def of_chat(message: dict[str, Any], reason: str, **counts: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": None, **message}, "finish_reason": reason}], "usage": counts or None}


_COUNTED = {"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 9}}


@every_case(
    ("provider", "path", "body", "used_up"),
    [
        ("openai", "/v1/chat/completions", of_chat({"reasoning_content": "Hm."}, "length"), True),
        ("openai", "/v1/chat/completions", of_chat({"reasoning": "Hm."}, "stop"), False),
        ("openai", "/v1/chat/completions", of_chat({"content": ""}, "length", **_COUNTED), True),
        ("openai", "/v1/chat/completions", of_chat({"content": [{"type": "thinking"}]}, "length"), True),
        (
            "openai",
            "/v1/responses",
            {
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [{"type": "reasoning", "summary": []}],
                "usage": {"output_tokens_details": {"reasoning_tokens": 9}},
            },
            True,
        ),
        (
            "anthropic",
            "/v1/messages",
            {"type": "message", "content": [{"type": "thinking", "thinking": "Hm."}], "stop_reason": "max_tokens"},
            True,
        ),
        (
            "gemini",
            "generateContent",
            {
                "candidates": [
                    {"content": {"parts": [{"text": "Hm.", "thought": True}]}, "finishReason": "MAX_TOKENS"}
                ],
            },
            True,
        ),
        ("gemini", "generateContent", {"candidates": [{}], "usageMetadata": {"thoughtsTokenCount": 9}}, False),
        ("openai", "/v1/chat/completions", of_chat({"content": ""}, "length"), None),
        ("openai", "/v1/chat/completions", of_chat({"reasoning": "Hm.", "content": "Yes."}, "stop"), None),
    ],
)
def test_an_answer_of_thoughts_alone_says_what_used_up_its_output(provider, path, body, used_up):
    answer = Generation()
    ENDPOINTS[provider][path].dialect.absorb(answer, body)
    hint = answer.result().get("hint")
    assert (hint and "used up all its output: raise max_output_tokens" in hint) == used_up


def test_thoughts_that_a_server_counts_as_nothing_are_not_free():
    answer = Generation()
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    DIALECTS["openai"].absorb(answer, of_chat({"reasoning": "Hm."}, "length", **zeros))
    assert answer.used() is None


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_alone_are_an_answer_though_no_reason_says_that_it_ended(stream):
    called = {"tool_calls": [{"id": "1", "function": {"name": "look_up", "arguments": "{}"}}]}
    body = {"choices": [{"delta" if stream else "message": called, "finish_reason": None}]}
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    if stream:
        reader.take(f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n".encode())
        reader.end(b"")
    else:
        reader.take_whole(json.dumps(body).encode())
    assert [call["name"] for call in reader.answer.result()["tool_calls"]] == ["look_up"]


def test_an_answer_that_breaks_ends_only_where_the_reason_is_the_last_that_comes():
    cut = failure("stream-gemini-stop-everywhere-cut.sse", "gemini", breaks=True)
    assert (cut.code, cut.outcome) == ("connection_broken", "unknown")
    assert told(answered("stream-no-done-stays-open.sse", "openai", breaks=True))[:2] == ("All of it.", True)


def test_a_stream_that_stays_open_after_its_end_holds_no_slot(monkeypatch):
    monkeypatch.setattr("queueops.core.outbound.client.OPEN_END_SECONDS", 0.01)

    async def scenario(name: str, provider: str, tail: bytes) -> Any:
        async with raw_server(HEAD + (WIRE / name).read_bytes() + tail, stay_open=True) as (url, _):
            return await ask(url, provider=provider, stream=True, timeout_seconds=500)

    for form, tail in {
        ("stream-no-done-stays-open.sse", "openai"): b"",
        ("stream-mistral-chunks.sse", "openai"): b"data: [DONE]\n\n",
        ("stream-anthropic-text-at-start.sse", "anthropic"): b"",
    }.items():
        assert told(asyncio.run(scenario(*form, tail))) == READ[form]


def test_a_form_that_no_provider_has_is_no_success():
    for provider, event in {
        "openai": {"id": "x", "output": [{"text": "hi"}]},
        "gemini": {"predictions": ["hi"]},
        "anthropic": {"completion": "hi"},
    }.items():
        for text in (json.dumps(event), f"data: {json.dumps(event)}\n\n"):

            async def answer(request: web.Request, text: str = text) -> web.Response:
                return web.Response(text=text)

            async def scenario(provider: str = provider, answer: Any = answer, text: str = text) -> Any:
                async with serving(answer) as url:
                    return await ask(url, provider=provider, stream=text.startswith("data:"))

            with pytest.raises(ProviderError, match="of no known form") as failed:
                asyncio.run(scenario())
            assert (failed.value.code, failed.value.outcome) == ("malformed_answer", "unknown")


def test_each_servers_words_for_too_long_are_that():
    codes = {}
    for line in (WIRE / "too-long.ndjson").read_text().splitlines():
        form = json.loads(line)

        async def answer(request: web.Request, form: Any = form) -> web.Response:
            return web.json_response(form["body"], status=form["status"])

        async def scenario(answer: Any = answer) -> Any:
            async with serving(answer) as url:
                return await ask(url, provider="openai")

        with pytest.raises(ProviderError) as failed:
            asyncio.run(scenario())
        told = failure_of(failed.value)
        codes[form["server"]] = told.code, is_retryable(told, repeatable=True) or is_outage(told)
    assert len(codes) == 36
    assert set(codes.values()) == {(CONTEXT_TOO_LONG, False)}, codes


def test_a_models_answer_that_is_no_call_of_a_tool_is_asked_for_again_and_paid_for():
    for reason in ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"):
        usage = {"promptTokenCount": 40, "candidatesTokenCount": 9, "totalTokenCount": 49}
        line = {"candidates": [{"content": {}, "finishReason": reason}], "usageMetadata": usage}
        payload = LlmGenerate.model_validate(payload_of(provider="gemini"))
        with pytest.raises(ProviderError, match=f"ended with {reason}") as failed:
            batch_form(DIALECTS).read(payload, line, ())
        assert is_retryable(failure_of(failed.value), repeatable=True)
        assert failed.value.used[1] is not None
        assert failed.value.used[1].output_tokens == 9
    told = broken_off("openai", {"error": {"code": "tool_use_failed", "message": "no", "failed_generation": "{"}})
    assert (told.code, is_retryable(told, repeatable=True)) == (SCHEMA_MISMATCH, True)


def test_a_quota_is_told_in_a_stream_by_each_servers_name_for_it():
    for code in (
        "rate_limit_exceeded",
        "rate_limit_reached_error",
        "rate_limited",
        "too_many_requests_error",
        "token_quota_exceeded",
        "ThrottlingException",
        "engine_overloaded_error",
    ):
        told = broken_off("openai", {"error": {"type": code, "message": "Please try again after 3 seconds"}})
        assert (told.status, told.push_back and told.push_back.retry_after) == (429, 3), code
    assert broken_off("openai", {"error": {"type": "rates", "message": "oh"}}).status is None


def test_content_that_is_blocked_in_a_stream_is_not_asked_for_again():
    begun = {"choices": [{"delta": {"content": "Half"}}], "usage": {"prompt_tokens": 40, "completion_tokens": 3}}
    for error in ({"code": "data_inspection_failed", "message": "oh"}, {"message": "Content Exists Risk", "code": 400}):
        told = broken_off("openai", begun, {"error": error})
        assert (told.code, told.status, told.outcome) == (ANSWER_BLOCKED, 400, "answered")
        assert not is_retryable(told, repeatable=True)


def test_what_only_sounds_as_if_an_input_were_too_long_is_something_else():
    for status, message in {
        400: "The parameter `max_tokens` is not valid: integer above maximum value, expected <= 32768, but got 65536",
        422: "max_completion_tokens is too large: 262144. This model supports at most 256000 completion tokens.",
        429: "Too many tokens, please wait before trying again.",
    }.items():
        payload = LlmGenerate.model_validate(payload_of(provider="openai"))
        told = failure_of(batch_form(DIALECTS).refuse(payload, status, {"message": message}, ()))
        assert (told.status, told.code) == (status, f"http_{status}")
        assert message in told.message


def test_too_long_in_a_stream_is_that_too_and_is_not_asked_again():
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    by_words = {"error": {"message": "This model's maximum prompt length is 131072 but the request contains 537812."}}
    for event in ({"error": error}, by_words, {"choices": [], "error": error}):
        told = broken_off("openai", event)
        assert (told.code, told.status) == (CONTEXT_TOO_LONG, 400)
        assert not is_retryable(told, repeatable=True)


def test_what_ends_an_answer_is_complete_whatever_the_server_calls_it():
    form = batch_form(DIALECTS)
    payload = LlmGenerate.model_validate(payload_of(provider="openai"))
    found = {
        reason: form.read(payload, {"choices": [{"message": {"content": "x"}, "finish_reason": reason}]}, ()).result
        for reason in ("stop", "eos", "eos_token", "COMPLETE", "length", "content_filter")
    }
    assert {reason for reason, result in found.items() if result["complete"]} == {
        "stop",
        "eos",
        "eos_token",
        "COMPLETE",
    }


@every_case(
    ("choice", "meaning"),
    [
        ({"finish_reason": "error", "error": {"code": 502, "message": "gone"}}, ("stream_error", 502, "answered")),
        ({"finish_reason": "error", "error": {"code": 429, "message": "slow"}}, ("stream_error", 429, "answered")),
        ({"finish_reason": "error"}, ("response_failed", None, "unknown")),
        ({"finish_reason": "abort"}, ("response_failed", None, "unknown")),
        ({"finish_reason": "insufficient_system_resource"}, ("response_failed", None, "unknown")),
        ({"finish_reason": "network_error"}, ("response_failed", None, "unknown")),
        ({"finish_reason": "error_finish"}, ("response_failed", None, "unknown")),
    ],
)
def test_an_answer_that_its_server_broke_off_is_a_failure_with_its_counts(choice, meaning):
    counts = {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43}
    whole = {"choices": [{"message": {"content": "Half of"}, **choice}], "usage": counts}
    chunk = {"choices": [{"delta": {"content": "Half of"}, **choice}], "usage": counts}
    for text in (json.dumps(whole), f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"):

        async def answer(request: web.Request, text: str = text) -> web.Response:
            return web.Response(text=text)

        async def scenario(answer: Any = answer, text: str = text) -> Any:
            async with serving(answer) as url:
                return await ask(url, provider="openai", stream=text.startswith("data:"))

        with pytest.raises(ProviderError) as failed:
            asyncio.run(scenario())
        error = failed.value
        assert (error.code, error.status, error.outcome) == meaning
        assert error.used[0] == 43
        assert error.used[1] is not None
        assert error.used[1].output_tokens == 3


def broken_off(provider: str, *events: Any) -> Any:
    reader = AnswerReader(DIALECTS[provider], service=provider, secrets=())
    with pytest.raises(ProviderError) as failed:
        reader.take("".join(f"data: {json.dumps(one)}\n\n" for one in events).encode())
    return failure_of(failed.value)


def test_servers_that_say_in_a_stream_that_they_fail_are_an_outage_that_opens_the_breaker():
    words = "Our servers are currently overloaded. Please try again later."
    overloaded = {"type": "service_unavailable_error", "code": "server_is_overloaded", "message": words}
    for error, status in ((overloaded, 503), ({"type": "server_error", "code": "stream_error"}, 500)):
        told = broken_off("openai", {"choices": [{"delta": {"content": "Half"}}]}, {"error": error})
        assert (told.status, told.outcome, is_outage(told)) == (status, "unknown", True)
    begun = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
    for kind, status in {"overloaded_error": 529, "api_error": 500}.items():
        told = broken_off("anthropic", begun, {"type": "error", "error": {"type": kind, "message": "Overloaded"}})
        assert (told.status, told.outcome, is_outage(told)) == (status, "unknown", True)
    assert not is_outage(broken_off("anthropic", {"type": "error", "error": {"type": "invalid_request_error"}}))


def test_a_quota_that_ends_in_the_middle_of_a_stream_is_named_with_its_wait():
    quota = {"quotaId": "GenerateContentPaidTierInputTokensPerModelPerMinute", "quotaValue": "2000000"}
    details = [{"violations": [quota]}, {"retryDelay": "26s"}]
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded", "details": details}
    begun = {"candidates": [{"content": {"parts": [{"text": "Half of"}]}}]}
    told = broken_off("gemini", begun, {"error": error}).push_back
    assert told.retry_after == 26
    assert [(one.unit, one.stated_cap) for one in told.violations] == [("input_tokens", 2_000_000)]
    by_words = {"error": {"code": 429, "message": "Rate limit reached on tokens per min (TPM): Limit: 30000"}}
    assert broken_off("openai", by_words).push_back.violations[0].unit == "tokens"


@every_case(
    "cached",
    [
        {"prompt_tokens_details": {"cached_tokens": 12}},
        {"cached_tokens": 12},
        {"prompt_cache_hit_tokens": 12, "prompt_cache_miss_tokens": 7, "prompt_tokens_details": None},
        {"prompt_cache_hit_tokens": 12, "prompt_tokens_details": {"cached_tokens": 12}},
    ],
)
def test_what_came_from_a_cache_is_told_apart_wherever_it_is_counted(cached):
    counts = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32, **cached}
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": counts}
    usage = batch_form(DIALECTS).read(LlmGenerate.model_validate(payload_of(provider="openai")), body, ()).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (19, 12, 13)


_TOKENS = {"promptTokenCount": 5, "totalTokenCount": 5}


@every_case(
    ("provider", "path", "answer"),
    [
        ("openai", "/v1/chat/completions", {"choices": [], "service_tier": "flex", "usage": {"prompt_tokens": 5}}),
        (
            "openai",
            "/v1/responses",
            {"type": "response.completed", "response": {"service_tier": "flex", "usage": {"input_tokens": 5}}},
        ),
        (
            "anthropic",
            "/v1/messages",
            {"type": "message_start", "message": {"usage": {"input_tokens": 5, "service_tier": "flex"}}},
        ),
        ("gemini", "generateContent", {"usageMetadata": {**_TOKENS, "serviceTier": "FLEX"}}),
    ],
)
@pytest.mark.parametrize("tier", ["flex", "priority", "batch", "standard", "default", "on_demand"])
def test_the_tier_that_an_answer_states_is_told_where_it_has_another_price(provider, path, answer, tier):
    found = Generation()
    told = json.loads(json.dumps(answer).replace("flex", tier).replace("FLEX", tier.upper()))
    ENDPOINTS[provider][path].dialect.absorb(found, told)
    used = found.used()
    assert used is not None
    assert used.tier == (tier if tier in ("flex", "priority", "batch") else "")


@every_case(
    ("details", "written"),
    [
        ({"cached_tokens": 12, "cache_write_tokens": 5}, (5, None)),
        ({"cached_tokens": 12, "cache_creation_tokens": 5}, (5, None)),
        (
            {
                "cached_tokens": 12,
                "cache_creation_tokens": 5,
                "cache_creation_token_details": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 4},
            },
            (5, 4),
        ),
    ],
)
def test_what_was_put_into_a_cache_is_told_apart_by_openais_two_apis(details, written):
    counts = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32, "prompt_tokens_details": details}
    chat: dict[str, Any] = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": counts}
    counts = {"input_tokens": 19, "output_tokens": 13, "total_tokens": 32, "input_tokens_details": details}
    response: dict[str, Any] = {"object": "response", "status": "completed", "output": [], "usage": counts}
    for path, body, hour in (("/v1/chat/completions", chat, written[1]), ("/v1/responses", response, None)):
        answer = Generation()
        ENDPOINTS["openai"][path].dialect.absorb(answer, body)
        assert answer.used() == Usage(19, 12, 13, 32, written_tokens=written[0], written_1h_tokens=hour)


@every_case(
    ("counts", "read"),
    [
        # Portkey: in the total, not in the prompt
        ((31, 467, 31 + 467 + 66 + 32, {"cache_read_input_tokens": 66, "cache_creation_input_tokens": 32}), (129, 467)),
        # LiteLLM before 2026: in neither
        ((31, 467, 498, {"cache_creation_input_tokens": 1_253, "cache_read_input_tokens": 0}), (1_284, 467)),
        # LiteLLM since then: in both
        ((129, 467, 596, {"cache_read_input_tokens": 66, "cache_creation_input_tokens": 32}), (129, 467)),
        # xAI: reasoning in the total alone
        ((129, 9, 596, {"prompt_tokens_details": {"cached_tokens": 66}}), (129, 467)),
    ],
)
def test_what_gateways_count_of_anthropics_cache_is_input_and_no_output(counts, read):
    prompt, completion, total, cached = counts
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **cached}
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    last = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    reader.take((f"data: {json.dumps(last)}\n\n" * 2).encode())
    used = reader.answer.used()
    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.tokens) == (*read, sum(read))
    assert (used.cached_tokens, used.written_tokens) == (
        cached.get("cache_read_input_tokens", 66),
        cached.get("cache_creation_input_tokens"),
    )


CHUNKS = [
    {"choices": [{"index": 0, "delta": {"content": "Ä"}}]},
    {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]},
]
EVENTS = [f"data: {json.dumps(one)}" for one in CHUNKS] + ["data: [DONE]"]


@every_case(
    ("text", "stream"),
    [
        ("\n\n".join(EVENTS), False),
        (": ping\n\nevent: message\n" + "\n\n".join(EVENTS) + "\n\n", False),
        ("\ufeff\n" + "\r\n\r\n".join(EVENTS), False),
        ("\n".join(EVENTS) + "\n", True),
        ("\n".join(EVENTS), False),
    ],
)
def test_a_stream_is_read_though_it_was_not_asked_for_and_without_empty_lines(text, stream):
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=text.encode(), content_type="application/json")

    async def scenario() -> Any:
        async with serving(answer) as url:
            return await ask(url, provider="openai", stream=stream)

    result = asyncio.run(scenario()).result
    assert (result["text"], result["complete"]) == ("Äb", True)


@every_case("text", [": ping\n\n", "data: {\n\n", "data: x\ndata: y\n\n", "database: 5"])
def test_what_only_begins_as_a_stream_is_no_answer(text):
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    with pytest.raises(ProviderError) as failed:
        reader.take_whole(text.encode())
    assert (failed.value.code, failed.value.outcome) == ("malformed_answer", "unknown")


def streamed(*events: Any) -> Any:
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    reader.take("".join(f"data: {json.dumps(one)}\n\n" for one in events).encode())
    reader.end(b"")
    return reader.answer


def test_of_several_answers_in_a_stream_the_first_is_read_alone():
    pieces = [(0, "a", None), (1, "X", None), (1, "", "length"), (0, "b", "stop")]
    answer = streamed(
        *({"choices": [{"index": at, "delta": {"content": text}, "finish_reason": why}]} for at, text, why in pieces),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}},
    )
    assert (answer.text, answer.finish_reason, answer.usage["output_tokens"]) == ("ab", "stop", 9)


def test_of_several_candidates_in_a_stream_the_first_is_read_alone():
    reader = AnswerReader(DIALECTS["gemini"], service="gemini", secrets=())
    for index, text, reason in ((0, "a", None), (1, "X", "MAX_TOKENS"), (0, "b", "STOP")):
        candidate = {"index": index, "content": {"parts": [{"text": text}]}, "finishReason": reason}
        reader.take(f"data: {json.dumps({'candidates': [candidate]})}\n\n".encode())
    assert (reader.answer.text, reader.answer.finish_reason) == ("ab", "STOP")


def test_a_message_beside_its_piece_is_read_once():
    so_far = {"role": "assistant", "content": "ab"}
    answer = streamed(
        {"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}]},
        {"choices": [{"delta": {"content": "b"}, "message": so_far}]},
        {"choices": [{"delta": {}, "message": so_far, "finish_reason": "stop"}]},
    )
    assert answer.text == "ab"
    whole = {"choices": [{"delta": {"role": "assistant", "content": ""}, "message": so_far, "finish_reason": "stop"}]}
    payload = LlmGenerate.model_validate(payload_of(provider="openai"))
    assert batch_form(DIALECTS).read(payload, whole, ()).result["text"] == "ab"


def test_counts_are_read_where_else_servers_put_them():
    counts = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    for told in (
        {"x_groq": {"id": "r", "usage": counts}},
        {"usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}},
        {"usage": counts | {"input_tokens": 0, "output_tokens": 0}},
    ):
        used = streamed(CHUNKS[0], end | told).used()
        assert (used.input_tokens, used.output_tokens, used.tokens) == (5, 2, 7), told
    with pytest.raises(ProviderError) as failed:
        streamed(CHUNKS[0], end | {"x_groq": {"id": "r", "error": "over capacity"}})
    assert failed.value.code == "response_failed"


def test_a_call_whose_pieces_have_ids_of_their_own_stays_one_with_its_first_id():
    pieces = [("call-1", "f", ""), ("call-2", None, '{"city": "'), ("call-3", None, 'Paris"}')]
    chunks = [
        {"index": 0, "id": call_id, "function": {"name": name, "arguments": text}} for call_id, name, text in pieces
    ]
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    for one in chunks:
        reader.take(f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [one]}}]})}\n\n".encode())
    assert reader.answer.result()["tool_calls"] == [{"name": "f", "arguments": {"city": "Paris"}, "id": "call-1"}]


@every_case("indexes", [(0, 0), (None, None), (0, 1)])
def test_calls_of_tools_that_come_under_one_index_stay_two_calls(indexes):
    pieces: list[dict[str, Any]] = [
        {"id": "call1", "function": {"name": "tool1", "arguments": '{"x": 1}'}},
        {"id": "call2", "function": {"name": "tool2", "arguments": '{"x"'}},
        {"id": "", "function": {"arguments": ": 2}"}},
    ]
    numbers = (*indexes, indexes[1])
    chunks = [
        {"choices": [{"delta": {"tool_calls": [piece if at is None else {"index": at, **piece}]}}]}
        for piece, at in zip(pieces, numbers, strict=True)
    ]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    reader.take("".join(f"data: {json.dumps(one)}\n\n" for one in (*chunks, end)).encode())
    reader.end(b"")
    assert reader.answer.result()["tool_calls"] == [
        {"name": f"tool{n}", "arguments": {"x": n}, "id": f"call{n}"} for n in (1, 2)
    ]


@every_case(
    ("body", "meaning"),
    [
        ({"status": "449", "msg": "You exceeded your current rate limit", "body": None}, (429, "answered")),
        ({"status": "435", "msg": "Model not support", "body": None}, (435, "answered")),
        ({"success": False, "errors": [{"code": 7000, "message": "No route"}], "result": None}, (None, "unknown")),
        ({"object": "error", "status_code": 503, "message": "busy"}, (503, "answered")),
        ({"error": {"type": "upstream_error", "http_status": 429, "message": "slow"}}, (429, "answered")),
        ({"error": "Rate limit exceeded, slow down"}, (429, "answered")),
        ({"error_code": 336501, "error_msg": "Rate limit reached, slow"}, (429, "answered")),
        ({"error": {"code": 500, "message": "after 3 times: too many requests, busy"}}, (500, "answered")),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_under_status_200_is_told_in_its_words_with_the_status_that_it_states(stream, body, meaning):
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    text = json.dumps(body)
    with pytest.raises(ProviderError) as failed:
        reader.take(f"data: {text}\n\n".encode()) if stream else reader.take_whole(text.encode())
    told = failure_of(failed.value)
    assert (told.status, told.outcome) == meaning
    assert (told.push_back is not None) == (meaning[0] == 429)
    assert any(words in told.message for words in ("exceeded", "not support", "No route", "busy", "slow"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_call_of_before_is_a_call_of_a_tool(stream):
    pieces = [{"name": "f", "arguments": '{"a"'}, {"arguments": ": 1}"}]
    if stream:
        answer = streamed(
            *({"choices": [{"index": 0, "delta": {"function_call": piece}}]} for piece in pieces),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "function_call"}]},
        )
    else:
        answer = Generation()
        called = {"name": "f", "arguments": '{"a": 1}'}
        both = {"tool_calls": [{"id": "1", "function": called}], "function_call": called}
        DIALECTS["openai"].absorb(answer, of_chat(both, "tool_calls"))
    assert [(call["name"], call["arguments"]) for call in answer.result()["tool_calls"]] == [("f", {"a": 1})]
    assert answer.result()["complete"]


def test_a_responses_own_tools_are_called_and_a_cancelled_response_is_no_answer():
    dialect = ENDPOINTS["openai"]["/v1/responses"].dialect
    item = {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "print(1)"}
    reader = AnswerReader(dialect, service="openai", secrets=())
    reader.take_whole(json.dumps({"object": "response", "status": "completed", "output": [item]}).encode())
    assert reader.answer.result()["tool_calls"] == [{"name": "run", "arguments": "print(1)", "id": "c"}]
    reader = AnswerReader(dialect, service="openai", secrets=())
    with pytest.raises(ProviderError) as failed:
        reader.take_whole(json.dumps({"object": "response", "status": "cancelled", "output": []}).encode())
    assert failed.value.code == "response_failed"


@every_case("reason", ["sensitive", "guardrail_intervened", "content_filtered", "image_prohibited_content", "refusal"])
def test_an_answer_that_is_held_back_is_that_by_each_servers_name_for_it(reason):
    answer = Generation()
    DIALECTS["openai"].absorb(answer, of_chat({"content": "x"}, reason))
    assert (answer.is_blocked, answer.result()["complete"]) == (True, False)


def test_an_answer_that_fills_the_context_window_is_cut():
    for reason in ("model_length", "model_context_window_exceeded"):
        answer = Generation()
        DIALECTS["openai"].absorb(answer, of_chat({"content": "x"}, reason))
        assert answer.is_cut


def test_a_batch_that_succeeded_in_part_has_ended_and_each_line_says_how():
    told = json.loads((WIRE / "gemini-batch-partly.json").read_text())
    lines: list[Any] = []

    async def send(method: str, url: str, **options: Any) -> Any:
        options["on_piece"](json.dumps(told).encode())

    async def scenario() -> Any:
        api, access = GeminiBatches(), Access("https://example.org/v1beta", {})
        remote = await api.look(send, access, "batches/b1")
        await api.fetch(send, access, remote, lines.append)
        return remote

    remote = asyncio.run(scenario())
    assert (remote.ending, remote.lines, remote.done, remote.failed) == ("completed", 2, 2, 1)
    assert [line.status for line in lines] == [200, 429]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_results_are_taken_out_of_an_operation_wherever_its_pieces_end(size):
    answers: list[Any] = [{"text": 'a \\ "inlinedResponses": [{"}'}, {"inlinedResponses": [{"x": []}]}, {}]
    output = {"inlinedResponses": {"inlinedResponses": [answers[0], 5, [{"no": 1}], *answers[1:]]}}
    told = {"empty": {"inlinedResponses": []}, "metadata": {"output": output}, "response": output, "done": [{}]}
    taken: list[Any] = []
    inlined = Inlined(lambda text: taken.append(json.loads(text)))
    text = json.dumps(told, indent=1).encode()
    for begin in range(0, len(text), size):
        inlined.feed(text[begin : begin + size])
    assert taken == answers, "once, though the operation has them twice"
    emptied: dict[str, Any] = {"inlinedResponses": {"inlinedResponses": []}}
    assert json.loads(inlined.rest()) == told | {"metadata": {"output": emptied}, "response": emptied}


NO = {"code": "model_down", "message": "no"}
ANSWER = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
LINES: dict[str, tuple[dict[str, Any], tuple[int, Any] | None]] = {
    "expired": ({"response": None, "error": {"code": "batch_expired"}}, (0, {"error": {"code": "batch_expired"}})),
    "cancelled": ({"error": {"code": "batch_cancelled"}}, (0, {"error": {"code": "batch_cancelled"}})),
    "timed out": (
        {"response": None, "error": {"code": "request_timeout"}},
        (504, {"error": {"code": "request_timeout"}}),
    ),
    "an error alone": ({"response": None, "error": NO}, (500, {"error": NO})),
    "words alone": ({"response": None, "error": "no"}, (500, {"error": "no"})),
    "a status as code": (
        {"error": {"code": "422", "message": "no"}},
        (422, {"error": {"code": "422", "message": "no"}}),
    ),
    "vLLM": ({"response": {"status_code": 400, "body": None}, "error": {"error": NO}}, (400, {"error": NO})),
    "an error at 200": ({"response": {"status_code": 200, "body": None}, "error": NO}, (500, {"error": NO})),
    "neither": ({"response": None, "error": None}, None),
    "nothing": ({}, None),
    "of another form": ({"response": "yes"}, None),
    "status 0": ({"response": {"status_code": 0, "body": ""}, "error": None}, (200, "")),
    "no status": ({"response": {"body": ANSWER}}, (200, ANSWER)),
    "the answer itself": ({"response": ANSWER}, (200, ANSWER)),
    "a success": ({"response": {"status_code": 200, "body": ANSWER}, "error": None}, (200, ANSWER)),
}


@pytest.mark.parametrize(("line", "read"), LINES.values(), ids=LINES)
def test_a_line_of_a_compatible_server_was_not_carried_out_only_where_it_says_so(line, read):
    taken: list[Any] = []

    async def send(method: str, url: str, **options: Any) -> None:
        options["on_line"](json.dumps({"custom_id": "c", **line}).encode())

    api, remote = OpenAiBatches(endpoint="/v1/chat/completions"), Remote("b", "completed", files={"output": "f"})
    asyncio.run(api.fetch(send, Access("https://example.org/v1", {}), remote, taken.append))  # type: ignore[arg-type]
    assert [one and (one.status, one.body) for one in taken] == [read]


OUTPUT = {
    "inlinedResponses": {"inlinedResponses": [{"metadata": {"key": str(n)}, "response": {"n": n}} for n in range(50)]}
}
STATE = {"state": "BATCH_STATE_SUCCEEDED", "batchStats": {"requestCount": "50", "successfulRequestCount": "50"}}
LATER: dict[str, dict[str, Any]] = {
    "after the first": {"name": "batches/b1", "metadata": {"output": OUTPUT, **STATE}, "response": OUTPUT},
    "before them": {"name": "batches/b1", "metadata": {**STATE, "output": OUTPUT}, "response": OUTPUT},
}


@pytest.mark.parametrize("told", LATER.values(), ids=LATER)
@pytest.mark.parametrize("is_cut", [False, True])
def test_of_an_operation_that_has_its_results_twice_each_reading_takes_what_it_needs(told, is_cut):
    text = json.dumps(told).encode()
    read: list[int] = []
    lines: list[Any] = []

    async def send(method: str, url: str, **options: Any) -> Any:
        read.append(0)
        for begin in range(0, len(text) // 3 if is_cut else len(text), 100):
            read[-1] += 100
            options["on_piece"](text[begin : begin + 100])

    async def scenario() -> Any:
        api, access = GeminiBatches(), Access("https://example.org/v1beta", {})
        remote = await api.look(send, access, "batches/b1")
        await api.fetch(send, access, remote, lines.append)
        return remote

    if is_cut:
        is_told = told is LATER["before them"]
        with pytest.raises(ProviderError, match="no JSON object"):
            asyncio.run(scenario())
        assert len(read) == 1 + is_told, "what is cut is no answer"
        return
    remote = asyncio.run(scenario())
    assert (remote.ending, remote.lines, remote.done) == ("completed", 50, 50)
    assert [line.custom_id for line in lines] == [str(n) for n in range(50)]
    assert len(read) == 2
    assert sum(read) < 1.1 * len(text), "once, for both readings together"


def test_no_text_ends_the_line_of_a_batch_early():
    text = "a\u2028b\u2029c\u0085d\nü"
    line = compact({"text": text})
    assert not [end for end in ("\u2028", "\u2029", "\u0085") if end.encode() in line]
    assert json.loads(line) == {"text": text}
    assert "ü".encode() in line
