import json
import re

import pytest

from sandbox.openai.provider import duration
from tests.sandbox.providers import ask, complete

LONG = {"window_seconds": 3600, "window_mode": "sliding"}


def turn(sandbox, **knobs):
    sandbox.turn(openai={**LONG, **knobs})


def limits(answer):
    return {
        name.removeprefix("x-ratelimit-"): value
        for name, value in answer.headers.items()
        if name.startswith("x-ratelimit-")
    }


def test_an_answer_has_a_message_usage_and_headers_of_what_is_left(sandbox):
    turn(sandbox)
    answer = complete(sandbox.url, "x" * 400, max_tokens=10)
    body = answer.json()
    assert (body["object"], body["choices"][0]["finish_reason"]) == ("chat.completion", "length")
    assert body["usage"] == {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    told = limits(answer)
    # The clock goes on between the call's booking and its headers.
    for unit in ("requests", "tokens"):
        assert re.fullmatch(r"1h0m0s|59m59(\.\d+)?s", told.pop(f"reset-{unit}"))
    assert told == {
        "limit-requests": "60",
        "remaining-requests": "59",
        "limit-tokens": "30000",
        "remaining-tokens": "29890",
    }


def test_resets_are_written_as_durations():
    seconds = (0, 0.012, 1, 1.5, 60, 360, 3661.25)
    assert [duration(each) for each in seconds] == ["0ms", "12ms", "1s", "1.5s", "1m0s", "6m0s", "1h1m1.25s"]


@pytest.mark.parametrize(("style", "values"), [("minus_one", {"-1"}), ("zero", {"0"}), ("none", set())])
def test_the_headers_may_lie_or_be_missing(sandbox, style, values):
    turn(sandbox, ratelimit_headers=style)
    assert set(limits(complete(sandbox.url)).values()) == values


def test_a_429_says_which_limit_and_how_long(sandbox):
    turn(sandbox, tokens_per_minute=200, output_tokens=0)
    sandbox.turn(retry_after="seconds")
    assert complete(sandbox.url, "x" * 600).status == 200
    answer = complete(sandbox.url, "x" * 400)
    error = answer.error()
    assert (answer.status, error["type"], error["code"]) == (429, "tokens", "rate_limit_exceeded")
    assert "Limit 200, Used 150, Requested 100. Please try again in " in error["message"]
    assert limits(answer)["remaining-tokens"] == "50"
    assert 3500 < int(answer.headers["Retry-After"]) <= 3600
    assert complete(sandbox.url, "x" * 1000).message().startswith("Request too large for m1")
    assert [call["cost_tokens"] for call in sandbox.calls()] == [150, 100, 250]
    turn(sandbox, requests_per_minute=1, tokens_per_minute=None)
    assert complete(sandbox.url).error()["type"] == "requests"


def test_credit_that_is_gone_is_a_429_of_another_code(sandbox):
    turn(sandbox, credit_gone=True)
    assert (complete(sandbox.url).status, complete(sandbox.url).error()["code"]) == (429, "insufficient_quota")


def test_keys_models_and_malformed_requests_are_refused(sandbox):
    turn(sandbox, bad_keys=["bad-*"], models=["m1"])
    assert complete(sandbox.url, token="bad-1").error()["code"] == "invalid_api_key"
    assert complete(sandbox.url, token=None).status == 401
    assert complete(sandbox.url, model="m9").error()["code"] == "model_not_found"
    assert complete(sandbox.url, messages=[]).status == 400
    assert complete(sandbox.url, max_tokens=0).status == 400
    assert ask(f"{sandbox.url}/v1/nowhere", token="project:p1").error()["type"] == "invalid_request_error"
    sandbox.turn(error_rates={"500": 1})
    assert complete(sandbox.url).error()["type"] == "server_error"


def test_a_stream_ends_with_usage_when_asked_for(sandbox):
    answer = complete(sandbox.url, stream=True, stream_options={"include_usage": True})
    lines = [line.removeprefix("data: ") for line in answer.body.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["usage"]["completion_tokens"] == 64
    assert limits(answer)["remaining-requests"] == "59"
    turn(sandbox, stream_cut_rate=1)
    assert b"[DONE]" not in complete(sandbox.url, stream=True).body
    turn(sandbox, stream_cut_rate=0, missing_usage_rate=1)
    assert "usage" not in complete(sandbox.url).json()
