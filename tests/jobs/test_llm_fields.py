"""`llm.generate` with schema, tools, pictures and the other fields: what is sent, what comes back, what is refused."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.classify import REMEDIES_BY_CODE
from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.openai import is_strict
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.reading import AnswerReader
from jobs.handlers.llm.requests import schemas
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.llm.requests.schemas import Unfit, check_schema, read_fitting
from jobs.models import DeadLetter, RetryPolicy
from jobs.services.submit.prepare import prepare_job
from jobs.services.submit.spec import InvalidJob, JobSpec
from jobs.services.submit.submit import submit_batch
from jobs.testing import drain
from ratelimits.models import Spend
from tests.support.cases import every_case
from tests.support.documents import PROJECT, Model
from tests.support.llm import ask_once, payload_of

PROVIDERS = ["gemini", "openai", "anthropic"]
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "lines": {"type": "array", "items": {"type": "string"}}},
    "required": ["total", "lines"],
    "additionalProperties": False,
}
TOOL = {"name": "weather", "description": "Of a town.", "parameters": {"type": "object", "properties": {}}}
PIXEL = "iVBORw0KGgo="
RECORDED = json.loads(Path(__file__).with_name("wire").joinpath("requests.json").read_text())


def sent(provider: str, **fields: Any) -> dict[str, Any]:
    payload = LlmGenerate.model_validate(payload_of(provider=provider, **fields))
    return dict(DIALECTS[provider].compose(payload, payload.prompt, "", "key").body)


@every_case(
    ("provider", "fields", "found"),
    [
        ("openai", {"seed": 7, "stop": ["END"], "top_p": 0.5}, {"seed": 7, "stop": ["END"], "top_p": 0.5}),
        ("openai", {"reasoning": "low"}, {"reasoning_effort": "low"}),
        ("openai", {"options": {"logprobs": True}}, {"logprobs": True}),
        (
            "openai",
            {"schema": SCHEMA},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
                }
            },
        ),
        (
            "openai",
            {"schema": {"type": "object"}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}},
                }
            },
        ),
        ("openai", {"tools": [TOOL]}, {"tools": [{"type": "function", "function": TOOL}]}),
        (
            "openai",
            {"prompt": "What?", "pictures": [{"url": "https://a.example/b.png"}]},
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
                            {"type": "text", "text": "What?"},
                        ],
                    }
                ]
            },
        ),
        ("anthropic", {"stop": ["END"], "top_p": 0.5}, {"stop_sequences": ["END"], "top_p": 0.5}),
        ("anthropic", {"reasoning": "none"}, {"thinking": {"type": "disabled"}}),
        (
            "anthropic",
            {"reasoning": "high", "schema": SCHEMA},
            {"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
        (
            "anthropic",
            {"tools": [TOOL]},
            {"tools": [{"name": "weather", "description": "Of a town.", "input_schema": TOOL["parameters"]}]},
        ),
        (
            "anthropic",
            {"prompt": "What?", "pictures": [{"base64": PIXEL, "media_type": "image/png"}]},
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                            },
                            {"type": "text", "text": "What?"},
                        ],
                    }
                ]
            },
        ),
        (
            "gemini",
            {"seed": 7, "stop": ["END"], "top_p": 0.5},
            {"generationConfig": {"seed": 7, "stopSequences": ["END"], "topP": 0.5}},
        ),
        ("gemini", {"reasoning": "none"}, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}}),
        (
            "gemini",
            {"model": "gemini-2.5-flash", "reasoning": "low"},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}}},
        ),
        (
            "gemini",
            {"schema": SCHEMA, "temperature": 0.1, "options": {"generationConfig": {"topK": 3}}},
            {
                "generationConfig": {
                    "temperature": 0.1,
                    "responseMimeType": "application/json",
                    "responseJsonSchema": SCHEMA,
                    "topK": 3,
                }
            },
        ),
        (
            "gemini",
            {"prompt": "What?", "pictures": [{"base64": PIXEL, "media_type": "image/png"}]},
            {
                "contents": [
                    {
                        "role": "user",
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}, {"text": "What?"}],
                    }
                ]
            },
        ),
    ],
)
def test_each_field_becomes_the_provider_s_own(provider, fields, found):
    body = sent(provider, **fields)
    assert {name: body.get(name) for name in found} == found


def camel(value: Any) -> Any:
    """The value with the names of its members as google-genai and the API's pages write them."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {re.sub(r"_(\w)", lambda found: found[1].upper(), name): camel(one) for name, one in value.items()}


@every_case(("provider", "recorded"), [(one["provider"], one) for one in RECORDED])
def test_what_is_sent_is_what_the_official_client_sends(provider, recorded):
    ours, theirs = sent(provider, **recorded["payload"]), recorded["body"]
    if provider == "gemini":
        ours, theirs = camel(ours), camel(theirs)
    assert ours == theirs, recorded["client"]


@every_case(
    ("fields", "words"),
    [
        ({"schema": {"type": "objekt"}}, "schema.type: 'objekt' is not valid"),
        ({"schema": {"$ref": "http://169.254.169.254/"}}, "is in another document"),
        ({"schema": {"$ref": "#/$defs/line"}}, "names what the schema does not have"),
        ({"schema": {"x": "a" * 100_001}}, "at most 100,000 bytes"),
        ({"schema": SCHEMA, "split": True}, "schema is for one answer"),
        ({"tools": [TOOL], "split": True}, "tools is for one answer"),
        ({"tools": [{**TOOL, "name": "what's this"}]}, "pattern"),
        ({"provider": "anthropic", "seed": 1}, "Anthropic takes no seed"),
        ({"seed": 1, "fallback": [{"provider": "anthropic", "model": "m"}]}, "Anthropic takes no seed"),
        ({"provider": "openai", "stop": list("abcde")}, "at most 4 texts in stop"),
        ({"pictures": [{}]}, "exactly one of url and base64"),
        ({"pictures": [{"base64": PIXEL}]}, "base64 needs media_type"),
        ({"pictures": [{"base64": "ä", "media_type": "image/png"}]}, "base64 is not base64"),
        ({"pictures": [{"url": "file:///etc/passwd"}]}, "pattern"),
        ({"contents": [{"parts": [{"text": "x"}]}], "pictures": [{"url": "https://a.example/"}]}, "own pictures"),
        ({"options": {"max_tokens": 9}}, "max_tokens is not for options: use max_output_tokens"),
        ({"options": {"generationConfig": {"candidateCount": 2}}}, "candidateCount would bring several answers"),
        ({"options": {"generation_config": {"max_output_tokens": 9}}}, "generation_config is not for options"),
        ({"options": {"generationConfig": {"max_output_tokens": 9}}}, "use max_output_tokens"),
        (
            {"options": {"topK": 1}, "fallback": [{"provider": "openai", "model": "m"}]},
            "options are of one provider's request",
        ),
        ({"options": {"model": "other"}}, "model is not for options"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_submitted(fields, words):
    with pytest.raises(ValidationError) as refused:
        LlmGenerate.model_validate(payload_of(**fields))
    assert words in str(refused.value)


def test_a_misspelt_field_is_told_by_the_name_that_producers_write():
    with pytest.raises(InvalidJob) as refused:
        prepare_job(JobSpec(kind="llm.generate", payload=payload_of(shema={})))
    assert refused.value.fields["payload.shema"] == ["Extra inputs are not permitted. Is 'schema' meant?"]


def test_schema_tools_and_pictures_count_as_input():
    plain, full = (
        LlmGenerate.model_validate(payload_of(provider="openai", **fields)).cost().known
        for fields in ({}, {"schema": SCHEMA, "tools": [TOOL], "pictures": [{"url": "https://a.example/"}]})
    )
    assert full >= plain + 1_105 + len(json.dumps(SCHEMA)) // 6
    bounded = LlmGenerate.model_validate(payload_of(provider="openai", pictures=[{"url": "https://a.example/"}]))
    assert bounded.most().input_tokens is None, "nobody knows what a picture counts at most"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_fits_its_schema_is_an_object(sandbox, provider, stream):
    done = ask_once(sandbox.url, provider=provider, schema=SCHEMA, stream=stream)
    assert done.result["data"] == {"total": 7.5, "lines": ["fox"]}
    assert done.result["complete"] is True


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_does_not_fit_fails_may_be_asked_for_again_and_is_paid_for(sandbox, provider):
    sandbox.turn(**{provider: {"schema_mismatch": True}})
    with pytest.raises(ProviderError) as failed:
        ask_once(sandbox.url, provider=provider, schema=SCHEMA)
    error, (cost, usage) = failed.value, failed.value.used
    assert (error.code, error.outcome, error.repeat) == ("schema_mismatch", "answered", True)
    assert "does not fit its schema: $" in error.message
    assert cost
    assert usage is not None
    assert usage.output_tokens


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_was_cut_is_not_asked_for_again(sandbox, provider):
    with pytest.raises(ProviderError) as failed:
        ask_once(sandbox.url, provider=provider, schema=SCHEMA, max_output_tokens=2)
    assert (failed.value.code, failed.value.repeat) == ("answer_cut", False)


@every_case(
    ("provider", "answer", "told"),
    [
        (
            "openai",
            {"choices": [{"message": {"content": None, "refusal": "I will not."}, "finish_reason": "stop"}]},
            ("answer_blocked", False),
        ),
        (
            "openai",
            {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]},
            ("answer_blocked", False),
        ),
        ("openai", {"choices": [{"message": {"content": "so"}, "finish_reason": "stop"}]}, ("schema_mismatch", True)),
        (
            "anthropic",
            {"type": "message", "content": [{"type": "text", "text": "No."}], "stop_reason": "refusal"},
            ("answer_blocked", False),
        ),
        (
            "anthropic",
            {
                "type": "message",
                "content": [{"type": "text", "text": "{"}],
                "stop_reason": "model_context_window_exceeded",
            },
            ("answer_cut", False),
        ),
        ("gemini", {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, ("answer_blocked", False)),
        ("gemini", {"candidates": [{"finishReason": "RECITATION"}]}, ("schema_mismatch", True)),
    ],
)
def test_a_refusal_is_told_in_the_models_words_and_not_asked_for_again(provider, answer, told):
    form = batch_form(DIALECTS)
    payload = LlmGenerate.model_validate(payload_of(provider=provider, schema=SCHEMA))
    with pytest.raises(ProviderError) as failed:
        form.read(payload, answer, ())
    assert (failed.value.code, failed.value.repeat) == told
    if answer.get("choices", [{}])[0].get("message", {}).get("refusal"):
        assert "I will not." in failed.value.message


def test_a_line_of_a_batch_is_held_against_its_schema_too():
    form = batch_form(DIALECTS)
    payload = LlmGenerate.model_validate(payload_of(provider="openai", schema=SCHEMA))
    body = {"choices": [{"message": {"content": '{"total": 1, "lines": []}'}, "finish_reason": "stop"}]}
    assert form.read(payload, body, ()).result["data"] == {"total": 1, "lines": []}
    body["choices"][0]["message"] = {"content": "[]"}
    with pytest.raises(ProviderError, match="does not fit its schema"):
        form.read(payload, body, ())


CALLED = [{"name": "weather", "arguments": {"town": "Bern"}, "id": "call-1"}]
OPENAI_CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Bern"}'}}
WHOLE = {
    "openai": {"choices": [{"message": {"content": None, "tool_calls": [OPENAI_CALL]}, "finish_reason": "tool_calls"}]},
    "anthropic": {
        "type": "message",
        "content": [{"type": "tool_use", "id": "call-1", "name": "weather", "input": {"town": "Bern"}}],
        "stop_reason": "tool_use",
    },
    "gemini": {
        "candidates": [
            {
                "content": {"parts": [{"functionCall": {"id": "call-1", "name": "weather", "args": {"town": "Bern"}}}]},
                "finishReason": "STOP",
            }
        ]
    },
}
STREAMED = {
    "openai": [
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call-1", "function": {"name": "weather"}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"town":'}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ' "Bern"}'}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ],
    "anthropic": [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "call-1", "name": "weather", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"town":'}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ' "Bern"}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
    "gemini": [WHOLE["gemini"]],
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_tools_that_a_model_wants_called_are_told_whole_and_streamed(provider):
    for streamed in (False, True):
        reader = AnswerReader(DIALECTS[provider], service=provider, secrets=())
        if streamed:
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in STREAMED[provider]).encode()
            reader.take(body)
            reader.end(body)
        else:
            reader.take_whole(json.dumps(WHOLE[provider]).encode())
        told = reader.answer.result()
        assert told["tool_calls"] == CALLED
        assert told["complete"] is True
        assert "empty" not in told


def test_arguments_that_are_no_json_stay_text():
    reader = AnswerReader(DIALECTS["openai"], service="openai", secrets=())
    call = {"id": "call-1", "function": {"name": "weather", "arguments": "{town"}}
    answer = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    reader.take_whole(json.dumps(answer).encode())
    assert reader.answer.result()["tool_calls"][0]["arguments"] == "{town"


@every_case(
    ("text", "found"),
    [
        ('{"total": 1.5, "lines": []}', {"total": 1.5, "lines": []}),
        ('```json\n{"total": 1, "lines": ["a"]}\n```', {"total": 1, "lines": ["a"]}),
        ('<think>Is it {"total": 2}?</think>\n\n{"total": 1, "lines": []}', {"total": 1, "lines": []}),
        ('I add.</think>```json\n{"total": 1, "lines": []}\n```', {"total": 1, "lines": []}),
        ('{"total": 1, "lines": ["</think>"]}', {"total": 1, "lines": ["</think>"]}),
        ('<think>It is {"total": 1, "lines": []}', None),
        ("no json", None),
        ('{"total": "1", "lines": []}', None),
        ("[" * 5_000, None),
        ("", None),
    ],
)
def test_texts_are_read_by_their_schema(text, found):
    if found is not None:
        assert read_fitting(text, SCHEMA) == found
        return
    with pytest.raises(Unfit):
        read_fitting(text, SCHEMA)


def test_a_schema_that_thousands_of_jobs_have_is_checked_once(monkeypatch):
    checked: list[Any] = []
    monkeypatch.setattr("jsonschema.validators.Draft202012Validator.check_schema", checked.append)
    schemas._fault_of.cache_clear()
    for number in range(100):
        LlmGenerate.model_validate(payload_of(prompt=f"Read {number}.", schema=SCHEMA))
    schemas._fault_of.cache_clear()
    assert len(checked) == 1


def test_references_within_a_schema_are_followed():
    line = {"type": "object", "properties": {"price": {"$ref": "#/$defs/a~1b"}}, "required": ["price"]}
    schema = {"type": "array", "items": {"$ref": "#/$defs/line"}, "$defs": {"line": line, "a/b": {"type": "number"}}}
    check_schema(schema)
    assert read_fitting('[{"price": 1}]', schema) == [{"price": 1}]
    with pytest.raises(Unfit):
        read_fitting('[{"price": "1"}]', schema)


def test_a_pattern_that_would_run_for_hours_is_left_to_the_provider():
    schema = {"type": "string", "pattern": "^(a+)+$"}
    check_schema(schema)
    assert read_fitting(json.dumps("a" * 60 + "!"), schema)


def test_references_that_name_each_other_twice_end():
    names = [f"d{number}" for number in range(40)]
    twice = {name: {"allOf": [{"$ref": f"#/$defs/{after}"}] * 2} for name, after in pairwise(names)}
    schema = {"$defs": {**twice, names[-1]: {"type": "string"}}, "$ref": "#/$defs/d0"}
    check_schema(schema)
    with pytest.raises(Unfit, match="more than 20,000 references"):
        read_fitting('"x"', schema)


def test_a_schema_is_strict_where_every_object_says_all_it_has():
    assert is_strict(SCHEMA)
    assert not is_strict({**SCHEMA, "required": ["total"]})
    assert not is_strict({**SCHEMA, "additionalProperties": True})
    assert not is_strict({**SCHEMA, "properties": {"a": {"type": "object"}}, "required": ["a"]})


@pytest.mark.django_db
def test_each_answer_that_does_not_fit_spends_an_attempt_and_is_in_the_ledger(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    policy = RetryPolicy.objects.create(
        name="twice", initial_seconds=0.01, multiplier=1, max_delay_seconds=1, max_retries=1
    )
    sandbox.turn(openai={"schema_mismatch": True})
    line = model.line("Read this.", schema=SCHEMA) | {"retry_policy": policy.name}
    submit_batch([line], project_id=PROJECT, actor="key:test")
    drain(seconds=30)
    letter = DeadLetter.objects.get()
    assert letter.error_code == "schema_mismatch"
    assert letter.remediation == REMEDIES_BY_CODE["schema_mismatch"]
    calls = [call for call in sandbox.calls() if call["accepted"]]
    assert len(calls) == 2
    spent = Spend.objects.filter(kind=Spend.Kind.CALL)
    assert len(set(spent.values_list("output_tokens", flat=True))) == 1
    assert spent.count() == 2
