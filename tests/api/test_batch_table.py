"""GET /batches/{id}/table/?format=…: a batch as one file, with its input's columns."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from jobs.models import Batch, Job
from jobs.services.explain import batch_table
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from ratelimits.models import Spend
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_job, make_jobs
from tests.support.people import permitted

pytestmark = pytest.mark.django_db

PAYLOAD = '{"url": "https://a.example.org/", "row": {"n": 1}}'
WRONG = [
    *("format=xlsx", "format=csv&columns=", "format=csv&columns=a,,b", "format=csv&page_size=3"),
    *("colums=text", "format=csv&with_input=x", "format=csv&format=json"),
]


def a_batch() -> tuple[Batch, list[Job]]:
    batch = make_batch()
    broken = json.dumps({"note": 'é, "q"', "row": 2})
    done = make_job(
        batch=batch,
        state=JobState.COMPLETED,
        idempotency_key="first",
        payload=PAYLOAD,
        result={"text": "=1+1", "data": {"total": -2.5, "paid": True}, "id": "theirs", "lines": "\u2028\x85"},
    )
    failed = make_job(batch=batch, state=JobState.FAILED, last_error_code="http_500", payload=broken)
    return batch, [done, failed, make_job(batch=batch, payload="{}")]


def content(response: Any) -> str:
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


def rows_of(api: Api, batch: Batch, query: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content(api.get(f"/batches/{batch.pk}/table/?format=csv{query}")))))


def test_a_csv_has_a_row_a_job_with_the_columns_of_the_input_and_the_chosen_ones_of_the_results(api: Api):
    batch, (done, failed, waits) = a_batch()
    rows = rows_of(api, batch, "&columns=text,data.total,data.paid,id&with_input=true")
    assert list(rows[0]) == [
        *("idempotency_key", "id", "state", "last_error_code", "cost_money"),
        *("payload.url", "payload.row", "payload.note"),
        *("text", "data.total", "data.paid", "result.id"),
    ]
    assert list(rows[0].values()) == [
        *("first", str(done.pk), "completed", "", ""),
        *("https://a.example.org/", '{"n": 1}', ""),
        *("'=1+1", "-2.5", "true", "theirs"),
    ]
    assert list(rows[1].values())[:8] == ["", str(failed.pk), "failed", "http_500", "", "", "2", 'é, "q"']
    assert [row["id"] for row in rows] == [str(job.pk) for job in (done, failed, waits)]


def test_without_columns_the_whole_result_comes_as_json(api: Api):
    batch, [done, *_] = a_batch()
    rows = rows_of(api, batch, "")
    assert json.loads(rows[0]["result"]) == done.result
    assert [row["result"] for row in rows[1:]] == ["", ""]
    assert "payload.url" not in rows[0]


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_json_has_the_payload_and_the_result_as_they_are(api: Api, form: str):
    batch, [done, *_] = a_batch()
    text = content(api.get(f"/batches/{batch.pk}/table/?format={form}&with_input=true"))
    rows = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
    assert rows[0] == {
        "idempotency_key": "first",
        "id": str(done.pk),
        "state": "completed",
        "last_error_code": "",
        "cost_money": None,
        "payload": done.payload,
        "result": done.result,
    }
    assert len(rows) == 3


@pytest.mark.parametrize(("form", "text"), [("json", "[]\n"), ("ndjson", ""), ("csv", None)])
def test_a_batch_whose_jobs_are_gone_is_an_empty_file(api: Api, form: str, text: str | None):
    found = content(api.get(f"/batches/{make_batch().pk}/table/?format={form}"))
    assert found == ("idempotency_key,id,state,last_error_code,cost_money,result\r\n" if text is None else text)


def test_every_job_comes_once_however_many_pages_it_takes(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch_table, "JOBS_AT_ONCE", 3)
    batch = make_batch()
    jobs = make_jobs(10, batch=batch)
    make_jobs(5)
    successor = make_job(batch=batch)
    Job.objects.filter(pk=successor.pk).update(origin=jobs[0])
    assert [row["id"] for row in rows_of(api, batch, "")] == [str(job.pk) for job in [*jobs[1:], successor]]


def test_the_cost_of_each_job_is_a_column(api: Api):
    batch, [done, *_] = a_batch()
    figures = {"project_id": "acme", "provider": "p", "model": "m", "at": timezone.now(), "money": 1_500}
    Spend.objects.create(job_id=done.pk, token=1, **figures)
    assert [row["cost_money"] for row in rows_of(api, batch, "")] == ["1500", "", ""]


def test_what_would_be_too_large_is_refused_and_not_cut(api: Api, monkeypatch: pytest.MonkeyPatch):
    batch, _ = a_batch()
    monkeypatch.setattr(batch_table, "MAX_TABLE_BYTES", 100)
    assert error_of(api.get(f"/batches/{batch.pk}/table/?format=csv"), 422)["code"] == "table_too_large"
    monkeypatch.setattr(batch_table, "MAX_TABLE_BYTES", 10_000)
    monkeypatch.setattr(batch_table, "MAX_INPUT_COLUMNS", 2)
    refused = error_of(api.get(f"/batches/{batch.pk}/table/?format=csv&with_input=true"), 422)
    assert refused["details"]["limit_columns"] == 2


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_query_is_refused(api: Api, query: str):
    batch, _ = a_batch()
    assert error_of(api.get(f"/batches/{batch.pk}/table/?{query}"), 400)["code"] == "invalid_query"


def test_anothers_batch_has_no_table(api: Api):
    error_of(api.get(f"/batches/{make_batch(project='globex').pk}/table/?format=csv"), 404)
    assert (
        Api(key_for("globex")).get(f"/batches/{make_batch(project='globex').pk}/table/?format=csv").status_code == 200
    )


def test_people_download_it_from_the_batchs_page_with_secrets_masked_and_that_is_recorded():
    batch = make_batch()
    make_job(batch=batch, state=JobState.COMPLETED, payload='{"api_key": "sk-hidden", "x": 1}', result={"n": 1})
    client = permitted("view_batch", "view_job")
    address = reverse("admin:jobs_batch_results", args=[batch.pk, "csv"])
    assert address in client.get(reverse("admin:jobs_batch_change", args=[batch.pk])).content.decode()
    text = content(client.get(address))
    assert "payload.x" in text
    assert "sk-hidden" not in text
    entry = AuditEntry.objects.get(action="export_results")
    assert (entry.target, entry.project_id, entry.after) == (f"batch {batch.pk}", "acme", {"form": "csv"})
    assert client.get(address.replace(".csv", ".xlsx")).status_code == 404
    assert permitted("view_batch").get(address).status_code == 403
