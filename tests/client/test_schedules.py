"""Schedules by both clients and by the command, against the real server."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.models import Job, Schedule
from queueops.audit.models import AuditEntry
from queueops_client import InvalidRequest, JobSpec, NotFound, QueueOps
from tests.api.conftest import SPEC

pytestmark = pytest.mark.django_db(transaction=True)

JOB = {"kind": SPEC["kind"], "payload": SPEC["payload"]}
UNKNOWN = "018f6a52-0000-7000-8000-000000000001"
CRON = "30 2 * * MON-FRI"


def test_a_schedule_is_made_found_and_changed(queue: QueueOps):
    ends_at = datetime(2099, 1, 1, tzinfo=UTC)
    made = queue.create_schedule(
        "nightly", CRON, [JobSpec(**JOB), JOB], time_zone="Europe/Berlin", missed="all", most_missed=3, ends_at=ends_at
    )
    assert (made.name, made.cron, made.time_zone, made.missed, made.most_missed) == (
        *("nightly", CRON, "Europe/Berlin", "all"),
        3,
    )
    assert [job["kind"] for job in made.jobs] == [JOB["kind"]] * 2
    assert len(made.next_due) == 5
    assert (made.next_fire_at, made.last_fire) == (made.next_due[0], None)
    changed = queue.change_schedule(made, cron="0 4 * * *", ends_at=None, reason="the export is ready later")
    assert (changed.cron, changed.missed) == ("0 4 * * *", "all")
    stored = Schedule.objects.get()
    assert (stored.cron, stored.ends_at) == ("0 4 * * *", None)
    assert AuditEntry.objects.filter(reason="the export is ready later").exists()
    assert [one.id for one in queue.schedules(name="nightly")] == [made.id]
    assert list(queue.schedules(paused=True)) == []
    assert queue.schedule(made.id).cron == "0 4 * * *"


def test_a_preview_stores_nothing(queue: QueueOps):
    due = queue.preview_schedule("hourly", "0 * * * *", [JOB])
    assert len(due) == 5
    assert {later - earlier for earlier, later in itertools.pairwise(due)} == {timedelta(hours=1)}
    assert not Schedule.objects.exists()


def test_a_schedule_is_paused_resumed_run_and_deleted(queue: QueueOps):
    made = queue.create_schedule("nightly", CRON, [JOB])
    assert queue.pause_schedule(made, reason="holidays").paused
    fire = queue.run_schedule(made)
    assert (fire.outcome, fire.job_id) == ("submitted", Job.objects.get().pk)
    assert [one.id for one in queue.fires(made, outcome=["submitted"])] == [fire.id]
    assert list(queue.fires(made, outcome="refused")) == []
    resumed = queue.resume_schedule(made)
    assert not resumed.paused
    assert resumed.last_fire is not None
    queue.delete_schedule(made, reason="not wanted any more")
    with pytest.raises(NotFound):
        queue.schedule(made)
    with pytest.raises(NotFound):
        queue.delete_schedule(made)
    assert Job.objects.count() == 1


def test_what_cannot_be_a_schedule_is_refused_with_its_field(queue: QueueOps):
    with pytest.raises(InvalidRequest) as refused:
        queue.create_schedule("never", "0 0 30 2 *", [JOB])
    assert "cron" in refused.value.fields
    with pytest.raises(InvalidRequest) as refused:
        queue.create_schedule("nobody's", CRON, [{"kind": "no.such.kind", "payload": {}}])
    assert any(name.startswith("jobs") for name in refused.value.fields)
    with pytest.raises(InvalidRequest):
        queue.create_schedule("nothing", CRON, [])
    queue.create_schedule("nightly", CRON, [JOB])
    with pytest.raises(InvalidRequest) as refused:
        queue.create_schedule("nightly", CRON, [JOB])
    assert (refused.value.code, list(refused.value.fields)) == ("bad_schedule", ["name"])
    with pytest.raises(InvalidRequest) as refused:
        queue.schedule("nightly")
    assert refused.value.code == "invalid_id"
    with pytest.raises(NotFound):
        queue.run_schedule(UNKNOWN)
    assert Schedule.objects.count() == 1


def test_the_command_knows_a_schedule_by_its_name(command: Any, tmp_path: Any):
    (tmp_path / "jobs.ndjson").write_text(f"{json.dumps(JOB)}\n{json.dumps(JOB)}\n")
    code, out, _ = command("schedules", "add", "nightly", CRON, "jobs.ndjson", "--dry-run")
    assert (code, len(out.splitlines()), Schedule.objects.count()) == (0, 6, 0)
    code, out, _ = command("schedules", "add", "nightly", CRON, "jobs.ndjson", "--time-zone", "Europe/Berlin")
    assert code == 0, out
    code, out, _ = command("schedules", "list")
    assert f"{CRON} Europe/Berlin" in out
    assert command("schedules", "pause", "nightly", "--reason", "holidays")[0] == 0
    code, out, _ = command("schedules", "run", "nightly")
    assert (code, Job.objects.count()) == (0, 2)
    assert " submitted " in out
    code, out, _ = command("--json", "schedules", "show", "nightly")
    told = json.loads(out)
    assert (told["paused"], [fire["outcome"] for fire in told["fires"]]) == (True, ["submitted"])
    assert command("schedules", "change", "nightly", "--cron", "0 4 * * *", "--name", "early")[0] == 0
    code, out, _ = command("schedules", "resume", "early")
    assert (code, "Next: " in out) == (0, True)
    code, out, _ = command("schedules", "show", "early")
    assert "0 4 * * * Europe/Berlin" in out
    assert command("schedules", "delete", "early", "--yes")[0] == 0
    assert not Schedule.objects.exists()
    code, out, _ = command("schedules", "list")
    assert (code, out.strip()) == (0, "There are none.")


def test_the_command_says_what_is_wrong_with_a_schedule(command: Any, tmp_path: Any):
    (tmp_path / "jobs.ndjson").write_text(json.dumps(JOB))
    code, _, errors = command("schedules", "add", "never", "0 0 30 2 *", "jobs.ndjson")
    assert (code, "cron" in errors) == (1, True)
    code, _, errors = command("schedules", "add", "nightly", CRON, "absent.ndjson")
    assert (code, "absent.ndjson" in errors) == (1, True)
    code, _, errors = command("schedules", "run", "nightly")
    assert (code, "There is no schedule named nightly" in errors) == (1, True)
    code, _, errors = command("schedules", "show", UNKNOWN)
    assert code == 1
    code, _, errors = command("schedules", "change", "nightly", "--reason", "none")
    assert (code, "Say what to change" in errors) == (2, True)
    assert not Schedule.objects.exists()
