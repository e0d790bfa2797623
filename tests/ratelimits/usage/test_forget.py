"""Retention of usage: months go whole, and nothing that an event could still name goes at all."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from queueops.core.env.reading import BadConfiguration, read
from ratelimits.models import UsageEvent, UsageReservation, UsageTracking
from ratelimits.tuning.upkeep import forget_usage
from ratelimits.usage.ledger import check_ledger
from tests.factories import make_allowance, make_reservation, make_usage_event
from tests.support.processes import ROOT

pytestmark = pytest.mark.django_db


def made_ago(days: int) -> UUID:
    """A UUIDv7 of that time."""
    moment = int((timezone.now() - timedelta(days=days)).timestamp() * 1000)
    return UUID(f"{moment:012x}7{uuid4().hex[13:]}")


def test_months_that_began_before_the_retention_go_with_their_events(user):
    make_allowance()
    now = timezone.now()
    for days in (0, 300, 399 - 31, 400 + 31, 800):
        month = f"{now - timedelta(days=days):%Y-%m}"
        make_usage_event(user, month_year=month)
        make_usage_event(uuid4(), month_year=month)
    assert forget_usage() == 8
    assert UsageTracking.objects.count() == UsageEvent.objects.count() == 6
    assert check_ledger().differences == []
    assert forget_usage() == 0


def test_a_month_goes_whole_or_not_and_the_next_call_goes_on(user):
    make_allowance()
    for month in ("2020-01", "2020-02", "2020-03"):
        make_usage_event(user, month_year=month)
        make_usage_event(user, month_year=month)
    assert forget_usage(months=2) == 6
    assert set(UsageEvent.objects.values_list("month_year", flat=True)) == {"2020-03"}
    assert check_ledger().differences == []


def test_old_reservations_go_unless_they_are_active(user):
    make_allowance()
    make_reservation(user, id=made_ago(399), status="cancelled")
    make_reservation(user, id=made_ago(401), status="confirmed")
    make_reservation(user, id=made_ago(401), month_year="2020-01")
    assert forget_usage() == 1
    assert UsageReservation.objects.count() == 2
    assert UsageTracking.objects.filter(month_year="2020-01").exists()


def test_the_retention_is_longer_than_events_are_taken():
    wrong = {"QUEUEOPS_USAGE_RETENTION_DAYS": "100", "QUEUEOPS_USAGE_MAX_AGE_DAYS": "60"}
    with pytest.raises(BadConfiguration, match="QUEUEOPS_USAGE_RETENTION_DAYS must be two months longer"):
        read(wrong, default_data_dir=ROOT)
