"""Anthropic's Messages, asked of the sandbox: what is sent, read, counted and refused."""

from __future__ import annotations

import pytest

from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.anthropic import ANTHROPIC
from jobs.handlers.llm.dialect import Generation
from jobs.handlers.llm.openai import OPENAI
from jobs.handlers.llm.requests.payload import LlmGenerate
from ratelimits.costs import Usage
from ratelimits.feedback import Violation
from tests.support.cases import every_case
from tests.support.llm import ask_once, payload_of

QUESTION = "word " * 84  # 105 tokens
OUTPUT = 64


def ask(sandbox, **fields):
    return ask_once(sandbox.url, provider="anthropic", prompt=fields.pop("prompt", QUESTION), **fields)


def failing(sandbox, **fields):
    with pytest.raises(ProviderError) as failed:
        ask(sandbox, **fields)
    return failed.value


@pytest.mark.parametrize("stream", [False, True])
def test_a_question_is_answered_and_its_usage_is_told_by_unit(sandbox, stream):
    done = ask(sandbox, stream=stream)
    assert (done.result["complete"], done.result["finish_reason"]) == (True, "end_turn")
    assert done.result["text"]
    assert done.usage == Usage(105, 0, OUTPUT, 105 + OUTPUT, written_tokens=0)
    assert (done.cost, done.known_cost) == (105 + OUTPUT, 105)


def test_what_a_cache_had_is_part_of_the_input_and_told_apart():
    answer = Generation()
    usage = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 15, "output_tokens": 5}
    ANTHROPIC.absorb(answer, {"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage})
    assert answer.used() == Usage(105, 80, 5, 110, written_tokens=15)


def test_searches_of_the_web_are_told_though_no_amount_has_their_price():
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0},
    }
    message = {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "usage": usage}
    found = Generation()
    ANTHROPIC.absorb(found, message)
    assert found.result()["usage"]["web_searches"] == 3


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_cache_keeps_for_an_hour_is_told_apart(stream):
    answer = Generation()
    usage = {
        "input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 15, "output_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 12},
    }  # fmt: skip
    message = {"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}
    ANTHROPIC.absorb(answer, {"type": "message_start", "message": message} if stream else message)
    used = answer.used()
    assert used is not None
    assert (used.input_tokens, used.written_tokens, used.written_1h_tokens) == (25, 15, 12)


def test_an_answer_cut_at_its_output_limit_says_so(sandbox):
    done = ask(sandbox, max_output_tokens=10)
    assert (done.result["finish_reason"], done.result["complete"]) == ("max_tokens", False)
    assert done.usage is not None
    assert done.usage.output_tokens == 10


@pytest.mark.parametrize(
    ("knob", "unit"),
    [
        ("requests_per_minute", "requests"),
        ("input_tokens_per_minute", "input_tokens"),
        ("output_tokens_per_minute", "output_tokens"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_names_the_unit_that_had_no_room_and_its_cap(sandbox, knob, unit, stream):
    sandbox.turn(anthropic={knob: 1 if unit == "requests" else 40})
    if unit == "requests":
        ask(sandbox)
    error = failing(sandbox, stream=stream)
    assert (error.status, error.code, error.outcome) == (429, "rate_limit_error", "answered")
    assert error.push_back is not None
    [violation] = error.push_back.violations
    assert (violation.unit, violation.stated_cap, violation.scope) == (unit, 1 if unit == "requests" else 40, "project")


def test_an_overload_is_no_refusal_of_a_quota(sandbox):
    sandbox.turn(error_rates={529: 1})
    error = failing(sandbox)
    assert (error.status, error.code, error.push_back) == (529, "overloaded_error", None)


def test_an_overload_within_a_stream_leaves_the_outcome_unknown(sandbox):
    sandbox.turn(anthropic={"stream_overloaded_rate": 1})
    error = failing(sandbox, stream=True)
    assert (error.code, error.outcome) == ("overloaded_error", "unknown")


def test_the_instruction_stands_at_the_top_and_the_largest_output_is_always_said():
    payload = LlmGenerate.model_validate(
        payload_of(
            provider="anthropic",
            system="Be brief.",
            messages=[{"role": "system", "content": "In verse."}, {"role": "user", "content": "Why?"}],
        )
    )
    request = ANTHROPIC.compose(payload, None, "https://example.org/v1/", "k")
    assert request.url == "https://example.org/v1/messages"
    assert request.headers == {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    assert request.body == {
        "model": "small-1",
        "max_tokens": 1000,
        "system": "Be brief.\n\nIn verse.",
        "messages": [{"role": "user", "content": "Why?"}],
    }


@every_case(
    ("base_url", "url"),
    [
        ("https://a.openai.azure.com", "https://a.openai.azure.com/openai/v1/chat/completions"),
        (
            "https://a.openai.azure.com/?api-version=2024-10-21",
            "https://a.openai.azure.com/openai/deployments/small-1/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://a.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            "https://a.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_azure_is_known_by_its_address_and_takes_its_own_header(base_url, url):
    payload = LlmGenerate.model_validate(payload_of(provider="openai", max_output_tokens=9))
    request = OPENAI.compose(payload, payload.prompt, base_url, "k")
    assert (request.url, request.headers) == (url, {"api-key": "k"})
    assert request.body["max_completion_tokens"] == 9


def test_a_refusal_without_a_message_is_read_from_the_only_empty_quota():
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "12",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-limit": "8000",
        "anthropic-ratelimit-tokens-remaining": "0",
    }
    found = ANTHROPIC.push_back(429, headers, b"{}")
    assert found is not None
    assert found.violations == (Violation("output-tokens", "project", "output_tokens", stated_cap=8000),)
    assert ANTHROPIC.push_back(529, headers, b"{}") is None
