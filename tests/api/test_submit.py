import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Batch, Job
from jobs.services.upkeep.batches import finish_batches
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from tests.api.conftest import SPEC, Api, error_of
from tests.factories import make_project
from tests.support.api import told


def test_a_submitted_job_is_stored_and_its_address_shows_it(api: Api):
    response = api.post("/jobs/", {**SPEC, "priority": "urgent", "idempotency_key": "row-7"})
    assert response.status_code == 201
    job = Job.objects.get()
    assert response.json() == {
        "id": str(job.pk),
        "created": True,
        "outcome": "created",
        "url": f"/api/v1/jobs/{job.pk}/",
    }
    assert response["Location"] == f"/api/v1/jobs/{job.pk}/"
    shown = api.get(f"/jobs/{job.pk}/")
    assert shown.json()["state"] == "queued"
    assert shown.json()["payload"] == SPEC["payload"]
    assert shown.json()["effective_priority"] == 100
    assert shown.json()["last_event"]["to_status"] == "queued"
    assert int(shown["Retry-After"]) >= 1


def test_a_job_with_a_known_idempotency_key_is_answered_with_200_and_the_first_job(api: Api):
    first = api.post("/jobs/", {**SPEC, "idempotency_key": "row-7"})
    second = api.post("/jobs/", {**SPEC, "idempotency_key": "row-7"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == {**first.json(), "created": False, "outcome": "duplicate"}
    other = {**SPEC, "payload": {**SPEC["payload"], "method": "DELETE"}, "idempotency_key": "row-7"}
    assert error_of(api.post("/jobs/", other), 422)["code"] == "idempotency_key_reused"


def test_a_body_that_is_no_job_is_refused_with_its_cause(api: Api):
    assert told(api.send("POST", "/jobs/", ""))[:2] == (422, "invalid_job")
    error = error_of(api.post("/jobs/", {"kind": "no.such"}), 422)
    assert error["code"] == "unknown_kind"
    assert "no.such" in error["message"]
    assert not Job.objects.exists()


def test_a_model_that_no_lane_has_room_for_is_refused(api: Api):
    for model in ("m" * 100, "é" * 16):
        assert api.post("/jobs/", {**SPEC, "model": model}).status_code == 201
    for model in ("é" * 17, "m" * 101):
        assert told(api.post("/jobs/", {**SPEC, "model": model}))[::2] == (422, ["model"])


def test_a_job_names_only_credentials_that_its_project_may_use_for_that_service(api: Api):
    for name, service, project in (
        ("ours", "google-sheets", "acme"),
        ("theirs", "google-sheets", "globex"),
        ("other-service", "gemini", "acme"),
    ):
        made = Credential.objects.create(name=name, service=service, secret=seal({"access_token": "t"}))
        made.projects.add(make_project(project))

    def reading_with(name: str) -> dict[str, object]:
        payload = {"spreadsheet_id": "sheet", "range": "A1", "credential": name}
        return {"kind": "google_sheets.values_get", "payload": payload}

    jobs = [reading_with(name) for name in ("theirs", "other-service", "nobodys")]
    for job in jobs:  # one answer to all: whose it is, or that there is none, is not the producer's to know
        error = error_of(api.post("/jobs/", job), 422)
        assert (error["code"], list(error["fields"])) == ("credential_not_allowed", ["payload.credential"])
    refused = error_of(api.post("/batches/", {"jobs": jobs}), 422)["details"]["errors"]
    assert [one["code"] for one in refused] == ["credential_not_allowed"] * 3
    assert api.post("/jobs/", reading_with("ours")).status_code == 201


@pytest.mark.proves("S10")
def test_what_the_platform_tells_others_can_not_be_submitted_by_producers(api: Api):
    for kind, payload in (
        ("queueops.alert", {"route": 1, "service": "google-sheets", "alert": None, "event": "test"}),
        ("queueops.webhook", {"delivery_id": "019a0000-0000-7000-8000-000000000000"}),
    ):
        assert told(api.post("/jobs/", {"kind": kind, "payload": payload})) == (422, "invalid_job", ["kind"])
    assert not Job.objects.exists()


@pytest.mark.proves("S3")
def test_fields_that_are_wrong_or_unknown_are_named(api: Api):
    error = error_of(api.post("/jobs/", {**SPEC, "priorty": "low", "delay_seconds": -1}), 422)
    assert set(error["fields"]) == {"priorty", "delay_seconds"}
    error = error_of(api.post("/jobs/", {"kind": "http.request", "payload": {"method": "GET"}}), 422)
    assert set(error["fields"]) == {"payload.url"}


MOMENTS = [
    "9999-12-31T23:59:59-14:00",  # in UTC beyond what Python can read: no list with the job in it could be shown
    "0001-01-01T00:00:00+14:00",
    "2026-12-01T10:00:00",
    "tomorrow",
    "1764583200",
    1764583200,
    True,
]


def test_a_time_that_is_not_written_out_or_out_of_range_is_refused(api: Api):
    asked = [(name, moment) for name in ("scheduled_at", "expires_at") for moment in MOMENTS]
    answers = [(name, moment, told(api.post("/jobs/", {**SPEC, name: moment}))) for name, moment in asked]
    assert [one for one in answers if one[2][::2] != (422, [one[0]])] == []
    assert not Job.objects.exists()


def test_a_figure_is_a_number_and_no_text_and_no_truth(api: Api):
    faults = {}
    for field in ("cost", "delay_seconds", "debounce_seconds", "debounce_most_seconds"):
        for given in (True, "5", ""):
            answer = api.post("/jobs/", {**SPEC, "unique_key": "k", "debounce_seconds": 9, field: given})
            if error_of(answer, 422)["fields"] != {field: ["Write a number"]}:
                faults[field, given] = answer.content
    assert faults == {}
    assert not Job.objects.exists()


def test_a_job_that_could_never_run_is_refused(api: Api):
    past, later = "2026-01-01T00:00:00Z", "2199-01-01T00:00:00Z"
    assert error_of(api.post("/jobs/", {**SPEC, "expires_at": past}), 422)["fields"] == {
        "expires_at": ["must be in the future"]
    }
    never = error_of(api.post("/jobs/", {**SPEC, "scheduled_at": later, "expires_at": later}), 422)
    assert never["message"] == "It could never run: expires_at is no later than scheduled_at."
    rejected = error_of(api.post("/batches/", {"jobs": [SPEC, {**SPEC, "expires_at": past}]}), 422)
    assert rejected["details"]["errors"][0]["fields"] == {"expires_at": ["must be in the future"]}
    soon = (timezone.now() + timedelta(minutes=10)).isoformat()
    refused = {"expires_at": ["must be later than the job's delay"]}
    for late in ({"delay_seconds": 3600}, {"unique_key": "k", "debounce_seconds": 3600}):
        assert error_of(api.post("/jobs/", {**SPEC, **late, "expires_at": soon}), 422)["fields"] == refused
    spread = {"jobs": [{**SPEC, "expires_at": soon}] * 2, "start_interval_seconds": 3600}
    told = error_of(api.post("/batches/", spread), 422)["details"]["errors"]
    assert [(one["line"], one["fields"]) for one in told] == [(2, refused)]
    assert not Job.objects.exists()


def test_a_repetition_is_answered_as_the_first_was_also_after_its_job_has_expired(api: Api):
    spec = {**SPEC, "idempotency_key": "once", "expires_at": "2026-01-01T00:00:00Z"}
    first = api.post("/jobs/", spec)
    assert first.status_code == 201  # nobody knows that it is the first
    again = api.post("/jobs/", spec)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


def test_a_time_and_a_delay_are_not_given_together(api: Api):
    both = {**SPEC, "scheduled_at": "2026-12-01T10:00:00Z", "delay_seconds": 5}
    assert error_of(api.post("/jobs/", both), 422)["message"] == "Give scheduled_at or delay_seconds, not both."


def test_a_payload_beyond_the_limit_is_refused_and_so_is_a_body(api: Api):
    large = {"method": "POST", "url": "https://api.example.org/", "text": "x" * 2_050_000}
    assert error_of(api.post("/jobs/", {"kind": "http.request", "payload": large}), 413)["code"] == "payload_too_large"
    body = json.dumps({**SPEC, "model": "x" * 3_000_000})
    assert error_of(api.send("POST", "/jobs/", body), 413)["code"] == "body_too_large"


def test_a_full_queue_is_refused_with_the_time_to_come_back(api: Api):
    make_project("acme")
    type(make_project("acme")).objects.filter(pk="acme").update(max_waiting_jobs=1)
    assert api.post("/jobs/", SPEC).status_code == 201
    response = api.post("/jobs/", SPEC)
    assert error_of(response, 429)["code"] == "queue_full"
    assert int(response["Retry-After"]) > 0


def test_a_batch_document_becomes_a_batch_of_jobs(api: Api):
    response = api.post("/batches/", {"name": "import", "jobs": [SPEC, SPEC], "start_interval_seconds": 60})
    assert response.status_code == 201
    batch = Batch.objects.get()
    assert response.json() == {
        "id": str(batch.pk),
        "accepted": 2,
        "duplicates": 0,
        "pending": 0,
        "replaced": 0,
        "error_count": 0,
        "errors": [],
        "known": [],
        "known_batches": [],
        "url": f"/api/v1/batches/{batch.pk}/",
    }
    shown = api.get(f"/batches/{batch.pk}/").json()
    assert (shown["name"], shown["total"], shown["counts"]["queued"], shown["progress"]) == ("import", 2, 2, 0.0)
    jobs = api.get(f"/batches/{batch.pk}/jobs/").json()["results"]
    assert [job["scheduled_at"] is None for job in jobs] == [False, True]


LINES = "\n".join([json.dumps(SPEC), "", '{"kind": "no.such"}', "{oops", "7", json.dumps(SPEC)])


def test_one_bad_line_rejects_a_stream_and_each_is_reported(api: Api):
    error = error_of(api.lines(LINES), 422)
    assert error["code"] == "batch_rejected"
    assert error["details"]["error_count"] == 3
    assert [line["line"] for line in error["details"]["errors"]] == [3, 4, 5]
    assert not Job.objects.exists()
    assert not Batch.objects.exists()


def test_a_partial_stream_accepts_the_good_lines(api: Api):
    response = api.lines(LINES, "?partial=true&name=stream")
    assert response.status_code == 201
    assert (response.json()["accepted"], response.json()["error_count"]) == (2, 3)
    assert [line["code"] for line in response.json()["errors"]] == ["unknown_kind", "invalid_job", "invalid_job"]
    assert Batch.objects.get().name == "stream"


def test_a_document_reports_its_bad_jobs_by_place(api: Api):
    error = error_of(api.post("/batches/", {"jobs": [SPEC, 7, {"kind": "no.such"}]}), 422)
    assert [line["line"] for line in error["details"]["errors"]] == [2, 3]


def test_a_line_longer_than_any_job_is_refused_without_being_read_whole(api: Api):
    long = json.dumps({"kind": "http.request", "payload": {"text": "x" * 7_000_000}})
    response = api.lines(f"{json.dumps(SPEC)}\n{long}\n{json.dumps(SPEC)}", "?partial=1")
    assert response.status_code == 201
    refused = [(line["line"], line["code"]) for line in response.json()["errors"]]
    assert (response.json()["accepted"], refused) == (2, [(2, "payload_too_large")])


UNSTORABLE = [
    '{"kind": "http.request", "payload": {"method": "POST", "url": "https://a.example.org/", "json": {"a": NaN}}}',
    '{"kind": "http.request", "payload": {"method": "POST", "url": "https://a.example.org/", "json": [1e999]}}',
    '{"kind": "http.request", "payload": {"method": "POST", "url": "https://a.example.org/", "json": "\\u0000"}}',
    '{"kind": "http.request", "payload": {"method": "POST", "url": "https://a.example.org/", "json": '
    + "[" * 300
    + "]" * 300
    + "}}",
    '{"kind": "http.request\\u0000", "payload": {}}',
    '{"kind": "http.request", "model": "a\\u0000", "payload": {"method": "GET", "url": "https://a.example.org/"}}',
]


def test_what_cannot_be_stored_is_refused_by_line(api: Api):
    for line in UNSTORABLE:
        error = error_of(api.lines(line), 422)
        assert (error["code"], error["details"]["errors"][0]["line"]) == ("batch_rejected", 1), line[:120]
    assert not Batch.objects.exists()


NAN = {"spreadsheet_id": "1AbC", "requests": [{"cells": [{"n": 1}, {"n": 2}]}]}
SHEET = json.dumps({"kind": "google_sheets.batch_update", "payload": NAN})


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_no_json_has_is_a_fault_of_its_line_and_field_in_lines_and_documents(api: Api, number: str):
    lines = [json.dumps(SPEC), SHEET.replace('"n": 2', f'"n": {number}'), json.dumps(SPEC)]
    body = '{"jobs": [%s], "partial": %s}'
    for all_or_none, partial in (
        (api.lines("\n".join(lines)), api.lines("\n".join(lines), "?partial=1")),
        tuple(api.send("POST", "/batches/", body % (",".join(lines), word)) for word in ("false", "true")),
    ):
        error = error_of(all_or_none, 422)
        [fault] = error["details"]["errors"]
        assert (fault["line"], list(fault["fields"])) == (2, ["payload.requests.0.cells.1.n"])
        assert (partial.status_code, partial.json()["accepted"]) == (201, 2)
        assert [one["line"] for one in partial.json()["errors"]] == [2]


def test_marks_of_windows_and_arrays_are_taken_or_explained(api: Api):
    one, document = json.dumps(SPEC), json.dumps({"jobs": [SPEC]})
    for path, body in (("/jobs/", one), ("/batches/", document)):
        assert api.send("POST", path, f"\ufeff{body}").status_code == 201
        assert "UTF-16" in error_of(api.send("POST", path, body.encode("utf-16")), 400)["message"]
    assert api.lines(f"\ufeff{one}\r\n{one}\r\n").json()["accepted"] == 2
    assert "-Encoding utf8" in error_of(api.lines(f"{one}\n".encode("utf-16")), 400)["message"]
    assert '{"jobs": [...]}' in error_of(api.send("POST", "/batches/", f"[{one}]"), 422)["message"]
    refused = error_of(api.lines(f"[\n{one}\n]"), 422)["details"]["errors"]
    assert "one job a line" in refused[0]["message"]


@pytest.mark.proves("S3")
def test_an_empty_batch_and_unknown_options_are_refused(api: Api):
    assert error_of(api.lines("\n\n"), 422)["code"] == "empty_batch"
    assert set(error_of(api.lines(LINES, "?partail=1"), 400)["fields"]) == {"partail"}
    assert set(error_of(api.lines(LINES, "?partial=maybe"), 400)["fields"]) == {"partial"}
    assert set(error_of(api.post("/batches/", {"jobs": [SPEC], "x": 1}), 422)["fields"]) == {"x"}


def test_a_batch_beyond_the_limit_is_refused_whole(api: Api, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_batch_jobs=2)
    error = error_of(api.lines("\n".join([json.dumps(SPEC)] * 3)), 413)
    assert error["code"] == "too_many_jobs"
    assert not Job.objects.exists()


def test_a_batch_of_duplicates_alone_has_nothing_left_to_do(api: Api):
    line = json.dumps({**SPEC, "idempotency_key": "row-7"})
    api.lines(line)
    again = api.lines(line).json()
    assert (again["accepted"], again["duplicates"]) == (0, 1)
    shown = api.get(f"/batches/{again['id']}/")
    assert shown.json()["progress"] == 100.0
    assert "Retry-After" not in shown


def test_a_batch_names_the_jobs_and_batches_that_stand_for_its_known_keys(api: Api):
    def line(key: str, **more: Any) -> str:
        return json.dumps({**SPEC, "idempotency_key": key, **more})

    first = api.lines(f"{line('a')}\n{line('b')}").json()
    alone = api.post("/jobs/", json.loads(line("alone"))).json()
    pending = api.post("/jobs/", {**SPEC, "unique_key": "u"}).json()
    assert (first["known"], first["known_batches"]) == ([], [])
    jobs = {job.idempotency_key: str(job.pk) for job in Job.objects.all()}
    again = api.lines(
        "\n".join([line("b"), line("new"), line("alone"), json.dumps({**SPEC, "unique_key": "u"})])
    ).json()
    assert again["known"] == [
        {"line": 1, "outcome": "duplicate", "job": jobs["b"], "batch": first["id"]},
        {"line": 3, "outcome": "duplicate", "job": alone["id"], "batch": None},
        {"line": 4, "outcome": "pending", "job": pending["id"], "batch": None},
    ]
    assert again["known_batches"] == [first["id"]]
    assert api.get(f"/batches/{again['id']}/").json()["known_batches"] == [first["id"]]
    whole = api.lines(f"{line('a')}\n{line('b')}").json()
    assert (whole["accepted"], whole["known_batches"]) == (0, [first["id"]])
    finish_batches()
    assert api.get(f"/batches/{whole['id']}/").json()["finished_at"] is not None
