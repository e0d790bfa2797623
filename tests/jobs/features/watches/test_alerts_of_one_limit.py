"""Alerts of a limit that counts many apart: one message, not one for each whom it counts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F, Q

from jobs.features.watches.notify_alerts import MAX_SILENCED, send_unsent
from jobs.models import Job
from ratelimits.alerts import alerts
from ratelimits.alerts.alerts import COMES_BACK
from ratelimits.alerts.silences import silence_alerts
from ratelimits.models import Limit, QuotaAlert
from tests.factories import make_route
from tests.ratelimits.counting import make_limit
from tests.support.alerts import resolve_alert

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def a_route_of_all(db: None) -> None:
    make_route(least_severity="notice")


@pytest.fixture
def limit(db: None) -> Limit:
    Limit.objects.all().delete()
    return make_limit(name="writes", scope="user")


def opened(kind: str, user: int, limit: Limit, severity: str = "notice") -> str:
    """Open an alert of one user's counter, and let time pass in which it lasts; its subject."""
    subject = f"{limit.pk:08x}:user:u{user}"
    alerts.open_alert(kind, subject, severity=severity, message="full", figures={}, limit_id=limit.pk)
    pass_time(61)
    return subject


def pass_time(seconds: float) -> None:
    earlier = timedelta(seconds=seconds)
    QuotaAlert.objects.update(
        opened_at=F("opened_at") - earlier,
        resolved_at=F("resolved_at") - earlier,
        notified_at=F("notified_at") - earlier,
    )


def test_of_many_counters_that_are_full_one_is_told(limit: Limit):
    for user in range(4):
        opened("saturated", user, limit)
    opened("usage", 9, limit)
    assert send_unsent(50) == 1
    assert send_unsent(50) == 0
    assert QuotaAlert.objects.filter(resolved_at=None).count() == 5, "they are listed all the same"


def test_a_graver_one_is_told_and_another_limits_too(limit: Limit):
    opened("saturated", 1, limit)
    assert send_unsent(50) == 1
    opened("saturated", 2, limit, "warning")
    opened("saturated", 3, limit, "warning")
    opened("saturated", 1, make_limit(name="reads", scope="user"))
    assert send_unsent(50) == 2


def test_what_is_still_open_when_the_told_one_is_long_over_is_told(limit: Limit):
    first = opened("saturated", 1, limit)
    assert send_unsent(50) == 1
    opened("saturated", 2, limit)
    resolve_alert("saturated", first)
    assert send_unsent(50) == 0
    pass_time(COMES_BACK.total_seconds() + 1)
    assert send_unsent(50) == 1


def test_what_ended_before_it_was_told_keeps_nothing_quiet(limit: Limit):
    subject = f"{limit.pk:08x}:user:u1"
    alerts.open_alert("saturated", subject, severity="notice", message="full", figures={}, limit_id=limit.pk)
    resolve_alert("saturated", subject)
    opened("saturated", 2, limit)
    assert send_unsent(50) == 1


def test_work_that_waits_because_the_provider_refuses_is_not_told_besides(limit: Limit):
    subject = opened("exceeded", 1, limit, "critical")
    assert send_unsent(50) == 1
    opened("saturated", 1, limit, "warning")
    assert send_unsent(50) == 0
    opened("saturated", 2, limit, "notice")
    assert send_unsent(50) == 1, "another's counter, which no provider refused"
    resolve_alert("exceeded", subject)
    send_unsent(50)
    pass_time(COMES_BACK.total_seconds() + 1)
    assert send_unsent(50) == 1


def of_users(limit: Limit, count: int = MAX_SILENCED + 51) -> None:
    """Open an alert of use for each of a limit's users, and let time pass in which they last."""
    QuotaAlert.objects.bulk_create(
        QuotaAlert(
            kind="usage",
            severity="notice",
            subject=f"{limit.pk:08x}:project:acme/user:u{user}",
            message="m",
            limit=limit,
        )
        for user in range(count)
    )
    pass_time(61)


def told() -> set[int]:
    send_unsent(50)
    return set(Job.objects.values_list("payload__alert", flat=True))


def test_what_is_left_out_takes_no_place_from_a_later_alert_of_any_kind(limit: Limit):
    of_users(limit)
    assert len(told()) == 1
    other = opened("usage", 1, make_limit(name="reads", scope="user"))
    opened("saturated", 1, limit, "warning")
    alerts.open_alert("outage", "http", severity="critical", message="away", figures={})
    later = QuotaAlert.objects.filter(Q(subject=other) | Q(kind__in=("saturated", "outage")))
    assert {one.pk for one in later} < told()


def test_what_is_silenced_for_a_project_takes_no_place_from_other_kinds(limit: Limit):
    of_users(limit)
    silence_alerts(hours=1, actor="user:1", reason="known", project="acme")
    alert = alerts.open_alert("dead_letters", "x", severity="critical", message="many", figures={})
    assert alert is not None
    assert told() == {alert.pk}


@pytest.mark.parametrize("named", ["limit", "kind"])
def test_what_is_silenced_in_all_projects_takes_no_place(limit: Limit, named: str):
    of_users(limit)
    fields = {"limit": limit} if named == "limit" else {"kind": "usage"}
    silence_alerts(hours=1, actor="user:1", reason="known", **fields)
    kind = "usage" if named == "limit" else "saturated"
    other = opened(kind, 1, make_limit(name="reads", scope="user"))
    away = alerts.open_alert("outage", "http", severity="warning", message="away", figures={})
    assert away is not None
    assert told() == {QuotaAlert.objects.get(subject=other).pk, away.pk}
