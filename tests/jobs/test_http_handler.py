import asyncio
import gzip
import json
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from aiohttp import web
from pydantic import ValidationError

from jobs.classify import failure_of, is_retryable, with_push_back
from jobs.handlers.errors import ProviderError
from jobs.handlers.http import request as http
from jobs.handlers.http.connections import close, shared_client
from jobs.handlers.http.payload import HttpRequest
from jobs.handlers.registry import Done, RunningJob, find_handler
from queueops.core.outbound.client import CallNotes, call_notes
from queueops.core.values.retry_after import MAX_RETRY_AFTER_SECONDS, parse_retry_after
from tests.support.cases import every_case
from tests.support.http_server import canary, raw_server, serving

SECRET = "s3cret-of-the-tenant"


def job_of(**payload):
    payload = {"method": "GET", **payload}
    return RunningJob(
        id=UUID(int=1),
        payload=HttpRequest.model_validate(payload),
        project="demo",
        user_id=None,
        effect_key="effect-1",
        attempt=1,
        report=lambda percent, message: None,
    )


async def carry_out(**payload):
    return (await attempt(job_of(**payload))).result


async def attempt(job):
    return await cast("Awaitable[Done]", http.http_request(job))


def run(**payload):
    async def scenario():
        try:
            return await carry_out(**payload)
        finally:
            await close()

    return asyncio.run(scenario())


def run_against(answer, **payload):
    async def scenario():
        async with serving(answer) as url:
            try:
                return await carry_out(url=url + payload.pop("path", "/"), **payload)
            finally:
                await close()

    return asyncio.run(scenario())


def answering(**response):
    async def answer(request):
        return web.Response(**response)

    return answer


def test_a_row_is_written_and_read_back(sandbox):
    url = sandbox.row_url("s", "r1")
    written = run(method="PUT", url=url, json={"a": 1})
    assert (written["status"], written["body"]["value"], written["truncated"]) == (200, {"a": 1}, False)
    assert written["headers"]["content-type"].startswith("application/json")
    assert written["elapsed_ms"] >= 0
    assert run(url=url)["body"] == {"sheet": "s", "row": "r1", "value": {"a": 1}}
    assert sandbox.effects() == {"s/r1": 1}


def test_the_effect_key_reaches_the_provider_in_the_header_it_wants(sandbox):
    run(method="POST", url=f"{sandbox.url}/plain/echo", text="hello", idempotency_header="Idempotency-Key")
    assert sandbox.effects(by="effect_key") == {"effect-1": 1}


@every_case(
    ("payload", "idempotent"),
    [
        ({"method": "GET"}, True),
        ({"method": "HEAD"}, True),
        ({"method": "OPTIONS"}, True),
        ({"method": "PUT"}, True),
        ({"method": "DELETE"}, True),
        ({"method": "POST"}, False),
        ({"method": "PATCH"}, False),
        ({"method": "POST", "idempotency_header": "Idempotency-Key"}, True),
    ],
)
def test_whether_a_call_may_be_repeated_follows_from_its_method_or_key(payload, idempotent):
    request = HttpRequest.model_validate({"url": "https://api.example/", **payload})
    assert find_handler("http.request").is_repeatable(request) is idempotent


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500, 503])
def test_an_unexpected_status_is_an_answer_with_its_status(sandbox, status):
    with pytest.raises(ProviderError) as failed:
        run(url=f"{sandbox.url}/plain/status/{status}")
    error = failed.value
    assert (error.status, error.code, error.outcome) == (status, f"http_{status}", "answered")
    assert "GET" in error.message


def test_a_status_that_is_expected_is_a_result(sandbox):
    assert run(url=f"{sandbox.url}/plain/status/404", expected_statuses=["200-299", 404])["status"] == 404
    with pytest.raises(ProviderError):
        run(url=f"{sandbox.url}/plain/status/200", expected_statuses=[201])


def test_an_outage_leaves_the_outcome_unknown(sandbox):
    sandbox.turn(outage={"seconds": 600})
    with pytest.raises(ProviderError) as failed:
        run(method="PUT", url=sandbox.row_url("s", "r1"), json=1)
    assert (failed.value.status, failed.value.outcome, failed.value.code) == (
        None,
        "unknown",
        "connection_broken",
    )
    assert len(sandbox.calls()) == 1


def test_a_503_that_hides_a_write_is_told_as_the_provider_told_it(sandbox):
    sandbox.turn(apply_then_503_rate=1)
    with pytest.raises(ProviderError) as failed:
        run(method="PUT", url=sandbox.row_url("s", "r1"), json=1)
    assert (failed.value.status, failed.value.outcome) == (503, "answered")
    assert sandbox.effects() == {"s/r1": 1}


def test_a_429_page_is_quoted_and_its_retry_after_read(sandbox):
    sandbox.turn(error_rates={"429": 1}, html_429=True, retry_after="date", retry_after_seconds=30)
    with pytest.raises(ProviderError) as failed:
        run(url=f"{sandbox.url}/plain/status/200")
    assert failed.value.status == 429
    assert failed.value.retry_after is not None
    assert 0 < failed.value.retry_after <= 32
    assert "slow down" in failed.value.message


@pytest.mark.parametrize("style", ["garbage", "negative", "none"])
def test_a_retry_after_without_sense_is_ignored(sandbox, style):
    sandbox.turn(error_rates={"429": 1}, retry_after=style)
    with pytest.raises(ProviderError) as failed:
        run(url=f"{sandbox.url}/plain/status/200")
    assert failed.value.retry_after is None


@every_case(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("0", None),
        ("-1", None),
        ("1e9", None),
        ("inf", None),
        ("nan", None),
        ("9" * 400, None),
        ("\u0661", None),
        ("9999999999", MAX_RETRY_AFTER_SECONDS),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_SECONDS),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
        ("", None),
    ],
)
def test_retry_after_is_read_or_ignored(value, seconds):
    assert parse_retry_after(value) == seconds


def test_a_retry_after_date_counts_from_the_providers_clock():
    wrong_clock = datetime(2001, 1, 1, tzinfo=UTC)
    until = format_datetime(wrong_clock + timedelta(seconds=45), usegmt=True)
    assert parse_retry_after(until, date=format_datetime(wrong_clock, usegmt=True)) == 45.0


def test_nobody_listening_means_that_nothing_was_sent():
    async def scenario():
        async with serving(answering()) as url:
            pass
        try:
            await carry_out(method="POST", url=url, text="x")
        finally:
            await close()

    with pytest.raises(ProviderError) as failed:
        asyncio.run(scenario())
    assert (failed.value.status, failed.value.outcome, failed.value.code) == (
        None,
        "not_sent",
        "connect_failed",
    )


def test_a_forbidden_target_is_refused_when_the_job_runs(settings_without_loopback):
    request = HttpRequest.model_construct(method="GET", url="", headers={})

    async def scenario():
        async with canary() as bird:
            job = job_of(url="https://api.example/")
            job.payload = request.model_copy(
                update={
                    "url": f"http://127.0.0.1:{bird.port}/",
                    "timeout_seconds": 5.0,
                    "max_response_bytes": 10,
                }
            )
            with pytest.raises(ProviderError) as refused:
                await attempt(job)
            await close()
            return bird.connections, refused.value

    connections, error = asyncio.run(scenario())
    assert connections == 0
    assert (error.code, error.outcome) == ("target_refused", "refused")


def test_a_forbidden_target_is_refused_when_the_job_is_submitted(settings_without_loopback):
    with pytest.raises(
        ValidationError, match=r"not a public address\. In development QUEUEOPS_ALLOW_LOOPBACK_TARGETS=on"
    ):
        HttpRequest.model_validate({"method": "GET", "url": "http://127.0.0.1/"})
    with pytest.raises(ValidationError) as refused:
        HttpRequest.model_validate({"method": "GET", "url": "http://10.0.0.1/"})
    assert "QUEUEOPS" not in str(refused.value), "no setting lets it in"


def test_secrets_of_the_request_appear_in_no_result():
    async def answer(request):
        header = request.headers["Authorization"]
        return web.json_response(
            {"you sent": [header], header: 1, "x": request.headers["Cookie"]},
            headers={"X-Request-Id": header},
        )

    result = run_against(answer, headers={"Authorization": f"Bearer {SECRET}", "Cookie": f"a=1; id={SECRET}"})
    assert SECRET not in json.dumps(result)
    assert result["body"]["you sent"] == ["[masked]"]


@every_case("cut", [1_000_000, 30])
def test_secrets_of_the_request_appear_in_no_error(cut):
    async def answer(request):
        return web.Response(status=400, text="bad key: " + request.headers["X-Api-Key"] + " is unknown")

    with pytest.raises(ProviderError) as failed:
        run_against(answer, headers={"X-Api-Key": SECRET}, max_response_bytes=cut)
    error = failed.value
    assert SECRET[:8] not in error.message + json.dumps(error.details)


@every_case(
    ("body", "content_type", "kept"),
    [
        (b'{"a": [1.5, null]}', "application/json", {"a": [1.5, None]}),
        (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b"{broken", "application/json", "{broken"),
        (b"NaN", "application/json", "NaN"),
        (b"1e999", "application/json", "1e999"),
        (b'"\\u0000\\ud800"', "application/json", "\ufffd\ufffd"),
        (b"[" * 5_000 + b"]" * 5_000, "application/json", "[" * 5_000 + "]" * 5_000),
        (b"[" * 200 + b"]" * 200, "application/json", "[" * 200 + "]" * 200),
        (b"1" * 5_000, "application/json", "1" * 5_000),
        (b"a\x00b", "text/plain", "a\ufffdb"),
        ("ü".encode("latin-1"), "text/plain; charset=iso-8859-1", "ü"),
        (b"\xff", "text/plain", "\ufffd"),
        (b"plain", "text/plain; charset=no-such-charset", "plain"),
        (b"plain", "text/plain; charset=idna", "plain"),
        (b"plain", "text/plain; charset=zlib", "plain"),
        (b"", "application/json", ""),
    ],
)
def test_a_body_is_kept_as_json_or_as_text_that_the_database_takes(body, content_type, kept):
    async def answer(request):
        return web.Response(body=body, headers={"Content-Type": content_type})

    result = run_against(answer)
    assert result["body"] == kept
    json.dumps(result, allow_nan=False).encode()


def test_a_long_body_is_cut_and_says_so():
    result = run_against(answering(text="x" * 100), max_response_bytes=10)
    assert (result["body"], result["truncated"]) == ("x" * 10, True)


def test_a_compressed_body_is_read_and_capped_by_its_decompressed_size():
    bomb = gzip.compress(b"y" * 1_000_000)
    result = run_against(answering(body=bomb, headers={"Content-Encoding": "gzip"}), max_response_bytes=1_000)
    assert (result["body"], result["truncated"]) == ("y" * 1_000, True)


def test_only_harmless_headers_of_the_answer_are_kept():
    headers = {"Set-Cookie": "session=1", "X-RateLimit-Remaining": "4", "ETag": "e", "X-Internal": "1"}
    kept = run_against(answering(headers=headers))["headers"]
    assert (kept["x-ratelimit-remaining"], kept["etag"]) == ("4", "e")
    assert not {"set-cookie", "x-internal", "server"} & set(kept)


def test_an_answer_that_comes_too_late_leaves_the_outcome_unknown():
    async def scenario():
        async with raw_server(b"", stay_open=True) as (url, _):
            try:
                await carry_out(url=url, timeout_seconds=0.2)
            finally:
                await close()

    with pytest.raises(ProviderError) as failed:
        asyncio.run(scenario())
    assert (failed.value.code, failed.value.outcome) == ("timeout", "unknown")


def test_redirects_are_followed_only_on_request():
    async def answer(request):
        if request.path == "/new":
            return web.Response(text="moved here")
        return web.Response(status=302, headers={"Location": "/new"})

    assert run_against(answer, follow_redirects=True)["body"] == "moved here"
    assert run_against(answer, expected_statuses=[302])["headers"]["location"] == "/new"


def test_calls_of_one_loop_share_a_client_and_closing_forgets_it():
    async def scenario():
        async with serving(answering(text="ok")) as url:
            await carry_out(url=url)
            first = shared_client()
            await carry_out(url=url)
            assert shared_client() is first
            await close()
            await close()
            await carry_out(url=url)
            assert shared_client() is not first
            await close()

    asyncio.run(scenario())


@every_case(
    ("payload", "message"),
    [
        ({"url": None}, "valid string"),
        ({"method": "get"}, "'GET'"),
        ({"method": "TRACE"}, "'GET'"),
        ({"colour": "red"}, "Extra inputs"),
        ({"url": "ftp://api.example/"}, "Only http and https"),
        ({"url": "http://10.0.0.1/"}, "not a public address"),
        ({"url": "http://127.1/"}, "usual form"),
        ({"url": "http://user:pw@api.example/"}, "credentials"),
        ({"headers": {"Host": "other.example"}}, "set by QueueOps"),
        ({"headers": {"transfer-encoding": "chunked"}}, "set by QueueOps"),
        ({"headers": {"Connection": "close"}}, "set by QueueOps"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "control character"),
        ({"headers": {"X A": "1"}}, "not a header name"),
        ({"headers": {"X-A": 1}}, "valid string"),
        ({"headers": {f"X-{n}": "" for n in range(51)}}, "at most 50"),
        ({"headers": {"X-A": "x" * 20_000}}, "characters of headers"),
        ({"method": "POST", "text": "a", "json": {}}, "not both"),
        ({"text": "a"}, "has no body"),
        ({"method": "POST", "text": "\ud800"}, "surrogates not allowed"),
        ({"method": "POST", "json": float("nan")}, "not JSON compliant"),
        ({"expected_statuses": []}, "at least 1"),
        ({"expected_statuses": ["2xx"]}, "no range"),
        ({"expected_statuses": ["299-200"]}, "no range"),
        ({"expected_statuses": [99]}, "greater than or equal to 100"),
        ({"max_response_bytes": 5_000_001}, "less than or equal to 5000000"),
        ({"max_response_bytes": "1"}, "valid integer"),
        ({"timeout_seconds": 56}, "less than or equal to 55"),
        ({"timeout_seconds": 0}, "greater than 0"),
        ({"idempotency_header": "Host"}, "set by QueueOps"),
        ({"idempotency_header": "a b"}, "not a header name"),
        ({"idempotency_header": "X-Key", "headers": {"x-key": "1"}}, "idempotency_header"),
    ],
)
def test_a_wrong_payload_is_refused_with_a_reason(payload, message):
    with pytest.raises(ValidationError) as refused:
        HttpRequest.model_validate({"method": "GET", "url": "https://api.example/", **payload})
    assert message in str(refused.value)


@every_case("by_alias", [True, False])
def test_a_payload_survives_being_stored(by_alias):
    payload = {"method": "POST", "url": "https://api.example/", "json": {"a": None}}
    request = HttpRequest.model_validate(payload)
    stored = json.loads(json.dumps(request.model_dump(mode="json", by_alias=by_alias)))
    assert HttpRequest.model_validate(stored) == request


def test_the_guide_names_every_field():
    guide = (Path(__file__).parents[2] / "docs/how-to/http-request.md").read_text()
    names = {field.alias or name for name, field in HttpRequest.model_fields.items()}
    assert {name for name in names if f"`{name}`" not in guide} == set()


@pytest.fixture
def settings_without_loopback(settings):
    settings.QUEUEOPS = _Without(settings.QUEUEOPS)


class _Without:
    """The settings with the development permission off."""

    allow_loopback_targets = False

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


def refusal_of(body, status=200, **headers):
    async def answer(request):
        return web.json_response(body, status=status, headers=headers)

    notes = CallNotes()
    token = call_notes.set(notes)
    try:
        with pytest.raises(ProviderError) as failed:
            run_against(answer, method="POST", json={"query": "x"})
    finally:
        call_notes.reset(token)
    return with_push_back(failure_of(failed.value), notes.refusal)


SHOPIFY: dict[str, Any] = {
    "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
    "extensions": {
        "cost": {"requestedQueryCost": 202, "throttleStatus": {"currentlyAvailable": 118, "restoreRate": 50.0}}
    },
}


@every_case(
    ("body", "wait"),
    [
        (SHOPIFY, 1.68),
        ({**SHOPIFY, "data": None, "extensions": {"cost": {"throttleStatus": {"restoreRate": 0}}}}, None),
        ({"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded for user ID 1."}]}, None),
        ({"errors": [{"message": "x", "extensions": {"code": "RATELIMITED", "retry_in_seconds": 12}}]}, 12),
        ({"errors": [{"message": "Too many requests", "extensions": {"code": "429"}}]}, None),
        ({"ok": False, "error": "ratelimited"}, None),
    ],
)
def test_a_success_that_says_that_a_quota_was_full_is_no_success(body, wait):
    found = refusal_of(body)
    assert (found.status, found.code) == (429, "throttled")
    assert found.push_back.retry_after == (wait and pytest.approx(wait))


@every_case(
    "body",
    [
        {**SHOPIFY, "data": {"shop": {"name": "x"}}},
        {"errors": [{"message": "Throttled"}]},
        {"errors": [SHOPIFY["errors"][0], {"message": "Field 'x' does not exist"}]},
        {"status": "throttled", "id": 7},
        {"ok": True, "error": "ratelimited"},
        {"ok": False, "error": "channel_not_found"},
        {"errors": [{"code": "THROTTLED", "message": "x" * 20_000}]},
    ],
)
def test_a_success_that_only_speaks_of_a_quota_is_one(body):
    async def answer(request):
        return web.json_response(body)

    assert run_against(answer, method="POST", json={})["status"] == 200


@every_case(
    ("status", "body"),
    [
        (403, [{"message": "TotalRequests Limit exceeded.", "errorCode": "REQUEST_LIMIT_EXCEEDED"}]),
        (403, {"message": "You have triggered an abuse detection mechanism."}),
        (403, {"error": {"message": "Daily Limit Exceeded", "errors": [{"reason": "dailyLimitExceeded"}]}}),
        (403, {"error": {"message": 'you have exceeded your <a href="/youtube/v3">quota</a>.'}}),
        (403, {"error": {"message": "(#4) Application request limit reached", "code": 4}}),
        (400, {"error": {"message": "(#4) Application request limit reached", "code": 4}}),
        (400, {"__type": "com.amazon.coral.availability#ThrottlingException", "message": "Rate exceeded"}),
        (400, {"errors": [{"message": "x", "extensions": {"code": "RATELIMITED"}}]}),
        (420, {"error": "Enhance Your Calm"}),
    ],
)
def test_a_quota_is_one_whatever_status_an_api_has_for_it(status, body):
    assert refusal_of(body, status).push_back is not None


@every_case(
    ("status", "body"),
    [
        (403, {"error": {"message": "The user's Drive storage quota has been exceeded."}}),
        (403, {"error": {"message": "Forbidden", "errors": [{"reason": "dailyLimitExceededUnreg"}]}}),
        (400, {"error": {"message": "name: 'rate limit exceeded' is taken", "type": "invalid_request_error"}}),
        (400, {"error": {"message": "(#100) Invalid parameter", "code": 100}}),
    ],
)
def test_what_only_sounds_like_a_quota_ends_the_job(status, body):
    found = refusal_of(body, status)
    assert found.push_back is None
    assert not is_retryable(found, repeatable=True)


@every_case(("status", "told", "again"), [(409, "true", True), (500, "false", False), (449, None, True)])
def test_an_api_that_says_whether_to_ask_again_is_obeyed(status, told, again):
    found = refusal_of({}, status, **({"Stripe-Should-Retry": told} if told else {}))
    assert is_retryable(found, repeatable=True) is again
    assert not is_retryable(found, repeatable=False)
