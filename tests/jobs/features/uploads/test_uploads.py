"""Files of jobs: checked as a whole, submitted once and only on request."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from jobs.features.forecast import admin
from jobs.features.uploads import uploads
from jobs.features.uploads.uploads import UnknownUpload, UploadTooLarge, forget_uploads, store_upload, submit_upload
from jobs.models import Batch, Job, Upload
from jobs.services.submit.documents.csv_jobs import UnreadableFile
from jobs.services.submit.submit import BatchRejected, EmptyBatch, QueueFull, submit_batch
from queueops.audit.models import AuditEntry
from tests.factories import make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

ACTOR = "user:7"
GOOD = "kind,priority,payload.method,payload.url,payload.json:json\n"


LINE = '{"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}'
ROW = "http.request,GET,http://127.0.0.1:9/,,\n"


def stored(text: str, *, file_name: str = "jobs.csv", **options: str) -> Upload:
    make_project()
    return store_upload(text.encode(), project_id="acme", actor=ACTOR, file_name=file_name, **options)


def row(number: int, *, kind: str = "http.request", extra: str = "") -> str:
    return f'{kind},low,PUT,http://127.0.0.1:9/{number},"{{""n"": {number}}}"{extra}\n'


def test_a_csv_file_becomes_a_batch_of_its_rows():
    upload = stored(GOOD + row(1) + "\n" + row(2), name="two rows")
    assert (upload.lines, upload.error_count, upload.batch_id) == (2, 0, None)
    assert not Job.objects.exists()
    done = submit_upload(upload.pk, actor=ACTOR)
    batch = Batch.objects.get()
    assert (done.batch_id, done.content, batch.name, batch.total, batch.submitted_by) == (
        batch.pk, None, "two rows", 2, ACTOR,
    )  # fmt: skip
    first = Job.objects.order_by("pk").first()
    assert first is not None
    assert (first.kind, first.priority) == ("http.request", "low")
    assert first.payload == {"method": "PUT", "url": "http://127.0.0.1:9/1", "json": {"n": 1}}


def test_every_bad_row_is_named_by_the_number_a_spreadsheet_shows():
    text = GOOD + row(1) + row(2, kind="no.such") + row(3) + "http.request,low,FETCH,nowhere,\n" + row(5, extra=",6")
    upload = stored(text + "http.request,low,GET,http://127.0.0.1:9/,{broken\n")
    assert (upload.lines, upload.error_count) == (6, 4)
    assert [error["line"] for error in upload.errors] == [3, 5, 6, 7]
    assert [error["code"] for error in upload.errors] == ["unknown_kind", "invalid_job", "invalid_job", "invalid_job"]
    assert {"payload.method"} <= set(upload.errors[1]["fields"])
    assert list(upload.errors[3]["fields"]) == ["payload.json:json"]
    assert [one["line"] for one in upload.sample] == [2, 4]


def test_bad_rows_reject_all_unless_they_are_to_be_left_out():
    upload = stored(GOOD + row(1) + row(2, kind="no.such") + row(3))
    with pytest.raises(BatchRejected) as caught:
        submit_upload(upload.pk, actor=ACTOR)
    assert [error["line"] for error in caught.value.details["errors"]] == [3]
    assert not Batch.objects.exists()
    submit_upload(upload.pk, actor=ACTOR, partial=True)
    assert Job.objects.count() == 2
    entry = AuditEntry.objects.get(action="submit_upload")
    assert entry.after is not None
    assert (entry.moved, entry.after["left_out"]) == (2, 1)


def test_the_page_forecasts_what_is_not_submitted_yet_and_large_files_on_request(monkeypatch):
    upload = stored(GOOD + row(1) + row(2, kind="no.such"))
    page = f"/admin/jobs/upload/{upload.pk}/change/"
    operator = signed_in("operator")
    assert "no executor is running" in operator.get(page).content.decode()
    monkeypatch.setattr(admin, "MAX_AT_ONCE", 1)
    assert "Forecast it" in operator.get(page).content.decode()
    assert "no executor is running" in operator.get(f"{page}?forecast=yes").content.decode()
    assert "Forecast" not in signed_in("viewer").get(page).content.decode()
    submit_upload(upload.pk, actor=ACTOR, partial=True)
    assert "Forecast" not in operator.get(page).content.decode()


def test_submitting_twice_makes_one_batch():
    upload = stored(GOOD + row(1))
    first = submit_upload(upload.pk, actor=ACTOR)
    assert submit_upload(upload.pk, actor=ACTOR).batch_id == first.batch_id
    assert (Batch.objects.count(), Job.objects.count()) == (1, 1)
    with pytest.raises(UnknownUpload):
        submit_upload(uuid4(), actor=ACTOR)


def test_lines_of_json_are_checked_as_the_api_checks_them():
    good = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}
    lines = [json.dumps(good), "", "{", json.dumps({**good, "priority": "highest"}), json.dumps({"payload": {}})]
    text = "\n".join(lines)
    upload = stored(text, file_name="jobs.ndjson")
    with pytest.raises(BatchRejected) as caught:
        submit_batch(text.split("\n"), project_id="acme", actor=ACTOR)
    assert upload.errors == caught.value.details["errors"]
    assert [error["line"] for error in upload.errors] == [3, 4, 5]


def test_a_line_with_a_nul_is_told_as_any_other():
    lines = [r'{"kind": "http.request", "a\u0000": 1}', r'{"kind": "http.request", "user_id": "\u0000"}', LINE]
    upload = stored("\n".join(lines), file_name="jobs.ndjson")
    upload.refresh_from_db()
    assert [error["line"] for error in upload.errors] == [1, 2]
    assert "a\N{REPLACEMENT CHARACTER}" in upload.errors[0]["fields"]


def test_the_kind_may_be_given_for_lines_that_name_none():
    url = "http://127.0.0.1:9/"
    by_csv = stored(f"payload.method,payload.url\nGET,{url}\n", default_kind="http.request")
    by_line = stored(
        json.dumps({"payload": {"method": "GET", "url": url}}), file_name="a.jsonl", default_kind="http.request"
    )
    assert (by_csv.error_count, by_line.error_count) == (0, 0)
    assert by_csv.sample[0]["payload"] == by_line.sample[0]["payload"]


def test_idempotency_keys_are_held_against_the_file_and_the_queue():
    header = "kind,idempotency_key,payload.method,payload.url\n"

    def line(key: str, end: str) -> str:
        return f"http.request,{key},GET,http://127.0.0.1:9/{end}\n"

    submit_upload(stored(header + line("a", "1") + line("b", "1")).pk, actor=ACTOR)
    upload = stored(header + line("a", "1") + line("b", "2") + line("c", "1") + line("c", "1") + line("c", "2"))
    assert [(error["line"], error["code"]) for error in upload.errors] == [
        (3, "idempotency_key_reused"),
        (6, "idempotency_key_reused"),
    ]
    submit_upload(upload.pk, actor=ACTOR, partial=True)
    assert Job.objects.count() == 3


@every_case(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"kind,colour\nhttp.request,red\n", "'colour'"),
        (b"payload.url\nhttp://127.0.0.1/\n", "no column"),
        (b"kind,kind\na,b\n", "twice"),
        (b"kind,payload\nhttp.request,\xe9\n", "not UTF-8"),
        (b'kind,payload\nhttp.request,"open\n', "Line"),
        (b"kind,payload.\nhttp.request,x\n", "'payload.'"),
    ],
    undone=True,
)
def test_a_file_that_is_no_table_of_jobs_is_refused_with_the_reason(content, said):
    make_project()
    with pytest.raises(UnreadableFile, match=said):
        store_upload(content, project_id="acme", actor=ACTOR, file_name="x.csv")
    assert not Upload.objects.exists()


@every_case("number", ["1e999", "NaN", "Infinity"], undone=True)
def test_numbers_that_cannot_be_stored_are_a_fault_of_their_row(number):
    upload = stored(GOOD + f"http.request,low,PUT,http://127.0.0.1:9/,{number}\n" + row(1))
    assert [error["line"] for error in upload.errors] == [2]


def test_semicolons_tabs_and_a_byte_order_mark_are_understood():
    for delimiter in ";\t":
        head = delimiter.join(("kind", "payload.method", "payload.url"))
        line = delimiter.join(("http.request", "GET", "http://127.0.0.1:9/"))
        assert stored(f"\ufeff{head}\r\n{line}\r\n").error_count == 0


def test_a_file_is_bounded_in_bytes_and_by_the_room_in_the_queue(monkeypatch):
    monkeypatch.setattr(uploads, "MAX_UPLOAD_BYTES", 1000)
    with pytest.raises(UploadTooLarge):
        stored("x" * 1001)
    with pytest.raises(EmptyBatch):
        stored(GOOD)
    make_project(max_waiting_jobs=1)
    make_project().__class__.objects.update(max_waiting_jobs=1)
    with pytest.raises(QueueFull):
        stored(GOOD + row(1) + row(2))
    assert not Upload.objects.exists()


def test_uploads_are_forgotten_after_a_day():
    old, new = stored(GOOD + row(1)), stored(GOOD + row(1))
    Upload.objects.filter(pk=old.pk).update(created_at=Now() - timedelta(days=2))
    assert forget_uploads() == 1
    assert list(Upload.objects.all()) == [new]


CASES = {
    "empty columns at the right": (
        "jobs.csv",
        b"kind,payload.method,payload.url,,\n" + ROW.encode() * 2 + b",,,,\n",
        2,
    ),
    "a line that names the separator": (
        "jobs.csv",
        b"sep=;\r\nkind;payload.method;payload.url\r\nhttp.request;GET;http://127.0.0.1:9/\r\n",
        1,
    ),
    "another separator": (
        "jobs.csv",
        b"sep=|\nkind|payload.method|payload.url\nhttp.request|GET|http://127.0.0.1:9/\n",
        1,
    ),
    "what spreadsheets make of true": (
        "jobs.csv",
        f"{GOOD}http.request,low,PUT,http://127.0.0.1:9/,TRUE\n".encode(),
        1,
    ),
    "commas in a quoted name": (
        "jobs.csv",
        b'kind;payload.method;payload.url;"payload.json.a,b,c,d,e"\nhttp.request;POST;http://127.0.0.1:9/;x\n',
        1,
    ),
    "CSV as Unicode Text": ("jobs.tsv", f"{GOOD.replace(',', chr(9))}{row(1)}".replace(",", "\t").encode("utf-16"), 1),
    "lines of Windows PowerShell": ("jobs.ndjson", f"{LINE}\r\n{LINE}\r\n".encode("utf-16"), 2),
    "lines after a byte order mark": ("jobs.ndjson", f"\ufeff{LINE}\n{LINE}\n".encode(), 2),
    "an array": ("jobs.json", json.dumps([json.loads(LINE)] * 2, indent=2).encode(), 2),
    "an array after a byte order mark": ("jobs.json", f"\ufeff[{LINE},\n{LINE}]".encode(), 2),
    "a document": ("jobs.json", json.dumps({"jobs": [json.loads(LINE)]}, indent=2).encode(), 1),
}


@every_case("case", CASES, undone=True)
def test_files_are_taken_as_spreadsheets_shells_and_exports_write_them(case):
    name, content, jobs = CASES[case]
    make_project()
    upload = store_upload(content, project_id="acme", actor=ACTOR, file_name=name)
    assert (upload.lines, upload.errors) == (jobs, [])
    assert submit_upload(upload.pk, actor=ACTOR).batch_id
    assert Job.objects.count() == jobs
    assert case != "what spreadsheets make of true" or Job.objects.get().payload["json"] is True


def test_a_document_that_says_more_than_its_jobs_is_refused_by_name():
    more = {"name": "x", "after": ["019a0000-0000-7000-8000-000000000000"], "guard_percent": 5, "on_finish": {}}
    document = json.dumps({**more, "jobs": [json.loads(LINE)], "tags": ["nightly"]})
    with pytest.raises(UnreadableFile, match="would ignore: name, after, guard_percent, on_finish, tags") as refused:
        stored(document, file_name="jobs.json")
    assert "Submit it by the API" in refused.value.message
    assert not Upload.objects.exists()


def test_what_a_file_says_wrongly_is_told_with_its_place_and_what_to_do():
    upload = stored(f"{GOOD.rstrip()},\nhttp.request,low,PUT,http://127.0.0.1:9/,WAHR,\n{row(2).rstrip()},x\n")
    assert [(error["line"], list(error["fields"])) for error in upload.errors] == [(2, ["payload.json:json"]), (3, [])]
    assert 'A text needs quotes here ("WAHR")' in upload.errors[0]["fields"]["payload.json:json"][0]
    assert "column 6, which the header does not name" in upload.errors[1]["message"]
    with pytest.raises(UnreadableFile, match="begins as an array of jobs, and is not JSON"):
        stored(f"[{LINE},\n", file_name="jobs.json")
    kindless = stored(
        f"{LINE}\n" + '{"payload": {"requests": [{"n": NaN}]}}',
        file_name="x.ndjson",
        default_kind="google_sheets.batch_update",
    )
    [error] = kindless.errors
    assert (error["line"], list(error["fields"])) == (2, ["payload.requests.0.n"])
    page = signed_in("operator").get(f"/admin/jobs/upload/{kindless.pk}/change/").content.decode()
    assert "payload.requests.0.n" in page
