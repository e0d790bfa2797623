"""Resuming everything with a ramp: by the service, the command, the admin and the dashboard."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from jobs.errors import NotPaused
from jobs.executor.duties import Duties
from jobs.features.forecast.forecast import read_limits
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.claim import claim
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate import pauses
from jobs.services.operate.epochs import declare_restored
from jobs.services.operate.pauses import pause_scope, resume_everything, resume_scope, tend_ramp
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core.notify import Channel
from ratelimits.limits import catalogue, ramps
from ratelimits.models import ResumeRamp
from tests.factories import make_job, make_jobs
from tests.support.cases import every_case
from tests.support.people import signed_in
from tests.support.processes import wait_for
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db

ACTOR = "user:7"
GLOBAL = PauseSwitch.Scope.GLOBAL


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    """This process reads its limits again when something changed, and no other is there to be waited for."""
    monkeypatch.setattr(pauses, "RAMP_KNOWN_SECONDS", 0.0)
    catalogue.forget()


def executor(slots: int = 20, **fields: object) -> UUID:
    figures = {"pid": 1, "process_started_at": 0.0, "cluster_pid": 1, "slots": slots, "role": "general"}
    return Executor.objects.create(**{**figures, **fields}).pk


def paused() -> None:
    pause_scope(GLOBAL, "", actor=ACTOR)


def claimed(by: UUID, count: int = 20) -> int:
    return len(claim.claim_jobs(by, wanted=count, lease_seconds=30, turns=ClassTurns()))


def test_it_starts_work_with_a_share_of_the_slots_and_says_so_in_the_trail():
    one = executor(40)
    executor(1, role="quarantine")
    executor(50, heartbeat_at=Now() - timedelta(hours=1))
    make_jobs(30, service="free")
    paused()
    assert claimed(one) == 0
    resume_everything(over_seconds=600, actor=ACTOR, reason="restored")
    assert ResumeRamp.objects.get().slots == 40
    assert claimed(one) == 2
    assert claimed(one) == 0
    entry = AuditEntry.objects.get(action="resume")
    assert (entry.target, entry.after, entry.reason) == ("global", {"paused": False, "over_seconds": 600}, "restored")


def test_slots_that_come_and_go_are_counted_while_the_ramp_is_on():
    paused()
    resume_everything(over_seconds=600, actor=ACTOR)
    assert ResumeRamp.objects.get().slots == 1
    executor(30)
    tend_ramp()
    assert ResumeRamp.objects.get().slots == 30
    ResumeRamp.objects.update(started_at=None)  # it waits for the pause to end
    Executor.objects.update(slots=35)
    tend_ramp()
    assert ResumeRamp.objects.get().slots == 35
    Executor.objects.update(draining=True)
    tend_ramp()
    assert ResumeRamp.objects.get().slots == 1


def test_it_is_refused_where_not_everything_is_paused():
    with pytest.raises(NotPaused):
        resume_everything(over_seconds=600, actor=ACTOR)
    assert not ResumeRamp.objects.exists()


def test_the_ramp_is_known_everywhere_before_the_pause_ends(monkeypatch):
    paused()
    seen = []
    monkeypatch.setattr(
        time,
        "sleep",
        lambda seconds: seen.append((seconds, PauseSwitch.objects.count(), ResumeRamp.objects.get().started_at)),
    )
    monkeypatch.setattr(pauses, "RAMP_KNOWN_SECONDS", 2 * catalogue.LIMITS_KEPT_SECONDS)
    resume_everything(over_seconds=600, actor=ACTOR)
    assert seen == [(1.0, 1, None)]
    assert ResumeRamp.objects.get().started_at is not None


def test_a_pause_meanwhile_holds(monkeypatch):
    paused()
    monkeypatch.setattr(time, "sleep", lambda _: paused())
    with pytest.raises(NotPaused, match="again"):
        resume_everything(over_seconds=600, actor=ACTOR)
    assert PauseSwitch.objects.filter(scope=GLOBAL).exists()


def test_a_plain_resume_meanwhile_leaves_no_ramp_behind(monkeypatch):
    """It would keep every limit at its first share, and nobody could see or end it."""
    paused()
    monkeypatch.setattr(time, "sleep", lambda _: resume_scope(GLOBAL, "", actor=ACTOR))
    with pytest.raises(NotPaused):
        resume_everything(over_seconds=600, actor=ACTOR)
    assert not ResumeRamp.objects.exists()
    assert catalogue.rule_of_ramp() is None


def test_a_ramp_that_waits_is_forgotten_when_the_database_turns_out_to_be_put_back():
    """It would take the new pause for the one that it ends."""
    paused()
    ramps.prepare_ramp(over_seconds=600, slots=1, actor=ACTOR)
    declare_restored(actor="op")
    assert not ResumeRamp.objects.exists()


def test_house_keeping_tells_the_ramp_how_many_slots_there_are():
    one = executor(30)
    paused()
    resume_everything(over_seconds=600, actor=ACTOR)
    Executor.objects.update(slots=25)
    Duties(one, sweep_seconds=5, silent_seconds=30, stuck_seconds=30).do(time.monotonic())
    assert ResumeRamp.objects.get().slots == 25


def test_a_job_from_before_the_ramp_is_forecast_by_it():
    executor(20)
    job = make_job(service="free")
    assert read_limits(job, now=timezone.now()) == ()
    paused()
    resume_everything(over_seconds=600, actor=ACTOR)
    assert [found.rule.name for found in read_limits(job, now=timezone.now())] == ["ramp"]


def test_executors_are_woken(monkeypatch):
    paused()
    told: list[str] = []
    monkeypatch.setattr(pauses, "notify", told.append)
    resume_everything(over_seconds=600, actor=ACTOR)
    assert told == [Channel.READY]


def test_a_new_pause_of_everything_ends_the_ramp_and_another_pause_does_not():
    paused()
    resume_everything(over_seconds=600, actor=ACTOR)
    pause_scope("service", "llm", actor=ACTOR)
    assert ramps.ramp_now() is not None
    paused()
    assert not ResumeRamp.objects.exists()
    resume_scope(GLOBAL, "", actor=ACTOR)
    assert catalogue.rule_of_ramp() is None


@pytest.mark.django_db(transaction=True)
def test_of_two_that_resume_at_once_one_starts_the_ramp():
    paused()

    def resume(_: int) -> bool:
        try:
            resume_everything(over_seconds=600, actor=ACTOR)
        except NotPaused:
            return False
        return True

    assert sorted(run_together(2, resume)) == [False, True]
    assert ramps.ramp_now() is not None, "it has begun, and was not prepared again"


def test_a_job_that_the_ramp_keeps_says_so():
    one = executor(20)
    jobs = make_jobs(3, service="free")
    paused()
    resume_everything(over_seconds=600, actor=ACTOR)
    assert claimed(one) == 1
    waiting = Job.objects.filter(status=JobState.RATE_LIMITED)
    assert set(waiting) < set(jobs)
    assert len(waiting) == 2
    told = explain_waiting(waiting[0])
    assert told is not None
    assert told.reasons[0].text == "ramp has no room: 0 of 1 calls in flight are free, paced by the ramp: 5%"
    ramps.end_ramp(actor=ACTOR)
    wait_for(lambda: claimed(one) > 0, what="the claim of what the ramp had kept")


def test_the_command_resumes_holds_continues_and_ends(capsys):
    def said(*arguments: str) -> str:
        call_command("resume", *arguments)
        return str(capsys.readouterr().out).strip()

    assert said().startswith("Everything was not paused.")
    with pytest.raises(CommandError, match="nothing to resume"):
        said("--over", "10m")
    paused()
    assert said("--over", "10m", "--reason", "drill") == (
        "Work starts, with 5 % of every limit. The admin's page Ramp shows the share, and holds or ends it."
    )
    assert ResumeRamp.objects.get().over_seconds == 600
    assert said("--hold") == "The ramp is held at 5 %."
    assert said("--continue").startswith("The ramp grows on from 5 %, and ends at ")
    assert said("--end") == "The ramp has ended: every limit is open."
    with pytest.raises(CommandError, match="No ramp is on"):
        said("--hold")
    paused()
    assert said() == "Work starts, with every limit open."
    assert set(AuditEntry.objects.filter(actor="system:command").values_list("action", flat=True)) == {
        *("resume", "hold_ramp", "continue_ramp", "end_ramp")
    }


@every_case("given", ["10", "m", "-5m", "1e3s", "10 m", "\u0661\u0660m", "9d", "0s", "nan"], undone=True)
def test_the_command_refuses_what_is_no_time(given):
    paused()
    with pytest.raises(CommandError):
        call_command("resume", f"--over={given}")
    assert PauseSwitch.objects.exists()
    assert not ResumeRamp.objects.exists()


def test_the_dashboard_resumes_with_a_ramp_and_steers_it():
    client = signed_in("operator")
    paused()
    [pause] = data(client)["pauses"]
    address = f"/live/pauses/{pause['id']}/resume"
    refused = client.post(address, {"over_minutes": "20000"})
    assert refused.status_code == 400
    assert client.post(address, {"over_minutes": "0.001"}).status_code == 400
    said = client.post(address, {"over_minutes": "10", "reason": "restored"})
    assert said.json()["report"] == "1 resumed; 0 held jobs may run again. The limits open over 10 minutes."
    shown = data(client)
    assert (shown["pauses"], shown["ramp"]["percent"], shown["ramp"]["is_held"]) == ([], 5, False)
    assert any("Paced by the ramp: 5 % of every limit" in text for text in findings(shown))
    assert client.post("/live/ramp/hold").json()["report"] == "The ramp is held at 5 %."
    assert client.post("/live/ramp/hold").status_code == 409
    assert data(client)["ramp"] == {"percent": 5, "is_held": True, "ends_at": None}
    assert client.post("/live/ramp/continue").json()["report"] == "The ramp grows on from 5 %."
    assert client.post("/live/ramp/end").json()["report"] == "The ramp has ended: every limit is open."
    assert data(client)["ramp"] is None
    assert client.post("/live/ramp/end").status_code == 404
    assert client.post("/live/ramp/faster").status_code == 404


def test_a_viewer_sees_the_ramp_and_changes_nothing():
    paused()
    resume_everything(over_seconds=600, actor=ACTOR)
    client = signed_in("viewer")
    assert data(client)["ramp"]["percent"] == 5
    assert client.post("/live/ramp/end").status_code == 403
    page = client.get("/admin/ratelimits/resumeramp/").content.decode()
    assert "5 %" in page
    assert client.get("/admin/ratelimits/resumeramp/1/end/").status_code == 403
    assert ramps.ramp_now() is not None


def test_the_admin_resumes_with_a_ramp_and_steers_it():
    client = signed_in("operator")
    paused()
    make_job()
    switch = PauseSwitch.objects.get()
    address = f"/admin/jobs/pauseswitch/{switch.pk}/resume/"
    assert 'name="over_minutes"' in client.get(address).content.decode()
    client.post(address, {"confirmed": "yes", "over_minutes": "10", "reason": ""})
    assert ResumeRamp.objects.get().over_seconds == 600
    client.post("/admin/ratelimits/resumeramp/1/hold/", {"confirmed": "yes"})
    assert ResumeRamp.objects.get().held_share is not None
    client.post("/admin/ratelimits/resumeramp/1/continue/", {"confirmed": "yes"})
    assert ResumeRamp.objects.get().held_share is None
    client.post("/admin/ratelimits/resumeramp/1/end/", {"confirmed": "yes"})
    assert not ResumeRamp.objects.exists()
    assert "No ramp is on" in client.get("/admin/ratelimits/resumeramp/").content.decode()


def test_another_pause_is_not_asked_for_a_time():
    client = signed_in("operator")
    pause_scope("service", "llm", actor=ACTOR)
    address = f"/admin/jobs/pauseswitch/{PauseSwitch.objects.get().pk}/resume/"
    assert 'name="over_minutes"' not in client.get(address).content.decode()
    client.post(address, {"confirmed": "yes", "over_minutes": "10"})
    assert not PauseSwitch.objects.exists()
    assert not ResumeRamp.objects.exists()


def data(client: Client) -> dict[str, Any]:
    return dict(client.get("/live/ops.json").json()["data"])


def findings(shown: dict[str, Any]) -> list[str]:
    return [shown["health"]["text"], *(one["text"] for one in shown["health"]["also"])]
