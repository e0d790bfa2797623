"""Allowances as the database's role for API requests: it does all that a user needs, and nothing to others."""

from __future__ import annotations

from uuid import uuid4

import pytest

from queueops.core.errors import IdempotencyKeyReused
from queueops.tenancy.scope import acting_for
from ratelimits.errors import QuotaExceeded, UnknownReservation
from ratelimits.models import UsageEvent, UsageReservation
from ratelimits.usage.release import cancel
from ratelimits.usage.reserve import reserve
from ratelimits.usage.standings import standing
from tests.factories import make_allowance, make_reservation
from tests.ratelimits.usage.reports import month_of, report, send, statuses

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("confined_to_user", [True, False])
def test_a_user_reserves_reports_and_cancels(user, confined_to_user):
    make_allowance(quota=10, unit="tokens")
    with acting_for("acme", user if confined_to_user else None):
        made = reserve(project_id="acme", user_id=user, amount=4, idempotency_key="once")
        assert reserve(project_id="acme", user_id=user, amount=4, idempotency_key="once").replayed
        other = reserve(project_id="acme", user_id=user, amount=6)
        with pytest.raises(QuotaExceeded):
            reserve(project_id="acme", user_id=user, amount=1)
        assert cancel(other.reservation_id, project_id="acme").remaining == 6
        events = [report(user, 3, reservation=made.reservation_id), report(user, 9)]
        assert statuses(send(*events, *events)) == ["accepted", "over_limit", "duplicate", "duplicate"]
        assert standing("acme", user).used == 12
    assert month_of(user) == (12, 0)


def test_what_another_user_did_is_neither_seen_nor_touched(user):
    make_allowance()
    other = uuid4()
    held = make_reservation(other, idempotency_key="theirs")
    event = report(other)
    send(event)
    with acting_for("acme", user):
        with pytest.raises(IdempotencyKeyReused):
            reserve(project_id="acme", user_id=user, amount=1, idempotency_key="theirs")
        with pytest.raises(UnknownReservation):
            cancel(held.pk, project_id="acme")
        assert statuses(send(report(user, event_id=event.event_id), report(user, reservation=held.pk))) == [
            "duplicate",
            "accepted",
        ]
    assert UsageReservation.objects.get(pk=held.pk).status == "active"
    assert UsageEvent.objects.filter(user_id=other).count() == 1
    assert (month_of(other), month_of(user)) == ((1, 1), (1, 0))


def test_another_projects_allowance_is_not_there(user):
    make_allowance()
    make_allowance("other")
    held = make_reservation(user, project="other")
    with acting_for("acme"), pytest.raises(UnknownReservation):
        cancel(held.pk, project_id="acme")
    assert month_of(user, project="other") == (0, 1)
