"""Bodies that come compressed, within bounds; and answers that go compressed."""

import gzip
import io
import json
import random
import tracemalloc
import zlib
from dataclasses import replace

import pytest

from jobs.models import Batch, Job
from queueops.core.values.numbers import MEGABYTE
from queueops.core.web.asking import Patience, patience
from queueops.rest import parsers
from queueops.rest.encoding import MAX_MEMBERS
from tests.api.conftest import SPEC, Api, error_of

LINES = b"".join(json.dumps(SPEC).encode() + b"\n" for _ in range(20))


def send(api: Api, body: bytes, *, encoding: str = "gzip", path: str = "/jobs/"):
    return api.send("POST", path, body, Content_Encoding=encoding)


def test_a_compressed_job_and_a_compressed_batch_are_taken(api: Api):
    job = gzip.compress(json.dumps(SPEC).encode())
    assert send(api, job).status_code == 201
    assert send(api, job, encoding="X-Gzip").status_code == 201
    assert send(api, json.dumps(SPEC).encode(), encoding="identity").status_code == 201
    joined = gzip.compress(LINES) + gzip.compress(LINES)  # as several files one after another
    taken = api.lines(joined, Content_Encoding="gzip")
    assert (taken.status_code, taken.json()["accepted"]) == (201, 40)


def test_the_same_request_again_is_known_however_it_was_compressed(api: Api):
    key = {"Idempotency_Key": "k"}
    first = api.lines(gzip.compress(LINES, 1), Content_Encoding="gzip", **key)
    again = api.lines(LINES, **key)
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()


@pytest.mark.parametrize(
    "body",
    [
        b"not gzip",
        gzip.compress(LINES)[:-9],
        gzip.compress(LINES)[:40] + b"\xff" * 40 + gzip.compress(LINES)[80:],
        gzip.compress(LINES) + b"more",
        zlib.compress(LINES),
        gzip.compress(b"") * (MAX_MEMBERS + 1),
    ],
)
def test_broken_gzip_is_told_as_such_and_stores_nothing(api: Api, body: bytes):
    assert error_of(send(api, body), 400)["code"] == "malformed_gzip"
    assert error_of(api.lines(body, Content_Encoding="gzip"), 400)["code"] == "malformed_gzip"
    assert not Batch.objects.exists()


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
def test_another_encoding_is_refused_by_its_name(api: Api, encoding: str):
    error = error_of(send(api, b"{}", encoding=encoding), 415)
    assert error["code"] == "unsupported_encoding"
    assert encoding in error["message"]


def test_what_inflates_beyond_the_cap_is_refused_in_little_memory(api: Api, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_body_mb=4)
    bomb = gzip.compress(b" " * (64 * MEGABYTE))
    tracemalloc.start()
    job, batch = send(api, bomb), api.lines(bomb, Content_Encoding="gzip")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error_of(job, 413)["code"] == "body_too_large"
    assert error_of(batch, 413)["details"] == {"limit_bytes": 4 * MEGABYTE}
    assert most < 16 * MEGABYTE


@pytest.mark.parametrize("form", ["lines", "document"])
def test_too_many_jobs_are_refused_before_the_first_is_looked_at(api: Api, settings, monkeypatch, form: str):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_batch_jobs=20)
    monkeypatch.setattr("jobs.services.submit.documents.accept_document.LineChecker._prepare", None)
    many = {"jobs": [SPEC] * 21}
    response = api.lines(b"\n \n" + LINES + b"{}") if form == "lines" else api.post("/batches/", many)
    assert error_of(response, 413)["details"] == {"given": 21, "limit": 20}


def test_blank_lines_are_no_jobs(api: Api, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_batch_jobs=20)
    assert api.lines(b"\n\n" + LINES.replace(b"\n", b"\n\n")).json()["accepted"] == 20
    bad = b"\n \n\t\r\n" + LINES + b"\n" * 1_000_000 + b"  \n   7\n\n8"
    answer = api.lines(gzip.compress(bad), query="?partial=true", Content_Encoding="gzip")
    assert error_of(answer, 413)["code"] == "too_many_jobs"
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_batch_jobs=22)
    answer = api.lines(gzip.compress(bad), query="?partial=true", Content_Encoding="gzip")
    assert [error["line"] for error in answer.json()["errors"]] == [1_000_025, 1_000_027]


def test_what_reading_lines_costs_goes_by_bytes_and_what_is_read_is_the_same(monkeypatch):
    monkeypatch.setattr(parsers, "LINES_READ_BYTES", 7)
    monkeypatch.setattr(parsers, "max_job_bytes", lambda: 12)
    parts = [b"\n", b" \n", b"\r\n", b" ", b"a", b" b\n", b"12345678901\n", b"longer than any job may be", b"x\n"]
    drawn = random.Random(7)  # noqa: S311 - the same each time
    for _ in range(2_000):
        text = b"".join(drawn.choices(parts, k=drawn.randrange(12)))
        # As slowly and plainly as it can be said.
        whole = [line[:13].rstrip(b"\n") for line in text.split(b"\n")]
        expected = [(number, line) for number, line in enumerate(whole, 1) if len(line) == 13 or line.strip()]
        read, number = [], 1
        for line in parsers._lines(io.BytesIO(text)):
            if len(line) == 13 or line.strip():
                read.append((number, line))
            number += max(1, line.count(b"\n"))
        assert read == expected, text
    monkeypatch.undo()
    assert sum(1 for _ in parsers._lines(io.BytesIO(b" \n" * 1_000_000))) < 10


def test_a_batch_is_given_up_when_nobody_waits_for_it(api: Api):
    lines = json.dumps({"jobs": [SPEC] * 3}).encode()
    for send_it in (lambda: api.lines(LINES), lambda: api.send("POST", "/batches/", lines)):
        for until, status, code in (
            (Patience(60, has_left=True), 400, "client_left"),
            (Patience(-1), 413, "out_of_time"),
        ):
            token = patience.set(until)
            try:
                assert error_of(send_it(), status)["code"] == code
            finally:
                patience.reset(token)
    assert not Batch.objects.exists()


def test_json_of_the_api_is_compressed_for_who_takes_it_and_pages_are_not(api: Api):
    api.lines(LINES)
    plain = api.get("/jobs/")
    assert "Content-Encoding" not in plain
    packed = api.get("/jobs/", Accept_Encoding="br, gzip")
    assert packed["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.content))["results"][0]["id"] == plain.json()["results"][0]["id"]
    assert "Accept-Encoding" in packed["Vary"]
    assert Job.objects.count() == 20
    for page in ("/admin/login/", "/api/v1/docs/"):  # they hold a CSRF token, or may
        assert "Content-Encoding" not in api.client.get(page, headers={"Accept-Encoding": "gzip"})
