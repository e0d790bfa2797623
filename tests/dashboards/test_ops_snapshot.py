"""What the dashboard says of real situations."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from dashboards.services.ops import ops_snapshot
from dashboards.services.shared import cache
from dashboards.services.shared.wire import iso
from jobs.features.outages.breaker import tend_breakers
from jobs.features.watches.watch import tend_alerts, watch_failing
from jobs.lanes import lane_name
from jobs.models import Executor, FlowSample, Job, MaintenanceWindow, PauseSwitch, ServiceBreaker
from jobs.services.upkeep.batches import foresee_batches
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from ratelimits.alerts.alerts import open_alert
from ratelimits.feedback import PushBack, Violation
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter, CounterFeedback, Limit, QuotaAlert
from ratelimits.subjects import Subject
from ratelimits.tuning import limits
from ratelimits.tuning.feedback import push_back
from tests.factories import make_batch, make_dead_letters, make_jobs
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

WRITE = Subject("google-sheets", "write", "acme", "reports@acme.example")


@pytest.fixture(autouse=True)
def _fresh_limits():
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.fixture
def executor() -> Executor:
    return Executor.objects.create(
        id=uuid4(), host="worker-1", pid=41, process_started_at=1.0, cluster_pid=40, slots=20, in_flight=3
    )


def held_by_a_limit(waiting: int = 420) -> None:
    values = {"service": "google-sheets", "scope": "project", "call_type": "write", "capacity": 300}
    limits.create_limit({"name": "sheets-write", "provider_quota": 300, **values}, actor="user:1")
    decide([Call(WRITE, kind="google_sheets.values_update")] * 300)
    lane = lane_name(WRITE, project="acme", user="")
    make_jobs(waiting, state=JobState.RATE_LIMITED, service="google-sheets", call_type="write", lane=lane)


def tile(snapshot: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [one for one in snapshot["tiles"] if one["id"] == name]
    return dict(found)


def test_an_empty_queue_with_an_executor_is_told_as_such(executor: Executor):
    health = ops_snapshot()["health"]
    assert (health["tone"], health["text"]) == ("good", "Nothing to do: the queue is empty.")
    assert health["also"] == []


def test_without_an_executor_nothing_flows():
    make_jobs(3)
    health = ops_snapshot()["health"]
    assert health["tone"] == "bad"
    assert health["text"] == "No executor is alive: 3 jobs stand still."
    assert "qcluster" in health["cause"]
    assert health["href"] == "/admin/jobs/executor/"


def test_work_flows_and_is_counted(executor: Executor):
    make_jobs(4)
    make_jobs(2, state=JobState.IN_PROGRESS)
    make_jobs(1, state=JobState.DISPATCHED)
    make_jobs(1, state=JobState.RETRIED)
    snapshot = ops_snapshot()
    assert snapshot["health"]["text"] == "Flowing."
    assert tile(snapshot, "queued")["value"] == 4
    assert tile(snapshot, "running")["value"] == 3
    assert tile(snapshot, "retried")["value"] == 1
    since = tile(snapshot, "oldest_ready")["since"]
    assert since == Job.objects.filter(status="queued").earliest("eligible_since").eligible_since.isoformat(
        timespec="milliseconds"
    )


def test_a_full_limit_with_a_queue_is_named_with_when_it_clears(executor: Executor):
    held_by_a_limit()
    snapshot = ops_snapshot()
    health = snapshot["health"]
    assert health["tone"] == "held"
    assert health["text"] == "Held by sheets-write, project acme."
    assert health["until"] is not None
    assert health["cause"].startswith("420 jobs wait behind it")
    limit = Limit.objects.get()
    assert health["href"] == f"/admin/ratelimits/limit/{limit.pk}/change/"
    [row] = snapshot["limits"]
    assert (row["used"], row["capacity"], row["percent"]) == (300.0, 300.0, 100.0)
    assert (row["binds"], row["waiting"], row["factor"]) == (True, 420, 1.0)
    assert row["lanes"] == [{"project": "acme", "user": "", "waiting": 420, "more": False}]
    assert row["clears_at"] == health["until"]


def test_a_shadow_over_its_cap_holds_nothing_alarms_nobody_and_stands_last(executor: Executor):
    limits.create_limit(
        {"name": "a-shadow", "service": "google-sheets", "scope": "global", "call_type": "write", "capacity": 20}
        | {"shadow": True},
        actor="user:1",
    )
    held_by_a_limit()
    tend_alerts()
    snapshot = ops_snapshot()
    assert snapshot["health"]["text"] == "Held by sheets-write, project acme."
    assert not any("a-shadow" in one["text"] for one in snapshot["health"]["also"])
    bound, shadow = snapshot["limits"]
    assert (bound["limit"], bound["waiting"], bound["would_have_held"]) == ("sheets-write", 420, None)
    assert (shadow["limit"], shadow["binds"], shadow["waiting"], shadow["clears_at"]) == ("a-shadow", False, 0, None)
    assert shadow["would_have_held"] == Counter.objects.get(limit__name="a-shadow").shadow_denials > 0
    assert not QuotaAlert.objects.filter(limit__name="a-shadow").exists()
    client = signed_in("administrator")
    listed = client.get("/admin/ratelimits/limit/").content.decode()
    assert f"shadow: would have held {shadow['would_have_held']}" in listed
    assert listed.count(">420<") == 1
    page = client.get(reverse("admin:ratelimits_counter_change", args=[shadow["id"]])).content.decode()
    assert "jobs wait, here or" not in page
    # A provider's word holds, whoever watches.
    Counter.objects.filter(limit__name="a-shadow").update(blocked_until=Now() + timedelta(minutes=9))
    assert "a-shadow" in ops_snapshot()["health"]["text"]


def test_when_something_ends_is_told_by_the_viewers_clock_and_in_no_sentence(executor: Executor):
    held_by_a_limit()
    until = timezone.now() + timedelta(hours=2, minutes=1)
    window = MaintenanceWindow.objects.create(
        scope="service", key="http", begins_at=timezone.now(), ends_at=until, created_by="user:1"
    )
    PauseSwitch.objects.create(scope="service", key="http", paused_by="system", window=window, until=until)
    health = ops_snapshot()["health"]
    found = [health, *health["also"]]
    assert [one["text"] for one in found] == ["Paused: service http.", "Held by sheets-write, project acme."]
    assert found[0]["cause"] == "A maintenance window."
    assert [one["change"] for one in found] == ["ends", "clears"]
    assert not any("UTC" in one["text"] + one["cause"] for one in found)
    page = signed_in("viewer").get("/admin/").content.decode()
    shown = re.findall(r'(?:Ends|Clears) <time class="qo-time" datetime="([^"]+)" title="[^"]+">in [^<]+</time>', page)
    paused, held = map(datetime.fromisoformat, shown)
    assert paused == until
    assert abs(held - datetime.fromisoformat(found[1]["until"])) < timedelta(minutes=1)


def test_of_several_full_limits_the_one_that_frees_last_binds(executor: Executor):
    hourly = {"name": "sheets-hour", "algorithm": "sliding_window", "capacity": 350, "window_seconds": 3600}
    limits.create_limit({"service": "google-sheets", "scope": "project", "call_type": "any", **hourly}, actor="user:1")
    held_by_a_limit()
    snapshot = ops_snapshot()
    assert {row["limit"]: (row["binds"], row["waiting"]) for row in snapshot["limits"]} == {
        "sheets-hour": (True, 420),
        "sheets-write": (False, 420),
    }
    assert snapshot["health"]["text"] == "Held by sheets-hour, project acme."
    assert snapshot["health"]["also"] == []


def test_a_slowed_limit_shows_its_factor(executor: Executor):
    held_by_a_limit(waiting=10)
    Counter.objects.update(pressure=0.5, pressure_changed_at=Now())
    catalogue.forget()
    [row] = ops_snapshot()["limits"]
    assert row["factor"] == pytest.approx(0.5, abs=0.05)


def test_pauses_are_told_with_who_and_why(executor: Executor):
    make_jobs(1)
    PauseSwitch.objects.create(scope="service", key="http", paused_by="user:7", reason="a release")
    health = ops_snapshot()["health"]
    assert (health["tone"], health["text"]) == ("warn", "Paused: service http.")
    assert health["cause"] == "By user:7: a release"
    PauseSwitch.objects.create(scope="global", key="", paused_by="user:8")
    health = ops_snapshot()["health"]
    assert health["text"] == "Everything is paused."
    assert [one["text"] for one in health["also"]] == ["Paused: service http."]


def test_what_people_hold_comes_before_outages_and_these_before_limits_on_both_front_pages(executor: Executor):
    held_by_a_limit()
    anna = User.objects.create(username="anna")
    batch = make_batch(name="Nightly")
    make_jobs(3, batch=batch)
    ServiceBreaker.objects.create(service="http", project_id="acme", failures=9, opened_at=Now(), next_probe_at=Now())
    for scope, key in (("batch", str(batch.pk)), ("project", "acme")):
        PauseSwitch.objects.create(scope=scope, key=key, paused_by=f"user:{anna.pk}")
    health = ops_snapshot()["health"]
    found = [health, *health["also"]]
    assert [one["text"] for one in found] == [
        "Paused: project acme; 423 jobs wait.",
        "Paused: batch Nightly; 3 jobs wait.",
        "http does not answer.",
        "Held by sheets-write, project acme.",
    ]
    assert found[0]["cause"] == "By anna, without a reason given."
    assert found[1]["href"] == f"/admin/jobs/batch/{batch.pk}/change/"
    page = signed_in("viewer").get("/admin/").content.decode()
    places = [page.index(f'href="{one["href"]}">{escape(one["text"])}</a>') for one in found]
    assert places == sorted(places)


def test_more_pauses_than_can_be_named_are_told_together(executor: Executor):
    for number in range(5):
        PauseSwitch.objects.create(scope="service", key=f"s{number}", paused_by="user:8")
    health = ops_snapshot()["health"]
    assert [one["text"] for one in health["also"]] == [
        "Paused: service s1.",
        "Paused: service s2.",
        "Paused besides: service s3, service s4.",
    ]


def test_a_provider_that_refuses_everything_for_long_is_told_with_its_time(executor: Executor):
    limits.create_limit(
        {"name": "sheets-write", "service": "google-sheets", "scope": "project", "call_type": "write", "capacity": 60},
        actor="user:1",
    )
    push_back(
        WRITE, PushBack((Violation("writes", "project", "requests"),), 30), sent_at=time.time(), actor="executor:1"
    )

    def told() -> list[str]:
        watch_failing()
        return list(QuotaAlert.objects.filter(kind="failing", resolved_at=None).values_list("message", flat=True))

    assert told() == []
    QuotaAlert.objects.update(opened_at=Now() - timedelta(minutes=32))
    message = "google-sheets has let no job through for 32 min: "
    [said] = told()
    assert said.startswith(message)
    assert "sheets-write, project:acme: google-sheets refused: writes" in said
    assert QuotaAlert.objects.get(kind="failing").severity == "critical"
    health = ops_snapshot()["health"]
    assert (health["tone"], health["text"].startswith(message)) == ("bad", True)
    bins: dict[str, Any] = {name: [] for name in ("answers", "sizes", "latencies", "delays")}
    for span, minutes_ago, is_told in (
        (10, 0, False),
        (10, 31, False),
        (10, 33, True),
        (300, 33, True),
        (300, 20, False),
    ):
        at = timezone.now() - timedelta(minutes=minutes_ago)
        FlowSample.objects.create(span_seconds=span, at=at, service="google-sheets", completed=1, **bins)
        assert bool(told()) is is_told, f"one got through {minutes_ago} min ago, in a span of {span} s"
        FlowSample.objects.all().delete()
    CounterFeedback.objects.update(at=Now() - timedelta(minutes=16))
    assert told() == [], "nobody asks any more"


def test_an_open_breaker_is_an_outage(executor: Executor):
    ServiceBreaker.objects.create(service="http", project_id="acme", failures=12, opened_at=Now(), next_probe_at=Now())
    health = ops_snapshot()["health"]
    assert (health["tone"], health["text"]) == ("bad", "http does not answer.")
    assert health["href"] == "/admin/jobs/servicebreaker/"
    assert health["change"] == "asks"
    ServiceBreaker.objects.update(next_probe_at=Now() - timedelta(seconds=8))
    page = signed_in("viewer").get("/admin/").content.decode()
    assert re.search(r"A probe asks <time [^>]*>now</time>", page)


def test_work_held_by_an_outage_does_not_wait_for_quota(executor: Executor):
    batch = make_batch(rate_per_second=1.0)
    jobs = make_jobs(5, state=JobState.RATE_LIMITED, batch=batch)
    foresee_batches()
    assert ops_snapshot()["batches"][0]["eta"]
    ServiceBreaker.objects.create(service=jobs[0].service, project_id="acme", opened_at=Now(), next_probe_at=Now())
    tend_breakers()
    snapshot = ops_snapshot()
    assert snapshot["health"]["cause"].startswith("5 jobs wait unharmed")
    figures = {tile["id"]: (tile["value"], tile["tone"]) for tile in snapshot["tiles"]}
    assert (figures["rate_limited"], figures["outage"]) == ((0, ""), (5, "bad"))
    [shown] = snapshot["batches"]
    assert (shown["held_by_outage"], shown["eta"]) == (5, None)  # nobody knows when an outage ends


def test_work_that_waits_for_its_time_is_told_beside_the_queued_with_until_when(executor: Executor):
    batch, until = make_batch(), timezone.now() + timedelta(hours=2)
    make_jobs(2, batch=batch)
    assert "scheduled" not in {tile["id"] for tile in ops_snapshot()["tiles"]}
    make_jobs(3, batch=batch, scheduled_at=until)
    snapshot = ops_snapshot()
    figures = {tile["id"]: (tile["value"], tile.get("until")) for tile in snapshot["tiles"]}
    assert (figures["queued"], figures["scheduled"]) == ((2, None), (3, iso(until)))
    [shown] = snapshot["batches"]
    assert (shown["counts"]["queued"], shown["scheduled"], shown["scheduled_until"]) == (5, 3, iso(until))


def test_where_most_attempts_fail_the_headline_says_so_and_blames_no_cap(executor: Executor):
    held_by_a_limit()
    assert "not a fault" in ops_snapshot()["health"]["cause"]
    bins: dict[str, Any] = {name: [] for name in ("answers", "sizes", "latencies", "delays")}
    FlowSample.objects.create(
        span_seconds=10, at=timezone.now(), service="google-sheets", completed=2, failed=38, retried=57, **bins
    )
    make_jobs(1, state=JobState.IN_PROGRESS, service="google-sheets")
    [job] = Job.objects.filter(status=JobState.IN_PROGRESS)
    move_jobs("reset", [Move(job.pk, delay_seconds=9, error_code="connection_broken", message="it broke")])
    snapshot = ops_snapshot()
    assert snapshot["health"]["tone"] == "bad"
    assert snapshot["health"]["text"] == "98 % of attempts to google-sheets fail: connection_broken."
    assert "not a fault" not in str(snapshot["health"])
    watch_failing()
    watch_failing()
    assert [(one.kind, one.severity) for one in QuotaAlert.objects.filter(kind="failing")] == [("failing", "critical")]
    FlowSample.objects.update(completed=1000)
    watch_failing()
    assert QuotaAlert.objects.get(kind="failing").resolved_at is not None


def test_dead_letters_need_a_person(executor: Executor):
    make_dead_letters(2, error_code="forbidden")
    snapshot = ops_snapshot()
    health = snapshot["health"]
    assert health["text"] == "Nothing to do: the queue is empty. 2 dead letters need a person."
    assert health["cause"] == "Most lately: forbidden of http.request, project acme."
    assert health["href"] == "/admin/jobs/deadletter/by-cause/"
    assert (tile(snapshot, "dead_letters")["value"], tile(snapshot, "dead_letters")["tone"]) == (2, "bad")


def test_a_critical_alert_comes_before_what_is_held_and_goes_once_it_is_acknowledged(executor: Executor):
    held_by_a_limit(waiting=200)
    open_alert("exceeded", "1:x", severity="critical", message="the provider refused with 429", figures={})
    health = ops_snapshot()["health"]
    assert (health["tone"], health["text"]) == ("bad", "the provider refused with 429")
    assert any(one["text"].startswith("Held by sheets-write") for one in health["also"])
    QuotaAlert.objects.filter(kind="exceeded").update(acknowledged_at=Now(), acknowledged_by="user:1")
    snapshot = ops_snapshot()
    assert snapshot["health"]["text"].startswith("Held by sheets-write")
    assert snapshot["alerts"][-1]["acknowledged_by"] == "user:1"


def test_a_silent_executor_is_not_alive(executor: Executor):
    Executor.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=5))
    snapshot = ops_snapshot()
    assert snapshot["executors"][0]["health"] == "silent"
    assert snapshot["health"]["cause"] == "Those that were there have gone silent."


def test_batches_show_what_is_left_of_them(executor: Executor):
    batch = make_batch(name="monthly report")
    make_jobs(3, batch=batch, state=JobState.COMPLETED)
    make_jobs(1, batch=batch, state=JobState.FAILED)
    make_jobs(4, batch=batch)
    long_ago = make_batch(name="long ago", finished_at=timezone.now() - timedelta(days=1))
    lately = make_batch(name="just now", finished_at=timezone.now() - timedelta(minutes=1))
    cards = {card["name"]: card for card in ops_snapshot()["batches"]}
    assert cards.keys() == {"monthly report", "just now"}
    card = cards["monthly report"]
    assert (card["total"], card["finished"], card["percent"], card["verdict"]) == (8, 4, 50.0, "running")
    assert (card["counts"]["failed"], card["href"]) == (1, f"/admin/jobs/batch/{batch.pk}/change/")
    assert str(long_ago.pk) != cards["just now"]["id"] == str(lately.pk)


def test_the_feed_names_the_service_and_hides_secrets(executor: Executor):
    [job] = make_jobs(1, state=JobState.IN_PROGRESS)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, service, event_type, message)"
            " VALUES (%s, 'acme', 'http', 'error', 'refused: Authorization: Bearer abcdefghijkl')",
            [job.pk],
        )
    newest = ops_snapshot()["feed"][0]
    assert (newest["job"], newest["service"], newest["kind"]) == (str(job.pk), "http", "http.request")
    assert "abcdefghijkl" not in newest["message"]
    assert newest["message"].startswith("refused: Authorization")


@pytest.mark.parametrize("times", [1, 8])
def test_the_number_of_queries_does_not_follow_the_work(executor: Executor, times: int):
    for number in range(times):
        held_by_a_limit_of(f"service-{number}")
        make_jobs(5, batch=make_batch(name=f"batch {number}"), project=f"project-{number}")
        make_dead_letters(2, project=f"project-{number}")
    catalogue.forget()
    cache.forget_all()  # or it would be a question of who came before, and when
    with CaptureQueriesContext(connection) as asked:
        snapshot = ops_snapshot()
    assert len(snapshot["limits"]) == times
    assert len(asked) <= 34
    json.dumps(snapshot)


def held_by_a_limit_of(service: str) -> None:
    limits.create_limit({"name": service, "service": service, "scope": "project", "capacity": 5}, actor="user:1")
    subject = WRITE._replace(service=service)
    decide([Call(subject, kind="google_sheets.values_update")] * 5)
    lane = lane_name(subject, project="acme", user="")
    make_jobs(3, state=JobState.RATE_LIMITED, service=service, call_type="write", lane=lane)


def test_alerts_of_users_allowances_come_after_those_of_the_queue_and_are_no_fault_of_it(executor: Executor):
    cache.forget_all()
    for place in range(25):
        open_alert("allowance", f"2026-11/acme/{place}", severity="critical", message=f"user {place}", figures={})
    open_alert("oldest_ready", "acme", severity="warning", message="waits too long", figures={})
    snapshot = ops_snapshot()
    assert snapshot["health"]["tone"] != "bad"
    assert [alert["message"] for alert in snapshot["alerts"]][:2] == ["waits too long", "user 24"]
    assert len(snapshot["alerts"]) == 20
    QuotaAlert.objects.filter(message="user 24").update(acknowledged_at=Now(), acknowledged_by="user:1")
    assert ops_snapshot()["alerts"][1]["message"] == "user 23"
