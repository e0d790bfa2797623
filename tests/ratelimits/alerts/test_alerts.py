"""Alerts on the edge: once, with a forecast, resolved with hysteresis, safe when transactions race."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from queueops.core.database import connect_directly
from queueops.core.sql import load_sql
from ratelimits.alerts import alerts, forecast
from ratelimits.alerts.alerts import Fullness, acknowledge_alerts, tell_exceeded, watch
from ratelimits.limiter.decide import Call, Settlement, decide, settle
from ratelimits.limits import catalogue
from ratelimits.models import CallTally, Counter, Limit, QuotaAlert
from ratelimits.subjects import Subject, counter_id
from ratelimits.tuning.resolve_quiet_alerts import resolve_quiet_alerts
from tests.support.alerts import note_saturated
from tests.support.audit import entries_written
from tests.support.cases import every_case
from tests.support.plans import assert_bounded
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 2, 14, 30, tzinfo=UTC).timestamp()
WRITES = Subject("google-sheets", "write", "acme", "u1")
KEY = "project:acme"


@pytest.fixture(autouse=True)
def fresh_rules():
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.fixture
def commit(django_capture_on_commit_callbacks):
    """A block after which comes what waits for the commit."""
    return partial(django_capture_on_commit_callbacks, execute=True)


def make_limit(**figures) -> Limit:
    limit = Limit.objects.create(
        **{"name": "sheets-writes", "service": "google-sheets", "call_type": "write", "capacity": 100, **figures}
    )
    catalogue.forget()
    return limit


def usage(limit: Limit, used: float, *, before: float = 0, level: int = 0, capacity: float = 100) -> Fullness:
    return Fullness(catalogue.rule_of(limit), KEY, before, used, capacity, level, NOW)


def opened() -> list[tuple[str, int, str]]:
    rows = QuotaAlert.objects.filter(resolved_at=None).order_by("kind", "threshold")
    return [(row.kind, row.threshold, row.severity) for row in rows]


def empty_counters() -> None:
    Counter.objects.update(state={})


@pytest.mark.django_db(transaction=True)
def test_nothing_is_asked_of_the_database_while_nothing_is_crossed():
    limit = make_limit()
    quiet = [usage(limit, 59, before=58), usage(limit, 70, before=69, level=60), usage(limit, 55, before=54, level=60)]
    connection.close()  # any query opens it again; Django's captured queries lack those of queueops.core.sql
    assert watch(quiet) == {}
    assert connection.connection is None


@every_case(
    ("used", "level", "expected"),
    [(59.9, 0, 0), (60, 0, 60), (80, 60, 80), (85, 0, 80), (75, 80, 80), (70, 80, 60), (51, 60, 60), (50, 60, 0)],
    undone=True,
)
def test_a_level_is_reached_at_its_threshold_and_left_ten_points_below(used, level, expected):
    assert alerts.level_of(catalogue.rule_of(make_limit()), used, level) == expected


def test_a_threshold_of_zero_is_switched_off():
    assert alerts.level_of(catalogue.rule_of(make_limit(notice_percent=0)), 79, 0) == 0


def test_each_threshold_opens_one_alert_and_falling_resolves_them():
    limit = make_limit()
    subject = counter_id(limit.pk, KEY)
    assert watch([usage(limit, 61)]) == {subject: 60}
    assert opened() == [("usage", 60, "notice")]
    assert watch([usage(limit, 82, before=79, level=60)]) == {subject: 80}
    assert opened() == [("usage", 60, "notice"), ("usage", 80, "warning")]
    assert watch([usage(limit, 65, before=66, level=80)]) == {subject: 60}
    assert opened() == [("usage", 60, "notice")]
    assert watch([usage(limit, 50, before=51, level=60)]) == {subject: 0}
    assert opened() == []


def test_a_jump_over_both_thresholds_opens_both():
    limit = make_limit()
    watch([usage(limit, 90)])
    assert opened() == [("usage", 60, "notice"), ("usage", 80, "warning")]


def test_use_above_the_cap_is_critical_on_its_edge_only():
    limit = make_limit(unit="tokens")
    assert watch([usage(limit, 100, before=99, level=80)]) == {}
    assert opened() == []
    assert watch([usage(limit, 101, before=99, level=80)]) == {}
    assert opened() == [("exceeded", 100, "critical")]
    QuotaAlert.objects.all().delete()
    watch([usage(limit, 102, before=101, level=80)])
    assert opened() == []


def test_a_shadow_limit_whose_cap_is_passed_alarms_nobody():
    limit = make_limit(shadow=True)
    assert watch([usage(limit, 90, before=0, level=0)]) == {}
    watch([usage(limit, 150, before=90, level=0)])
    assert opened() == []
    limit.shadow = False
    limit.save()
    assert watch([usage(limit, 150, before=90, level=0)]) == {counter_id(limit.pk, KEY): 80}
    assert {kind for kind, _, _ in opened()} == {"usage", "exceeded"}
    Counter.objects.create(id=counter_id(limit.pk, KEY), limit=limit, key=KEY, alert_level=80)
    limit.shadow = True
    limit.save()
    catalogue.forget()
    resolve_quiet_alerts()
    assert opened() == []
    assert Counter.objects.get().alert_level == 0


def test_decisions_raise_the_alert_in_their_own_transaction():
    limit = make_limit()
    with transaction.atomic():
        decide([Call(WRITES)] * 70)
        assert opened() == [("usage", 60, "notice")]
        transaction.set_rollback(True)
    assert opened() == []
    decide([Call(WRITES)] * 70)
    assert opened() == [("usage", 60, "notice")]
    assert Counter.objects.get(pk=counter_id(limit.pk, KEY)).alert_level == 60
    decide([Call(WRITES)] * 5)
    assert QuotaAlert.objects.count() == 1
    alert = QuotaAlert.objects.get()
    assert alert.limit == limit
    assert alert.figures == {"used": 70, "capacity": 100, "percent": 70, "unit": "requests"}
    assert alert.message.startswith("sheets-writes, project:acme: 70 of 100 requests a minute used, 70 %")


def test_a_late_actual_above_the_cap_is_critical():
    make_limit(unit="tokens", capacity=1000)
    decide([Call(WRITES, cost=500, holder="job:1")])
    settle([Settlement("job:1", 1200)])
    assert ("exceeded", 100, "critical") in opened()


def test_the_forecast_follows_the_pace_of_the_last_quarter_of_the_window(commit):
    limit = make_limit()
    for second in range(10):  # 4 a second since 10 s: the 60 of now become 100 in 10 s
        at = datetime.fromtimestamp(NOW - second - 0.5, UTC)
        CallTally.objects.create(at=at, service="google-sheets", call_type="write", project="acme", calls=4, tokens=4)
        CallTally.objects.create(at=at, service="google-sheets", call_type="write", project="other", calls=9, tokens=9)
        CallTally.objects.create(at=at, service="google-sheets", call_type="read", project="acme", calls=9, tokens=9)
    with commit():
        watch([usage(limit, 60, before=60)])
    alert = QuotaAlert.objects.get()
    assert alert.forecast_at == datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=40 / (40 / 9.5))
    assert alert.message.endswith("reaches the cap at 14:30:09 UTC at this pace")


@pytest.mark.django_db(transaction=True)
def test_a_forecast_keeps_no_counter_from_others(monkeypatch):
    limit = make_limit()
    decide([Call(WRITES)])  # nobody else sees a counter that is not committed, so nobody could wait for it
    asked = []

    def ask(*_args, used, **_figures):
        with connect_directly() as other:
            assert other.execute("SELECT FROM ratelimits_counter FOR UPDATE NOWAIT").fetchall() == [()]
        asked.append(used)
        return NOW

    monkeypatch.setattr(alerts, "forecast", ask)
    decide([Call(WRITES)] * 84)
    assert asked == [85]
    found = QuotaAlert.objects.filter(subject=counter_id(limit.pk, KEY), forecast_at=datetime.fromtimestamp(NOW, UTC))
    assert sorted(found.values_list("threshold", flat=True)) == [60, 80]


@pytest.mark.django_db(transaction=True)
def test_a_forecast_that_fails_takes_nothing_back(monkeypatch):
    make_limit()
    monkeypatch.setattr(alerts, "forecast", lambda *_args, **_figures: 1 / 0)
    assert {one.kind for one in decide([Call(WRITES)] * 65)} == {"proceed"}
    assert opened() == [("usage", 60, "notice")]
    assert QuotaAlert.objects.get().forecast_at is None


def test_a_pace_whose_whole_window_fits_reaches_the_cap_never(commit):
    limit = make_limit()
    for second in range(60):
        at = datetime.fromtimestamp(NOW - second - 0.5, UTC)
        CallTally.objects.create(at=at, service="google-sheets", call_type="write", project="acme", calls=1, tokens=1)
    with commit():
        watch([usage(limit, 60, before=60)])
    alert = QuotaAlert.objects.get()
    assert alert.forecast_at is None
    assert alert.message.endswith("60 of 100 requests a minute used, 60 %")


def test_a_burst_of_one_moment_is_no_pace(commit):
    limit = make_limit()
    at = datetime.fromtimestamp(NOW - 0.5, UTC)
    CallTally.objects.create(at=at, service="google-sheets", call_type="write", project="acme", calls=30, tokens=30)
    with commit():
        watch([usage(limit, 70, before=30)])
    assert QuotaAlert.objects.get().forecast_at is None


def test_what_leaves_the_window_slows_the_forecast(commit):
    limit = make_limit()
    for ago, calls in ((55, 20), (10, 30)):  # 2 and more a second came, and 20 of 15 s leave in the next 15 s
        at = datetime.fromtimestamp(NOW - ago, UTC)
        CallTally.objects.create(
            at=at, service="google-sheets", call_type="write", project="acme", calls=calls, tokens=calls
        )
    with commit():
        watch([usage(limit, 60, before=60)])
    expected = NOW + 40 / (30 / 10 - 20 / 15)
    assert QuotaAlert.objects.get().forecast_at == datetime.fromtimestamp(0, UTC) + timedelta(seconds=expected)


def test_a_forecast_reads_a_bounded_part_of_a_busy_service(monkeypatch):
    monkeypatch.setattr(forecast, "MAX_TALLIES_FORECAST", 60)
    limit = make_limit()
    CallTally.objects.bulk_create(
        CallTally(
            at=datetime.fromtimestamp(NOW - tenth / 10, UTC), service="google-sheets", call_type="write",
            project=("acme", "other")[tenth % 2], calls=1, tokens=1,
        )
        for tenth in range(600)
    )  # fmt: skip
    rule = catalogue.rule_of(limit)
    pace = forecast.pace_of(rule, KEY, now=NOW, fresh=0.0, window_seconds=60.0)
    assert pace == pytest.approx((5, 5), rel=0.05)
    assert forecast.pace_of(rule, KEY, now=NOW, fresh=0.0, window_seconds=None) == pytest.approx((5, 0), rel=0.05)


def test_tallies_are_summed_up_from_the_newest_to_the_bound_and_no_further():
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO ratelimits_calltally (at, service, call_type, model, project, "user", kind, calls, tokens,'
            " waited_seconds) SELECT now() - i * interval '1 ms', 'google-sheets', 'write', '', 'p' || i % 50, '', '',"
            " 1, 1, 0 FROM generate_series(1, 30000) AS i"
        )
        cursor.execute("ANALYZE ratelimits_calltally")
        interval: dict[str, float | str] = {
            "service": "google-sheets",
            "after": 0,
            "until": time.time() + 60,
            "most": 2000,
            "unit": "input_tokens",
            "free": True,
        }
        statement = load_sql("ratelimits", "sum_tallies")
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", interval)
        [[[explained]]] = cursor.fetchall()
    assert_bounded(explained["Plan"], rows=2000, blocks=500)


def test_a_daily_cap_is_not_reached_after_its_reset(commit):
    limit = make_limit(algorithm="fixed_window", window_seconds=None, reset_zone="UTC", capacity=1000)
    at = datetime.fromtimestamp(NOW - 450, UTC)
    tally = CallTally.objects.create(
        at=at, service="google-sheets", call_type="write", project="acme", calls=450, tokens=450
    )
    with commit():
        watch([usage(limit, 600, before=600, capacity=1000)])
    assert QuotaAlert.objects.get().forecast_at == datetime.fromtimestamp(NOW + 400, UTC)
    QuotaAlert.objects.all().delete()
    CallTally.objects.filter(pk=tally.pk).update(calls=4)  # 400 more would take 12 hours; the reset is in 9.5
    with commit():
        watch([usage(limit, 600, before=600, capacity=1000)])
    assert QuotaAlert.objects.get().forecast_at is None


def test_falling_use_is_noticed_without_a_decision():
    limit = make_limit()
    decide([Call(WRITES)] * 85)
    assert len(opened()) == 2
    assert resolve_quiet_alerts() == 0
    empty_counters()
    assert resolve_quiet_alerts() == 2
    assert opened() == []
    assert Counter.objects.get(pk=counter_id(limit.pk, KEY)).alert_level == 0
    decide([Call(WRITES)] * 65)
    assert opened() == [("usage", 60, "notice")]


def test_time_alone_resolves():
    make_limit(window_seconds=0.5)
    decide([Call(WRITES)] * 85)
    until = time.monotonic() + 30
    while opened() and time.monotonic() < until:
        resolve_quiet_alerts()
    assert opened() == []


def test_every_open_alert_is_looked_at_however_small_the_chunks():
    make_limit(scope="project_user")
    for user in range(7):
        decide([Call(WRITES._replace(user=f"u{user}"))] * 65)
    empty_counters()
    assert resolve_quiet_alerts(most=2) == 7


def test_alerts_of_a_limit_that_is_switched_off_or_of_a_counter_that_is_gone_are_resolved():
    limit = make_limit()
    decide([Call(WRITES)] * 65)
    Counter.objects.all().delete()
    assert resolve_quiet_alerts() == 1
    tell_exceeded(catalogue.rule_of(limit), KEY, message="429", figures={})
    Limit.objects.update(enabled=False)
    catalogue.forget()
    assert resolve_quiet_alerts() == 1


@pytest.mark.parametrize(
    "slowed",
    [
        {"blocked_until": Now() + timedelta(minutes=5)},
        {"pressure": 0.7, "pressure_changed_at": Now()},
    ],
    ids=["cooling down", "under pressure"],
)
def test_an_exceeded_alert_stays_until_the_limit_has_recovered(slowed):
    limit = make_limit()
    decide([Call(WRITES)])
    tell_exceeded(catalogue.rule_of(limit), KEY, message="the provider refused", figures={"status": 429})
    counters = Counter.objects.filter(pk=counter_id(limit.pk, KEY))
    counters.update(**slowed)
    assert resolve_quiet_alerts() == 0
    counters.update(blocked_until=None, pressure_changed_at=timezone.now() - timedelta(minutes=10))
    assert resolve_quiet_alerts() == 1


def test_saturation_says_when_it_clears_and_warns_when_that_is_late():
    limit = make_limit(clears_late_seconds=600)
    rule = catalogue.rule_of(limit)
    assert note_saturated(rule, KEY, waiting=212, clears_at=NOW + 500, now=NOW)
    alert = QuotaAlert.objects.get()
    assert alert.severity == "notice"
    assert alert.message == "sheets-writes, project:acme: 212 jobs wait beyond the cap; clears at about 14:38:20 UTC"
    QuotaAlert.objects.update(notified_at=timezone.now(), acknowledged_at=timezone.now())
    assert note_saturated(rule, KEY, waiting=500, clears_at=NOW + 550, now=NOW) is None
    alert.refresh_from_db()
    assert (alert.figures["waiting"], alert.notified_at is None) == (500, False)
    assert note_saturated(rule, KEY, waiting=5000, clears_at=NOW + 7200, now=NOW) is None
    alert.refresh_from_db()
    assert (alert.severity, alert.notified_at, alert.acknowledged_at) == ("warning", None, None)
    assert alert.message.endswith("clears at about 16:30 UTC")
    note_saturated(rule, KEY, waiting=100, clears_at=NOW + 60, now=NOW)
    alert.refresh_from_db()
    assert alert.severity == "warning"


def test_acknowledging_counts_what_it_did_and_is_audited():
    limit = make_limit()
    decide([Call(WRITES)] * 85)
    first, second = QuotaAlert.objects.order_by("pk")
    QuotaAlert.objects.filter(pk=second.pk).update(resolved_at=timezone.now())
    with entries_written() as told:
        assert acknowledge_alerts([first.pk, second.pk], actor="user:1") == 1
        assert acknowledge_alerts([first.pk], actor="user:2") == 0
    first.refresh_from_db()
    assert first.acknowledged_by == "user:1"
    assert first.resolved_at is None
    assert limit.alerts.count() == 2
    assert [(one["actor"], one["action"], one["target"]) for one in told] == [
        ("user:1", "acknowledge_alert", f"alert {first.pk}")
    ]


def test_the_end_of_an_alert_is_handed_over_as_well():
    limit = make_limit()
    tell_exceeded(catalogue.rule_of(limit), KEY, message="429", figures={})
    watch([usage(limit, 61)])
    QuotaAlert.objects.update(notified_at=timezone.now())
    alerts.resolve(QuotaAlert.objects.all())
    assert dict(QuotaAlert.objects.values_list("kind", "notified_at")) == {"exceeded": None, "usage": None}


@pytest.mark.django_db(transaction=True)
def test_transactions_that_cross_at_once_open_one_alert():
    limit = make_limit()
    rule = catalogue.rule_of(limit)

    def cross(_: int) -> QuotaAlert | None:
        with transaction.atomic():
            return note_saturated(rule, KEY, waiting=1, clears_at=NOW + 1, now=NOW)

    outcomes = run_together(8, cross)
    assert [type(one) for one in outcomes].count(QuotaAlert) == 1
    assert outcomes.count(None) == 7
    assert QuotaAlert.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_decisions_that_race_over_a_threshold_open_each_alert_once():
    make_limit()

    def ask(_: int) -> None:
        for _ in range(11):
            decide([Call(WRITES)])
            resolve_quiet_alerts()

    run_together(8, ask)
    assert opened() == [("usage", 60, "notice"), ("usage", 80, "warning")]
    assert QuotaAlert.objects.count() == 2
