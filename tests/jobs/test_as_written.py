"""Payloads and results are kept, measured and sent as they were written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from django.conf import settings
from django.db import connection
from django.test import override_settings
from pydantic import BaseModel

from jobs.features.uploads.uploads import store_upload, submit_upload
from jobs.handlers import registry
from jobs.handlers.http.connections import close
from jobs.handlers.http.payload import HttpRequest
from jobs.handlers.http.request import http_request
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Job
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.states import JobState
from jobs.testing import drain
from queueops.core.values.written import elements, member, say_the_same, with_members
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_dead_letter, make_job, make_jobs, make_project
from tests.jobs.merging import claim
from tests.support.cases import every_case
from tests.support.http_server import serving

pytestmark = pytest.mark.django_db

SIGNED = '{"type":"a","id":1.10,"at":2}'
WRITTEN = f'{{"method": "PUT",  "url":"https://echo.example.org/","json":{SIGNED}}}'
GIVEN = f'{{"kind":"http.request","payload":{WRITTEN}}}'
KIND = "test.any"


class Anything(BaseModel, extra="allow"):
    pass


@pytest.fixture(autouse=True)
def any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind=KIND, service="test", payload=Anything, idempotent=True, calls_out=False)
    def keep(job: RunningJob[Anything]) -> Done:
        return Done({"length": len(job.payload_text), "rate": 6.02e23})


@pytest.fixture
def api() -> Api:
    return Api(key_for("acme"))


def stored(table: str = "jobs_job", column: str = "payload_text") -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {table} ORDER BY id")  # noqa: S608 - our own words
        return [text for (text,) in cursor.fetchall()]


def as_before(*jobs: Job) -> None:
    """Give rows the form in which the release before writes them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_job SET payload = payload_text::jsonb, result = result_text::jsonb, payload_text = NULL,"
            " result_text = NULL WHERE id = ANY(%s)",
            [[job.pk for job in jobs]],
        )


@contextmanager
def at_most(**figures: Any) -> Iterator[None]:
    with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, **figures)):
        yield


def test_a_payload_is_stored_as_it_was_written_however_it_comes(api: Api):
    assert api.send("POST", "/jobs/", GIVEN).status_code == 201
    assert api.lines(f"{GIVEN}\n{GIVEN}").status_code == 201
    assert api.send("POST", "/batches/", f'{{"jobs": [{GIVEN} , {GIVEN}], "on_finish":{GIVEN}}}').status_code == 201
    cell = WRITTEN.replace('"', '""')
    table = f'kind,payload,payload.text:json\nhttp.request,"{cell}",\n'
    for name, content in (("jobs.csv", table), ("jobs.ndjson", f'{{"payload": {WRITTEN}}}\n')):
        upload = store_upload(
            content.encode(), file_name=name, default_kind="http.request", project_id="acme", actor="x"
        )
        submit_upload(upload.pk, actor="user:1")
    assert stored() == [WRITTEN] * 8
    assert {job.payload["json"]["id"] for job in Job.objects.all()} == {1.1}
    assert Job.objects.filter(payload__json__type="a", payload__has_key="url").count() == 8


def test_numbers_of_many_digits_take_no_more_room_than_they_were_written_in(api: Api):
    numbers = ",".join(["1e308"] * 50_000)
    assert api.send("POST", "/jobs/", f'{{"kind":"{KIND}","payload":{{"n":[{numbers}]}}}}').status_code == 201
    [job] = claim(1)
    assert len(job.payload) == len(numbers) + len('{"n":[]}')
    assert api.get(f"/jobs/{job.id}/").json()["payload"]["n"][0] == 1e308


@pytest.mark.parametrize("otherwise", [{}, {"idempotency_header": "X-Key"}])
def test_the_json_of_a_call_is_sent_as_it_was_written(otherwise: dict[str, str]):
    received: list[bytes] = []

    async def answer(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.json_response({})

    async def call() -> None:
        async with serving(answer) as url:
            written = json.dumps({"method": "PUT", "url": url, **otherwise})[:-1] + f',"json": {SIGNED}}}'
            job = RunningJob(
                id=uuid4(),
                payload=HttpRequest.model_validate_json(written),
                project="acme",
                user_id=None,
                effect_key="k",
                attempt=1,
                report=lambda percent, message: None,
                payload_text=written,
            )
            await http_request(job)
            await close()

    asyncio.run(call())
    assert received == [SIGNED.encode()]


def test_a_job_repeated_with_the_same_number_is_the_same_job_whatever_it_was_stored_as(api: Api):
    number = '{"kind":"%s","idempotency_key":"mole-1","payload":{"n": %s}}'
    first = api.send("POST", "/jobs/", number % (KIND, "6.02214076e23")).json()
    for again in ("6.02214076e23", "6.02214076E+23", "602214076000000000000000"):
        assert api.send("POST", "/jobs/", number % (KIND, again)).json() == {
            **first, "created": False, "outcome": "duplicate",
        }, again  # fmt: skip
    as_before(Job.objects.get())
    assert api.send("POST", "/jobs/", number % (KIND, "6.02214076e23")).json()["outcome"] == "duplicate"
    assert api.lines(number % (KIND, "6.02214076e23")).json()["duplicates"] == 1
    for other in ("6.02214077e23", '"6.02214076e23"', "true"):
        assert error_of(api.send("POST", "/jobs/", number % (KIND, other)), 422)["code"] == "idempotency_key_reused"


@every_case(
    ("one", "other", "same"),
    [
        ("6.02214076e23", "602214076000000000000000", True),
        ("1.0", "1", True),
        ("1", "true", False),
        ("0", "false", False),
        ("9007199254740993", "9007199254740992", False),
        ("1e400", "1", False),
        ('{"a":[1,{"b":2.0}]}', '{"a":[1.0,{"b":2}]}', True),
        ('{"a":1}', '{"a":1,"b":null}', False),
        ("[1]", "[1,1]", False),
        (f"1{'0' * 400}", "1.5", False),
    ],
)
def test_values_are_compared_as_readers_of_doubles_do(*, one: str, other: str, same: bool):
    assert say_the_same(json.loads(one), json.loads(other)) is same
    assert say_the_same(json.loads(other), json.loads(one)) is same


@every_case(
    ("text", "given", "written"),
    [
        ("{}", {"model": "m"}, '{"model":"m"}'),
        (" { } ", {"model": "m"}, ' { "model":"m"} '),
        ('{"a":1.10}', {"model": "m", "b": [1]}, '{"a":1.10,"model":"m","b":[1]}'),
        ('{"a" : 1.10, "model" : "x" ,"b":1e3}', {"model": "m"}, '{"a" : 1.10, "model" : "m" ,"b":1e3}'),
        ('{"model":"x","model":"y"}', {"model": "m"}, '{"model":"m","model":"m"}'),
        ('{"a":{"model":"x"}}', {"model": "m"}, '{"a":{"model":"x"},"model":"m"}'),
        ('{"mod\\u0065l":"x"}', {"model": "m"}, '{"mod\\u0065l":"m"}'),
        ('{"a":"}"} ', {}, '{"a":"}"} '),
    ],
)
def test_members_are_set_in_their_place_or_at_the_end(*, text: str, given: dict[str, Any], written: str):
    assert with_members(text, given) == written


def test_parts_of_a_text_are_cut_out_as_they_stand():
    text = ' { "a" : 1.10 , "b\\u0021":{ "x" : [1e3, "}"] },"a":[ ] } '
    assert (member(text, "b!"), member(text, "a"), member(text, "c")) == ('{ "x" : [1e3, "}"] }', "[ ]", None)
    assert elements('[ 1.10 ,{"a": 2} , [] ]') == ["1.10", '{"a": 2}', "[]"]
    assert (member(f"\ufeff{text}", "a"), elements("\ufeff[]"), elements("[]")) == ("[ ]", [], [])
    assert [member(text, "a") for text in ("", "[]", '{"a"', '{"a":', "7")] == [None] * 5
    assert [elements(text) for text in ("", "{}", "[1,", "7")] == [None] * 4


def test_jobs_of_the_release_before_are_carried_out_and_their_results_are_where_it_looks():
    make_project()
    before, now = make_jobs(2, kind=KIND, service="test", payload='{"n": 1.10}')
    as_before(before)
    drain()
    before, now = Job.objects.order_by("pk")
    assert (before.status, now.status) == (JobState.COMPLETED, JobState.COMPLETED)
    assert (before.payload, now.payload) == ({"n": 1.1}, {"n": 1.1})
    assert (before.result["length"], now.result["length"]) == (11, 11)
    assert stored(column="result_text") == [None, '{"length":11,"rate":6.02e+23}']
    assert [bool(one) for one in stored(column="result IS NULL")] == [False, True]


def test_no_worker_of_the_release_before_takes_a_payload_that_is_kept_as_text():
    make_job(kind=KIND, service="test", payload='{"n": 1.10}')
    [seen] = stored(column="payload::text")
    assert seen == '"see payload_text"'
    for found in registry.all_handlers():
        with pytest.raises(ValueError, match=r"dict|object|JSON|model"):
            found.schema.validate_json(str(seen))


def test_what_the_release_before_does_to_such_jobs_keeps_or_takes_their_text_along():
    letter = make_dead_letter(payload='{"method":"GET",  "url":"http://127.0.0.1:9/"}')
    [text] = stored()
    with connection.cursor() as cursor:
        # As its insert_dead_letters.sql, insert_jobs.sql and erase_jobs.sql have it.
        columns = "job_id, project_id, kind, service, payload, error_code, error_class, error_message, remediation"
        rest = "attempts, retry_count, crash_count, fingerprint"
        cursor.execute("DELETE FROM jobs_deadletter")
        cursor.execute(
            f"INSERT INTO jobs_deadletter (id, {columns}, {rest}) SELECT %s, id, project_id, kind, service, payload,"  # noqa: S608
            " 'x', 'x', 'x', '', '[]', 0, 0, 'f' FROM jobs_job",
            [letter.pk],
        )
        assert stored("jobs_deadletter") == [text]
        [new] = requeue_dead_letters([letter.pk], actor="user:1").moved.values()
        assert Job.objects.get(pk=new).payload == json.loads(str(text))
        cursor.execute(
            "INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key,"
            " eligible_since, origin_id) SELECT gen_random_uuid(), project_id, kind, service, call_type, priority,"
            " 'queued', payload, 'e', now(), id FROM jobs_job WHERE id = %s",
            [letter.job_id],
        )
        assert stored() == [text] * 3
        cursor.execute("UPDATE jobs_job SET payload = '{}', result = NULL, user_id = gen_random_uuid()")
        cursor.execute("UPDATE jobs_deadletter SET payload = '{}'")
    assert [job.payload for job in Job.objects.all()] == [{}] * 3
    assert stored() + stored("jobs_deadletter") == [None] * 4


def test_a_claim_takes_no_more_bytes_than_it_may_but_always_a_job():
    def jobs(*sizes: int) -> list[UUID]:
        return [make_job(kind=KIND, service="test", payload=json.dumps({"text": "x" * size})).pk for size in sizes]

    large = jobs(600_000, 300_000, 300_000, 1_500_000, 10)
    before = make_job(kind=KIND, service="test", payload=json.dumps({"n": [str(uuid4()) for _ in range(2_000)]}))
    as_before(before)
    with at_most(max_claim_mb=1):
        claims = []
        while claimed := claim(10):
            claims.append([job.id for job in claimed])
    assert claims == [large[:2], large[2:3], large[3:4], large[4:], [before.pk]]


def test_a_page_of_results_or_dead_letters_ends_before_it_has_too_many_bytes(api: Api):
    batch = make_batch()
    jobs = make_jobs(5, batch=batch, state=JobState.IN_PROGRESS)
    for size, job in zip((600_000, 300_000, 300_000, 1_500_000, 10), jobs, strict=True):
        job.result = {"text": "x" * size}
        job.save(update_fields=["result"])
    letters = [
        make_dead_letter(payload=json.dumps({"text": "x" * size}))
        for size in (10, 1_500_000, 300_000, 300_000, 600_000)
    ]
    with at_most(max_page_mb=1):
        for path, expected in (
            (f"/batches/{batch.pk}/results/", [str(job.pk) for job in jobs]),
            ("/dead-letters/", [str(letter.pk) for letter in reversed(letters)]),
        ):
            page, counts, seen = api.get(path).json(), [], []
            while True:
                counts.append(len(page["results"]))
                seen += [row["id"] for row in page["results"]]
                if page["next_cursor"] is None:
                    break
                page = api.get(f"{path}?cursor={page['next_cursor']}").json()
            assert (counts, seen) == ([2, 1, 1, 1], expected), path
