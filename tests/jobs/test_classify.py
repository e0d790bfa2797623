"""What a failed attempt means."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from multidict import CIMultiDict, CIMultiDictProxy

from jobs.classify import (
    DEFAULT_REMEDY,
    MAX_MESSAGE,
    OUTAGE_REMEDY,
    REMEDIES,
    REMEDIES_BY_CODE,
    Failure,
    clean,
    failure_of,
    fingerprint,
    is_outage,
    is_retryable,
    with_push_back,
)
from jobs.handlers.errors import ProviderError, asks_again
from jobs.handlers.registry import UnknownKind
from queueops.core.outbound.client import OutboundResponse
from ratelimits.feedback import PushBack
from tests.support.cases import every_case


def failure(status: int | None = None, *, outcome="answered", code="x") -> Failure:
    return Failure(code=code, error_class="E", message="m", outcome=outcome, status=status)


@every_case(
    ("given", "when_repeatable", "when_not"),
    [
        (failure(429), True, True),
        (failure(408), True, False),
        (failure(425), True, False),
        (failure(500), True, False),
        (failure(502), True, False),
        (failure(503), True, False),
        (failure(599), True, False),
        (failure(400), False, False),
        (failure(401), False, False),
        (failure(403), False, False),
        (failure(404), False, False),
        (failure(409), False, False),
        (failure(302), False, False),
        (failure(200), False, False),
        (failure(outcome="not_sent", code="connect_failed"), True, True),
        (failure(outcome="unknown", code="broken"), True, False),
        (failure(outcome="unknown", code="timeout"), True, False),
        (failure(outcome="unknown", code="handler_error"), True, False),
        (failure(outcome="unknown", code="result_not_json"), False, False),
        (failure(outcome="unknown", code="invalid_payload"), False, False),
        (failure(outcome="refused", code="target_refused"), False, False),
        (failure(429, outcome="refused"), False, False),
        (failure(503, outcome="unknown"), True, False),
    ],
)
def test_a_failure_is_retried_where_it_may_help_and_can_do_no_harm(given, when_repeatable, when_not):
    assert is_retryable(given, repeatable=True) is when_repeatable
    assert is_retryable(given, repeatable=False) is when_not


@every_case("status", [408, 409, 500, 503])
def test_an_answer_that_says_itself_whether_to_retry_is_obeyed(status):
    def answered(text: str) -> Failure:
        response = OutboundResponse(
            status, CIMultiDictProxy(CIMultiDict({"X-Should-Retry": text})), b"", is_truncated=False, charset=None
        )
        error = ProviderError(status, "m", code="x", outcome="answered", details=asks_again(response))
        return failure_of(error)

    said = {text: is_retryable(answered(text), repeatable=True) for text in ("true", "False", "maybe")}
    assert said == {"true": True, "False": False, "maybe": is_retryable(failure(status), repeatable=True)}
    assert not is_retryable(answered("true"), repeatable=False)
    assert is_outage(answered("false")) == (status >= 500)


def test_of_all_answers_only_a_429_lets_work_that_may_not_be_repeated_run_again():
    assert [status for status in range(100, 600) if is_retryable(failure(status), repeatable=False)] == [429]


@every_case(
    ("given", "outage"),
    [
        (failure(500), True),
        (failure(503), True),
        (failure(429), False),
        (failure(408), False),
        (failure(404), False),
        (failure(outcome="not_sent", code="connect_failed"), True),
        (failure(outcome="not_sent", code="unknown_kind"), False),
        (failure(outcome="unknown", code="timeout"), True),
        (failure(outcome="unknown", code="connection_broken"), True),
        (failure(outcome="unknown", code="handler_error"), False),
        (failure(outcome="refused"), False),
    ],
)
def test_only_a_service_that_does_not_answer_or_breaks_speaks_for_an_outage(given, outage):
    assert is_outage(given) is outage


@every_case("status", [400, 403, 404, 429])
def test_the_specified_statuses_have_their_own_remedy(status):
    assert failure(status).remedy == REMEDIES[status] != DEFAULT_REMEDY


def test_the_operator_is_told_what_to_do():
    assert failure(503).remedy == OUTAGE_REMEDY
    assert failure(outcome="unknown", code="timeout").remedy == REMEDIES_BY_CODE["timeout"]
    assert failure(409).remedy == DEFAULT_REMEDY
    # The status says more than the code.
    assert failure(404, code="timeout").remedy == REMEDIES[404]


def test_what_a_handler_raises_is_described():
    error = ProviderError(
        429, "slow\0 down", code="too_fast", retry_after=7, outcome="answered", details={"exception_class": "a.B"}
    )
    assert failure_of(error) == Failure(
        "too_fast", "a.B", "slow\N{REPLACEMENT CHARACTER} down", "answered", 429, 7, {"exception_class": "a.B"}
    )
    endless = ProviderError(
        400, "no", code="no", outcome="answered", details={"score": float("nan"), "limits": [float("-inf"), 2.5]}
    )
    assert failure_of(endless).details == {"score": "NaN", "limits": ["-Infinity", 2.5]}
    assert failure_of(UnknownKind("gone")).code == "unknown_kind"
    assert failure_of(UnknownKind("gone")).outcome == "not_sent"
    assert failure_of(KeyError("x")) == Failure("handler_error", "builtins.KeyError", "KeyError: 'x'")


@every_case("text", ["a\0b", "lone \udc80 surrogate", "x" * 5000])
def test_a_message_can_be_stored(text):
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert len(cleaned.encode()) <= MAX_MESSAGE


@every_case(
    ("one", "other"),
    [
        ("row 17 of sheet 'Q1' is locked", "row 4711 of sheet 'Q2' is locked"),
        ("no such id 0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", "no such id 0190ffff-c3d4-7e5f-8a9b-0c1d2e3f4a5c"),
        ("Timeout after 3.2 s", "timeout after 44.01 s"),
        ('"a" is not "b"', '"c" is not ""'),
    ],
)
def test_failures_with_one_cause_have_one_fingerprint(one, other):
    first, second = (replace(failure(), message=message) for message in (one, other))
    assert fingerprint("k", first) == fingerprint("k", second)


def test_failures_with_different_causes_have_different_fingerprints():
    base = failure()
    others = [
        fingerprint("k", base),
        fingerprint("other.kind", base),
        fingerprint("k", replace(base, code="y")),
        fingerprint("k", replace(base, error_class="F")),
        fingerprint("k", replace(base, message="another")),
    ]
    assert len(set(others)) == len(others)


@every_case(
    ("asked", "kept"),
    [(7, 7), (0, 0), (-1, None), (float("nan"), None), (float("inf"), 604800), (1e18, 604800), (None, None)],
)
def test_only_a_time_that_can_be_stored_is_waited_for(asked, kept):
    error = ProviderError(429, "slow down", code="x" * 90, retry_after=asked, outcome="answered")
    assert failure_of(error).retry_after == kept
    assert failure_of(error).code == "x" * 64


def answered(status: int, body: bytes = b"", **headers: str) -> OutboundResponse:
    proxy = CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}))
    return OutboundResponse(status, proxy, body, is_truncated=False, charset=None)


def test_a_429_of_any_handler_is_read_from_its_answer():
    told = answered(429, RateLimit='"a";r=0;t=9', RateLimit_Policy='"a";q=60;w=60')
    found = with_push_back(failure(429), told).push_back
    assert found is not None
    assert (found.retry_after, [one.stated_cap for one in found.violations]) == (9, [60])
    assert with_push_back(replace(failure(429), retry_after=7), answered(429)).push_back == PushBack(retry_after=7)
    assert with_push_back(replace(failure(429), retry_after=7), None).push_back == PushBack(retry_after=7)


def test_what_is_no_quota_is_no_push_back():
    assert with_push_back(failure(503), answered(429)).push_back is None
    assert with_push_back(failure(429), answered(429, b'{"error": {"code": "insufficient_quota"}}')).push_back is None
    own = PushBack(retry_after=3)
    assert with_push_back(replace(failure(429), push_back=own), answered(429)).push_back is own


def test_the_429_that_a_client_library_raises_is_a_refusal():
    class HTTPStatusError(Exception):
        response = SimpleNamespace(status_code=429, headers={"retry-after": "4"})

    found = failure_of(HTTPStatusError("429 Too Many Requests"))
    assert (found.code, found.status, found.push_back) == ("http_429", 429, PushBack(retry_after=4))
