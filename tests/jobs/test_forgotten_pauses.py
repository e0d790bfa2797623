"""Pauses that jobs have waited under for long are told of, and told even while everything is paused."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db.models.functions import Now

from jobs.features.watches.notify_alerts import KIND, PROJECT, send_unsent
from jobs.features.watches.paused import watch_paused
from jobs.features.watches.watch import tend_alerts
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.claim import claim
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.states import JobState
from ratelimits.models import QuotaAlert
from tests.factories import make_batch, make_job, make_jobs, make_project, make_route

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def an_hour(settings) -> None:
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, alert_paused_minutes=60.0)


def pause(scope: str, key: str, *, minutes: float, actor: str = "key:ops", reason: str = "") -> PauseSwitch:
    pause_scope(scope, key, actor=actor, reason=reason)
    PauseSwitch.objects.filter(scope=scope, key=key).update(created_at=Now() - timedelta(minutes=minutes))
    return PauseSwitch.objects.get(scope=scope, key=key)


def told() -> dict[str, str]:
    watch_paused()
    alerts = QuotaAlert.objects.filter(kind="forgotten", resolved_at=None)
    return dict(alerts.values_list("subject", "message"))


def test_it_says_what_is_paused_since_when_by_whom_and_why():
    anna = User.objects.create_user("anna")
    make_jobs(3, service="sheets")
    make_jobs(2, service="sheets", project="globex")
    switch = pause("service", "sheets", minutes=61, actor=f"user:{anna.pk}", reason="quota moves to the new account")
    assert told() == {
        f"service sheets/{project}": f"Service sheets has been paused since {switch.created_at:%Y-%m-%d %H:%M} UTC; "
        f"{jobs} wait. By anna: quota moves to the new account"
        for project, jobs in (("acme", "3 jobs of acme"), ("globex", "2 jobs of globex"))
    }
    assert set(QuotaAlert.objects.values_list("severity", flat=True)) == {"warning"}


def executor() -> UUID:
    return Executor.objects.create(pid=1, process_started_at=0.0, cluster_pid=1, slots=9, role="general").pk


def reasons_of(job: Job) -> set[str]:
    waiting = explain_waiting(job)
    assert waiting is not None
    return {reason.code for reason in waiting.reasons}


@pytest.mark.parametrize("scope", ["global", "project", "service", "kind", "batch"])
def test_a_pause_of_every_scope_is_told_of_and_over_when_it_is_taken_off(scope: str):
    batch = make_batch()
    job = make_job(batch=batch)
    key = {"global": "", "project": "acme", "service": job.service, "kind": job.kind, "batch": str(batch.pk)}[scope]
    pause(scope, key, minutes=61)
    [message] = told().values()
    assert re.search(r"1 job (of acme )?waits\. By key:ops, without a reason given\.", message)
    assert QuotaAlert.objects.get().projects == {"acme"}
    resume_scope(scope, key, actor="key:ops")
    assert told() == {}


def test_a_younger_pause_and_one_that_nothing_waits_under_are_no_alert():
    make_job()
    make_project("idle")
    pause("project", "acme", minutes=59)
    pause("project", "idle", minutes=600)
    pause("kind", "no.jobs", minutes=600)
    assert told() == {}


def test_it_is_over_when_the_last_job_is_gone():
    job = make_job()
    pause("project", "acme", minutes=61)
    assert len(told()) == 1
    cancel_jobs([job.pk], actor="key:ops", reason="not wanted any more")
    assert told() == {}


def test_what_the_platform_itself_holds_is_told_by_its_own_alert():
    job = make_job()
    PauseSwitch.objects.create(scope="unknown", key=job.kind, paused_by="system")
    PauseSwitch.objects.update(created_at=Now() - timedelta(hours=9))
    assert told() == {}


def test_an_alert_is_delivered_while_everything_is_paused():
    make_route()
    waits = make_job()
    pause("global", "", minutes=61)
    tend_alerts()
    [delivery] = Job.objects.filter(project_id=PROJECT)
    assert QuotaAlert.objects.get().kind == "forgotten"
    assert "paused" not in reasons_of(delivery)
    assert "paused" in reasons_of(waits)
    claimed = claim.claim_jobs(executor(), wanted=10, lease_seconds=30, turns=ClassTurns(0.1))
    assert [job.kind for job in claimed] == [KIND]


def test_a_delivery_that_has_crashed_its_worker_is_tried_while_everything_is_paused():
    make_route()
    make_job(crash_count=2)
    pause("global", "", minutes=61)
    tend_alerts()
    Job.objects.filter(project_id=PROJECT).update(crash_count=2)
    assert send_unsent(10) == 0
    suspects = claim.claim_suspect(executor(), lease_seconds=30)
    assert [job.kind for job in suspects] == [KIND]


def test_deliveries_stop_when_their_own_project_is_paused():
    make_route()
    make_job()
    pause("global", "", minutes=61)
    tend_alerts()
    pause("project", PROJECT, minutes=0)
    assert claim.claim_jobs(executor(), wanted=10, lease_seconds=30, turns=ClassTurns(0.1)) == []
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.QUEUED}
