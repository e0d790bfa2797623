"""Log lines name what they are about, and never show a secret."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from itertools import product

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.utils.http import parse_http_date

from queueops.core.env.reading import read
from queueops.core.telemetry.logs import (
    UNTOLD_SECONDS,
    JsonFormatter,
    OnceWhileItLasts,
    RefusalFilter,
    TextFormatter,
    tell_of,
    without_secrets,
)
from queueops.core.web.requests.request_log import RequestLog
from tests.support.all_faults import all_faults
from tests.support.processes import ROOT

SECRETS = [
    ("Authorization: Bearer eyJhbGciOi.payload.signature", "eyJhbGciOi"),
    ("called with Bearer ya29.a0AfH6SMBxyz", "ya29.a0AfH6SMBxyz"),
    ("the key qo_AbCdEfGhIjKlMnOp was refused", "qo_AbCdEfGhIjKlMnOp"),
    ('connection to "postgresql://queue:hunter2@db:5432/q" failed', "hunter2"),
    ("smtps://mailer:s3cr3t@mail.example.org", "s3cr3t"),
    ('{"api_key": "abc-def-ghi", "text": "fine"}', "abc-def-ghi"),
    ("https://api.example.com/v1?access_token=zzz999&page=2", "zzz999"),
    ("password='correct horse'", "correct horse"),
    ("X-Api-Key: 0123abcd", "0123abcd"),
    ("Cookie: sessionid=deadbeef", "deadbeef"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuvw is no key", "AIzaSyA1234567890"),
    ("sk-proj-abcdefghijklmnop1234", "sk-proj-abcdefghijklmnop1234"),
    ("-----BEGIN PRIVATE KEY-----\nMIIEvg\n-----END PRIVATE KEY-----", "MIIEvg"),
]


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("tests").makeRecord("tests", logging.WARNING, __file__, 1, message, arguments, None)
    vars(made).update(extra)
    return made


@pytest.mark.proves("S11")
def test_no_line_shows_a_secret():
    with all_faults() as of:
        for formatter, (text, secret) in product((JsonFormatter(), TextFormatter()), SECRETS):
            failed = record("it failed: %s", text, detail=text)
            failed.exc_info = (RuntimeError, RuntimeError(text), None)
            with of(f"{type(formatter).__name__}, {text}"):
                line = formatter.format(failed)
                assert secret not in line
                assert "(hidden)" in line
                assert "it failed" in line


def test_ordinary_lines_stay_as_they_are():
    for text in (
        "lease lost: completed of job 0190 with fencing token 17 was refused",
        "executor 5 is ready with 200 slots",
        "max_output_tokens=500, tokens: 120",
        "https://api.example.com/v1/sheets?page=2",
    ):
        assert without_secrets(text) == text


def test_a_json_line_has_what_was_told_and_what_was_passed():
    def say() -> str:
        tell_of("executor", lambda: {"executor": "e1"})
        tell_of("job", lambda: {"job": "j1", "batch": None, "project": "acme"})
        return JsonFormatter().format(record("done in %s s", 2, rows=3))

    line = json.loads(in_its_own_context(say))
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "level": "WARNING", "logger": "tests", "message": "done in 2 s",
        "executor": "e1", "job": "j1", "project": "acme", "rows": 3,
    }  # fmt: skip


def test_a_line_for_people_names_its_job_behind_the_message():
    def say() -> str:
        tell_of("job", lambda: {"job": "j1"})
        return TextFormatter().format(record("done"))

    assert in_its_own_context(say).endswith("tests  done  [job=j1]")


def test_tasks_tell_of_their_own_job():
    async def work(name: str) -> str:
        tell_of("job", lambda: {"job": name})
        await asyncio.sleep(0)
        return str(json.loads(JsonFormatter().format(record("done")))["job"])

    async def both() -> list[str]:
        return list(await asyncio.gather(work("a"), work("b")))

    assert in_its_own_context(lambda: asyncio.run(both())) == ["a", "b"]


def test_a_request_is_named_in_its_answer_and_its_lines():
    lines = []

    def view(request: HttpRequest) -> HttpResponse:
        lines.append(json.loads(JsonFormatter().format(record("seen", request=request))))
        return HttpResponse()

    for given in ("trace-0190.ab_C", "", "a" * 65, "line\nbreak", "<script>"):
        request = RequestFactory().get("/", headers={"X-Request-Id": given} if given else {})
        response = in_its_own_context(lambda request=request: RequestLog(view)(request))
        name = lines.pop()["request"]
        assert lines == []
        assert name == response["X-Request-Id"]
        assert (name == given) is (given == "trace-0190.ab_C")
        assert len(name) <= 64


def test_an_answer_tells_the_time_for_clients_whose_clocks_are_wrong():
    for path in ("/there-is-nothing/", "/healthz"):
        assert abs(parse_http_date(Client().get(path)["Date"]) - time.time()) < 5


def test_django_s_own_lines_name_the_request_too(caplog):
    caplog.handler.setFormatter(JsonFormatter())
    response = Client().get("/there-is-nothing/", headers={"X-Request-Id": "from-a-proxy"})
    assert response.status_code == 404
    [line] = [json.loads(line) for line in caplog.text.splitlines() if "Not Found" in line]
    assert (line["request"], line["message"]) == ("from-a-proxy", "Not Found: /there-is-nothing/")


def test_a_refused_request_is_a_line_and_no_traceback_and_a_fault_of_ours_has_its_own():
    for name, status, kept in (("django.request", 403, False), ("django.request", 500, True), ("jobs", 403, True)):
        line = record("Forbidden", status_code=status)
        line.name, line.exc_info = name, (RuntimeError, RuntimeError("because"), None)
        assert RefusalFilter().filter(line)
        assert ("because" in TextFormatter().format(line)) is kept
    assert "refusals" in str(settings.LOGGING["handlers"])


def test_production_logs_json_unless_told_otherwise():
    production = {
        "QUEUEOPS_DEBUG": "off",
        "QUEUEOPS_SECRET_KEY": "k" * 50,
        "QUEUEOPS_ALLOWED_HOSTS": "queue.example.org",
        "QUEUEOPS_TLS": "on",
    }
    assert read({}, default_data_dir=ROOT).shown_log_format == "text"
    assert read(production, default_data_dir=ROOT).shown_log_format == "json"
    assert read({**production, "QUEUEOPS_LOG_FORMAT": "text"}, default_data_dir=ROOT).shown_log_format == "text"


def test_a_warning_that_comes_each_second_is_told_once_until_it_has_not_come_for_a_while(monkeypatch):
    now, told = 0.0, OnceWhileItLasts()
    monkeypatch.setattr("queueops.core.telemetry.logs.time.monotonic", lambda: now)

    def passes(message: str, *of: object, level: int = logging.WARNING) -> bool:
        return told.filter(logging.LogRecord("psycopg.pool", level, "", 0, message, of, None))

    seen = []
    for second in range(100):
        now = float(second)
        seen.append(passes("error connecting in %r: %s", "pool-1", f"refused {second}"))
    assert seen == [True] + [False] * 99
    assert passes("discarding closed connection: %s", "c")
    assert passes("error connecting in %r: %s", level=logging.INFO)
    now += UNTOLD_SECONDS + 1
    assert passes("error connecting in %r: %s", "pool-1", "refused")
    assert logging.getLogger("psycopg.pool").filters, "it is not asked"


def in_its_own_context(call):
    return contextvars.Context().run(call)
