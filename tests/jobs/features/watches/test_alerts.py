"""What the watch tells operators of: dead letters, ready work, executors, charges and saturated lanes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.features.watches.notify_alerts import send_unsent
from jobs.features.watches.watch import tend_alerts, watch_charges, watch_executors, watch_failing, watch_ready
from jobs.features.watches.watch_lanes import watch_lanes
from jobs.features.watches.watch_letters import watch_dead_letters
from jobs.features.watches.watch_runs import watch_runs
from jobs.lanes import lane_name
from jobs.models import DeadLetter, Executor, FlowSample, Job, PauseSwitch, ServiceBreaker
from jobs.services.upkeep.retention import apply_retention
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.core.clock import Now
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Charge, Counter, Limit, QuotaAlert
from ratelimits.subjects import Subject, counter_id
from tests.factories import make_dead_letters, make_job, make_jobs, make_route

pytestmark = pytest.mark.django_db

WRITES = Subject("google-sheets", "write", "acme", "u1")
LANE = lane_name(WRITES, project="acme", user="u1")


@pytest.fixture(autouse=True)
def small_thresholds(settings):
    settings.QUEUEOPS = replace(
        django_settings.QUEUEOPS, alert_dead_letters=4, alert_open_dead_letters=10, alert_oldest_ready_minutes=30.0
    )


def opened(kind: str) -> list[tuple[str, str, str]]:
    rows = QuotaAlert.objects.filter(kind=kind, resolved_at=None).order_by("subject")
    return [(row.subject, row.severity, row.message) for row in rows]


def make_limit(**figures) -> Limit:
    limit = Limit.objects.create(
        **{"name": "sheets-writes", "service": "google-sheets", "call_type": "write", "capacity": 60, **figures}
    )
    catalogue.forget()
    return limit


def failed_attempts(service: str, code: str) -> None:
    """Nearly all attempts at the service failed in the last minute, with that error."""
    bins: dict[str, Any] = {name: [] for name in ("answers", "sizes", "latencies", "delays")}
    FlowSample.objects.create(span_seconds=10, at=timezone.now(), service=service, completed=1, failed=60, **bins)
    [job] = make_jobs(1, state=JobState.IN_PROGRESS, service=service)
    move_jobs("reset", [Move(job.pk, delay_seconds=9, error_code=code, message="it failed")])


def test_a_service_that_fails_is_told_of_by_its_dead_letters_where_they_say_so():
    [letter, *_] = make_dead_letters(6, error_code="forbidden")
    failed_attempts(letter.service, "forbidden")
    for _ in range(2):
        watch_dead_letters()
        watch_failing()
    assert [(name, severity) for name, severity, _ in opened("dead_letters")] == [
        (f"cause:{'f' * 32}/acme", "critical")
    ]
    assert opened("failing") == []


def test_a_service_that_fails_with_something_else_than_its_dead_letters_is_told_of():
    [letter] = make_dead_letters(1, error_code="forbidden")
    failed_attempts(letter.service, "connection_broken")
    watch_dead_letters()
    watch_failing()
    assert [severity for _, severity, _ in opened("dead_letters")] == ["warning"]
    assert [severity for _, severity, _ in opened("failing")] == ["critical"]
    DeadLetter.objects.update(resolution="discarded")
    watch_dead_letters()
    watch_failing()
    assert opened("dead_letters") == []
    assert len(opened("failing")) == 1


def test_a_project_whose_ready_job_waits_too_long_is_told_of_until_it_has_gone():
    make_job(project="globex")
    job = make_job(eligible_since=timezone.now() - timedelta(minutes=42))
    make_job(project="held", held=True, eligible_since=timezone.now() - timedelta(minutes=42))
    watch_ready([])
    message = "acme: the oldest ready job has waited 42 min; no limit, pause or schedule holds it"
    assert opened("oldest_ready") == [("acme", "warning", message)]
    Job.objects.filter(pk=job.pk).update(eligible_since=timezone.now())
    watch_ready([])
    assert opened("oldest_ready") == []


def test_work_in_a_lane_with_room_that_nobody_takes_is_told_of_as_well():
    make_limit()
    long_ago = timezone.now() - timedelta(minutes=42)
    make_job(service="google-sheets", lane=LANE, eligible_since=long_ago)
    watch_ready(watch_lanes())
    assert [subject for subject, _, _ in opened("oldest_ready")] == ["acme"]
    Job.objects.update(deferral_count=1)  # a limit has held it up meanwhile
    watch_ready(watch_lanes())
    assert opened("oldest_ready") == []


def test_silent_and_blocked_executors_are_told_of_until_they_are_gone():
    def executor(pid: int, **fields) -> Executor:
        return Executor.objects.create(host="h", pid=pid, process_started_at=0, cluster_pid=1, slots=5, **fields)

    executor(1)
    silent = executor(2)
    Executor.objects.filter(pk=silent.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=3))
    executor(3, loop_lag_ms=12_000)
    watch_executors()
    assert sorted(message for _, _, message in opened("stuck_executor")) == [
        "Executor h:2 has been silent for 3 min; its jobs come back when their leases lapse",
        "Executor h:3 answers 12 s late: a handler blocks its event loop",
    ]
    silent.delete()
    Executor.objects.update(loop_lag_ms=0)
    watch_executors()
    assert opened("stuck_executor") == []


def test_charges_that_expired_minutes_ago_are_a_leak():
    now = timezone.now()
    Charge.objects.create(holder="job:1", entries=[], expires_at=now - timedelta(minutes=1))
    watch_charges()
    assert opened("charge_leak") == []
    Charge.objects.create(holder="job:2", entries=[], expires_at=now - timedelta(minutes=6))
    watch_charges()
    [(subject, severity, message)] = opened("charge_leak")
    assert (subject, severity) == ("*", "warning")
    assert message.startswith("1 call ended without settling")
    Charge.objects.all().delete()
    watch_charges()
    assert opened("charge_leak") == []


def wait_in_lane(count: int, **fields) -> None:
    make_jobs(count, state=JobState.RATE_LIMITED, service="google-sheets", lane=LANE, **fields)


def test_a_queue_behind_a_cap_is_told_of_with_its_end_until_it_has_gone():
    limit = make_limit(clears_late_seconds=120)
    wait_in_lane(50)
    watch_lanes()
    assert opened("saturated") == []  # there is room for all of them
    decide([Call(WRITES)] * 60)
    watch_lanes()
    [(subject, severity, message)] = opened("saturated")
    assert (subject, severity) == (counter_id(limit.pk, "project:acme"), "notice")
    assert message.startswith("sheets-writes, project:acme: 50 jobs wait beyond the cap; clears at about ")
    wait_in_lane(100)
    watch_lanes()
    assert [severity for _, severity, _ in opened("saturated")] == ["warning"]
    Job.objects.update(held=True)
    watch_lanes()
    assert opened("saturated") == []


@pytest.mark.parametrize(
    "stop",
    [
        lambda: PauseSwitch.objects.create(scope="project", key="acme", paused_by="user:1"),
        lambda: PauseSwitch.objects.create(scope="global", paused_by="user:1"),
        lambda: ServiceBreaker.objects.create(service="google-sheets", project_id="acme", opened_at=Now()),
    ],
    ids=["paused", "all paused", "out"],
)
def test_what_a_pause_or_an_outage_holds_waits_for_no_cap(stop):
    make_limit()
    decide([Call(WRITES)] * 60)
    wait_in_lane(50)
    watch_lanes()
    assert len(opened("saturated")) == 1
    stop()
    watch_lanes()
    assert opened("saturated") == []


def test_plain_saturation_is_one_alert_told_once_however_often_it_comes_and_goes():
    make_route(least_severity="notice")
    limit = make_limit()
    decide([Call(WRITES)] * 60)
    wait_in_lane(50)
    watch_lanes()
    Job.objects.filter(service="google-sheets").delete()
    watch_lanes()
    send_unsent(50)
    assert not Job.objects.filter(kind="queueops.alert").exists()  # over before it lasted
    for _ in range(3):
        decide([Call(WRITES)] * 60)  # over both thresholds
        wait_in_lane(50)
        watch_lanes()
        send_unsent(50)
        QuotaAlert.objects.filter(resolved_at=None).update(opened_at=F("opened_at") - timedelta(minutes=2))
        watch_lanes()
        send_unsent(50)
        Job.objects.filter(service="google-sheets").delete()
        watch_lanes()
        Counter.objects.filter(limit=limit).update(state={}, alert_level=0)
    [alert] = QuotaAlert.objects.exclude(kind="usage")
    assert (alert.kind, alert.severity) == ("saturated", "notice")
    told = [job.payload["alert"] for job in Job.objects.filter(kind="queueops.alert")]
    assert told == [alert.pk]
    Job.objects.all().delete()
    QuotaAlert.objects.update(resolved_at=F("resolved_at") - timedelta(minutes=10))
    decide([Call(WRITES)] * 60)
    wait_in_lane(50)
    watch_lanes()
    assert QuotaAlert.objects.filter(kind="saturated").count() == 2  # after a while it is news again


def test_a_short_queue_is_no_news():
    make_limit()
    decide([Call(WRITES)] * 60)
    # The window is full for a minute; a bucket's next call leaves in a second.
    Limit.objects.update(algorithm="token_bucket", capacity=3, refill_per_second=1)
    catalogue.forget()
    decide([Call(WRITES)] * 3)
    wait_in_lane(5)
    watch_lanes()
    assert opened("saturated") == []


def test_saturation_stays_while_now_and_then_one_may_go():
    limit = make_limit()
    wait_in_lane(50)
    decide([Call(WRITES)] * 60)
    watch_lanes()
    assert len(opened("saturated")) == 1
    Counter.objects.filter(limit=limit).update(state={})
    decide([Call(WRITES)] * 20)  # room for 40 of the 50
    watch_lanes()
    assert len(opened("saturated")) == 1
    Counter.objects.filter(limit=limit).update(state={})
    watch_lanes()
    assert opened("saturated") == []


def test_jobs_that_leave_together_count_as_one_call():
    make_limit()
    decide([Call(WRITES)] * 60)
    wait_in_lane(200, coalesce_key="one sheet")
    watch_lanes()
    [alert] = QuotaAlert.objects.filter(kind="saturated")
    assert alert.figures["waiting"] == 200
    assert alert.forecast_at is not None
    assert alert.forecast_at < timezone.now() + timedelta(seconds=70)


def test_the_queue_behind_a_cap_on_calls_in_flight_has_no_known_end():
    make_limit(unit="in_flight", algorithm="concurrency", capacity=3)
    decide([Call(WRITES, holder=f"job:{number}") for number in range(3)])
    wait_in_lane(2)
    watch_lanes()
    assert opened("saturated") == []
    wait_in_lane(2)
    watch_lanes()
    assert opened("saturated")[0][2] == "sheets-writes, project:acme: 4 jobs wait beyond the cap"


def test_the_watch_asks_as_often_of_a_long_queue_as_of_a_short_one():
    make_limit()
    decide([Call(WRITES)] * 60)
    wait_in_lane(20)
    tend_alerts()
    catalogue.forget()  # both read the limits, however long ago they were read last
    with CaptureQueriesContext(connection) as few:
        tend_alerts()
    wait_in_lane(300)
    make_dead_letters(30)
    tend_alerts()
    catalogue.forget()
    with CaptureQueriesContext(connection) as many:
        tend_alerts()
    assert len(many) <= len(few) + 4  # what is told of the causes of dead letters


def test_old_alerts_go_and_open_ones_stay():
    long_ago = timezone.now() - timedelta(days=31)
    for subject, resolved_at in (("a", long_ago), ("b", None), ("c", timezone.now())):
        QuotaAlert.objects.create(
            kind="usage",
            severity="notice",
            subject=subject,
            message=subject,
            opened_at=long_ago,
            resolved_at=resolved_at,
            limit=Limit.objects.first() or make_limit(),
        )
    apply_retention(seconds=60)
    assert sorted(QuotaAlert.objects.values_list("subject", flat=True)) == ["b", "c"]


def test_every_kind_of_alert_has_its_runbook_and_every_runbook_its_kind():
    pages = {page.stem for page in (Path(django_settings.BASE_DIR) / "docs" / "runbooks").glob("*.md")}
    told_by_people = {"ran_twice"}  # nothing can see it from outside
    assert pages == set(QuotaAlert.Kind.values) | told_by_people
    for kind in pages:
        text = (Path(django_settings.BASE_DIR) / QuotaAlert(kind=kind).runbook).read_text(encoding="utf-8")
        for heading in ("Symptoms", "Likely causes", "What to look at", "What to do"):
            assert f"## {heading}\n" in text, (kind, heading)


def test_jobs_that_run_for_long_are_told_of_by_kind_until_they_end():
    make_jobs(3, state=JobState.IN_PROGRESS, kind="slow.read")
    quick = make_job(state=JobState.IN_PROGRESS, kind="quick.read")
    long_ago = timezone.now() - timedelta(minutes=61)
    Job.objects.exclude(pk=quick.pk).update(started_at=long_ago)
    oldest = Job.objects.filter(kind="slow.read").latest("pk")
    Job.objects.filter(pk=oldest.pk).update(started_at=long_ago - timedelta(minutes=9))
    waits_again = make_job(state=JobState.RETRIED, kind="tried.again")
    Job.objects.filter(pk=waits_again.pk).update(started_at=long_ago)
    watch_runs()
    message = f"slow.read: job {oldest.pk} of acme has been running for 70 min; so have 2 other jobs"
    assert opened("long_running") == [("slow.read/acme", "warning", message)]
    assert QuotaAlert.objects.get(kind="long_running").projects == frozenset({"acme"})
    move_jobs("complete", [Move(job.pk, token=job.fencing_token) for job in Job.objects.filter(kind="slow.read")])
    watch_runs()
    assert opened("long_running") == []
