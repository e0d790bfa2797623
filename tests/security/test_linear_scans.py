"""Texts of strangers are read in time that grows as they do: a longer one cannot stop whoever reads it."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from jobs.classify import Failure, clean, clean_json, fingerprint
from jobs.handlers.google.group import with_missing_grid, with_unreadable
from jobs.handlers.google.ranges import read_range
from jobs.handlers.google.refusals import parse_google
from jobs.handlers.http.answers import MAX_SECRETS, excerpt_of, json_of, one_line, secrets_in, storable
from jobs.handlers.http.payload import HttpRequest
from jobs.handlers.llm.openai import parse_openai
from jobs.handlers.llm.reading import EventReader
from jobs.handlers.llm.tokens import split_text
from jobs.services.submit.documents.csv_jobs import jobs_of_csv
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundResponse
from queueops.core.outbound.policy import OutboundPolicy, parse_target
from queueops.core.telemetry.logs import without_secrets
from queueops.core.values.masking import masked_text
from queueops.core.values.retry_after import parse_retry_after
from queueops.core.web.requests.nul import NUL_ESCAPE
from queueops.rest.parsers import parse_json

SHORT, LONG = 100_000, 1_000_000
MAX_TIMES = 40  # ten times the text; a quadratic scan takes a hundred times as long
MIN_SECONDS = 0.01  # below it the clock says little

Text = Callable[[int], str]


def again(unit: str, begin: str = "", end: str = "") -> Text:
    return lambda size: begin + (unit * (size // len(unit) + 1))[: size - len(begin) - len(end)] + end


def answer(body: str) -> OutboundResponse:
    return OutboundResponse(400, CIMultiDictProxy(CIMultiDict()), body.encode(), is_truncated=False, charset=None)


def consume(items: Iterable[Any]) -> None:
    for _ in items:
        pass


SECRETS = ("s" * 16_000, *(f"secret-{number:03}" for number in range(MAX_SECRETS - 1)))
ANY_TARGET = OutboundPolicy(allow_loopback=True)

# What reads a stranger's text, and the texts that are worst for it.
SCANS: dict[str, tuple[Callable[[str], object], list[Text]]] = {
    "headers sent": (
        lambda text: secrets_in({"Authorization": text}),
        [again("a"), again("="), again("a=bcdefg;"), again(" "), again("a;")],
    ),
    "log lines": (
        without_secrets,
        [
            again("a"),
            again("token"),
            again("token-"),
            again("token='"),
            again(" ", begin="token"),
            again("a://a:b"),
            again("a.a-"),
            again(" ", begin="bearer"),
            again("-----BEGIN A"),
            again("-----END A", begin="-----BEGIN PRIVATE KEY-----"),
            again("sk-"),
        ],
    ),
    "screens": (
        masked_text,
        [again("a"), again("token-"), again("a://a:"), again(" ", begin="Bearer")],
    ),
    "error messages": (clean, [again("a"), again("\0"), again("\ud800")]),
    "causes": (
        lambda text: fingerprint("a.kind", Failure("x", "E", clean(text))),
        [again("a"), again("'\""), again("aaaaaaaa-"), again("-", begin="aaaaaaaa"), again("1a")],
    ),
    "results": (clean_json, [again("a"), again("\\"), again("\\u0000"), again("\\ud800"), again("\\ud83d\\ude00")]),
    "answers as text": (
        lambda text: storable(text, SECRETS),
        [again("s"), again("secret-"), again("secret-001"), again("\0")],
    ),
    "answers as JSON": (
        lambda text: json_of(text.encode(), SECRETS),
        [again("0,", "[", "0]"), again('"secret-",', "[", "0]"), again("1", "[", ".5]"), again("[")],
    ),
    "excerpts": (lambda text: excerpt_of(answer(text), SECRETS), [again("a "), again("s"), again("\n")]),
    "sentences of errors": (one_line, [again("a "), again("\t")]),
    "refusals of Google": (
        lambda text: parse_google(429, {}, text.encode()),
        [
            again('{"violations":[{"quotaId":"aB"}]},', '{"error":{"details":[', "0]}}"),
            again('{"quotaId":"aB"},', '{"error":{"details":[{"violations":[', "0]}]}}"),
            again("quota metric 'a", '{"error":{"message":"', '"}}'),
            again("0,", "[", "0]"),
        ],
    ),
    "refusals of OpenAI": (
        lambda text: parse_openai(429, {"retry-after": text, "x-ratelimit-reset-tokens": text}, text.encode()),
        [again(" on tokens per min", '{"error":{"message":"', '"}}'), again("1h"), again("9")],
    ),
    "times to wait": (
        lambda text: parse_retry_after(text, date=text),
        [again("9"), again("Mon, "), again("("), again(" "), again("1:")],
    ),
    "ranges": (
        read_range,
        [again("'"), again("a", begin="'"), again("''", begin="'", end="x"), again("!"), again("a'!")],
    ),
    "ranges that cannot be read": (
        lambda text: consume(with_unreadable([text] * 2)(f"Unable to parse range: {text}", 0)),
        [again("'"), again("Unable to parse range: ")],
    ),
    "grids that are missing": (
        lambda text: consume(with_missing_grid([])(text, 0)),
        [again("No grid with id: "), again("No grid with id: 1")],
    ),
    "streams": (
        lambda text: [EventReader().feed(text.encode()), EventReader().end()],
        [again("data: a\n\n"), again("data:"), again("\r"), again("data:\n")],
    ),
    "prompts": (
        lambda text: split_text(text, 1_000),
        [again("a"), again("\n "), again(".)"), again(" "), again("\u20ac"), again(" ", begin="\n")],
    ),
    "bodies": (
        lambda text: parse_json(text.encode()),
        [
            again("a", '"', '"'),
            again("\\\\", '"', '"'),
            again("1" * 308 + ",", "[", "1]"),
            again("1e+1,", "[", "1]"),
            again("["),
            again('{"a":'),
        ],
    ),
    "NUL": (lambda text: NUL_ESCAPE.search(text.encode()), [again("\\"), again("\\\\u"), again("\\u000")]),
    "URLs": (
        lambda text: parse_target(text, policy=ANY_TARGET),
        [again("a", "http://"), again("a.", "http://"), again("@", "http://"), again("1.", "http://")],
    ),
    "headers of a payload": (
        lambda text: HttpRequest(method="GET", url="https://example.com", headers={"Cookie": text}),
        [again("a"), again("a=bcdefg;")],
    ),
    "columns of a table": (
        lambda text: consume(jobs_of_csv(text, default_kind="http.request")),
        [again("payload.a,"), again("a,"), again("payload.a.", "", "a"), again('"')],
    ),
    "columns with names of their own": (
        lambda text: consume(jobs_of_csv(text, default_kind="http.request")),
        [lambda size: ",".join(f"payload.{number:06}" for number in range(size // 15))],
    ),
}


@pytest.mark.parametrize("name", SCANS)
def test_ten_times_the_text_takes_about_ten_times_as_long(name):
    scan, texts = SCANS[name]
    for place, text_of in enumerate(texts):
        took: list[float] = []
        for size in (SHORT // 10, SHORT, LONG):
            text = text_of(size)
            most = MAX_TIMES * (took[-1] if took else 1)
            seconds = seconds_of(scan, text)
            if seconds >= most:  # the machine may have stood still
                seconds = min(seconds, seconds_of(scan, text))
            assert seconds < most, f"{name}, text {place}: {seconds:.3f} after {took}"
            took.append(seconds)


def seconds_of(scan: Callable[[str], object], text: str) -> float:
    """The time of this thread. The collector of garbage rests: it would go through the whole process."""
    gc.disable()
    try:
        began = time.thread_time()
        with suppress(QueueOpsError, ValueError):
            scan(text)
        return max(MIN_SECONDS, time.thread_time() - began)
    finally:
        gc.enable()


def test_a_header_that_held_the_loop_for_seconds_is_read_at_once():
    began = time.thread_time()
    assert secrets_in({"Cookie": "a" * 16_000}) == ("a" * 16_000,)
    assert time.thread_time() - began < 0.2


def test_secrets_are_found_where_they_stand():
    headers = {"Cookie": "id=first-secret; theme=dark1; last=a=second-secret ", "Authorization": "Bearer third-secret"}
    found = secrets_in(headers)
    assert {"first-secret", "a=second-secret", "third-secret", "Bearer third-secret"} <= set(found)
    assert json.dumps(storable({"said": "first-secret, third-secret"}, found)) == '{"said": "[masked], [masked]"}'


def test_more_secrets_than_an_answer_is_searched_for_are_refused():
    cookies = "; ".join(f"name{number}=secret-{number:04}" for number in range(MAX_SECRETS))
    with pytest.raises(ValueError, match=f"at most {MAX_SECRETS} cookies and other secrets"):
        HttpRequest(method="GET", url="https://example.com", headers={"Cookie": cookies})
