"""Reading refusals: recorded forms, the sandbox's over real HTTP, and whatever else may come."""

import json
import re
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.handlers.google.refusals import parse_google
from jobs.handlers.llm.anthropic import parse_anthropic
from jobs.handlers.llm.openai import parse_openai
from jobs.handlers.refusals import parse_refusal
from queueops.core.values.retry_after import MAX_RETRY_AFTER_SECONDS
from ratelimits.feedback import MAX_CAP, MAX_QUOTA_NAME, MAX_VIOLATIONS, PushBack, Violation
from ratelimits.quota_names import QuotaName, read_quota_name, read_unit
from tests.sandbox.providers import SheetsClient, ask, complete, generate
from tests.support.cases import every_case

LONG = {"window_seconds": 3600, "window_mode": "sliding"}
SHEETS_MESSAGE = (
    "Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute per user' of service "
    "'sheets.googleapis.com' for consumer 'project_number:7'."
)


def google_body(message="", *details):
    error = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}
    return json.dumps({"error": {**error, "details": list(details)} if details else error}).encode()


def error_info(**metadata):
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED", "metadata": metadata}


def quota_failure(*violations):
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": list(violations)}


def retry_info(delay):
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def google(body, **headers):
    found = parse_google(429, headers, body)
    assert found is not None
    return found


@every_case(("name", "read"), [
    ("WriteRequestsPerMinutePerUser", QuotaName("user", "requests", "write", "minute")),
    ("ReadRequestsPerMinutePerProject", QuotaName("project", "requests", "read", "minute")),
    ("Write requests per minute", QuotaName("project", "requests", "write", "minute")),
    ("Read requests per minute per user", QuotaName("user", "requests", "read", "minute")),
    ("sheets.googleapis.com/write_requests", QuotaName("", "requests", "write", "")),
    ("1/min/{project}/{user}", QuotaName("project_user", "", "", "minute")),
    ("1/d/{project}", QuotaName("project", "", "", "day")),
    ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", QuotaName("project", "requests", "", "minute")),
    ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", QuotaName("project", "requests", "", "day")),
    ("GenerateContentInputTokensPerModelPerMinute-FreeTier", QuotaName("project", "input_tokens", "", "minute")),
    ("GenerateContentPaidTierInputTokensPerModelPerMinute", QuotaName("project", "input_tokens", "", "minute")),
    ("generate_content_free_tier_input_token_count", QuotaName("", "input_tokens", "", "")),
    ("tokens per min (TPM)", QuotaName("project", "tokens", "", "minute")),
    ("requests per day (RPD)", QuotaName("project", "requests", "", "day")),
    ("RequestsPer100SecondsPerUser", QuotaName("user", "requests", "", "other")),
    ("rewrites of spreadsheets", QuotaName()), ("", QuotaName()),
])  # fmt: skip
def test_a_quotas_name_says_whom_and_what_it_counts(name, read):
    assert read_quota_name(name) == read


FULL = {
    "quota_metric": "sheets.googleapis.com/write_requests",
    "quota_limit": "WriteRequestsPerMinutePerUser",
    "quota_limit_value": "60",
    "quota_unit": "1/min/{project}/{user}",
}


def of_a_user(name, cap=None):
    return Violation(name, "user", "requests", "write", stated_cap=cap)


@every_case(
    ("message", "metadata", "violation"),
    [
        (SHEETS_MESSAGE, FULL, of_a_user("WriteRequestsPerMinutePerUser", 60)),
        ("", FULL, of_a_user("WriteRequestsPerMinutePerUser", 60)),
        (SHEETS_MESSAGE, {}, of_a_user("Write requests per minute per user")),
        (
            SHEETS_MESSAGE,
            {"quota_metric": FULL["quota_metric"], "quota_limit_value": "60"},
            of_a_user("Write requests per minute per user", 60),
        ),
        (
            "",
            {"quota_metric": FULL["quota_metric"], "quota_unit": FULL["quota_unit"], "quota_limit_value": 60},
            Violation(FULL["quota_metric"], "project_user", "requests", "write", stated_cap=60),
        ),
        (
            "",  # of which period the 60 are is not said
            {"quota_metric": FULL["quota_metric"], "quota_limit_value": "60"},
            Violation(FULL["quota_metric"], "", "requests", "write"),
        ),
        (
            "",
            {"quota_limit": "ReadRequestsPer100SecondsPerUser", "quota_limit_value": "100"},
            Violation("ReadRequestsPer100SecondsPerUser", "user", "requests", "read"),
        ),
    ],
)
def test_error_info_may_lack_any_key(message, metadata, violation):
    details = [error_info(**metadata)] if metadata else []
    assert google(google_body(message, *details)) == PushBack((violation,))


@every_case("body", [
    b"", b"<html><title>429 Too Many Requests</title></html>", b"[]", b"null", b"{}", b'{"error": "slow down"}',
    b'{"error": {"message": "Resource has been exhausted (e.g. check quota)."}}',
    b'{"error": {"details": [{"metadata": {"service": "sheets.googleapis.com"}}, 7, null]}}', b"[" * 100_000,
    b"\xff\xfe", b'{"error": {"message": "' + b"x" * 1_000_000 + b'"}}',
])  # fmt: skip
def test_a_refusal_that_names_no_quota_is_one_still(body):
    assert google(body) == PushBack()


def test_retry_after_is_read_beside_any_body():
    assert google(b"<html>", **{"Retry-After": "30"}).retry_after == 30
    assert google(b"<html>", **{"retry-after": "soon"}).retry_after is None
    now = formatdate(1_000_000_000, usegmt=True)
    then = formatdate(1_000_000_090, usegmt=True)
    assert google(b"", **{"RETRY-AFTER": then, "Date": now}).retry_after == 90


@every_case(("delay", "seconds"), [
    ("26s", 26), ("45.837906927s", 45.837906927), ("0.5s", 0.5), ("0s", None), ("-5s", None), ("26", None),
    ("26.s", None), ("1.0000000001s", None), (26, None), (None, None), ({"seconds": 26}, None),
    ("1000000000s", MAX_RETRY_AFTER_SECONDS), ("999999999999999999999s", MAX_RETRY_AFTER_SECONDS),
    ("9" * 400 + "s", None),
])  # fmt: skip
def test_a_retry_delay_is_a_string_of_seconds_and_bounded(delay, seconds):
    assert google(google_body("", retry_info(delay))).retry_after == seconds


PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
TOKENS = "GenerateContentInputTokensPerModelPerMinute-FreeTier"


def entry(quota_id, **fields):
    dimensions = {"location": "global", "model": "gemini-2.5-flash"}
    return {"quotaMetric": "g/generate_content", "quotaId": quota_id, "quotaDimensions": dimensions, **fields}


@every_case("backwards", [False, True])
def test_violations_that_share_a_short_delay_are_told_apart(backwards):
    details = [
        {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"url": "https://x/"}]},
        quota_failure(entry(TOKENS), entry(PER_DAY, quotaValue="50"), entry(PER_MINUTE, quotaValue="15")),
        retry_info("7.5s"),
    ]
    found = google(google_body("You exceeded your current quota.", *(reversed(details) if backwards else details)))
    assert found.retry_after == 7.5
    assert [(one.name, one.unit, one.per_day, one.stated_cap, one.model) for one in found.violations] == [
        (TOKENS, "input_tokens", False, None, "gemini-2.5-flash"),
        (PER_DAY, "requests", True, 50, "gemini-2.5-flash"),
        (PER_MINUTE, "requests", False, 15, "gemini-2.5-flash"),
    ]


def test_a_streams_refusal_is_an_array():
    body = b"[" + google_body("", quota_failure(entry(PER_DAY)), retry_info("3s")) + b"]"
    assert google(body) == google(body[1:-1])
    assert google(body).violations[0].per_day


def test_the_delay_may_stand_in_the_message_alone():
    assert google(google_body("Quota exceeded.\nPlease retry in 12.25s.")).retry_after == 12.25


def test_one_quota_named_twice_is_one_violation():
    assert len(google(google_body("", quota_failure(*[entry(PER_DAY)] * 3))).violations) == 1


@every_case("value", ["-1", "0", -1, 0, "", "many", True, None, [], "1e3", "9" * 29, 10**13, "NaN"])
def test_a_cap_that_makes_no_sense_is_none(value):
    info = error_info(**{**FULL, "quota_limit_value": value})
    assert google(google_body("", info)).violations[0].stated_cap is None


@every_case("status", [200, 400, 402, 500, 503])
def test_a_status_that_never_speaks_of_a_quota_is_no_push_back(status):
    body = google_body(SHEETS_MESSAGE, error_info(**FULL))
    assert parse_google(status, {"Retry-After": "3"}, body) is None
    assert parse_openai(status, {"Retry-After": "3"}, body) is None


def openai_body(message="", kind=None, code="rate_limit_exceeded"):
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def openai(body=b"", **headers):
    found = parse_openai(429, {name.replace("_", "-"): value for name, value in headers.items()}, body)
    assert found is not None
    return found


TPM = "Rate limit reached for m1 in organization o on tokens per min (TPM): Limit 30000, Used 29990, Requested 900."


def test_the_message_names_the_quota_its_size_and_the_delay():
    found = openai(openai_body(f"{TPM} Please try again in 1.76s. Visit https://x.", "tokens"))
    violation = Violation("tokens per min (TPM)", "project", "tokens", stated_cap=30_000)
    assert found == PushBack((violation,), 1.76)
    per_day = TPM.replace("tokens per min (TPM)", "requests per day (RPD)")
    found = openai(openai_body(f"{per_day} Please try again in 7m12s.", "requests"))
    assert (found.violations[0].per_day, found.violations[0].unit, found.retry_after) == (True, "requests", 432)


def headers_of(unit, limit="60", remaining="0", reset="1s"):
    return {
        f"x_ratelimit_limit_{unit}": limit,
        f"x_ratelimit_remaining_{unit}": remaining,
        f"x_ratelimit_reset_{unit}": reset,
    }


@every_case(("reset", "seconds"), [
    ("1s", 1), ("6m0s", 360), ("12ms", 0.012), ("1h0m0.5s", 3600.5), ("2d", MAX_RETRY_AFTER_SECONDS), ("90s", 90),
    ("0", None), ("-1", None), ("0s", None), ("", None), ("soon", None), ("1s1s", None), ("1000000000s", None),
    ("999999999s", MAX_RETRY_AFTER_SECONDS),
])  # fmt: skip
def test_resets_are_spans_of_time(reset, seconds):
    assert openai(**headers_of("requests", reset=reset)).retry_after == seconds


def test_headers_name_the_unit_without_room():
    found = openai(**headers_of("tokens", limit="30000"), **headers_of("requests", remaining="12"))
    assert found == PushBack((Violation("tokens", "project", "tokens", stated_cap=30_000),), 1)


def test_a_headers_limit_is_no_cap_where_its_period_may_be_a_day():
    found = openai(**headers_of("requests", limit="14400", reset="2h0m0s"))
    assert found.violations[0].stated_cap is None


@every_case(
    ("limit", "remaining"),
    [("-1", "-1"), ("0", "0"), ("60", "61"), ("60", "-1"), ("sixty", "0"), ("", ""), ("1e9", "0"), ("60", "nan")],
)
def test_headers_that_make_no_sense_together_are_not_believed(limit, remaining):
    assert openai(**headers_of("requests", limit=limit, remaining=remaining)) == PushBack()


def test_with_both_units_spent_and_no_word_which_nobody_knows():
    assert openai(**headers_of("tokens"), **headers_of("requests")) == PushBack()


@every_case(("message", "codes", "unit"), [
    ("Your requests to d1 have exceeded the token rate limit for your tier.", ("429",), "tokens"),
    ("Requests to the API have exceeded call rate limit of your current tier.", (), "requests"),
    ("This request would exceed your limit: TPM 30,000", (), "tokens"),
    ("You have hit your output tokens per minute limit", (), "output_tokens"),
    ("Quota exceeded for metric: x/generate_content_free_tier_input_token_count, limit: 250000", (), "input_tokens"),
    ("input token limit, 5 tokens per minute", (), "input_tokens"),
    ("Slow down.", ("token_limit_exceeded",), "tokens"),
    ("Slow down.", ("rate_limit_exceeded", "tokens"), "tokens"),
    ("Slow down.", ("rate_limit_exceeded", "requests"), "requests"),
    ("Too many requests. The requests per minute or tokens per minute limit is reached.", (), ""),
    ("Too many requests", ("too_many_requests",), ""),
    ("Invalid request, slow down", ("invalid_request_error",), ""),
])  # fmt: skip
def test_words_and_codes_say_what_was_used_up(message, codes, unit):
    assert read_unit(message, codes) == unit


def test_each_dialect_hears_the_unit_in_words():
    message = "Your requests have exceeded the input token rate limit."
    for parse in (parse_google, parse_openai, parse_anthropic, parse_refusal):
        found = parse(429, {}, json.dumps({"error": {"message": message}}).encode())
        assert found is not None
        assert [one.unit for one in found.violations] == ["input_tokens"], parse


def test_headers_may_end_with_the_period_and_resets_may_be_plain_seconds():
    found = openai(
        **headers_of("requests_day", limit="14400", remaining="14000", reset="33011.38"),
        **headers_of("tokens_minute", limit="60000", reset="11.38"),
        **headers_of("tokens_day", limit="1000000", remaining="7"),
    )
    assert found == PushBack((Violation("tokens", "project", "tokens", stated_cap=60_000),), 11.38)
    found = openai(
        **headers_of("requests_day", limit="14400", reset="33011"), **headers_of("tokens_minute", remaining="9")
    )
    assert found == PushBack((Violation("requests", "project", "requests", per_day=True),), 33_011)


def test_retry_after_wins_over_hints():
    body = openai_body(f"{TPM} Please try again in 1.76s.", "tokens")
    assert openai(body, retry_after="7").retry_after == 7
    assert openai(body, retry_after="7", retry_after_ms="6500").retry_after == 6.5


def test_credit_that_is_gone_is_no_push_back():
    body = openai_body("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
    assert parse_openai(429, {}, body) is None


# Headers that are common to many APIs


def header_quota(cap=None, **fields):
    return Violation(scope="project", unit="requests", stated_cap=cap, **fields)


@every_case(
    ("headers", "violations", "retry_after"),
    [
        ({}, (), None),
        ({"RateLimit-Policy": '"default";q=100;w=60'}, (header_quota(100, name="default"),), None),
        (
            {
                "RateLimit-Policy": '"burst";q=10;w=1, "day";q=900;w=86400',
                "RateLimit": '"burst";r=3;t=1, "day";r=0;t=77',
            },
            (header_quota(900, name="day", per_day=True),),
            77,
        ),
        (
            {"RateLimit-Policy": '"hour";q=900;w=3600;pk=:a2V5:', "RateLimit": '"hour";r=0;t=12'},
            (header_quota(900, name="hour", window_seconds=3600),),
            12,
        ),
        ({"RateLimit-Policy": '"bytes";qu="content-bytes";q=9;w=60', "RateLimit": '"bytes";r=0;t=5'}, (), 5),
        (
            {"RateLimit-Policy": "100;w=60, 900;w=3600", "RateLimit": "limit=100, remaining=0, reset=5"},
            (header_quota(100, name="100 requests in 60 s"),),
            5,
        ),
        (
            {"RateLimit-Limit": "100, 100;w=10", "RateLimit-Remaining": "0", "RateLimit-Reset": "4"},
            (header_quota(100, name="100 requests in 10 s", window_seconds=10),),
            4,
        ),
        (
            {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"},
            (header_quota(name="5,000 requests"),),
            30,
        ),
        (
            {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "Retry-After": "7"},
            (header_quota(name="60 requests"),),
            7,
        ),
        ({"RateLimit-Policy": 'q;";=;,=,;w=60', "RateLimit": "r=0", "X-RateLimit-Reset": "soon"}, (), None),
    ],
)
def test_rate_headers_of_every_draft_are_read(headers, violations, retry_after):
    assert parse_refusal(429, headers, b"<html>") == PushBack(violations, retry_after)


def test_a_reset_may_be_a_time(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    headers = {"X-RateLimit-Limit": "9", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000030"}
    assert parse_refusal(429, headers, b"") == PushBack((header_quota(name="9 requests"),), 30)


@every_case(("reset", "seconds"), [
    ("30.12345678901234", 30.12345678901234), ("1m30s", 90), ("4.300000190734863s", 4.300000190734863),
    ("2027-01-15T08:00:30Z", 30), ("2027-01-15T08:00:30.5+00:00", 30.5), ("1800000030000", 30), ("soon", None),
])  # fmt: skip
def test_a_reset_is_read_in_every_form(monkeypatch, reset, seconds):
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    headers = {"X-RateLimit-Limit": "9", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
    found = parse_refusal(429, headers, b"")
    assert found is not None
    assert found.retry_after == (seconds and pytest.approx(seconds))


def test_any_refusal_is_read_by_its_body_first():
    body = google_body(SHEETS_MESSAGE)
    assert parse_refusal(429, {"RateLimit": '"a";r=0;t=3'}, body) == parse_google(429, {}, body)
    message = {"error": {"message": "Rate limit reached on requests per min (RPM): Limit 3", "type": "requests"}}
    spent = json.dumps(message).encode()
    assert parse_refusal(429, {}, spent) == parse_openai(429, {}, spent)
    assert parse_refusal(429, {}, json.dumps({"error": {"code": "insufficient_quota"}}).encode()) is None
    assert parse_refusal(503, {"Retry-After": "3"}, b"") is None


def test_openai_tells_what_a_call_asked_for():
    said = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 48000. Must be reduced."
    found = parse_openai(429, {}, json.dumps({"error": {"message": said}}).encode())
    assert found is not None
    assert [(one.stated_cap, one.requested) for one in found.violations] == [(30_000, 48_000)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["error", "details", "metadata", "violations", "message", "quota_limit", "quotaId", "type"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
hints = st.sampled_from(["retryDelay", "quotaId", "quotaValue", "quotaDimensions", "quota_limit", "quota_limit_value"])
details = st.dictionaries(hints | st.just("metadata") | st.just("violations"), json_values, max_size=6)
envelopes = st.builds(
    lambda message, found: {"error": {"message": message, "details": found}}, json_values, st.lists(details, max_size=4)
)
bodies = st.binary(max_size=300) | (json_values | envelopes).map(lambda value: json.dumps(value).encode())
header_names = st.sampled_from(
    ["Retry-After", "Date", "retry-after-ms"]
    + [
        f"{prefix}RateLimit{part}"
        for prefix in ("", "X-")
        for part in ("", "-Policy", "-Limit", "-Remaining", "-Reset")
    ]
    + [f"X-RateLimit-{part}-{unit}" for part in ("Limit", "Remaining", "Reset") for unit in ("Requests", "Tokens")]
)
numbers = st.from_regex(re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,12})?(ms|s|m|h|d)?", re.ASCII), fullmatch=True)
items = st.from_regex(re.compile(r'("?[a-z]{0,3}"?(;[qwrt]=[0-9]{0,20}){0,4},?){0,30}', re.ASCII), fullmatch=True)
header_sets = st.dictionaries(header_names | st.text(max_size=10), st.text(max_size=40) | numbers | items, max_size=8)


@given(st.sampled_from([parse_google, parse_openai, parse_refusal]), header_sets, bodies)
def test_whatever_comes_is_read_within_bounds(parse, headers, body):
    found = parse(429, headers, body)
    assert found is None or found.retry_after is None or 0 < found.retry_after <= MAX_RETRY_AFTER_SECONDS
    for violation in () if found is None else found.violations:
        assert max(len(violation.name), len(violation.model)) <= MAX_QUOTA_NAME
        assert violation.stated_cap is None or 0 < violation.stated_cap <= MAX_CAP
        json.dumps([violation.name, violation.model]).encode()
        assert "\0" not in violation.name + violation.model
    assert found is None or len(found.violations) <= MAX_VIOLATIONS


# What the sandbox sends, over real HTTP.


def refused(sandbox, **knobs):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 0, **knobs})
    answer = SheetsClient(sandbox.url).update("A1", [["a"]])
    assert answer.status == 429
    return google(answer.body, **dict(answer.headers.items()))


@pytest.mark.parametrize("style", ["policy", "draft7", "draft6", "x"])
def test_the_plain_api_tells_its_quota_in_headers(sandbox, style):
    sandbox.turn(quota={"calls": 1, "window_seconds": 60}, rate_headers=style)
    answers = [ask(f"{sandbox.url}/plain/echo", method="POST", body=b"1") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    found = parse_refusal(429, dict(answers[1].headers.items()), answers[1].body)
    assert found is not None
    assert found.retry_after is not None
    assert [one.stated_cap for one in found.violations] == [None if style == "x" else 1]
    assert 55 < found.retry_after <= 60


@pytest.mark.parametrize("details", ["full", "partial", "no_metadata", "none"])
def test_every_body_of_the_sheets_api_names_the_user(sandbox, details):
    for _ in range(8 if details == "partial" else 1):
        found = refused(sandbox, error_details=details)
        [violation] = found.violations
        assert (violation.scope, violation.unit, violation.call_type) == ("user", "requests", "write")
        assert not violation.per_day
        assert found.retry_after is None


def test_the_sheets_api_names_its_project_and_cap(sandbox):
    sandbox.turn(google_sheets={**LONG, "writes_per_project": 1})
    client = SheetsClient(sandbox.url)
    client.update("A1", [["a"]])
    answer = client.as_user("p1", "u2").update("A1", [["a"]])
    [violation] = google(answer.body, **dict(answer.headers.items())).violations
    assert (violation.scope, violation.stated_cap) == ("project", 1)


def test_a_web_page_with_retry_after_is_read_from_its_header(sandbox):
    sandbox.turn(html_429=True, retry_after="date")
    found = refused(sandbox)
    assert found.violations == ()
    assert found.retry_after is not None
    assert 3500 < found.retry_after <= 3601


@pytest.mark.parametrize("details", ["full", "shuffled"])
@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent"])
def test_gemini_names_the_day_beside_the_minute(sandbox, details, verb):
    sandbox.turn(
        gemini={"requests_per_minute": 1, "requests_per_day": 1, "error_details": details, "window_seconds": 60}
    )
    generate(sandbox.url, verb=verb)
    for _ in range(4):
        answer = generate(sandbox.url, verb=verb)
        assert answer.status == 429
        found = google(answer.body, **dict(answer.headers.items()))
        assert {one.per_day for one in found.violations} == {True, False}
        assert {one.unit for one in found.violations} == {"requests"}
        assert {one.model for one in found.violations} == {"m1"}
        assert found.retry_after is not None
        assert found.retry_after <= 60


def test_gemini_names_tokens_and_their_cap(sandbox):
    sandbox.turn(gemini={"tokens_per_minute": 2, "window_mode": "sliding"})
    generate(sandbox.url, "a b c d e f g h")
    answer = generate(sandbox.url, "a b c d e f g h" * 50)
    [violation] = google(answer.body).violations
    assert (violation.unit, violation.per_day, violation.stated_cap) == ("input_tokens", False, 2)


def test_gemini_without_details_is_a_push_back_and_without_credit_is_none(sandbox):
    sandbox.turn(gemini={"requests_per_minute": 0, "error_details": "none"})
    assert google(generate(sandbox.url).body) == PushBack()
    sandbox.turn(gemini={"credit_gone": True})
    answer = generate(sandbox.url)
    assert (answer.status, answer.error()["status"]) == (402, "RESOURCE_EXHAUSTED")
    assert parse_google(answer.status, dict(answer.headers.items()), answer.body) is None


@pytest.mark.parametrize("style", ["true", "none", "minus_one", "zero"])
def test_openai_names_its_quota_whatever_its_headers_say(sandbox, style):
    sandbox.turn(openai={**LONG, "requests_per_minute": 1, "ratelimit_headers": style})
    complete(sandbox.url)
    answer = complete(sandbox.url)
    assert answer.status == 429
    found = parse_openai(answer.status, dict(answer.headers.items()), answer.body)
    assert found is not None
    assert found.violations == (Violation("requests per min (RPM)", "project", "requests", stated_cap=1),)
    assert found.retry_after is not None
    assert 3500 < found.retry_after <= 3600


def test_openai_without_credit_is_no_push_back(sandbox):
    sandbox.turn(openai={"credit_gone": True})
    answer = complete(sandbox.url)
    assert answer.status == 429
    assert parse_openai(answer.status, dict(answer.headers.items()), answer.body) is None
