import json
import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.sandbox.providers import ask, generate

LONG = {"window_seconds": 3600, "window_mode": "sliding"}
TYPE = "type.googleapis.com/google.rpc."


def turn(sandbox, **knobs):
    sandbox.turn(gemini={**LONG, **knobs})


def test_an_answer_has_text_usage_and_its_model(sandbox):
    answer = generate(sandbox.url, "x" * 400, maxOutputTokens=8).json()
    [candidate] = answer["candidates"]
    assert candidate["finishReason"] == "MAX_TOKENS"
    assert (candidate["content"]["role"], len(candidate["content"]["parts"][0]["text"])) == ("model", 32)
    assert answer["usageMetadata"] == {"promptTokenCount": 100, "candidatesTokenCount": 8, "totalTokenCount": 108}
    assert answer["modelVersion"] == "m1"
    assert generate(sandbox.url).json()["candidates"][0]["finishReason"] == "STOP"


def test_tokens_are_what_the_caller_estimates_times_the_factor(sandbox):
    turn(sandbox, token_factor=1.5)
    assert generate(sandbox.url, "x" * 401).json()["usageMetadata"]["promptTokenCount"] == 152
    [call] = sandbox.calls()
    assert (call["cost_tokens"], call["project"], call["model"], call["quota_kind"]) == (152, "p1", "m1", "generate")
    assert [entry["used_now"] for entry in sandbox.usage("gemini") if entry["unit"] == "tokens"] == [152]
    body = {"contents": [{"parts": [{"text": "x" * 401}]}]}
    url = f"{sandbox.url}/v1beta/models/m1:countTokens?key=project:p1"
    assert ask(url, method="POST", body=body).json() == {"totalTokens": 152}
    assert len(sandbox.calls(quota_kind="generate")) == 1


@pytest.mark.parametrize(
    ("knob", "quota_id"),
    [
        ("requests_per_minute", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
        ("tokens_per_minute", "GenerateContentInputTokensPerModelPerMinute-FreeTier"),
        ("requests_per_day", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
    ],
)
def test_each_quota_is_of_a_project_and_model_and_named_in_its_429(sandbox, knob, quota_id):
    turn(sandbox, **{knob: 2})
    text = "x" * (8 if knob == "tokens_per_minute" else 4)
    assert [generate(sandbox.url, text).status for _ in range(3)][-1] == 429
    error = generate(sandbox.url, text).error()
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    details = {entry["@type"].removeprefix(TYPE): entry for entry in error["details"]}
    [violation] = details["QuotaFailure"]["violations"]
    assert (violation["quotaId"], violation["quotaValue"]) == (quota_id, "2")
    assert violation["quotaDimensions"] == {"location": "global", "model": "m1"}
    assert re.fullmatch(r"\d+\.\d{9}s", details["RetryInfo"]["retryDelay"])
    assert "Retry-After" not in generate(sandbox.url, text).headers
    assert generate(sandbox.url, text, model="m2").status == 200
    assert generate(sandbox.url, text, key="project:p2").status == 200


def test_a_day_and_a_minute_without_room_share_one_short_delay(sandbox):
    turn(sandbox, requests_per_minute=1, requests_per_day=1, window_seconds=30, retry_delay="seconds")
    generate(sandbox.url)
    details = generate(sandbox.url).error()["details"]
    assert len(details[1]["violations"]) == 2
    assert 0 < int(details[2]["retryDelay"].removesuffix("s")) <= 30


def test_the_day_ends_at_midnight_of_the_zone(sandbox):
    turn(sandbox, reset_zone="Asia/Kolkata")
    generate(sandbox.url)
    day = next(entry for entry in sandbox.usage("gemini") if "PerDay" in entry["quota"])["windows"][0]
    starts, ends = (datetime.fromtimestamp(day[name], ZoneInfo("Asia/Kolkata")) for name in ("starts_at", "ends_at"))
    assert (starts.hour, starts.minute, ends.hour, (ends.date() - starts.date()).days) == (0, 0, 0, 1)


def test_the_details_of_a_429_come_in_any_order_or_not_at_all(sandbox):
    turn(sandbox, requests_per_minute=0, error_details="shuffled", quota_values=False, tier="paid", tokens_per_minute=0)
    orders = {tuple(entry["@type"] for entry in generate(sandbox.url).error()["details"]) for _ in range(40)}
    assert len(orders) == 6
    failure = next(entry for entry in generate(sandbox.url).error()["details"] if "violations" in entry)
    assert [violation["quotaId"] for violation in failure["violations"]] == [
        "GenerateRequestsPerMinutePerProjectPerModel",
        "GenerateContentPaidTierInputTokensPerModelPerMinute",
    ]
    assert "quotaValue" not in failure["violations"][0]
    turn(sandbox, error_details="none")
    error = generate(sandbox.url).error()
    assert (error["message"], "details" in error) == ("Resource has been exhausted (e.g. check quota).", False)


def test_a_prompt_above_the_whole_quota_never_fits(sandbox):
    turn(sandbox, tokens_per_minute=10)
    assert generate(sandbox.url, "x" * 400).status == 429
    assert generate(sandbox.url, "x" * 40).status == 200


def test_402_has_the_status_of_a_429(sandbox):
    turn(sandbox, credit_gone=True)
    answer = generate(sandbox.url)
    assert (answer.status, answer.error()["status"]) == (402, "RESOURCE_EXHAUSTED")
    assert [(call["accepted"], call["cause"]) for call in sandbox.calls()] == [(False, "caller")]
    assert sandbox.usage("gemini") == []


def test_keys_and_models_can_be_refused(sandbox):
    turn(sandbox, bad_keys=["bad-*"], models=["m1"])
    error = generate(sandbox.url, key="bad-1").error()
    assert (error["code"], error["details"][0]["reason"]) == (400, "API_KEY_INVALID")
    assert generate(sandbox.url, model="m9").error()["status"] == "NOT_FOUND"
    assert ask(f"{sandbox.url}/v1beta/models/m1:generateContent", method="POST", body={}).status == 403
    assert generate(sandbox.url).status == 200


@pytest.mark.parametrize(
    ("status", "word"), [(500, "INTERNAL"), (503, "UNAVAILABLE"), (504, "DEADLINE_EXCEEDED"), (499, "CANCELLED")]
)
def test_drawn_errors_have_the_services_words(sandbox, status, word):
    sandbox.turn(error_rates={status: 1})
    error = generate(sandbox.url).error()
    assert (error["code"], error["status"]) == (status, word)
    assert "sandbox" not in error["message"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"contents": []}', b'{"contents": [1], "generationConfig": {"maxOutputTokens": 0}}']
)
def test_a_malformed_request_is_refused(sandbox, body):
    url = f"{sandbox.url}/v1beta/models/m1:generateContent?key=project:p1"
    assert ask(url, method="POST", body=body).error()["status"] == "INVALID_ARGUMENT"


def test_usage_may_be_missing(sandbox):
    turn(sandbox, missing_usage_rate=1)
    assert "usageMetadata" not in generate(sandbox.url).json()


def events(answer):
    return [json.loads(line.removeprefix("data: ")) for line in answer.body.decode().split("\r\n\r\n") if line]


def test_a_stream_brings_text_in_pieces_and_usage_last(sandbox):
    turn(sandbox, stream_chunks=4)
    answer = generate(sandbox.url, verb="streamGenerateContent?alt=sse")
    assert answer.headers["Content-Type"] == "text/event-stream"
    pieces = events(answer)
    assert len(pieces) == 4
    assert ["usageMetadata" in piece for piece in pieces] == [False, False, False, True]
    text = "".join(piece["candidates"][0]["content"]["parts"][0]["text"] for piece in pieces)
    assert text == generate(sandbox.url).json()["candidates"][0]["content"]["parts"][0]["text"]
    assert len(generate(sandbox.url, verb="streamGenerateContent").json()) == 4


def test_a_stream_may_end_before_its_usage(sandbox):
    turn(sandbox, stream_cut_rate=1)
    pieces = events(generate(sandbox.url, verb="streamGenerateContent?alt=sse"))
    assert len(pieces) == 2
    assert not any("usageMetadata" in piece or "finishReason" in piece["candidates"][0] for piece in pieces)
    turn(sandbox, stream_chunks=1)
    assert generate(sandbox.url, verb="streamGenerateContent").json() == []


@pytest.mark.parametrize("array", [True, False])
def test_the_error_of_a_stream_may_be_an_array(sandbox, array):
    turn(sandbox, requests_per_minute=0, error_array=array)
    body = generate(sandbox.url, verb="streamGenerateContent?alt=sse").json()
    assert isinstance(body, list) is array
    assert (body[0] if array else body)["error"]["code"] == 429


def test_a_503_can_hide_a_stream_that_was_paid_for(sandbox):
    sandbox.turn(apply_then_503_rate=1)
    assert generate(sandbox.url, verb="streamGenerateContent?alt=sse").status == 503
    assert sandbox.counters()["effects_applied"] == 1
