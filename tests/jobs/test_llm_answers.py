"""Answers of `llm.generate`'s providers that no stand-in sends: broken, odd, hostile."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.gemini import GEMINI
from jobs.handlers.llm.openai import OPENAI
from jobs.handlers.llm.reading import AnswerReader, EventReader
from ratelimits.costs import Usage
from tests.support.cases import every_case
from tests.support.http_server import raw_server, serving
from tests.support.llm import API_KEY, ask

STOPPED = {"candidates": [{"content": {"parts": [{"text": "blue"}]}, "finishReason": "STOP"}]}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"


def answered_with(answer, **fields):
    async def scenario():
        async with serving(answer) as url:
            return await ask(url, **fields)

    return asyncio.run(scenario())


def said(text="", *, status=200, content_type="application/json"):
    async def answer(request):
        return web.Response(status=status, text=text, content_type=content_type)

    return answer


def result_of(event, **fields):
    return answered_with(said(json.dumps(event)), **fields).result


def failure_of(answer, **fields):
    with pytest.raises(ProviderError) as failed:
        answered_with(answer, **fields)
    return failed.value


def test_thoughts_are_no_part_of_the_text():
    parts = [{"text": "hm", "thought": True}, {"text": "It is "}, {"functionCall": {}}, {"text": "blue."}]
    assert result_of({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})["text"] == "It is blue."


@every_case(
    ("event", "reason"),
    [
        ({"candidates": [{"finishReason": "SAFETY"}]}, "SAFETY"),
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "PROHIBITED_CONTENT"),
        ({"candidates": [{"content": {}, "finishReason": "RECITATION"}]}, "RECITATION"),
    ],
)
def test_a_blocked_answer_is_a_result_that_says_why(event, reason):
    result = result_of(event)
    assert (result["text"], result["finish_reason"], result["complete"]) == ("", reason, False)


def test_a_refusal_of_the_model_is_its_answer():
    choice = {"message": {"content": None, "refusal": "I cannot say."}, "finish_reason": "stop"}
    assert result_of({"choices": [choice]}, provider="openai")["text"] == "I cannot say."


@every_case("usage", [None, [], *({"promptTokenCount": count} for count in ("5", -1, True, 5.5, float("nan"), 1e300))])
def test_a_usage_that_makes_no_sense_is_none(usage):
    done = answered_with(said(json.dumps({**STOPPED, "usageMetadata": usage})))
    assert (done.cost, done.result["usage"]) == (None, None)


NOTHING = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def chunk(text=None, *, reason=None, usage=None):
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}], "usage": usage}


def test_a_server_that_counts_nothing_has_not_said_that_the_answer_was_free():
    choice = {"message": {"content": "blue"}, "finish_reason": "stop"}
    done = answered_with(said(json.dumps({"choices": [choice], "usage": NOTHING})), provider="openai")
    assert (done.cost, done.usage) == (None, None)
    events = [chunk("sky ", usage=NOTHING), chunk("blue", usage=NOTHING), {"error": {"message": "the model crashed"}}]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    error = failure_of(said(text, content_type="text/event-stream"), stream=True, provider="openai")
    assert error.used in (None, (None, None))


def test_the_counts_at_the_end_of_a_stream_replace_the_zeros_before():
    counted = {"prompt_tokens": 12.0, "completion_tokens": 3.0, "total_tokens": 15.0}
    events = [
        chunk("sky ", usage=NOTHING),
        chunk("blue", reason="stop", usage=NOTHING),
        {"choices": [], "usage": counted},
    ]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    done = answered_with(said(text, content_type="text/event-stream"), stream=True, provider="openai")
    assert (done.cost, done.usage) == (15, Usage(12, None, 3, 15))
    assert done.result["usage"] == {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}


@every_case("text", ["", "<html>", "{", "[" * 100_000, '"text"', "null", "{}", "[]", '{"candidates": 5}'])
@every_case("stream", [False, True])
def test_a_success_that_holds_no_answer_leaves_the_outcome_unknown(text, stream):
    error = failure_of(said(text), stream=stream)
    assert (error.code, error.outcome, error.status) == ("malformed_answer", "unknown", None)


COUNTED = {"usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}
COUNTED_BY_GEMINI = {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}}


@every_case(
    ("provider", "answer"),
    [
        ("openai", {"choices": [], **COUNTED}),
        ("openai", {"choices": None, **COUNTED}),
        ("openai", {"choices": [{"message": None}], **COUNTED}),
        ("gemini", COUNTED_BY_GEMINI),
        ("anthropic", {"type": "message", "content": [], "usage": {"input_tokens": 5, "output_tokens": 3}}),
        ("anthropic", {"content": [], "usage": {"input_tokens": 5, "output_tokens": 3}}),
    ],
)
def test_an_answer_without_content_is_booked_by_the_usage_that_it_states(provider, answer):
    error = failure_of(said(json.dumps(answer)), provider=provider)
    assert (error.code, error.outcome) == ("malformed_answer", "unknown")
    assert (error.used[1].input_tokens, error.used[1].output_tokens) == (5, 3)


def test_a_stream_without_content_is_booked_by_its_usage_once_it_has_said_that_it_ended():
    told = f"data: {json.dumps({'choices': [], **COUNTED})}\n\n"
    for text, used in ((f"{told}data: [DONE]\n\n", (8, Usage(5, None, 3, 8))), (told, (None, None))):
        error = failure_of(said(text, content_type="text/event-stream"), stream=True, provider="openai")
        assert (error.code, error.used) == ("stream_cut", used)


def test_zeros_of_an_answer_without_content_are_no_count():
    assert failure_of(said(json.dumps({"choices": [], "usage": NOTHING})), provider="openai").used == (None, None)


def test_a_success_that_holds_an_error_is_that_error():
    error = failure_of(said(json.dumps({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})))
    assert (error.status, error.code, error.outcome) == (503, "unavailable", "answered")
    assert "overloaded" in error.message


def test_a_server_that_does_not_stream_is_understood_all_the_same():
    done = answered_with(
        said(json.dumps([{"candidates": [{"content": {"parts": [{"text": "sky "}]}}]}, STOPPED])), stream=True
    )
    assert done.result["text"] == "sky blue"


def test_an_error_in_the_middle_of_a_stream_is_that_error():
    events = [
        {"candidates": [{"content": {"parts": [{"text": "sky "}]}}]},
        {"error": {"code": 429, "message": "slow down"}},
    ]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    error = failure_of(said(text, content_type="text/event-stream"), stream=True)
    assert (error.status, error.outcome) == (429, "answered")
    error = failure_of(said('data: {"error": "model crashed"}\n\n'), stream=True, provider="openai")
    assert (error.status, error.code, error.outcome) == (None, "stream_error", "unknown")
    assert "model crashed" in error.message


def streamed_then_cut(*events, provider="gemini"):
    async def scenario():
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        async with raw_server(STREAM_HEAD + text.encode()) as (url, _):
            return await ask(url, stream=True, provider=provider)

    return asyncio.run(scenario())


def test_a_connection_that_breaks_in_the_middle_of_a_stream_leaves_the_outcome_unknown():
    with pytest.raises(ProviderError) as failed:
        streamed_then_cut({"candidates": [{"content": {"parts": [{"text": "sky "}]}}]})
    assert (failed.value.code, failed.value.outcome) == ("connection_broken", "unknown")


def test_a_connection_that_breaks_after_the_whole_text_is_no_failure():
    done = streamed_then_cut({"choices": [{"delta": {"content": "blue"}, "finish_reason": "stop"}]}, provider="openai")
    assert (done.result["text"], done.result["complete"], done.cost) == ("blue", True, None)


@every_case("status", [400, 429, 500])
@every_case(
    "body",
    ["", "[]", "null", "[" * 100_000, '{"error": null}', '{"error": {"message": 5}}', '[{"error": {"details": [5]}}]'],
)
def test_a_refusal_whose_body_says_nothing_still_has_its_status(status, body):
    error = failure_of(said(body, status=status))
    assert (error.status, error.code, error.outcome) == (status, f"http_{status}", "answered")
    assert (error.push_back is not None) == (status == 429)


def test_a_refused_stream_says_why_in_an_array():
    body = [{"error": {"code": 403, "message": "not for you", "status": "PERMISSION_DENIED"}}]
    error = failure_of(said(json.dumps(body), status=403), stream=True)
    assert (error.status, error.code) == (403, "permission_denied")
    assert error.message == "gemini answered 403: not for you"


def test_a_code_that_is_no_name_is_not_taken_for_one():
    error = failure_of(said(json.dumps({"error": {"code": "no; drop", "type": "x" * 100}}), status=400))
    assert error.code == "http_400"


def test_a_redirect_is_not_followed_with_the_key_in_hand():
    async def answer(request):
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    assert failure_of(answer).status == 307


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [200, 400])
def test_a_key_that_the_provider_repeats_is_masked(status, stream):
    async def answer(request):
        key = request.headers["x-goog-api-key"]
        assert key not in str(request.url)
        halves = [{"text": key[:9]}, {"text": key[9:]}]
        event: dict[str, Any] = {"candidates": [{"content": {"parts": halves}, "finishReason": "STOP"}]}
        if status == 400:
            event = {"error": {"message": f"bad key {key}", "details": [{"key": key}]}}
        return web.Response(status=status, text=f"data: {json.dumps(event)}\n\n" if stream else json.dumps(event))

    if status == 200:
        assert answered_with(answer, stream=stream).result["text"] == "[masked]"
        return
    error = failure_of(answer, stream=stream)
    assert API_KEY not in error.message + json.dumps(error.details)


def test_openais_own_models_get_the_new_name_of_the_output_limit_and_others_the_old():
    async def answer(request):
        body = await request.json()
        assert request.path == "/openai/v1/chat/completions"
        text = json.dumps(sorted(body))
        return web.json_response({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

    async def scenario():
        async with serving(answer) as url:
            return await ask(f"{url}/openai/v1/", provider="openai", max_output_tokens=5)

    assert "max_tokens" in json.loads(asyncio.run(scenario()).result["text"])


EVENTS = ["one", "two\nlines", "", " indented", "ü🙂", "{}"]
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])


@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=6),
    ending=ENDINGS,
    size=st.integers(1, 40),
    is_ended=st.booleans(),
)
@example(events=["two\nlines", "one"], ending="\r\n", size=1, is_ended=True)
def test_events_are_read_whatever_the_line_ends_and_wherever_the_pieces_are_cut(events, ending, size, is_ended):
    blocks = []
    for event in events:
        lines = [*(f"data: {line}" for line in event.split("\n")), ": a comment", "event: message", "id: 1"]
        blocks.append(ending.join(lines) + ending)
    text = ending.join(blocks) + (ending if is_ended else "")
    content = "\ufeff".encode() + text.encode()
    reader = EventReader()
    found = [event for at in range(0, len(content), size) for event in reader.feed(content[at : at + size])]
    assert [*found, *reader.end()] == events


def test_a_character_sent_as_two_escapes_in_two_events_is_one():
    reader = AnswerReader(OPENAI, service="openai", secrets=())
    for half in ("\\ud83d", "\\ude42"):
        reader.take(b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % half.encode())
    assert reader.answer.text == "🙂"
    reader.take(b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n')
    assert reader.answer.text == "🙂\ufffd"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "candidates",
                    "content",
                    "parts",
                    "text",
                    "choices",
                    "delta",
                    "message",
                    "usage",
                    "usageMetadata",
                    "error",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(event=json_values, dialect=st.sampled_from([GEMINI, OPENAI]))
def test_whatever_the_shape_of_an_answer_it_is_read_or_a_failure_of_the_provider(event, dialect):
    reader = AnswerReader(dialect, service="llm", secrets=())
    try:
        reader.take(b"data: " + json.dumps(event).encode() + b"\n\n")
        reader.end(b"")
    except ProviderError:
        return
    assert reader.answer.result()["text"] is not None
