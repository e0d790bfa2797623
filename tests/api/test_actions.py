from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import BulkOperation, DeadLetter, Job, PauseSwitch
from jobs.services.operate.bulk_run import run_bulk_chunk
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from tests.api.conftest import Api, error_of
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs
from tests.support.api import told


def test_a_job_is_cancelled_once_and_the_key_is_named_as_its_actor(api: Api):
    job = make_job()
    response = api.post(f"/jobs/{job.pk}/cancel/")
    assert (response.status_code, response.json()) == (200, {"id": str(job.pk), "state": "cancelled"})
    assert AuditEntry.objects.get().actor.startswith("key:qo_")
    error = error_of(api.post(f"/jobs/{job.pk}/cancel/", {"reason": "again"}), 409)
    assert (error["code"], error["details"]) == ("wrong_state", {"state": "cancelled"})


def test_a_waiting_job_is_scheduled_and_a_running_one_is_reset(api: Api):
    waiting, running = make_job(), make_job(state=JobState.IN_PROGRESS)
    assert api.post(f"/jobs/{waiting.pk}/schedule/", {"delay_seconds": 600}).status_code == 200
    waiting.refresh_from_db()
    assert waiting.scheduled_at is not None
    assert "later" in api.get(f"/jobs/{waiting.pk}/").json()["waiting_for"]
    assert error_of(api.post(f"/jobs/{running.pk}/schedule/", {"delay_seconds": 0}), 409)["code"] == "wrong_state"
    assert api.post(f"/jobs/{running.pk}/reset/").json()["state"] == "retried"
    assert error_of(api.post(f"/jobs/{waiting.pk}/reset/"), 409)["code"] == "wrong_state"


def test_a_job_is_not_scheduled_beyond_its_expiry(api: Api):
    job = make_job(expires_at=timezone.now() + timedelta(hours=1))
    for answer in (
        api.post(f"/jobs/{job.pk}/schedule/", {"delay_seconds": 3700}),
        api.post("/jobs/schedule/", {"ids": [str(job.pk)], "delay_seconds": 3700}),
    ):
        error = error_of(answer, 409)
        assert (error["code"], error["details"]) == ("would_expire", {"ids": [str(job.pk)]})


def test_the_priority_of_a_waiting_job_changes(api: Api):
    job = make_job()
    assert api.post(f"/jobs/{job.pk}/priority/", {"priority": "urgent"}).status_code == 200
    assert Job.objects.get().priority == "urgent"


def test_a_wrong_or_unknown_field_of_an_action_is_named(api: Api):
    for action, body, field in (
        ("cancel", {"why": "x"}, "why"),
        ("schedule", {}, "delay_seconds"),
        ("schedule", {"delay_seconds": -1}, "delay_seconds"),
        ("priority", {"priority": "highest"}, "priority"),
        ("cancel", {"reason": "x" * 501}, "reason"),
    ):
        answer = api.post(f"/jobs/{make_job().pk}/{action}/", body)
        assert told(answer) == (422, "invalid_input", [field]), (action, body)


@pytest.mark.parametrize(
    ("action", "body", "check"),
    [
        ("cancel", {}, {"status": "cancelled"}),
        ("schedule", {"delay_seconds": 60}, {"scheduled_at__isnull": False}),
        ("priority", {"priority": "low"}, {"priority": "low"}),
    ],
)
def test_many_jobs_are_acted_on_and_the_answer_says_which(api: Api, action, body, check):
    jobs = make_jobs(2)
    ended = make_job(state=JobState.COMPLETED)
    foreign = make_job(project="other")
    ids = [str(job.pk) for job in (*jobs, ended, foreign)]
    response = api.post(f"/jobs/{action}/", {**body, "ids": ids})
    assert response.json() == {"moved": ids[:2], "unmoved": ids[2:]}
    assert set(Job.objects.filter(**check).exclude(pk=foreign.pk).ids()) == {job.pk for job in jobs}
    foreign.refresh_from_db()
    assert (foreign.status, foreign.priority) == ("queued", "normal")


def test_running_jobs_are_reset_together(api: Api):
    jobs = make_jobs(2, state=JobState.IN_PROGRESS)
    response = api.post("/jobs/reset/", {"ids": [str(job.pk) for job in jobs], "delay_seconds": 5})
    assert len(response.json()["moved"]) == 2


def test_more_than_ten_thousand_ids_are_refused(api: Api):
    ids = [f"00000000-0000-7000-8000-{number:012d}" for number in range(10_001)]
    assert error_of(api.post("/jobs/cancel/", {"ids": ids}), 413)["details"] == {"given": 10_001, "limit": 10_000}
    assert set(error_of(api.post("/jobs/cancel/", {"ids": []}), 422)["fields"]) == {"ids"}


def test_a_failed_job_is_retried_as_a_new_one_and_only_once(api: Api):
    letter = make_dead_letter()
    response = api.post(f"/jobs/{letter.job_id}/retry/", {"note": "fixed", "priority": "urgent"})
    assert response.status_code == 201
    new = Job.objects.get(pk=response.json()["id"])
    assert (new.origin_id, new.priority) == (letter.job_id, "urgent")
    assert error_of(api.post(f"/jobs/{letter.job_id}/retry/"), 409)["details"] == {"state": "requeued"}
    assert error_of(api.post(f"/jobs/{make_job().pk}/retry/"), 409)["code"] == "wrong_state"


def test_dead_letters_are_requeued_with_an_edited_payload_or_discarded(api: Api):
    first, second = make_dead_letters(2)
    payload = {"method": "GET", "url": "https://api.example.org/other"}
    response = api.post(f"/dead-letters/{first.pk}/requeue/", {"payload": payload})
    assert Job.objects.get(pk=response.json()["id"]).payload["url"] == payload["url"]
    wrong = api.post(f"/dead-letters/{second.pk}/requeue/", {"payload": {"url": 1}})
    assert "payload.method" in error_of(wrong, 422)["fields"]
    assert set(error_of(api.post(f"/dead-letters/{second.pk}/discard/", {"reason": " "}), 422)["fields"]) == {"reason"}
    discarded = api.post(f"/dead-letters/{second.pk}/discard/", {"reason": "gone"}).json()
    assert (discarded["resolution"], discarded["note"]) == ("discarded", "gone")
    assert error_of(api.post(f"/dead-letters/{second.pk}/discard/", {"reason": "gone"}), 409)["code"] == "wrong_state"


def test_dead_letters_are_requeued_by_ids_and_those_of_others_are_left_alone(api: Api):
    own, foreign = make_dead_letter(), make_dead_letter(project="other")
    ids = [str(own.pk), str(foreign.pk)]
    body = api.post("/dead-letters/requeue/", {"ids": ids, "spread_seconds": 60}).json()
    assert (list(body["moved"]), body["unmoved"]) == (ids[:1], ids[1:])
    assert api.post("/dead-letters/discard/", {"ids": ids, "reason": "x"}).json() == {"moved": [], "unmoved": ids}
    assert error_of(api.post("/dead-letters/requeue/", {}), 422)["message"] == "Give either ids or filter."


def test_dead_letters_of_a_filter_are_requeued_in_the_background(api: Api):
    make_dead_letters(3, fingerprint="a" * 32)
    make_dead_letter(project="other", fingerprint="a" * 32)
    response = api.post("/dead-letters/requeue/", {"filter": {"fingerprint": "a" * 32}})
    assert response.status_code == 202
    assert (response.json()["total"], response["Location"]) == (3, response.json()["url"])
    path = response.json()["url"].removeprefix("/api/v1")
    assert (api.get(path).json()["status"], api.get(path)["Retry-After"]) == ("running", "2")
    while run_bulk_chunk(BulkOperation.objects.get().pk):
        pass
    shown = api.get(path)
    assert (shown.json()["status"], shown.json()["done"]) == ("done", 3)
    assert "Retry-After" not in shown.headers
    assert DeadLetter.objects.open().get().project_id == "other"
    assert [row["id"] for row in api.get("/operations/").json()["results"]] == [response.json()["id"]]


def test_an_operation_is_stopped(api: Api):
    make_dead_letter()
    path = api.post("/dead-letters/discard/", {"filter": {}, "reason": "all"}).json()["url"].removeprefix("/api/v1")
    assert api.post(f"{path}cancel/", {"reason": "wrong"}).json()["status"] == "cancelled"
    assert not run_bulk_chunk(BulkOperation.objects.get().pk)
    assert DeadLetter.objects.open().count() == 1


@pytest.mark.parametrize(
    ("action", "body"), [("cancel", {}), ("priority", {"priority": "low"}), ("retry", {"spread_seconds": 5})]
)
def test_a_batch_is_acted_on_in_the_background(api: Api, action, body):
    batch = make_batch()
    make_jobs(2, batch=batch)
    make_dead_letter(batch=batch)
    response = api.post(f"/batches/{batch.pk}/{action}/", body)
    assert response.status_code == 202
    assert response.json()["total"] == (1 if action == "retry" else 2)
    while run_bulk_chunk(BulkOperation.objects.get().pk):
        pass
    assert api.get(response.json()["url"].removeprefix("/api/v1")).json()["status"] == "done"


def test_a_batch_is_paused_and_resumed(api: Api):
    batch = make_batch()
    job = make_job(batch=batch)
    assert api.post(f"/batches/{batch.pk}/pause/", {"reason": "x"}).json() == {"paused": True, "changed_jobs": 1}
    assert api.get(f"/batches/{batch.pk}/").json()["paused"] is True
    assert "paused" in api.get(f"/jobs/{job.pk}/").json()["waiting_for"]
    assert api.post(f"/batches/{batch.pk}/resume/").json() == {"paused": False, "changed_jobs": 1}


def test_the_project_is_paused_and_resumed(api: Api):
    assert api.post("/project/pause/").json()["paused"] is True
    assert api.get("/project/").json()["paused"] is True
    assert PauseSwitch.objects.get().key == "acme"
    assert api.post("/project/resume/").json()["paused"] is False
    assert api.get("/project/").json()["paused"] is False
