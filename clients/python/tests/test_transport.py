"""What is sent, when again, and what answers mean; blocking and asynchronous alike."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from queueops_client import errors
from queueops_client.exchange import Received, answer_of, request_of, retry_after_of
from queueops_client.retry import NEVER, Retry
from queueops_client.transport import AsyncTransport, Transport, base_url_of
from stand_in import refusal

KEY = "qo_key"
QUICK = Retry(base_seconds=0.01, cap_seconds=0.05, budget_seconds=10)


class Both:
    """Asks by either transport."""

    def __init__(self, kind: str) -> None:
        self.is_async = kind == "async"

    def request(self, url, *arguments, retry=QUICK, token=KEY, **options):
        if not self.is_async:
            with Transport(url, token, retry=retry) as transport:
                return transport.request(*arguments, **options)

        async def ask():
            async with AsyncTransport(url, token, retry=retry) as transport:
                return await transport.request(*arguments, **options)

        return asyncio.run(ask())


@pytest.fixture(params=["blocking", "async"])
def client(request):
    return Both(request.param)


def test_a_request_carries_the_key_and_an_answer_its_json(server, client):
    server.will_reply(body={"a": [1]}, headers={"Retry-After": "3"})
    answer = client.request(server.url, "GET", "/api/v1/jobs/", params={"state": ["failed", "queued"], "open": True})
    assert (answer.status, answer.body, answer.retry_after) == (200, {"a": [1]}, 3.0)
    [asked] = server.asked
    assert asked.headers["authorization"] == "Bearer qo_key"
    assert asked.query == {"state": "failed,queued", "open": "true"}


def test_a_token_is_asked_for_before_each_attempt(server, client):
    tokens = iter(["first", "second"])
    server.will_refuse(503, "database_unavailable")
    client.request(server.url, "GET", "/", token=lambda: next(tokens))
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer first", "Bearer second"]


def test_an_asynchronous_token_is_awaited(server):
    async def token() -> str:
        return "later"

    Both("async").request(server.url, "GET", "/", token=token)
    assert server.asked[0].headers["authorization"] == "Bearer later"


def test_what_is_safe_is_sent_again_and_what_is_not_is_not(server, client):
    for refused in (502, 503, 504):
        server.will_refuse(refused, "away", times=2)
        assert client.request(server.url, "GET", "/").status == 200
        server.will_refuse(refused, "away", times=2)
        assert client.request(server.url, "POST", "/", json={"a": 1}, headers={"Idempotency-Key": "k"}).status == 200
        assert [(asked.headers["idempotency-key"], asked.json) for asked in server.asked[-3:]] == [("k", {"a": 1})] * 3
        server.will_refuse(refused, "away")
        with pytest.raises(errors.ServerError) as raised:
            client.request(server.url, "POST", "/", json={})
        assert raised.value.status == refused
        server.will_refuse(refused, "away")
        assert client.request(server.url, "POST", "/", json={}, is_safe=True).status == 200


def test_a_throttled_request_is_always_sent_again_but_not_before_retry_after(server, client):
    server.will_refuse(429, "throttled", retry_after="1")
    began = time.monotonic()
    assert client.request(server.url, "POST", "/", json={}).status == 200
    assert time.monotonic() - began >= 1.0


def test_a_retry_after_beyond_the_budget_is_the_callers_matter(server, client):
    server.will_refuse(429, "queue_full", retry_after="30", details={"limit": 5})
    began = time.monotonic()
    with pytest.raises(errors.QueueFull) as raised:
        client.request(server.url, "POST", "/", json={})
    assert time.monotonic() - began < 30, "it waited"
    assert (raised.value.retry_after, raised.value.details) == (30.0, {"limit": 5})
    assert len(server.asked) == 1


def test_a_bug_of_the_server_is_not_asked_for_twice(server, client):
    server.will_refuse(500, "internal_error")
    with pytest.raises(errors.ServerError):
        client.request(server.url, "GET", "/")
    assert len(server.asked) == 1


def test_a_lost_answer_is_asked_for_again_where_that_is_safe(server, client):
    server.will_reply(cut=True)
    assert client.request(server.url, "GET", "/").status == 200
    server.will_reply(cut=True)
    with pytest.raises(errors.Unreachable) as raised:
        client.request(server.url, "POST", "/", json={})
    assert raised.value.may_have_arrived
    assert raised.value.idempotency_key is None


def test_an_unreachable_server_names_the_key_to_try_again_with(client):
    with socket.socket() as held:  # bound and not listening: refused
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(errors.Unreachable) as raised:
            client.request(url, "POST", "/?", json={}, headers={"Idempotency-Key": "mine"}, retry=NEVER)
    assert (raised.value.idempotency_key, raised.value.may_have_arrived) == ("mine", False)


def test_what_never_arrived_is_sent_again_though_repeating_it_would_not_be_safe(server, client):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        began, heard = time.monotonic(), []
        patient = Retry(
            base_seconds=0.2,
            cap_seconds=0.2,
            budget_seconds=1,
            draw=lambda: 1.0,
            told=lambda error, repeat: heard.append((type(error), repeat)),
        )
        with pytest.raises(errors.Unreachable):
            client.request(url, "POST", "/", json={}, retry=patient)
        assert time.monotonic() - began > 0.7
    assert heard
    assert heard == [(errors.Unreachable, repeat) for repeat in range(1, len(heard) + 1)]


def test_a_server_that_does_not_answer_is_given_up_after_the_timeout(client):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.Unreachable):
            client.request(url, "GET", "/", timeout=0.2, retry=NEVER)


def test_connections_are_kept(server):
    with Transport(server.url) as transport:
        for _ in range(5):
            transport.request("GET", "/")
    assert len({asked.connection for asked in server.asked}) == 1


def test_threads_share_a_transport(server):
    with Transport(server.url) as transport:
        threads = [threading.Thread(target=transport.request, args=("GET", f"/{n}")) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {asked.path for asked in server.asked} == {f"/{n}" for n in range(20)}


def test_an_error_has_the_type_of_its_family():
    families = {
        (400, "malformed_json"): errors.InvalidRequest,
        (401, "invalid_key"): errors.NotAuthenticated,
        (403, "missing_scope"): errors.NotAllowed,
        (404, "not_found"): errors.NotFound,
        (409, "wrong_state"): errors.Conflict,
        (409, "quota_exceeded"): errors.QuotaExceeded,
        (413, "too_many_jobs"): errors.TooManyJobs,
        (422, "batch_rejected"): errors.BatchRejected,
        (422, "idempotency_key_reused"): errors.IdempotencyKeyReused,
        (429, "throttled"): errors.TooManyRequests,
        (503, "database_unavailable"): errors.ServerError,
        (418, "something_new"): errors.InvalidRequest,
    }
    told = {}
    for status, code in families:
        said = refusal(status, code, fields={"payload.url": ["missing"]}, details={"n": 1}).body
        with pytest.raises(errors.ApiError) as raised:
            answer_of(Received(status, {}, json.dumps(said).encode()))
        error = raised.value
        told[error.status, error.code] = type(error)
        assert (error.fields, error.details) == ({"payload.url": ["missing"]}, {"n": 1})
        assert "payload.url: missing" in str(error)
    assert told == families


HTML = {"Content-Type": "text/html"}


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (502, b"<html>Bad  Gateway</html>", HTML, "<html>Bad Gateway</html>"),
        (200, b"<html>a login page</html>", HTML, "not an answer of QueueOps"),
        (301, b"", {"Location": "https://queue.example.org/"}, "redirects to https://queue.example.org/"),
        (400, {"detail": "another API"}, {}, "not an answer of QueueOps"),
        (400, {"error": "another API"}, {}, "http_400"),
    ],
)
def test_what_is_not_an_answer_of_ours_is_said_to_be_none(server, status, body, headers, words):  # noqa: PLR0917
    server.will_reply(status, body, headers=headers)
    with pytest.raises(errors.ApiError, match=words) as raised:
        Both("blocking").request(server.url, "GET", "/", retry=NEVER)
    assert raised.value.code == f"http_{status}"


def test_an_answer_without_a_body_is_none():
    assert answer_of(Received(204, {}, b"")).body is None


def test_retry_after_is_read_as_seconds():
    seconds = {"7": 7.0, "0.5": 0.5, "-3": 0.0, "": None, "soon": None, "nan": None, "inf": None}
    seconds["Wed, 21 Oct 2027 07:28:00 +99999999999999"] = None
    assert {text: retry_after_of({"retry-after": text}) for text in seconds} == seconds


def test_retry_after_may_be_a_date():
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < (retry_after_of({"retry-after": moment}) or 0) <= 60


def test_backoff_is_full_jitter_below_a_truncated_exponential():
    highest = Retry(base_seconds=0.25, cap_seconds=20, draw=lambda: 1.0)
    assert [highest.backoff_seconds(n) for n in (1, 2, 3, 7, 8, 1_000_000)] == [0.25, 0.5, 1.0, 16.0, 20.0, 20.0]
    assert Retry(draw=lambda: 0.0).backoff_seconds(5) == 0.0
    drawn = [Retry().backoff_seconds(4) for _ in range(200)]
    assert max(drawn) <= 2.0
    assert len(set(drawn)) > 190
    assert min(drawn) < 0.4


def test_nothing_is_repeated_beyond_the_budget():
    away = errors.Unreachable("away")
    retry = Retry(budget_seconds=10, base_seconds=4, draw=lambda: 1.0)
    assert retry.pause_seconds(away, repeat=1, elapsed=6, is_safe=True) == 4
    assert retry.pause_seconds(away, repeat=1, elapsed=6.1, is_safe=True) is None
    assert NEVER.pause_seconds(away, repeat=1, elapsed=0.001, is_safe=True) is None


def test_an_address_is_taken_with_and_without_the_apis_path():
    kept = {
        "https://queue.example.org": "https://queue.example.org",
        " https://queue.example.org/ ": "https://queue.example.org",
        "http://127.0.0.1:8000/api/v1/": "http://127.0.0.1:8000",
        "https://example.org/queue/api/v1": "https://example.org/queue",
    }
    assert {given: base_url_of(given) for given in kept} == kept


def test_what_is_no_address_is_refused():
    for given in (
        "",
        "queue.example.org",
        "ftp://x",
        "https://",
        "https://u:pw@host",
        "https://h/?a=1",
        "http://[",
        "//h",
    ):
        with pytest.raises(errors.BadConfiguration):
            pytest.fail(f"{given!r} was taken for {base_url_of(given)}")


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(server, client):
    for token in ("qo_\n", "schlüssel", "a\r\nX-Evil: 1"):
        with pytest.raises(errors.BadConfiguration) as raised:
            client.request(server.url, "GET", "/", token=token)
        assert token not in str(raised.value)
    assert not server.asked


def test_no_representation_shows_the_key():
    assert "secret" not in repr(Transport("http://h", "qo_secret"))


def test_numbers_that_json_has_no_form_for_are_refused_before_anything_is_sent():
    with pytest.raises(ValueError, match="JSON"):
        request_of("POST", "/", json={"a": float("nan")})


def test_an_empty_filter_is_sent_for_the_server_to_refuse():
    assert request_of("GET", "/", params={"user": "", "state": None}).params == {"user": ""}


def test_a_request_tells_of_the_programs_current_span(server, client):
    trace = pytest.importorskip("opentelemetry.trace")
    span = trace.NonRecordingSpan(trace.SpanContext(0x1F, 0x2E, is_remote=False, trace_flags=trace.TraceFlags(1)))
    with trace.use_span(span):
        client.request(server.url, "GET", "/api/v1/jobs/")
    client.request(server.url, "GET", "/api/v1/jobs/")
    within, without = server.asked
    assert within.headers["traceparent"] == f"00-{0x1F:032x}-{0x2E:016x}-01"
    assert "traceparent" not in without.headers
