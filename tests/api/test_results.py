"""GET /batches/{id}/results/."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.states import JobState
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_job, make_jobs
from tests.support.api import pages

pytestmark = pytest.mark.django_db


def test_results_come_in_the_order_of_submission_with_what_became_of_each(api: Api):
    batch = make_batch()
    done = make_job(batch=batch, state=JobState.COMPLETED, result={"row": 1})
    failed = make_job(batch=batch, state=JobState.FAILED, last_error_code="http_500", last_error_message="down")
    waits = make_job(batch=batch, idempotency_key="third")
    make_job()
    rows = api.get(f"/batches/{batch.pk}/results/").json()["results"]
    assert [row["id"] for row in rows] == [str(job.pk) for job in (done, failed, waits)]
    assert [row["state"] for row in rows] == ["completed", "failed", "queued"]
    assert rows[0]["result"] == {"row": 1}
    assert (rows[1]["last_error_code"], rows[1]["last_error_message"]) == ("http_500", "down")
    assert (rows[2]["idempotency_key"], rows[2]["result"], rows[2]["finished_at"]) == ("third", None, None)


def test_pages_of_results_show_every_job_once(api: Api):
    batch = make_batch()
    jobs = make_jobs(10, batch=batch)
    make_jobs(5)
    assert pages(api, f"/batches/{batch.pk}/results/") == [str(job.pk) for job in jobs]


def test_a_requeued_job_comes_once_as_its_successor(api: Api):
    batch = make_batch()
    failed, other = make_jobs(2, batch=batch, state=JobState.FAILED)
    successor = make_job(batch=batch, state=JobState.COMPLETED)
    Job.objects.filter(pk=successor.pk).update(origin=failed)
    assert pages(api, f"/batches/{batch.pk}/results/") == [str(other.pk), str(successor.pk)]
    assert api.get(f"/batches/{batch.pk}/results/").json()["results"][-1]["origin"] == str(failed.pk)


def test_a_page_whose_jobs_were_all_requeued_is_not_the_last(api: Api):
    batch = make_batch()
    failed = make_jobs(3, batch=batch, state=JobState.FAILED)
    for job in failed:
        successor = make_job(batch=batch)
        Job.objects.filter(pk=successor.pk).update(origin=job)
    first = api.get(f"/batches/{batch.pk}/results/?page_size=3").json()
    assert first["results"] == []
    assert first["next_cursor"]


def test_anothers_batch_has_no_results(api: Api):
    batch = make_batch(project="globex")
    error_of(api.get(f"/batches/{batch.pk}/results/"), 404)
    assert Api(key_for("globex")).get(f"/batches/{batch.pk}/results/").status_code == 200
    error_of(Api().get(f"/batches/{batch.pk}/results/"), 401)
    own = make_batch()
    assert error_of(api.get(f"/batches/{own.pk}/results/?state=failed"), 400)["code"] == "invalid_query"
