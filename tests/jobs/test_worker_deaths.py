"""A worker that died with jobs under way: who is told what, and when one kind is to blame."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models.functions import Now

from jobs.features.recovery.event_fold import fold
from jobs.features.watches.watch import watch_executors
from jobs.models import Executor, Job, JobEvent
from jobs.services.upkeep.executors import kill_stuck_executors
from jobs.services.upkeep.worker_deaths import COUNTED, TOLD_FOR, tell_worker_deaths, watch_worker_deaths
from jobs.states import JobState
from queueops.core.processes import pulses as pulses_module
from queueops.core.processes.pulses import Pulses
from ratelimits.models import QuotaAlert
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db

NOBODY = 2**31 - 1  # no process has this number
KIND = "http.request"


def worker(*jobs: Job) -> UUID:
    """A worker that carries these jobs."""
    row = Executor.objects.create(
        host="h", pid=NOBODY, process_started_at=0, cluster_pid=1, slots=5, cluster_id=uuid4(), in_flight=len(jobs)
    )
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(executor=row.pk)
    return row.pk


def gone(owner: UUID, *, at_work: Job | None = None) -> Pulses:
    """The signs of life of a worker whose process is not there any more."""
    pulses = Pulses()
    place = pulses.take(NOBODY, owner, 1.0)
    assert place is not None
    if at_work:
        pulses.begin_step(place, at_work.pk.bytes)
    return pulses


def running(count: int, **fields: Any) -> list[Job]:
    return make_jobs(count, state=JobState.IN_PROGRESS, **fields)


def opened() -> list[tuple[str, str]]:
    found = QuotaAlert.objects.filter(kind="worker_died", resolved_at=None).order_by("opened_at", "pk")
    return [(alert.severity, alert.message) for alert in found]


def test_a_worker_that_dies_is_told_at_once_on_its_jobs_in_the_log_and_as_a_notice(caplog: pytest.LogCaptureFixture):
    jobs = [*running(20), *running(1, project="globex", kind=KIND)]
    suspect = jobs[7]
    pulses = gone(worker(*jobs), at_work=suspect)
    with caplog.at_level(logging.WARNING, "jobs.services.upkeep.worker_deaths"):
        assert tell_worker_deaths(pulses) == 1
    said = f"died carrying 21 jobs; suspect: job {suspect.pk} ({KIND}, project acme), whose handler was at work"
    assert said in caplog.text
    [(severity, message)] = opened()
    assert severity == "notice"
    assert said in message
    assert "come back when their leases lapse" in message
    alert = QuotaAlert.objects.get(kind="worker_died")
    assert alert.projects == {"acme"}
    logged = {event.job_id: event for event in JobEvent.objects.filter(data__operation="worker_died")}
    assert set(logged) == {job.pk for job in jobs}
    assert "it is the suspect" in logged[suspect.pk].message
    others = {event.message for job_id, event in logged.items() if job_id != suspect.pk}
    assert others == {"its worker died carrying 21 jobs; another of them is the suspect"}, (
        "one of another project is named"
    )
    assert fold(JobEvent.objects.filter(job_id=suspect.pk).order_by("id")).crash_count == 0
    assert (tell_worker_deaths(pulses), len(opened())) == (0, 1)
    assert not Executor.objects.exists(), "it would be told once more as silent"


def test_the_suspect_is_who_was_at_work_or_alone_or_has_crashed_before_and_else_nobody():
    def told(jobs: list[Job], **at_work: Job) -> tuple[str, str]:
        before = set(QuotaAlert.objects.values_list("pk", flat=True))
        QuotaAlert.objects.filter(kind="worker_died").delete()
        assert tell_worker_deaths(gone(worker(*jobs), **at_work)) == 1
        alert = QuotaAlert.objects.exclude(pk__in=before).get(kind="worker_died")
        return alert.subject, alert.message

    [alone] = running(1)
    assert f"suspect: job {alone.pk} ({KIND}, project acme), the only one" in told([alone])[1]
    several = running(3)
    Job.objects.filter(pk=several[1].pk).update(crash_count=1)
    assert f"suspect: job {several[1].pk} ({KIND}, project acme), which has crashed before" in told(several)[1]
    assert f"suspect: job {several[2].pk}" in told(several, at_work=several[2])[1]
    subject, message = told(running(2))
    assert (subject, "no job is suspected more than another: 2 of http.request" in message) == (KIND, True)
    mixed = [
        *running(2),
        *running(1, kind="google_sheets.batch_update", payload='{"spreadsheet_id": "s", "requests": []}'),
    ]
    Job.objects.filter(pk__in=[job.pk for job in mixed]).update(status=JobState.IN_PROGRESS)
    executor = worker(*mixed)
    QuotaAlert.objects.filter(kind="worker_died").delete()
    assert tell_worker_deaths(gone(executor)) == 1
    assert QuotaAlert.objects.get(kind="worker_died").subject == str(executor)


def test_an_idle_worker_that_dies_is_no_alert_and_of_two_who_notice_one_tells():
    assert tell_worker_deaths(gone(worker())) == 0
    owner = worker(*running(1))
    first, second = gone(owner), gone(owner)
    assert (tell_worker_deaths(first), tell_worker_deaths(second)) == (1, 0)
    assert len(opened()) == 1
    assert first.read() == second.read() == []
    assert tell_worker_deaths(gone(uuid4())) == 0, "the database was put back and does not know it"


def test_two_deaths_by_one_kind_are_one_critical_alert_that_is_sent_again_and_ends_in_peace():
    def die(count: int) -> None:
        jobs = running(count)
        assert tell_worker_deaths(gone(worker(*jobs), at_work=jobs[0])) == 1

    die(3)
    QuotaAlert.objects.update(notified_at=Now())
    watch_worker_deaths()
    assert [severity for severity, _ in opened()] == ["notice"]
    die(21)
    [(severity, message)] = opened()
    assert severity == "critical"
    assert f"2 workers died within the hour while they carried {KIND}, the last with 21 jobs; suspect: job" in message
    assert QuotaAlert.objects.get(kind="worker_died").notified_at is None, "nobody hears of it"
    watch_worker_deaths()
    assert len(opened()) == 1
    age(TOLD_FOR + timedelta(seconds=1))
    watch_worker_deaths()
    assert opened() == []
    die(1)
    assert [severity for severity, _ in opened()] == ["critical"], "the third within an hour"
    QuotaAlert.objects.filter(resolved_at=None).update(resolved_at=Now())
    age(COUNTED)
    die(1)
    assert [severity for severity, _ in opened()] == ["notice"]


def age(by: timedelta) -> None:
    for alert in QuotaAlert.objects.filter(kind="worker_died"):
        for death in alert.figures["deaths"]:
            death["at"] = (datetime.fromisoformat(death["at"]) - by).isoformat()
        alert.save()


def test_one_that_was_killed_as_stuck_is_told_once_and_counts_as_a_death_of_its_kind(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jobs.services.upkeep.executors.os.kill", lambda pid, signal: None)

    def be_stuck() -> None:
        jobs = running(2)
        pulses = gone(worker(*jobs), at_work=jobs[0])
        pulses.set(NOBODY % pulses_module.PLACES, 3, -1e6)  # its loop's last sign
        with monkeypatch.context() as alive:
            alive.setattr(pulses_module, "is_running", lambda pid, started_at: True)
            assert kill_stuck_executors(silent_seconds=30, stuck_seconds=30, pulses=pulses) == [NOBODY]
        assert pulses.read() == []
        watch_executors()

    be_stuck()
    assert opened() == []
    [stuck] = QuotaAlert.objects.filter(resolved_at=None)
    assert (stuck.kind, stuck.figures["killed"], stuck.figures["kind"]) == ("stuck_executor", True, KIND)
    assert JobEvent.objects.filter(data__operation="worker_died").count() == 2
    be_stuck()
    assert [severity for severity, _ in opened()] == ["critical"]
