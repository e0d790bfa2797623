"""Maintenance windows: what they hold and until when, by a moved clock; and that people's pauses stay theirs."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from itertools import islice
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from jobs.features.watches.notify_alerts import send_unsent
from jobs.features.watches.paused import watch_paused
from jobs.features.windows import windows
from jobs.features.windows.errors import BadWindow
from jobs.models import Job, MaintenanceWindow, PauseSwitch
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate.pauses import pause_scope, resume_scope, settle_holds
from jobs.services.upkeep.batches import foresee_batches
from jobs.services.upkeep.health import Situation, findings
from jobs.states import JobState
from jobs.times.calendar import Calendar, Span, merged, stretched
from queueops.audit.models import AuditEntry
from queueops.core.clock import database_moment
from queueops.tenancy.models import Project, ProjectMove
from ratelimits.alerts import alerts
from ratelimits.models import QuotaAlert
from tests.factories import FAR_WEEKDAY, KIND, SERVICE, make_batch, make_jobs, make_project, make_route
from tests.support.alerts import resolve_alert
from tests.support.cases import every_case
from tests.support.people import signed_in
from tests.support.plans import explain_reads, nodes, rows_read

HOUR = timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")


def berlin(text: str, *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).astimezone(UTC)


def weekly(since: str, until: str, *days: int) -> Calendar:
    return Calendar(
        weekdays=days or tuple(range(7)),
        since=time.fromisoformat(since),
        until=time.fromisoformat(until),
        time_zone="Europe/Berlin",
    )


def first(calendar: Calendar, after: datetime, count: int = 1) -> list[Span]:
    return list(islice(calendar.spans(after), count))


class TestCalendar:
    def test_a_weekly_window_is_over_midnight_where_it_ends_earlier_in_the_day(self) -> None:
        found = first(weekly("22:00", "02:00", 5), berlin("2026-06-01T00:00"), 2)
        assert found == [
            Span(berlin("2026-06-06T22:00"), berlin("2026-06-07T02:00")),
            Span(berlin("2026-06-13T22:00"), berlin("2026-06-14T02:00")),
        ]

    def test_one_that_has_begun_is_given_until_it_ends(self) -> None:
        calendar = weekly("22:00", "02:00", 5)
        open_one = Span(berlin("2026-06-06T22:00"), berlin("2026-06-07T02:00"))
        assert first(calendar, berlin("2026-06-07T01:59")) == [open_one]
        assert first(calendar, open_one.ends_at)[0].begins_at == berlin("2026-06-13T22:00")

    def test_both_ends_are_at_what_the_clock_on_the_wall_shows(self) -> None:
        found, expected = {}, {"2026-03-28": 4, "2026-03-29": 3, "2026-10-24": 4, "2026-10-25": 5}  # forward, and back
        for day in expected:
            [span] = first(weekly("01:00", "05:00"), berlin(f"{day}T00:30"))
            assert (span.begins_at, span.ends_at) == (berlin(f"{day}T01:00"), berlin(f"{day}T05:00"))
            found[day] = (span.ends_at - span.begins_at) / HOUR
        assert found == expected

    def test_one_within_the_hour_that_is_left_out_is_left_out(self) -> None:
        [span] = first(weekly("02:10", "02:50"), berlin("2026-03-29T00:30"))
        assert span == Span(berlin("2026-03-30T02:10"), berlin("2026-03-30T02:50"))

    def test_one_that_ends_in_that_hour_ends_with_it_and_one_in_the_hour_twice_is_once(self) -> None:
        [span] = first(weekly("01:30", "02:30"), berlin("2026-03-29T00:30"))
        assert span == Span(berlin("2026-03-29T01:30"), berlin("2026-03-29T03:00"))
        found = first(weekly("02:10", "02:50"), berlin("2026-10-25T00:30"), 2)
        assert [one.begins_at for one in found] == [berlin("2026-10-25T02:10"), berlin("2026-10-26T02:10")]

    def test_the_same_times_are_a_whole_day(self) -> None:
        [span] = first(weekly("00:00", "00:00", 6), berlin("2026-10-23T00:00"))
        assert span == Span(berlin("2026-10-25T00:00"), berlin("2026-10-26T00:00"))
        assert span.ends_at - span.begins_at == 25 * HOUR

    def test_work_that_stands_still_takes_so_much_longer(self) -> None:
        now = datetime(2026, 6, 1, tzinfo=UTC)
        spans = merged(
            [Span(now - HOUR, now + HOUR), Span(now + HOUR / 2, now + 2 * HOUR), Span(now + 9 * HOUR, now + 10 * HOUR)]
        )
        assert spans == [Span(now - HOUR, now + 2 * HOUR), Span(now + 9 * HOUR, now + 10 * HOUR)]
        assert stretched(3600, spans, now) == 3 * 3600
        assert stretched(8 * 3600, spans, now) == 11 * 3600
        assert stretched(60, [], now) == 60


pytestmark = pytest.mark.django_db


@pytest.fixture
def acme(db: None) -> None:
    make_project("acme")


def once(
    scope: str = "project", key: str = "acme", *, begins_in: timedelta = HOUR, lasts: timedelta = HOUR, **given: Any
):
    now = timezone.now()
    figures = {"scope": scope, "key": key, "begins_at": now + begins_in, "ends_at": now + begins_in + lasts, **given}
    return windows.save_window(None, figures, actor="user:1")


def claimed() -> int:
    return len(claim_jobs(uuid4(), wanted=50, lease_seconds=30, turns=ClassTurns(0.1)))


@every_case(("scope", "key"), [("global", ""), ("project", "acme"), ("service", SERVICE), ("kind", KIND)], undone=True)
def test_it_holds_what_it_covers_from_its_begin_to_its_end_and_ends_by_itself(scope: str, key: str) -> None:
    make_jobs(1, project="acme")
    window = once(scope, key)
    assert windows.tend_windows() == 0
    assert not PauseSwitch.objects.exists()
    windows.tend_windows(at=window.begins_at)
    switch = PauseSwitch.objects.get()
    assert (switch.window_id, switch.until, switch.paused_by) == (window.pk, window.ends_at, f"window:{window.pk}")
    assert claimed() == 0
    told = explain_waiting(Job.objects.get())
    assert told is not None
    assert (told.reasons[0].code, told.reasons[0].free_at) == ("paused", window.ends_at)
    assert "for maintenance until" in told.reasons[0].text
    assert told.forecast is not None
    assert told.forecast.starts_at >= window.ends_at
    windows.tend_windows(at=window.ends_at - timedelta(seconds=1))
    assert PauseSwitch.objects.exists()
    windows.tend_windows(at=window.ends_at)  # whoever does it then: nothing but the row is remembered
    assert not PauseSwitch.objects.exists()
    assert claimed() == 1
    window.refresh_from_db()
    assert window.next_change_at is None
    actions = AuditEntry.objects.filter(target=f"maintenance window {window.pk}").order_by("pk")
    assert [entry.action for entry in actions] == ["create_window", "pause", "resume"]


@every_case("move", [ProjectMove.MOVING, ProjectMove.MOVED], undone=True)
def test_a_window_of_a_project_that_is_away_changes_nothing_and_takes_no_other_s_place(acme, monkeypatch, move) -> None:
    monkeypatch.setattr(windows, "CHANGED_AT_ONCE", 1)
    window = once()
    make_project("globex")
    other = once(key="globex", begins_in=HOUR + timedelta(seconds=1))
    Project.objects.filter(pk="acme").update(move=move)
    for _ in range(2):
        windows.tend_windows(at=other.begins_at)
    assert PauseSwitch.objects.get().window_id == other.pk
    Project.objects.update(move=ProjectMove.NONE)  # the move was given up
    windows.tend_windows(at=other.begins_at)
    assert PauseSwitch.objects.filter(window_id=window.pk).exists()


def test_what_a_person_paused_stays_paused_and_what_a_window_pauses_no_person_resumes() -> None:
    make_jobs(1, project="acme")
    window = once("kind", KIND)
    pause_scope("kind", KIND, actor="user:1")
    windows.tend_windows(at=window.begins_at)
    assert PauseSwitch.objects.count() == 2
    resume_scope("kind", KIND, actor="user:1")
    assert (PauseSwitch.objects.get().window_id, claimed()) == (window.pk, 0)
    pause_scope("kind", KIND, actor="user:2", reason="still broken")
    windows.tend_windows(at=window.ends_at)
    assert (PauseSwitch.objects.get().reason, claimed()) == ("still broken", 0)
    resume_scope("kind", KIND, actor="user:2")
    assert claimed() == 1


def test_one_that_came_and_went_while_nobody_worked_is_passed_over_and_comes_again() -> None:
    make_jobs(1, project="acme")
    figures = {
        "scope": "project",
        "key": "acme",
        "weekdays": [FAR_WEEKDAY],
        "since": time(22),
        "until": time(2),
        "time_zone": "Europe/Berlin",
    }
    window = windows.save_window(None, figures, actor="user:1")
    [one, two] = windows.next_spans(window, most=2)
    windows.tend_windows(at=one.ends_at + HOUR)
    assert not PauseSwitch.objects.exists()
    window.refresh_from_db()
    assert window.next_change_at == two.begins_at
    windows.tend_windows(at=two.begins_at + HOUR)
    assert PauseSwitch.objects.get().until == two.ends_at
    windows.tend_windows(at=two.ends_at + 7 * 24 * HOUR)  # nobody was there for its end, nor for the next one
    assert not PauseSwitch.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_ended_by_hand_it_comes_again_and_deleted_it_does_not() -> None:
    make_jobs(1, project="acme")
    now = timezone.now()
    figures = {"scope": "kind", "key": KIND, "weekdays": list(range(7)), "since": time(0), "until": time(0)}
    window = windows.save_window(None, figures, actor="user:1")
    windows.tend_windows()
    assert claimed() == 0
    windows.end_window(window.pk, actor="user:1", reason="done")
    windows.tend_windows()
    window.refresh_from_db()
    assert (PauseSwitch.objects.count(), window.next_change_at is not None and window.next_change_at > now) == (0, True)
    assert claimed() == 1
    windows.tend_windows(at=window.next_change_at)
    assert PauseSwitch.objects.exists()
    windows.delete_window(window.pk, actor="user:1")
    assert not PauseSwitch.objects.exists()
    assert not Job.objects.filter(held=True).exists()


def test_what_half_holds_is_completed_and_what_arrives_is_held() -> None:
    window = once("service", SERVICE)
    windows.tend_windows(at=window.begins_at)
    [job] = make_jobs(1, project="acme")
    Job.objects.update(held=False)
    settle_holds()
    assert Job.objects.get(pk=job.pk).held


def test_the_dashboard_tells_of_it_beforehand_and_while_it_is_open(acme: None) -> None:
    window = once(reason="their migration")
    found = windows.upcoming(now=timezone.now(), within=2 * HOUR, most=5)
    situation = Situation(counts=dict.fromkeys(JobState, 0), executors=["alive"], upcoming=found)
    told = findings(situation)[-1]
    assert told.text == "Project acme pauses for maintenance."
    assert (told.begins_at, told.until) == (window.begins_at, window.ends_at)
    assert (told.cause, told.page) == ("their migration", "windows")
    assert not windows.upcoming(now=timezone.now(), within=HOUR / 2, most=5)
    assert not windows.upcoming(now=window.begins_at, within=HOUR, most=5)


def test_a_forecast_counts_windows_that_are_to_come() -> None:
    batch = make_batch(total=2, rate_per_second=2 / 3600, sampled_at=timezone.now())
    make_jobs(2, batch=batch)
    spans = windows.spans_over("acme", services={"http"}, kinds={KIND}, now=timezone.now())
    assert spans == []
    window = once(begins_in=timedelta(minutes=10), lasts=3 * HOUR)
    [span] = windows.spans_over("acme", services={"http"}, kinds=set(), now=timezone.now())
    assert (span.begins_at, span.ends_at) == (window.begins_at, window.ends_at)
    foresee_batches()
    batch.refresh_from_db()
    assert batch.ends_at is not None
    assert batch.ends_at - timezone.now() > 3.9 * HOUR  # an hour of work, and three in which it stands still
    assert windows.spans_over("globex", services={"http"}, kinds=set(), now=timezone.now()) == []


@every_case(
    ("scope", "key", "subject", "quiet"),
    [
        ("global", "", "http", True),
        ("project", "acme", "http", True),
        ("project", "globex", "http", False),
        ("service", "http", "http", True),
        ("service", "http:api.example", "https://api.example:8443", True),
        ("service", "http:other.example", "https://api.example:8443", False),
        ("service", "openai", "openai at https://llm.example:443", True),
    ],
    undone=True,
)
def test_alerts_about_what_it_holds_are_told_when_it_is_over(scope: str, key: str, subject: str, quiet: bool) -> None:
    make_project("acme")
    make_project("globex")
    make_route(name="slack", channel="slack", target="…", secret="https://hooks.slack.com/services/x")
    window = once(scope, key)
    windows.tend_windows(at=window.begins_at)
    opened = alerts.open_alert("outage", subject, severity="critical", message="m", figures={"projects": ["acme"]})
    assert opened is not None
    assert send_unsent(50) == (0 if quiet else 1)
    other = alerts.open_alert("stuck_executor", "host:1", severity="warning", message="m", figures={})
    assert other is not None
    assert send_unsent(50) == 1  # that is about no work
    windows.tend_windows(at=window.ends_at)
    assert send_unsent(50) == (1 if quiet else 0)


def test_of_what_opened_and_ended_in_a_window_nobody_is_told_the_end(acme: None) -> None:
    make_route()
    window = once()
    windows.tend_windows(at=window.begins_at)
    alerts.open_alert("outage", "http", severity="critical", message="m", figures={"projects": ["acme"]})
    assert send_unsent(50) == 0
    resolve_alert("outage", "http")
    assert send_unsent(50) == 0
    windows.tend_windows(at=window.ends_at)
    assert send_unsent(50) == 0


def test_of_more_windows_than_are_looked_at_the_soonest_are(acme, monkeypatch) -> None:
    monkeypatch.setattr(windows, "MAX_WINDOWS", 1)
    soon = once()
    once(begins_in=3 * HOUR)
    now = timezone.now()
    assert [one.window.pk for one in windows.upcoming(now=now, within=24 * HOUR, most=9)] == [soon.pk]
    assert windows.spans_over("acme", services=[], kinds=[], now=now) == [Span(soon.begins_at, soon.ends_at)]


def test_nobody_is_told_that_a_window_was_forgotten() -> None:
    make_jobs(1, project="acme")
    window = once(lasts=30 * 24 * HOUR)
    windows.tend_windows(at=window.begins_at)
    PauseSwitch.objects.update(created_at=timezone.now() - 24 * HOUR)
    watch_paused()
    assert not QuotaAlert.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_windows_that_are_over_are_read_by_nobody(acme: None) -> None:
    ended = timezone.now() - 30 * HOUR
    figures = {"scope": "project", "key": "acme", "begins_at": ended - HOUR, "ends_at": ended, "created_by": "user:1"}
    MaintenanceWindow.objects.bulk_create(MaintenanceWindow(**figures) for _ in range(3000))
    window = once(begins_in=HOUR)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_maintenancewindow")
    plans = explain_reads(
        lambda: (
            windows.tend_windows(at=window.begins_at),
            windows.upcoming(now=timezone.now(), within=24 * HOUR, most=5),
            windows.spans_over("acme", services={"http"}, kinds={KIND}, now=timezone.now()),
        )
    )
    of_windows = [
        node for plan in plans for node in nodes(plan) if node.get("Relation Name") == "jobs_maintenancewindow"
    ]
    assert len(of_windows) >= 4
    assert max(rows_read(node) for node in of_windows) <= 2


@every_case(
    ("figures", "field"),
    [
        ({"scope": "project", "key": "nobody"}, "key"),
        ({"scope": "global", "key": "acme"}, "key"),
        ({"scope": "kind", "key": ""}, "key"),
        ({"scope": "batch"}, "scope"),
        ({"ends_at": None}, "ends_at"),
        ({"begins_at": None, "ends_at": None}, "weekdays"),
        ({"begins_at": None, "ends_at": None, "weekdays": [1]}, "since"),
        ({"begins_at": None, "ends_at": None, "weekdays": [7], "since": time(1), "until": time(2)}, "weekdays"),
        ({"weekdays": [1]}, "weekdays"),
        ({"begins_at": datetime(2020, 1, 1, tzinfo=UTC), "ends_at": datetime(2020, 1, 2, tzinfo=UTC)}, "ends_at"),
        ({"begins_at": datetime(2099, 1, 2, tzinfo=UTC), "ends_at": datetime(2099, 1, 1, tzinfo=UTC)}, "ends_at"),
        ({"begins_at": datetime(2099, 1, 2, tzinfo=UTC), "ends_at": datetime(2099, 3, 1, tzinfo=UTC)}, "ends_at"),
        (
            {
                "begins_at": None,
                "ends_at": None,
                "weekdays": [1],
                "since": time(1),
                "until": time(2),
                "time_zone": "Mars",
            },
            "time_zone",
        ),
    ],
    undone=True,
)
def test_what_makes_no_sense_is_refused_where_it_stands(figures: dict[str, Any], field: str) -> None:
    make_project("acme")
    given = {"scope": "project", "key": "acme", "begins_at": timezone.now(), "ends_at": timezone.now() + HOUR}
    with pytest.raises(BadWindow) as refused:
        windows.save_window(None, {**given, **figures}, actor="user:1")
    assert list(refused.value.fields) == [field]
    assert not MaintenanceWindow.objects.exists()


def a_lost_window(**fields: Any) -> MaintenanceWindow:
    """One whose time zone this host does not know: it was stored by another, or the zone was renamed."""
    given = {"scope": "global", "weekdays": list(range(7)), "since": time(1), "until": time(2)}
    figures = {**given, "time_zone": "Mars/Olympus", "created_by": "user:1"} | fields
    return MaintenanceWindow.objects.create(**figures)


def test_one_whose_time_zone_is_not_known_here_stays_as_it_is_is_told_and_breaks_nothing_else(
    acme, monkeypatch
) -> None:
    monkeypatch.setattr(windows, "CHANGED_AT_ONCE", 1)
    now = database_moment()
    lost = a_lost_window(next_change_at=now - 2 * HOUR)
    other = windows.save_window(
        None, {"scope": "project", "key": "acme", "begins_at": now - HOUR, "ends_at": now + HOUR}, actor="user:1"
    )
    windows.tend_windows()
    assert list(PauseSwitch.objects.values_list("window", flat=True)) == [other.pk]
    lost.refresh_from_db()
    assert lost.next_change_at == now - 2 * HOUR
    found = windows.upcoming(now=now - 2 * HOUR, within=HOUR * 3, most=10)
    assert [one.window.pk for one in found] == [other.pk]
    spans = windows.spans_over("acme", services=set(), kinds=set(), now=now)
    assert [span.ends_at for span in spans] == [now + HOUR]
    batch = make_batch()
    make_jobs(1, batch=batch)
    foresee_batches()
    batch.refresh_from_db()
    assert batch.foreseen_at is not None
    watch_paused()
    [alert] = QuotaAlert.objects.filter(kind="forgotten", subject=f"window {lost.pk}")
    assert "should have opened at" in alert.message
    assert "This host does not know the time zone Mars/Olympus" in alert.message
    with pytest.raises(BadWindow):
        windows.end_window(lost.pk, actor="user:1")
    windows.save_window(lost.pk, {"time_zone": "UTC"}, actor="user:1")
    watch_paused()
    assert not QuotaAlert.objects.filter(kind="forgotten", resolved_at=None).exists()


def test_its_pages_show_one_whose_time_zone_is_not_known_here_and_say_so() -> None:
    lost = a_lost_window(next_change_at=timezone.now())
    for address in (reverse("admin:jobs_maintenancewindow_changelist"), window_page(lost)):
        page = signed_in("administrator").get(address)
        assert page.status_code == 200, address
        assert "unknown time zone" in page.content.decode(), address
    assert "This host does not know the time zone Mars/Olympus" in page.content.decode()


def window_page(window: MaintenanceWindow) -> str:
    return reverse("admin:jobs_maintenancewindow_change", args=[window.pk])
