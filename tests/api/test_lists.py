from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from jobs.models import Epoch
from jobs.services.operate.epochs import declare_restored
from jobs.states import JobState
from tests.api.conftest import SPEC, Api, error_of
from tests.factories import make_batch, make_dead_letter, make_job, make_jobs
from tests.support.api import faults_of, pages


def test_pages_show_every_row_once_while_others_arrive(api: Api):
    jobs = make_jobs(10)
    assert pages(api, "/jobs/", between=lambda: make_jobs(2)) == [str(job.pk) for job in reversed(jobs)]


@pytest.mark.parametrize("path", ["/jobs/", "/batches/", "/events/", "/dead-letters/", "/operations/"])
def test_lists_never_count_the_table(api: Api, path):
    make_dead_letter(batch=make_batch())
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert api.get(path).status_code == 200
    assert not [query["sql"] for query in queries if "count(*)" in query["sql"].lower()]


def test_jobs_are_found_by_what_describes_them(api: Api):
    batch = make_batch()
    user_id = "018f6a52-0000-7000-8000-000000000001"
    first = make_job(batch=batch, priority="urgent", user_id=user_id, idempotency_key="k")
    second = make_job(state=JobState.CANCELLED)

    def found(query: str) -> list[str]:
        response = api.get(f"/jobs/?{query}")
        assert response.status_code == 200, response.content
        return [row["id"] for row in response.json()["results"]]

    both = [str(second.pk), str(first.pk)]
    assert found("state=cancelled") == [str(second.pk)]
    assert found("state=queued,cancelled") == both
    assert found("priority=urgent&kind=http.request") == [str(first.pk)]
    assert found(f"batch={batch.pk}") == found(f"user={user_id}") == found("idempotency_key=k") == [str(first.pk)]
    assert found(f"service={first.service}") == both
    assert found("held=true") == []
    now = timezone.now().isoformat().replace("+", "%2B")
    assert (found(f"created_before={now}"), found(f"created_after={now}")) == (both, [])
    assert found("created_before=1900-01-01T00:00:00Z") == []
    assert found("created_after=0001-01-01T00:00:00%2B14:00") == both
    assert found("created_before=9999-12-31T23:59:59-14:00") == both


WRONG = {
    "stat=queued": "stat",
    "state=done": "state",
    "state=queued&state=failed": "state",
    "batch=7": "batch",
    "created_after=yesterday": "created_after",
    "page_size=0": "page_size",
    "page_size=501": "page_size",
    "page_size=²": "page_size",
    "cursor=nonsense": "cursor",
    "cursor=%ff": "cursor",
    "kind=%00": "kind",
    "format=xml": "format",
}


def test_a_parameter_that_is_wrong_or_unknown_is_refused_by_name(api: Api):
    assert faults_of({query: api.get(f"/jobs/?{query}") for query in WRONG}, 400, "invalid_query", WRONG) == {}


def test_a_refused_parameter_says_what_is_taken(api: Api):
    """Also where the filter was made from the column's choices."""
    for path, name, words in (
        ("/jobs/?state=queued,nope", "state", "'nope' is none of queued, "),
        ("/limits/?scope=nope", "scope", "'nope' is none of global, project, "),
        ("/jobs/?state=queued&state=failed", "state", "separate them by commas"),
        ("/usage/?month=13", "month", "2026-03"),
        ("/usage/events/?user_id=018f6a52-0000-7000-8000-000000000001&month=2026-3", "month", "2026-03"),
    ):
        [told] = error_of(api.get(path), 400)["fields"][name]
        assert words in told, path


def test_a_cursor_of_another_list_is_refused(api: Api):
    make_jobs(4)
    cursor = api.get("/jobs/?page_size=3").json()["next_cursor"]
    assert set(error_of(api.get(f"/events/?cursor={cursor}"), 400)["fields"]) == {"cursor"}


def test_events_are_found_by_job_type_and_time(api: Api):
    job, other = make_job(state=JobState.CANCELLED), make_job()
    events = api.get(f"/jobs/{job.pk}/events/").json()["results"]
    assert [event["to_status"] for event in events] == ["cancelled", "queued"]
    assert api.get(f"/events/?job={job.pk}").json()["results"] == events
    assert api.get(f"/events/?job={job.pk}&to_state=queued").json()["results"] == events[1:]
    assert api.get("/events/?event_type=error").json()["results"] == []
    assert len(api.get(f"/events/?job={other.pk}&event_type=state_change,error").json()["results"]) == 1
    assert api.get("/events/?created_before=2020-01-01T00:00:00Z").json()["results"] == []
    assert len(pages(api, "/events/")) == 3


def test_dead_letters_are_found_by_cause_and_resolution(api: Api):
    letter = make_dead_letter(fingerprint="a" * 32)
    make_dead_letter(resolution="discarded")
    found = api.get("/dead-letters/?open=true").json()["results"]
    assert [row["id"] for row in found] == [str(letter.pk)]
    assert api.get(f"/dead-letters/?fingerprint={'a' * 32}").json()["results"] == found
    assert api.get(f"/dead-letters/{letter.pk}/").json() == found[0]
    assert len(api.get("/dead-letters/?resolution=discarded").json()["results"]) == 1


def test_handlers_say_what_payload_they_take(api: Api):
    handlers = {row["kind"]: row for row in api.get("/handlers/").json()["results"]}
    assert handlers["http.request"]["payload_schema"]["required"] == ["method", "url"]
    assert handlers["http.request"]["timeout_seconds"] == 60
    assert not [kind for kind in handlers if kind.startswith("queueops.")]


def test_the_project_counts_its_jobs_by_state(api: Api):
    make_jobs(2)
    api.post("/jobs/", SPEC)
    make_job(state=JobState.CANCELLED)
    shown = api.get("/project/").json()
    assert (shown["id"], shown["paused"], shown["unfinished"]) == ("acme", False, 3)
    assert (shown["counts"]["queued"], shown["counts"]["cancelled"]) == (3, 1)


def test_scheduled_jobs_are_counted_beside_the_queued_and_found_by_a_filter(api: Api):
    batch, until = make_batch(), timezone.now() + timedelta(hours=2)
    [later, _] = [*make_jobs(1, batch=batch, scheduled_at=until), *make_jobs(1, batch=batch)]
    for path in ("/project/", f"/batches/{batch.pk}/"):
        shown = api.get(path).json()
        assert (shown["counts"]["queued"], shown["scheduled"]) == (2, 1), path
        assert parse_datetime(shown["scheduled_until"]) == until
    for path in ("/jobs/", f"/batches/{batch.pk}/jobs/"):
        assert [row["id"] for row in api.get(f"{path}?scheduled=true").json()["results"]] == [str(later.pk)]
        assert len(api.get(f"{path}?scheduled=false").json()["results"]) == 1
        assert set(error_of(api.get(f"{path}?scheduled=soon"), 400)["fields"]) == {"scheduled"}


@pytest.mark.parametrize("path", ["/events/", "/jobs/{job}/events/"])
def test_a_page_of_the_log_of_another_epoch_is_gone_and_a_cursor_without_one_goes_on(api: Api, path):
    job = make_job(state=JobState.COMPLETED)
    path = path.format(job=job.pk)
    page = api.get(f"{path}?page_size=1").json()
    epoch, _, place = page["next_cursor"].partition(".")
    assert epoch == api.get(f"/jobs/{job.pk}/").json()["epoch"] == str(Epoch.objects.get())
    declare_restored(actor="op")
    assert error_of(api.get(f"{path}?cursor={page['next_cursor']}"), 410)["code"] == "other_epoch"
    assert api.get(f"{path}?cursor={place}").status_code == 200
    assert set(error_of(api.get(f"{path}?cursor={epoch}."), 400)["fields"]) == {"cursor"}
    assert set(error_of(api.get(f"{path}?after=7"), 400)["fields"]) == {"after"}
