"""Alerts of months: opened, raised and resolved on the edge, a bounded number at once."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from queueops.core.sql import run_sql
from ratelimits.models import Allowance, QuotaAlert, UsageTracking
from ratelimits.usage import allowance_alerts
from ratelimits.usage.allowance_alerts import tend_allowance_alerts
from ratelimits.usage.allowances import set_override
from ratelimits.usage.ledger import correct
from ratelimits.usage.reports import users_of_allowances
from ratelimits.usage.standings import standing
from tests.factories import make_allowance, make_usage_event, make_usage_month
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ACTOR = "user:1"


def told() -> list[tuple[str, str, bool]]:
    """Kind, severity and whether it is open, of every alert in the order in which they opened."""
    rows = QuotaAlert.objects.order_by("pk").values_list("kind", "severity", "resolved_at")
    return [(kind, severity, resolved is None) for kind, severity, resolved in rows]


@every_case(
    ("quota", "used", "level"),
    [
        *[(10, 0, 0), (10, 5, 0), (10, 6, 60), (10, 7, 60), (10, 8, 80), (10, 9, 80), (10, 10, 100), (10, 11, 101)],
        # Of small quotas no part of a unit counts as reached before it is.
        *[(1, 0, 0), (1, 1, 100), (3, 1, 0), (3, 2, 60), (3, 3, 100), (0, 0, 0), (0, 1, 101), (7, 5, 60), (7, 6, 80)],
        *[(10**15, 6 * 10**14 - 1, 0), (10**15, 6 * 10**14, 60)],
    ],
    undone=True,
)
def test_a_month_knows_the_level_that_it_has_reached(user, quota, used, level):
    make_allowance(quota=quota)
    make_usage_event(user, amount=used)
    assert UsageTracking.objects.get().level == level


@every_case(("used", "severity"), [(6, "notice"), (8, "warning"), (10, "critical")], undone=True)
def test_a_level_that_is_reached_is_told_once(user, used, severity):
    make_allowance(quota=10)
    make_usage_event(user, amount=used)
    assert [tend_allowance_alerts(), tend_allowance_alerts()] == [1, 0]
    assert told() == [("allowance", severity, True)]
    alert = QuotaAlert.objects.get()
    assert (alert.figures["user"], alert.figures["used"], alert.figures["quota"]) == (str(user), used, 10)
    assert f"user {user}: {used} of 10 requests" in alert.message
    assert f"{used}0 %" in alert.message


def test_the_open_alert_rises_with_the_use_and_is_not_multiplied(user):
    make_allowance(quota=10)
    for used, severity in [(6, "notice"), (1, "notice"), (1, "warning"), (2, "critical")]:
        make_usage_event(user, amount=used)
        QuotaAlert.objects.update(notified_at="2026-01-01T00:00Z")
        tend_allowance_alerts()
        assert told() == [("allowance", severity, True)]
    assert QuotaAlert.objects.get().notified_at is None  # it is sent again


@every_case(("policy", "kinds"), [("strict", ["allowance", "overage"]), ("record_overage", ["allowance"])], undone=True)
def test_overage_is_an_alert_of_its_own_under_the_strict_policy(user, policy, kinds):
    make_allowance(quota=10, policy=policy)
    make_usage_event(user, amount=10)
    tend_allowance_alerts()
    make_usage_event(user, amount=4)
    tend_allowance_alerts()
    assert told() == [(kind, "critical", True) for kind in kinds]
    assert QuotaAlert.objects.get(kind=kinds[-1]).figures["overage"] == 4


def test_a_raised_quota_resolves_and_tells_the_level_that_is_left(user):
    make_allowance(quota=10)
    make_usage_event(user, amount=12)
    tend_allowance_alerts()
    set_override("acme", user, quota=20, actor=ACTOR)
    tend_allowance_alerts()
    assert told() == [("allowance", "critical", False), ("overage", "critical", False), ("allowance", "notice", True)]
    set_override("acme", user, quota=200, actor=ACTOR)
    tend_allowance_alerts()
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()


def test_a_correction_resolves_as_well(user):
    make_allowance(quota=10)
    make_usage_event(user, amount=8)
    tend_allowance_alerts()
    correct("acme", user, standing("acme", user).month, -5, actor=ACTOR, reason="counted twice")
    tend_allowance_alerts()
    assert told() == [("allowance", "warning", False)]


def test_alerts_are_resolved_when_their_month_ends_in_its_zone(user, set_clock):
    make_allowance(quota=10, time_zone="Pacific/Chatham")
    make_allowance("other", quota=10, time_zone="America/Los_Angeles")
    for project in ("acme", "other"):
        make_usage_event(user, amount=8, project=project, month_year="2026-08")
    set_clock(datetime(2026, 8, 31, 11, 14, tzinfo=UTC))
    tend_allowance_alerts()
    assert told() == [("allowance", "warning", True)] * 2
    set_clock(datetime(2026, 8, 31, 11, 15, tzinfo=UTC))
    tend_allowance_alerts()
    assert [alert.figures["project"] for alert in QuotaAlert.objects.filter(resolved_at=None)] == ["other"]
    set_clock(datetime(2026, 9, 1, 7, 0, tzinfo=UTC))
    tend_allowance_alerts()
    assert told() == [("allowance", "warning", False)] * 2


def test_a_stored_zone_that_the_database_does_not_know_counts_as_utc_and_stops_no_other_project(user):
    for project in ("acme", "other"):
        make_allowance(project, quota=10)
        make_usage_event(user, amount=8, project=project)
    Allowance.objects.filter(pk="acme").update(time_zone="localtime")
    assert tend_allowance_alerts() == 2
    assert {row[0] for row in run_sql("ratelimits", "sum_usage", {})} == {"acme", "other"}
    Allowance.objects.filter(pk="acme").update(time_zone="No/Such")
    assert users_of_allowances(list(Allowance.objects.all())).keys() == {"acme", "other"}
    assert standing("acme", user).used == 8


def test_of_a_month_that_is_over_nobody_is_told(user):
    make_allowance(quota=10)
    make_usage_event(user, amount=12, month_year="2026-01")
    assert [tend_allowance_alerts(), tend_allowance_alerts()] == [1, 0]
    assert told() == []


def test_a_sweep_deals_with_so_many_months_and_the_next_goes_on(monkeypatch):
    monkeypatch.setattr(allowance_alerts, "MONTHS_AT_ONCE", 3)
    make_allowance(quota=10)
    for _ in range(7):
        make_usage_event(uuid4(), amount=9)
    make_usage_month(uuid4())
    assert [tend_allowance_alerts() for _ in range(4)] == [3, 3, 1, 0]
    assert told() == [("allowance", "warning", True)] * 7


def test_each_kind_has_its_runbook(user):
    make_allowance(quota=1)
    make_usage_event(user, amount=2)
    tend_allowance_alerts()
    assert {alert.runbook for alert in QuotaAlert.objects.all()} == {
        "docs/runbooks/allowance.md",
        "docs/runbooks/overage.md",
    }
