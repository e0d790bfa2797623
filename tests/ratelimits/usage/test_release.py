"""Cancelling and expiring: what a reservation holds is given back once."""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from jobs import cluster
from jobs.executor.duties import Duties
from ratelimits.errors import UnknownReservation
from ratelimits.models import Allowance, UsageReservation, UsageTracking
from ratelimits.usage import release
from ratelimits.usage.ledger import repair_ledger
from ratelimits.usage.release import cancel, expire_reservations
from tests.factories import make_allowance, make_reservation
from tests.ratelimits.usage.reports import month_of

pytestmark = pytest.mark.django_db


def test_cancelling_gives_back_once_and_repeating_it_says_the_same(user):
    make_allowance(quota=10)
    kept, made = make_reservation(user, amount=4), make_reservation(user, amount=5)
    first = cancel(made.pk, project_id="acme", only_user=user)
    again = cancel(made.pk, project_id="acme", only_user=user)
    assert (first.status, first.released, first.remaining) == ("cancelled", True, 6)
    assert (again.status, again.released, again.remaining) == ("cancelled", False, 6)
    assert month_of(user) == (0, kept.amount)


@pytest.mark.parametrize("status", ["confirmed", "expired"])
def test_cancelling_what_has_ended_says_how_it_ended(user, status):
    make_allowance()
    made = make_reservation(user, status=status)
    cancelled = cancel(made.pk, project_id="acme")
    assert (cancelled.status, cancelled.released) == (status, False)


def test_what_is_cancelled_is_given_back_also_without_an_allowance(user):
    made = make_reservation(user, amount=5)
    Allowance.objects.all().delete()
    for released in (True, False):
        cancelled = cancel(made.pk, project_id="acme", only_user=user)
        assert (cancelled.status, cancelled.released) == ("cancelled", released)
        assert (cancelled.remaining, cancelled.resets_at) == (None, None)
    assert month_of(user) == (0, 0)


def test_a_reservation_of_somebody_else_is_unknown(user):
    make_allowance()
    make_allowance("other")
    made = make_reservation(user)
    for reservation, project, whose in [
        (uuid4(), "acme", None),
        (made.pk, "other", None),
        (made.pk, "acme", uuid4()),
    ]:
        with pytest.raises(UnknownReservation):
            cancel(reservation, project_id=project, only_user=whose)
    assert month_of(user) == (0, 1)


def test_reservations_expire_when_their_time_is_over_in_whatever_project(user):
    now = timezone.now()
    make_allowance()
    make_allowance("other")
    make_reservation(user, amount=2, expires_at=now + timedelta(minutes=1))
    make_reservation(user, amount=3, expires_at=now - timedelta(seconds=1))
    make_reservation(user, amount=4, expires_at=now - timedelta(days=1))
    make_reservation(user, amount=5, expires_at=now - timedelta(days=1), project="other", month_year="2026-01")
    assert (expire_reservations(), expire_reservations()) == (3, 0)
    assert month_of(user) == (0, 2)
    assert month_of(user, "2026-01", project="other") == (0, 0)
    assert dict(UsageTracking.objects.values_list("project_id", "expired")) == {"acme": 2, "other": 1}


def test_a_sweep_is_bounded_and_the_next_goes_on(user, monkeypatch):
    monkeypatch.setattr(release, "EXPIRED_AT_ONCE", 2)
    make_allowance()
    for _ in range(5):
        make_reservation(user, expires_at=timezone.now() - timedelta(seconds=1))
    assert [expire_reservations(rounds=2) for _ in range(3)] == [4, 1, 0]
    assert UsageReservation.objects.filter(status="expired").count() == 5


def stale(user: UUID, *amounts: int, project: str = "acme") -> None:
    for amount in amounts:
        make_reservation(user, project=project, amount=amount, expires_at=timezone.now() - timedelta(seconds=1))


def test_a_month_that_holds_too_little_keeps_nobody_elses_reservations_from_expiring(user, monkeypatch, caplog):
    monkeypatch.setattr(release, "EXPIRED_AT_ONCE", 2)
    other = uuid4()
    stale(user, 3, 3, 3)  # more than a round takes, and the longest expired
    stale(other, 4, 4)
    stale(user, 5, project="other")
    UsageTracking.objects.filter(user_id=user, project_id="acme").update(reserved=5)
    with caplog.at_level(logging.ERROR, release.logger.name):
        assert expire_reservations() == 3
    assert dict(UsageTracking.objects.values_list("project_id", "reserved").filter(user_id=user)) == {
        "acme": 5,
        "other": 0,
    }
    assert UsageTracking.objects.get(user_id=other).reserved == 0
    assert set(UsageReservation.objects.filter(status="active").values_list("user_id", "project_id")) == {
        (user, "acme")
    }
    [said] = caplog.messages
    assert f"project acme user {user} month {timezone.now():%Y-%m}" in said
    assert "check_ledger" in said
    repair_ledger(actor="user:1", reason="a test")
    assert expire_reservations() == 3
    assert month_of(user, project="acme") == (0, 0)


def test_a_month_that_is_gone_holds_nothing_and_gets_nothing_back(user, caplog):
    stale(user, 3)
    UsageTracking.objects.all().delete()
    assert expire_reservations() == 0
    assert f"user {user}" in caplog.text
    assert not UsageTracking.objects.exists()


def test_of_many_broken_months_the_log_names_a_few(caplog):
    for _ in range(release.BROKEN_NAMED + 1):
        stale(uuid4(), 1)
    UsageTracking.objects.update(reserved=0)
    assert expire_reservations() == 0
    [said] = caplog.messages
    assert said.startswith(f"reservations of {release.BROKEN_NAMED + 1} users' months cannot expire")
    assert said.count("project acme") == release.BROKEN_NAMED


def test_executors_and_a_schedule_give_back_what_has_expired(user):
    make_allowance()
    duties = Duties(uuid4(), sweep_seconds=1000, silent_seconds=30, stuck_seconds=30)
    for give_back in (lambda: duties.do(1), cluster.expire_reservations):
        made = make_reservation(user, expires_at=timezone.now() - timedelta(seconds=1))
        give_back()
        made.refresh_from_db()
        assert made.status == "expired"
    assert "jobs.cluster.expire_reservations" in cluster.ALLOWED_TASKS
