"""Refusals in forms that providers really send: what each says decides, not its status alone."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime, timedelta, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from jobs.classify import REMEDIES_BY_CODE, Failure, failure_of, is_retryable, with_push_back
from jobs.features.budget_holds.spend import may_have_cost
from jobs.handlers.errors import ANSWER_BLOCKED, SCHEMA_MISMATCH, ProviderError
from jobs.handlers.fallback import CONTEXT_TOO_LONG
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.reading import AnswerReader
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.refusals import ACCOUNT_CLOSED, parse_refusal
from jobs.services.finish.outcomes import Failed
from queueops.core.outbound.client import CallNotes, call_notes
from queueops.core.values.retry_after import parse_retry_after, told_delay
from ratelimits.feedback import Violation
from tests.support.cases import every_case
from tests.support.http_server import serving
from tests.support.llm import ask, payload_of

WIRE = Path(__file__).parent / "wire"
FORMS = {
    form["name"]: form
    for file in ("refusals.ndjson", "errors.ndjson")
    for form in map(json.loads, (WIRE / file).read_text().splitlines())
}
ERRORS = [form for form in FORMS.values() if "provider" in form]
# Of `wire/errors.ndjson`: status and code for the job; the unit of the quota, or the seconds that it waits, if it is a
# refusal for a quota; whether another attempt is made; whether the account is stopped. None of these costs money.
MEANING: dict[str, tuple[Any, ...]] = {
    "openai_tokens": (429, "rate_limit_exceeded", ("tokens", 1.76), True, False),
    "openai_no_credit": (402, "credit_gone", None, False, True),
    "openai_spend_limit": (402, "credit_gone", None, False, True),
    "openai_key": (401, "invalid_api_key", None, False, False),
    "openai_closed": (403, "account_deactivated", None, False, True),
    "openai_server": (500, "server_error", None, True, False),
    "moonshot_no_credit": (402, "credit_gone", None, False, True),
    "moonshot_not_active": (402, "credit_gone", None, False, True),
    "xai_no_credit": (402, "credit_gone", None, False, True),
    "xai_new_team": (402, "credit_gone", None, False, True),
    "xai_out_of_credits": (402, "credit_gone", None, False, True),
    "xai_permission": (403, "http_403", None, False, False),
    "dashscope_overdue": (402, "credit_gone", None, False, True),
    "dashscope_tokens_a_minute": (429, "insufficient_quota", ("tokens", None), True, False),
    "dashscope_free_tier_of_a_model": (403, "http_403", None, False, False),  # other models go on
    "tgi_generation": (424, "http_424", None, True, False),
    "groq_json": (400, SCHEMA_MISMATCH, None, True, False),
    "groq_tool": (400, SCHEMA_MISMATCH, None, True, False),
    "minimax_no_credit": (402, "credit_gone", None, False, True),
    "minimax_no_credit_in_anthropics_form": (402, "credit_gone", None, False, True),
    "siliconflow_no_credit": (402, "credit_gone", None, False, True),
    "zai_no_credit": (402, "credit_gone", None, False, True),
    "zai_no_credit_in_anthropics_form": (402, "credit_gone", None, False, True),
    "gateway_no_credit": (402, "credit_gone", None, False, True),
    "anthropic_tokens": (429, "rate_limit_error", ("input_tokens", 12), True, False),
    "anthropic_spend_of_the_month": (402, "credit_gone", None, False, True),
    "anthropic_own_spend_limit": (402, "credit_gone", None, False, True),
    "anthropic_credit": (402, "credit_gone", None, False, True),
    "anthropic_overloaded": (529, "overloaded_error", None, True, False),
    "anthropic_too_long": (400, CONTEXT_TOO_LONG, None, False, False),
    "anthropic_too_long_with_output": (400, CONTEXT_TOO_LONG, None, False, False),
    "anthropic_key": (401, "authentication_error", None, False, False),
    "gemini_day": (429, "resource_exhausted", ("requests", 45.8), True, False),
    "gemini_quota_of_zero": (403, "no_quota", None, False, False),
    "gateway_passes_on_quota_of_zero": (403, "no_quota", None, False, False),
    "gemini_quota_of_twenty": (429, "resource_exhausted", ("requests", 25), True, False),
    "gemini_paid": (402, "credit_gone", None, False, True),
    "gemini_overloaded": (503, "unavailable", None, True, False),
    "gemini_too_long": (400, CONTEXT_TOO_LONG, None, False, False),
    "gemini_key": (400, "api_key_invalid", None, False, False),
    "gemini_billing": (403, "billing_disabled", None, False, True),
    "gateway_passes_on_anthropic": (400, CONTEXT_TOO_LONG, None, False, False),
    "gateway_passes_on_gemini": (400, CONTEXT_TOO_LONG, None, False, False),
    "azure_filter": (400, ANSWER_BLOCKED, None, False, False),
    "azure_filter_by_a_gateway": (400, ANSWER_BLOCKED, None, False, False),
    "deepseek_risk": (400, ANSWER_BLOCKED, None, False, False),
    "deepseek_risk_of_before": (400, ANSWER_BLOCKED, None, False, False),
    "xai_safety": (403, ANSWER_BLOCKED, None, False, False),
    "dashscope_inspection": (400, ANSWER_BLOCKED, None, False, False),
    "dashscope_inspection_with_500": (400, ANSWER_BLOCKED, None, False, False),
    "anthropic_filter": (400, ANSWER_BLOCKED, None, False, False),
    "gemini_prepaid_credit": (402, "credit_gone", None, False, True),
    "gemini_spending_cap": (402, "credit_gone", None, False, True),
    "gemini_leaked_key": (403, "account_deactivated", None, False, True),
    "gemini_day_in_openais_form": (429, "resource_exhausted", ("requests", 36), True, False),
    "gateway_writes_gemini_into_its_message": (429, "throttling_error", ("requests", 36), True, False),
    "anthropic_disabled": (403, "account_deactivated", None, False, True),
    "anthropic_long_context_plan": (403, "no_quota", None, False, False),
    "openrouter_key_limit": (402, "credit_gone", None, False, True),
    "openrouter_passes_on_too_long": (400, CONTEXT_TOO_LONG, None, False, False),
    "ark_overdue": (402, "credit_gone", None, False, True),
    "ark_set_limit": (403, "no_quota", None, False, False),
    "ark_sensitive": (400, ANSWER_BLOCKED, None, False, False),
    "new_api_sensitive": (400, ANSWER_BLOCKED, None, False, False),
    "databricks_limit_of_zero": (403, "no_quota", None, False, False),
    "fireworks_suspended": (402, "credit_gone", None, False, True),
    "litellm_budget": (402, "credit_gone", None, False, True),
    "new_api_token_exhausted": (402, "credit_gone", None, False, True),
    "new_api_quota_before": (402, "credit_gone", None, False, True),
    "zai_plan_expired": (402, "credit_gone", None, False, True),
    "portkey_guardrail": (446, ANSWER_BLOCKED, None, False, False),
    "lm_studio_unloaded": (400, "http_400", None, True, False),
    "lm_studio_crashed": (400, "http_400", None, True, False),
}


def filled(text: str) -> str:
    """`<now_s+40>`, `<now_ms+30000>`: a moment by the clock of the test."""

    def moment(found: re.Match[str]) -> str:
        now = time.time() * (1000 if found[1] == "ms" else 1)
        return str(int(now + float(found[2])))

    return re.sub(r"<now_(m?s)([+-]\d+)>", moment, text)


def refused(name: str) -> Any:
    """What a job of `llm.generate` came to, as the executor reads it."""
    form = FORMS[name]
    headers = {header: filled(text) for header, text in form["headers"].items()}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(form["body"], status=form["status"], headers=headers)

    async def scenario() -> Any:
        async with serving(answer) as url:
            return await ask(url, provider=form.get("provider", "openai"))

    notes = CallNotes()
    token = call_notes.set(notes)
    try:
        with pytest.raises(ProviderError) as failed:
            asyncio.run(scenario())
    finally:
        call_notes.reset(token)
    return with_push_back(failure_of(failed.value), notes.refusal)


# Seconds to wait, at least and at most; None: as long as the limit says.
WAITS: dict[str, tuple[float, float] | None] = {
    "reset_ms": (25, 31),
    "retry_long_decimals": (4.3, 4.31),
    "retry_with_unit": (90, 90),
    "retry_twice": (90, 90),
    "retry_600": (600, 600),
    "github_primary": (35, 41),
    "google_403": None,
    "azure_tokens": (6.5, 6.5),
    "groq_413": None,
    "groq_498": None,
    "ok_with_error_number": None,
    "ok_with_error_text_code": (5, 5),
}


def test_a_refusal_for_a_quota_costs_no_attempt_and_waits_as_long_as_it_says():
    faults = {}
    for name, wait in WAITS.items():
        failure = refused(name)
        told = failure.push_back and failure.push_back.retry_after
        if failure.push_back is None or (told is None if wait else told is not None):
            faults[name] = failure
        elif wait and not wait[0] <= told <= wait[1]:
            faults[name] = told
    assert faults == {}


def test_each_error_of_a_provider_means_the_same_live_and_in_a_batch():
    def meaning(failure: Failure) -> tuple[Any, ...]:
        found = failure.push_back
        quota = found and (found.violations[0].unit, found.retry_after)
        is_closed = failure.code in ACCOUNT_CLOSED
        return failure.status, failure.code, quota, is_retryable(failure, repeatable=True), is_closed

    live = {form["name"]: refused(form["name"]) for form in ERRORS}
    assert {name: meaning(failure) for name, failure in live.items()} == MEANING
    free = [name for name, one in live.items() if not may_have_cost(Failed(cast("Any", None), "", "", True, one, None))]
    assert free == list(live)
    batches = batch_form(DIALECTS)
    for form in ERRORS:
        payload = LlmGenerate.model_validate(payload_of(provider=form["provider"]))
        line = meaning(failure_of(batches.refuse(payload, form["status"], form["body"], ())))
        expected = MEANING[form["name"]]
        if form["headers"]:  # the line of a batch has none
            line, expected = line[:2], expected[:2]
        assert line == expected, form["name"]


@every_case(
    ("told", "meaning"),
    [
        ((1002, "rate limit"), (429, "minimax_1002", "", True)),
        ((1039, "token limit"), (429, "minimax_1039", "tokens", True)),
        ((2056, "usage limit exceeded"), (429, "minimax_2056", "", True)),
        ((1008, "余额不足"), (402, "credit_gone", None, False)),
        ((1004, "not authorized"), (401, "minimax_1004", None, False)),
        ((2013, "invalid params"), (400, "minimax_2013", None, False)),
        ((1026, "input new_sensitive"), (400, "minimax_1026", None, False)),
        ((1000, "unknown error"), (500, "minimax_1000", None, True)),
        ((1001, None), (504, "minimax_1001", None, True)),
    ],
)
@every_case("whole", [{"choices": None}, {"choices": [], "usage": {"total_tokens": 0}}, {}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_that_minimax_tells_under_status_200_is_one_and_costs_nothing(stream, whole, told, meaning):
    body = {"id": "1", "base_resp": {"status_code": told[0], "status_msg": told[1]}, **whole}
    reader = AnswerReader(DIALECTS["openai"], service="minimax", secrets=())
    with pytest.raises(ProviderError) as failed:
        reader.take(f"data: {json.dumps(body)}\n\n".encode()) if stream else reader.take_whole(
            json.dumps(body).encode()
        )
    found = failure_of(failed.value)
    quota = found.push_back and (found.push_back.violations[0].unit if found.push_back.violations else "")
    assert (found.status, found.code, quota, is_retryable(found, repeatable=True)) == meaning
    assert not may_have_cost(Failed(cast("Any", None), "", "", True, found, None))


def test_an_answer_of_minimax_that_did_not_fail_is_an_answer():
    told = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "base_resp": {"status_code": 0}}
    reader = AnswerReader(DIALECTS["openai"], service="minimax", secrets=())
    reader.take_whole(json.dumps(told).encode())
    assert reader.answer.text == "x"


def test_credit_that_ends_inside_an_answer_is_gone():
    reader = AnswerReader(DIALECTS["openai"], service="openrouter", secrets=())
    with pytest.raises(ProviderError) as failed:
        reader.take(b'data: {"error": {"code": 402, "message": "This request requires more credits."}}\n\n')
    assert (failed.value.status, failed.value.code) == (402, "credit_gone")


def test_content_that_a_provider_does_not_take_is_told_as_that():
    blocked = [name for name, meaning in MEANING.items() if meaning[1] == ANSWER_BLOCKED]
    assert {refused(name).remedy for name in blocked} == {REMEDIES_BY_CODE[ANSWER_BLOCKED]}


def test_a_host_that_is_known_answers_in_its_own_form_alone():
    def violations(headers: dict[str, str], body: bytes, host: str) -> tuple[Violation, ...]:
        found = parse_refusal(429, headers, body, host)
        return found.violations if found else ()

    form = FORMS["anthropic_tokens"]
    body = json.dumps(form["body"]).encode()
    [violation] = violations(form["headers"], body, "api.anthropic.com")
    assert (violation.unit, violation.stated_cap) == ("input_tokens", 50_000)
    spent = json.dumps(FORMS["anthropic_spend_of_the_month"]["body"]).encode()
    assert parse_refusal(429, {}, spent, "api.anthropic.com") is None
    day = json.dumps(FORMS["gemini_day"]["body"]).encode()
    for host in ("generativelanguage.googleapis.com", "gateway.example.org", ""):
        assert violations({}, day, host)[0].per_day


def test_a_right_that_is_missing_is_no_quota_and_ends_the_job():
    failure = refused("github_forbidden")
    assert failure.push_back is None
    assert not is_retryable(failure, repeatable=True)


def test_the_unit_that_an_answer_names_is_told():
    [violation] = refused("azure_tokens").push_back.violations
    assert (violation.unit, violation.scope) == ("tokens", "project")


def test_a_conflict_that_says_itself_to_ask_again_is_asked_again_and_no_other():
    failures = {name: refused(name) for name in ("conflict_asks_again", "conflict_does_not")}
    assert {name: (one.status, one.push_back) for name, one in failures.items()} == dict.fromkeys(failures, (409, None))
    assert {name: is_retryable(one, repeatable=True) for name, one in failures.items()} == {
        "conflict_asks_again": True,
        "conflict_does_not": False,
    }
    assert not is_retryable(failures["conflict_asks_again"], repeatable=False)


def test_what_one_call_asks_for_beside_the_whole_limit_is_told():
    [violation] = refused("groq_413").push_back.violations
    assert (violation.unit, violation.stated_cap, violation.requested) == ("tokens", 6000, 19_120)


def test_what_is_asked_for_about_is_a_number_all_the_same():
    said = (
        "Rate limit reached on tokens per minute (TPM): Limit 7000, Used 0, Requested ~12903. Please try again in 5s."
    )
    body = json.dumps({"error": {"message": said, "type": "tokens", "code": "rate_limit_exceeded"}}).encode()
    [violation] = DIALECTS["openai"].push_back(429, {}, body).violations  # type: ignore[union-attr]
    assert (violation.unit, violation.stated_cap, violation.requested) == ("tokens", 7000, 12_903)


@every_case(
    ("words", "seconds"),
    [
        ("Rate limit is exceeded. Try again in 30 seconds.", 30),
        ("request reached max organization concurrency: 1, please try again after 1 seconds", 1),
        ("have exceeded the token rate limit. Please retry after 86400 seconds.", 86_400),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1.76s. Visit us.", 1.76),
        ("please retry in 12.5 Milliseconds", 0.0125),
        ("Please retry in 26.837906927s.", 26.837906927),
        ("Try again in 2 minutes", 120),
        ("try again in 1 hour.", 3_600),
        ("try again in 3 days", 86_400),  # no longer than any stated delay
        ("try again in a while", None),
        ("try again in 5", None),
        ("try again in 0 seconds", None),
        ("retry after ........s", None),
    ],
)
@every_case("provider", ["openai", "anthropic", "gemini"])
def test_a_wait_that_only_the_message_names_is_obeyed(provider, words, seconds):
    body = json.dumps({"error": {"message": words}}).encode()
    found = DIALECTS[provider].push_back(429, {}, body)
    assert found is not None
    assert found.retry_after == (seconds and pytest.approx(seconds))
    told = DIALECTS[provider].push_back(429, {"Retry-After": "7"}, body)
    assert told is not None
    assert told.retry_after == 7


@every_case(
    ("message", "unit", "per_day", "cap"),
    [
        ("Too many tokens, please wait before trying again.", "tokens", False, None),
        ("Too many tokens per day, please wait before trying again.", "tokens", True, None),
        ("Tokens per minute limit exceeded - too many tokens processed.", "tokens", False, None),
        ("Too many requests, please wait before trying again.", "", False, None),  # each 429 is that
        ("Limit reached in org-x on requests per min. Limit: 60.000000 / min. Current: 70.", "requests", False, 60),
    ],
)
def test_the_quota_that_a_message_alone_names_is_read(message, unit, per_day, cap):
    found = DIALECTS["openai"].push_back(429, {}, json.dumps({"message": message}).encode())
    assert found is not None
    told = [(one.unit, one.per_day, one.stated_cap) for one in found.violations]
    assert told == ([(unit, per_day, cap)] if unit else [])


@every_case(
    ("message", "per_day"),
    [
        ("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day", True),
        ("Rate limit exceeded: free-models-per-min.", False),
    ],
)
def test_rate_headers_in_the_body_say_how_long_a_quota_lasts(message, per_day):
    until = str(int((time.time() + 3_000) * 1000))
    told = {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": until}
    error = {"message": message, "code": 429, "metadata": {"headers": told, "provider_name": None}}
    found = DIALECTS["openai"].push_back(429, {}, json.dumps({"error": error, "user_id": "u"}).encode())
    assert found is not None
    assert 2_990 <= (found.retry_after or 0) <= 3_000
    assert [(one.unit, one.per_day) for one in found.violations] == [("requests", per_day)]
    for broken in (None, 7, {"headers": [1]}, {"headers": {"X-RateLimit-Reset": [until]}}):
        error["metadata"] = broken
        assert DIALECTS["openai"].push_back(429, {}, json.dumps({"error": error}).encode()) is not None


@every_case(
    ("code", "words", "is_told"),
    [
        ("1308", "Usage limit reached for 5 hour. Your limit will reset at {beijing}", True),
        ("1308", "已达到 5\n小时的使用上限。您的限额将在 {beijing} 重置。", True),
        ("1310", "[1310][Weekly/Monthly Limit Exhausted. Your limit will reset at {beijing}]", True),
        ("usage_limit", "Usage limit reached. It resets at {utc} UTC.", True),
        ("usage_limit", "Usage limit reached. It resets at {utc}Z.", True),
        ("usage_limit", "Usage limit reached. It resets at {utc}", False),  # nobody knows whose hours these are
        ("1308", "Your limit will reset at 2026-99-99 99:99:99", False),
        ("1308", "Your limit will reset at 2020-01-01 00:00:00", False),
        ("1302", "High concurrency usage of this API, please reduce concurrency", False),
    ],
)
@every_case("provider", ["openai", "anthropic"])
def test_a_moment_in_the_message_says_how_long_a_quota_lasts(provider, code, words, is_told):
    until = datetime.now(UTC) + timedelta(hours=3)
    beijing, utc = (f"{one:%Y-%m-%d %H:%M:%S}" for one in (until.astimezone(timezone(timedelta(hours=8))), until))
    error = {"type": "rate_limit_error", "code": code, "message": words.format(beijing=beijing, utc=utc)}
    found = DIALECTS[provider].push_back(429, {}, json.dumps({"error": error}).encode())
    assert found is not None
    assert (found.retry_after is not None) == is_told
    assert not is_told or 10_790 <= (found.retry_after or 0) <= 10_800


NOW_ISO = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}"


@every_case(
    ("headers", "body", "least", "most"),
    [
        ({}, {"message": "You are being rate limited.", "retry_after": 64.57, "global": True}, 64.57, 64.57),
        ({}, {"ok": False, "error_code": 429, "parameters": {"retry_after": 35}}, 35, 35),
        ({}, {"errors": [{"message": "budget exhausted", "extensions": {"retry_in_seconds": 12}}]}, 12, 12),
        ({}, {"errors": "Exceeded 2 calls per second. Please wait 2 seconds."}, 2, 2),
        ({}, {"detail": "Rate limit is reached, please wait for 90s."}, 90, 90),
        (
            {},
            {"error": {"message": "Limit of 50 per 86400s. Please wait 43200 seconds before retrying."}},
            43_200,
            43_200,
        ),
        ({}, {"error": {"message": "exhausted. Your quota will reset after 5h59m59s."}}, 21_599, 21_599),
        ({}, {"error": {"message": f"User-rate limit exceeded.  Retry after {NOW_ISO}.123Z"}}, 2_400, 3_600),
        ({}, {"error": {"message": f"Limit type: tokens. Limit resets at: {NOW_ISO} UTC"}}, 2_400, 3_600),
        ({}, {"detail": "Request was throttled. Expected available in 17 seconds."}, 17, 17),
        ({}, {"error": {"message": "Please try again after '17' seconds."}}, 17, 17),
        ({}, {"error": {"message": "Too many requests have been received. Please try after '6' minutes."}}, 360, 360),
        ({"x-ms-retry-after-ms": "8"}, {"code": "429", "message": "Request rate is large."}, 0.008, 0.008),
        ({"X-AI-RateLimit-Retry-After": "33"}, {"message": "AI token rate limit exceeded"}, 33, 33),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "6.5", "X-RateLimit-Reset": "1470173023"},
            {},
            6.5,
            6.5,
        ),
        ({"x-ratelimit-used": "100", "x-ratelimit-remaining": "0.0", "x-ratelimit-reset": "312"}, {}, 312, 312),
        ({}, {"retry_after": True, "parameters": {"retry_after": "soon"}, "metadata": [1]}, None, None),
    ],
)
def test_a_wait_is_read_wherever_an_api_states_it(headers, body, least, most):
    for host in ("api.example.org", *(() if "Remaining" in str(headers).title() else ("gmail.googleapis.com",))):
        found = parse_refusal(429, headers, json.dumps(body).encode(), host)
        assert found is not None
        assert found.retry_after is None if least is None else least <= (found.retry_after or 0) <= most


@every_case(
    ("headers", "body", "unit", "per_day"),
    [
        (
            {},
            {"error_code": "X", "message": "REQUEST_LIMIT_EXCEEDED: Exceeded input tokens per minute."},
            "input_tokens",
            False,
        ),
        (
            {},
            {"error": {"message": "Your rate limit is 60 queries per minute.", "type": "credit_limit"}},
            "requests",
            False,
        ),
        ({}, {"message": "You are using a Trial key, which is limited to 20 API calls / minute."}, "requests", False),
        ({}, {"errors": "Exceeded 2 calls per second for api client."}, "requests", False),
        ({}, {"errors": [{"code": 4006, "message": "used up your daily free allocation of 10,000 neurons"}]}, "", True),
        ({}, {"status": "error", "message": "You have reached your daily limit.", "policyName": "DAILY"}, "", True),
        ({}, {"message": "Resource level throttle APPLICATION DAY limit is reached."}, "", True),
        ({}, {"error": {"message": "Rate limit of 50 per 86400s exceeded for UserByModelByDay."}}, "", True),
        ({}, {"message": "REQUEST_LIMIT_EXCEEDED: Exceeded workspace QPS rate limit for x."}, "requests", False),
        ({"Helicone-RateLimit-Limit": "10", "Helicone-RateLimit-Remaining": "0"}, {}, "requests", False),
        ({"X-HubSpot-RateLimit-Remaining": "0"}, {"message": "You have reached your limit."}, "requests", False),
        ({"X-RateLimit-Limit-Day": "50", "X-RateLimit-Remaining-Day": "0"}, {}, "requests", True),
        ({"x-ratelimit-limit-req-minute": "5", "x-ratelimit-remaining-req-minute": "0"}, {}, "requests", False),
        ({"x-ratelimit-limit-": "5", "x-ratelimit-remaining-": "0"}, {}, None, None),
    ],
)
def test_a_quota_is_read_wherever_an_api_names_it(headers, body, unit, per_day):
    found = parse_refusal(429, headers, json.dumps(body).encode(), "api.example.org")
    assert found is not None
    assert [(one.unit, one.per_day) for one in found.violations] == ([] if unit is None else [(unit, per_day)])


def test_a_limit_that_states_its_window_beside_itself_is_read():
    headers = {"ratelimit-limit": "100;w=21600", "ratelimit-remaining": "0;w=21600"}
    found = parse_refusal(429, headers, b"{}", "registry-1.example.org")
    assert found is not None
    assert [(one.stated_cap, one.window_seconds) for one in found.violations] == [(100, 21_600)]


def test_a_refusal_in_a_list_is_told_in_its_own_words():
    answer = {"success": False, "error": [{"code": 2003, "message": "Rate limited"}]}
    told = batch_form(DIALECTS).refuse(LlmGenerate.model_validate(payload_of(provider="openai")), 429, answer, ())
    assert failure_of(told).message == "openai answered 429: Rate limited"


@every_case("skew", [-7_200, -3, 0, 7_200])
@every_case(
    "headers",
    [
        {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "{s}"},
        {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "{ms}"},
        {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "{at}"},
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "{at}",
        },
        {"retry-after": "{s}"},
        {"retry-after": "{http}"},
    ],
)
def test_a_moment_is_one_of_the_clock_that_states_it(headers, skew):
    now = time.time() + skew
    at = now + 600
    told = {
        "s": str(int(at)),
        "ms": str(int(at * 1000)),
        "at": datetime.fromtimestamp(at, UTC).isoformat(),
        "http": formatdate(at, usegmt=True),
    }
    said = {name: text.format(**told) for name, text in headers.items()} | {"Date": formatdate(now, usegmt=True)}
    host = "api.anthropic.com" if "anthropic" in next(iter(headers)) else "api.example.org"
    found = parse_refusal(429, said, b"{}", host)
    assert found is not None
    assert 596 <= (found.retry_after or 0) <= 601


def test_credit_that_is_gone_is_that_whatever_the_status():
    failure = refused("anthropic_no_credit")
    assert (failure.status, failure.code, failure.push_back) == (402, "credit_gone", None)


@pytest.mark.parametrize("status", [201, 246])
def test_an_answer_that_was_created_or_that_a_guardrail_did_not_like_is_an_answer(status):
    form = FORMS["created_201"]

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(form["body"], status=status)

    async def scenario() -> Any:
        async with serving(answer) as url:
            return await ask(url, provider="openai")

    assert asyncio.run(scenario()).result["text"] == "fine"


def test_every_form_of_a_delay_is_read_and_the_longest_counts():
    told = {
        text: parse_retry_after(text) for text in ("90s", "90 s", "90 seconds", "30, 90", "4.300000190734863", "90x")
    }
    assert told == {
        "90s": 90,
        "90 s": 90,
        "90 seconds": 90,
        "30, 90": 90,
        "4.300000190734863": pytest.approx(4.3),
        "90x": None,
    }
    for unit in (1, 1000):
        assert parse_retry_after(str(round((time.time() + 40) * unit))) == pytest.approx(40, abs=2)
    assert told_delay({"Retry-After": "7", "retry-after-ms": "6500"}) == 6.5
    assert told_delay({"retry-after-ms": "soon", "Retry-After": "7"}) == 7
