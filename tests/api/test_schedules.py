"""Schedules over the API: made, looked at, changed, steered and deleted, with the errors of each field."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from jobs.features.schedules.fire_schedules import fire_schedules
from jobs.models import Job, Schedule
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import Project
from tests.api.conftest import SPEC, Api, error_of, key_for

pytestmark = pytest.mark.django_db

NEW: dict[str, Any] = {"name": "nightly", "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "jobs": [SPEC]}


def made(api: Api, **figures: Any) -> dict[str, Any]:
    response = api.post("/schedules/", {**NEW, **figures})
    assert response.status_code == 201, response.content
    found: dict[str, Any] = response.json()
    return found


def test_what_was_made_is_shown_with_its_next_five_fires(api: Api):
    schedule = made(api)
    assert (schedule["name"], schedule["jobs"], schedule["missed"], schedule["paused"]) == (
        "nightly", [SPEC], "once", False,
    )  # fmt: skip
    assert len(schedule["next_due"]) == 5
    assert schedule["next_fire_at"] == schedule["next_due"][0]
    assert api.get(f"/schedules/{schedule['id']}/").json() == schedule
    assert api.get("/schedules/").json()["results"] == [schedule]
    assert api.get("/schedules/?paused=true").json()["results"] == []
    assert AuditEntry.objects.get(action="create_schedule").actor.startswith("key:")


def test_a_preview_says_when_and_stores_nothing(api: Api):
    made(api)
    shown = api.post("/schedules/preview/", NEW).json()["next_due"]
    assert shown == api.get("/schedules/").json()["results"][0]["next_due"]
    error = error_of(api.post("/schedules/preview/", {**NEW, "cron": "0 0 31 6 *"}), 422)
    assert (error["code"], list(error["fields"])) == ("bad_schedule", ["cron"])
    assert Schedule.objects.count() == 1


def test_each_fault_is_told_by_its_field(api: Api):
    jobs = [SPEC, {**SPEC, "payload": {"method": "GET"}}, {**SPEC, "idempotency_key": "x"}]
    error = error_of(api.post("/schedules/", {**NEW, "time_zone": "Berlin", "jobs": jobs}), 422)
    assert set(error["fields"]) == {"time_zone", "jobs.1.payload.url", "jobs.2.idempotency_key"}
    made(api)
    error = error_of(api.post("/schedules/", NEW), 422)
    assert (error["code"], list(error["fields"])) == ("bad_schedule", ["name"])
    error = error_of(api.post("/schedules/", {**NEW, "jobs": []}), 422)
    assert (error["code"], list(error["fields"])) == ("invalid_input", ["jobs"])


def test_what_is_left_out_of_a_change_stays(api: Api):
    schedule = made(api, jitter_seconds=30)
    answer = api.send("PATCH", f"/schedules/{schedule['id']}/", '{"cron": "0 4 * * *", "reason": "later"}').json()
    assert (answer["cron"], answer["jitter_seconds"], answer["jobs"]) == ("0 4 * * *", 30, [SPEC])
    assert answer["next_due"] != schedule["next_due"]
    assert AuditEntry.objects.get(action="change_schedule").reason == "later"


def test_pause_resume_and_run_now(api: Api):
    address = f"/schedules/{made(api)['id']}"
    paused = api.post(f"{address}/pause/", {"reason": "holidays"}).json()
    assert (paused["paused"], paused["next_fire_at"], paused["next_due"]) == (True, None, [])
    fires = [api.post(f"{address}/run/", {}, idempotency_key="once").json() for _ in range(2)]
    assert fires[0] == fires[1]
    assert Job.objects.get().pk.hex == fires[0]["job_id"].replace("-", "")
    resumed = api.post(f"{address}/resume/", {}).json()
    assert (resumed["paused"], resumed["last_fire"]["id"]) == (False, fires[0]["id"])
    assert api.get(f"{address}/fires/").json()["results"] == [fires[0]]


def test_each_change_is_made_once_under_one_key(api: Api):
    def twice(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        key = str(uuid4())
        first, again = (api.send(method, path, json.dumps(body), idempotency_key=key) for _ in range(2))
        assert first.status_code < 300, first.content
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert again.headers["Idempotency-Replayed"] == "true"
        told: dict[str, Any] = first.json()
        return told

    schedule = twice("POST", "/schedules/", NEW)
    address = f"/schedules/{schedule['id']}/"
    assert schedule == api.get(address).json()
    twice("PATCH", address, {"cron": "0 4 * * *"})
    twice("POST", f"{address}pause/", {})
    fire = twice("POST", f"{address}run/", {})
    twice("POST", f"{address}resume/", {})
    assert (Schedule.objects.count(), str(Job.objects.get().pk)) == (1, fire["job_id"])


def test_a_refusal_is_shown_where_one_looks(api: Api):
    schedule = made(api)
    Project.objects.update(max_waiting_jobs=0)
    assert error_of(api.post(f"/schedules/{schedule['id']}/run/", {}), 429)["code"] == "queue_full"
    fire_schedules(at=timezone.now() + timedelta(days=1))
    shown = api.get(f"/schedules/{schedule['id']}/").json()
    assert (shown["refused_in_a_row"], shown["last_fire"]["error_code"]) == (1, "queue_full")
    assert len(api.get(f"/schedules/{schedule['id']}/fires/?outcome=refused").json()["results"]) == 1


def test_it_is_deleted_and_what_it_submitted_stays(api: Api):
    address = f"/schedules/{made(api)['id']}/"
    api.post(f"{address}run/", {})
    assert api.send("DELETE", f"{address}?reason=done", "").json() == {"deleted": True}
    assert error_of(api.get(address), 404)["code"] == "not_found"
    assert Job.objects.count() == 1
    assert AuditEntry.objects.get(action="delete_schedule").reason == "done"


def test_another_projects_is_neither_changed_nor_deleted(api: Api):
    schedule = made(Api(key_for("beta")))
    for identifier in (schedule["id"], str(uuid4())):
        assert error_of(api.send("PATCH", f"/schedules/{identifier}/", '{"cron": "0 4 * * *"}'), 404)
        assert error_of(api.send("DELETE", f"/schedules/{identifier}/", ""), 404)
    assert Schedule.objects.get().cron == NEW["cron"]


def test_who_only_reads_sees_and_previews_alone():
    reader, schedule = Api(key_for("acme", scopes=["read"])), made(Api(key_for("acme")))
    assert reader.get(f"/schedules/{schedule['id']}/").status_code == 200
    assert reader.post("/schedules/preview/", NEW).status_code == 200
    for method, path in (("POST", "/schedules/"), ("PATCH", f"/schedules/{schedule['id']}/")):
        assert error_of(reader.send(method, path, "{}"), 403)["details"]["needed"] == "submit"
