import json
from datetime import datetime, timedelta

import pytest

from sandbox import clock
from tests.sandbox.providers import ask, message

LONG = {"window_seconds": 3600, "window_mode": "sliding", "rounded_remaining": False}
SOON = timedelta(hours=2).total_seconds()


def turn(sandbox, **knobs):
    sandbox.turn(anthropic={**LONG, **knobs})


def limits(answer):
    return {
        name.removeprefix("anthropic-ratelimit-"): value
        for name, value in answer.headers.items()
        if name.startswith("anthropic-ratelimit-") and not name.endswith("-reset")
    }


def events(answer):
    lines = [block.split("\n") for block in answer.body.decode().split("\n\n") if block]
    assert all(name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"] for name, data in lines)
    return [json.loads(data.removeprefix("data: ")) for _, data in lines]


def test_a_message_has_content_usage_and_headers_of_what_is_left(sandbox):
    turn(sandbox)
    answer = message(sandbox.url, "x" * 400, max_tokens=10)
    body = answer.json()
    assert (body["type"], body["role"], body["stop_reason"]) == ("message", "assistant", "max_tokens")
    assert len(body["content"][0]["text"]) == 40
    assert body["usage"] == {
        "input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 10,
        "service_tier": "standard",
    }
    assert limits(answer) == {
        "requests-limit": "50",
        "requests-remaining": "49",
        "input-tokens-limit": "30000",
        "input-tokens-remaining": "29900",
        "output-tokens-limit": "8000",
        "output-tokens-remaining": "7990",
        "tokens-limit": "8000",
        "tokens-remaining": "7990",
    }
    reset = datetime.fromisoformat(answer.headers["anthropic-ratelimit-input-tokens-reset"]).timestamp()
    assert 0 < reset - clock.now() < SOON
    assert answer.headers["request-id"].startswith("req_")


def test_what_is_left_of_tokens_is_told_in_thousands(sandbox):
    turn(sandbox, rounded_remaining=True)
    assert limits(message(sandbox.url, "x" * 2400))["input-tokens-remaining"] == "29000"
    turn(sandbox, ratelimit_headers="none")
    assert limits(message(sandbox.url)) == {}
    turn(sandbox, ratelimit_headers="zero")
    assert set(limits(message(sandbox.url)).values()) == {"0"}


def test_a_stream_has_the_documented_events_and_ends_with_the_usage(sandbox):
    turn(sandbox)
    answer = message(sandbox.url, stream=True)
    found = events(answer)
    assert [event["type"] for event in found] == [
        "message_start",
        "content_block_start",
        "ping",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert (found[0]["message"]["content"], found[0]["message"]["usage"]["output_tokens"]) == ([], 1)
    assert found[-2]["delta"]["stop_reason"] == "end_turn"
    assert found[-2]["usage"]["output_tokens"] == 64
    assert limits(answer)["requests-remaining"] == "49"


def test_a_stream_may_be_cut_or_end_in_an_error(sandbox):
    turn(sandbox, stream_cut_rate=1)
    assert events(message(sandbox.url, stream=True))[-1]["type"] == "content_block_delta"
    turn(sandbox, stream_cut_rate=0, stream_overloaded_rate=1)
    answer = message(sandbox.url, stream=True)
    assert (answer.status, events(answer)[-1]["error"]["type"]) == (200, "overloaded_error")


@pytest.mark.parametrize("mode", ["sliding", "aligned", "anchored"])
def test_a_429_names_the_quota_and_says_when_to_come_back(sandbox, mode):
    for quota, violated, words in (
        ({"requests_per_minute": 1}, "RPM", "1 requests"),
        ({"input_tokens_per_minute": 150}, "ITPM", "150 input tokens"),
        ({"output_tokens_per_minute": 100}, "OTPM", "100 output tokens"),
    ):
        sandbox.reset()
        turn(sandbox, window_mode=mode, **quota)
        assert message(sandbox.url, "x" * 400).status == 200
        answer = message(sandbox.url, "x" * 400)
        assert (answer.status, answer.error()["type"]) == (429, "rate_limit_error")
        assert answer.json()["request_id"].startswith("req_")
        assert words in answer.message()
        assert 0 < int(answer.headers["retry-after"]) <= 3600
        assert limits(answer)["requests-limit"] == str(quota.get("requests_per_minute", 50))
        assert sandbox.calls()[-1]["violated"] == [violated]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["sliding", "aligned", "anchored"])
def test_an_answer_may_count_by_what_it_may_have_until_it_has_ended(sandbox, mode, stream):
    turn(sandbox, window_mode=mode, output_tokens_per_minute=150, output_charged="max_tokens")
    assert message(sandbox.url, max_tokens=140, stream=stream).status == 200
    refused = message(sandbox.url, max_tokens=100)
    assert (refused.status, limits(refused)["output-tokens-remaining"]) == (429, "86")
    assert message(sandbox.url, max_tokens=80).status == 200
    assert {quota["quota"]: quota["accepted_cost"] for quota in sandbox.usage("anthropic")}["OTPM"] == 128


def cached(text, **more):
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}, **more}]


def test_what_is_read_from_the_cache_is_free_of_the_quota(sandbox):
    turn(sandbox)
    first = message(sandbox.url, "x" * 400, system=cached("s" * 8000))
    assert first.json()["usage"]["cache_creation_input_tokens"] == 2000
    assert limits(first)["input-tokens-remaining"] == "27900"
    second = message(sandbox.url, "y" * 800, system=cached("s" * 8000))
    usage = second.json()["usage"]
    assert [usage[name] for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")] == [
        200,
        0,
        2000,
    ]
    assert limits(second)["input-tokens-remaining"] == "27700"
    assert [call["cached_tokens"] for call in sandbox.calls()] == [0, 2000]


def test_a_short_prompt_and_another_organizations_are_not_read_from_the_cache(sandbox):
    turn(sandbox)
    for key in ("project:p1", "project:p2"):
        usage = message(sandbox.url, system=cached("s" * 8000), key=key).json()["usage"]
        assert usage["cache_read_input_tokens"] == 0
    usage = message(sandbox.url, system=cached("s" * 400)).json()["usage"]
    assert (usage["input_tokens"], usage["cache_creation_input_tokens"]) == (102, 0)


def test_keys_models_and_malformed_requests_are_refused(sandbox):
    turn(sandbox, bad_keys=["bad-*"], models=["m1"])
    refused = [
        (message(sandbox.url, key="bad-1"), 401, "authentication_error"),
        (message(sandbox.url, key=None), 401, "authentication_error"),
        (message(sandbox.url, model="m9"), 404, "not_found_error"),
        (message(sandbox.url, max_tokens=None), 400, "invalid_request_error"),
        (message(sandbox.url, messages=[]), 400, "invalid_request_error"),
        (ask(f"{sandbox.url}/v1/messages", method="POST", body={}, token="project:p1"), 400, "invalid_request_error"),
        (message(sandbox.url, path="/v1/messages/nowhere"), 404, "not_found_error"),
    ]
    assert [(answer.status, answer.error()["type"]) for answer, *_ in refused] == [
        (status, kind) for _, status, kind in refused
    ]
    assert refused[3][0].message() == "max_tokens: Field required"
    turn(sandbox, credit_gone=True)
    assert message(sandbox.url).error()["type"] == "billing_error"


@pytest.mark.parametrize(("status", "kind"), [(529, "overloaded_error"), (500, "api_error"), (429, "rate_limit_error")])
def test_drawn_errors_have_the_services_words(sandbox, status, kind):
    sandbox.turn(error_rates={str(status): 1})
    answer = message(sandbox.url)
    assert (answer.status, answer.error()["type"]) == (status, kind)


def test_tokens_are_counted_without_charge(sandbox):
    turn(sandbox)
    assert message(sandbox.url, "x" * 400, path="/v1/messages/count_tokens").json() == {"input_tokens": 100}
    assert sandbox.usage("anthropic") == []
