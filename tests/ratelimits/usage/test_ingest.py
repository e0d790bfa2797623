"""Ingesting: what becomes of every kind of event, by itself and among others."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from ratelimits.errors import NoAllowance
from ratelimits.models import UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.release import cancel, expire_reservations
from ratelimits.usage.reserve import reserve
from tests.factories import (
    make_allowance,
    make_project,
    make_reservation,
    make_usage_event,
    make_usage_month,
)
from tests.ratelimits.usage.reports import counted_statements, month_of, report, send, statuses
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@every_case(("ago", "status"), [
    (-6 * MINUTE, "from_future"), (-4 * MINUTE, "accepted"), (timedelta(), "accepted"),
    (35 * DAY - MINUTE, "accepted"), (35 * DAY + MINUTE, "too_old"), (3000 * DAY, "too_old"),
], undone=True)  # fmt: skip
def test_an_event_counts_when_it_is_neither_too_old_nor_from_the_future(user, ago, status):
    make_allowance()
    ingested = send(report(user, ago=ago))
    assert statuses(ingested) == [status]
    assert UsageEvent.objects.count() == (status == "accepted")
    if status != "accepted":
        assert ingested.results[0].message
        assert ingested.standings == []


@pytest.mark.parametrize(("unit", "amount"), [("requests", 1), ("tokens", 70)])
def test_an_event_counts_in_the_allowances_unit(user, unit, amount):
    make_allowance(unit=unit)
    [standing] = send(report(user, 70, service="gemini")).standings
    assert (standing.used, standing.remaining) == (amount, 1000 - amount)
    event = UsageEvent.objects.get()
    assert (event.tokens, event.amount, event.service, event.over_limit) == (70, amount, "gemini", False)
    assert month_of(user) == (amount, 0)


def test_an_event_counts_once_however_often_and_with_whatever_content_it_is_sent(user):
    make_allowance(unit="tokens")
    event = report(user, 5)
    assert statuses(send(event)) == ["accepted"]
    assert statuses(send(event, report(user, 900, event_id=event.event_id))) == ["duplicate", "duplicate"]
    assert statuses(send(report(uuid4(), 900, event_id=event.event_id))) == ["duplicate"]
    assert month_of(user) == (5, 0)


def test_of_an_id_that_comes_twice_in_a_batch_the_first_counts_that_can(user):
    make_allowance(unit="tokens")
    first = report(user, 1, ago=40 * DAY)
    batch = [first, report(user, 2, event_id=first.event_id), report(user, 4, event_id=first.event_id)]
    assert statuses(send(*batch)) == ["too_old", "accepted", "duplicate"]
    assert month_of(user) == (2, 0)


def test_an_id_belongs_to_its_project(user):
    make_allowance()
    make_allowance("other")
    event = report(user)
    assert statuses(send(event)) == statuses(send(event, project="other")) == ["accepted"]


def test_a_user_reports_no_other_users_events(user):
    make_allowance()
    ingested = send(report(user), report(uuid4()), report(user), only_user=user)
    assert statuses(ingested) == ["accepted", "foreign_user", "accepted"]
    assert [standing.user_id for standing in ingested.standings] == [user]
    assert month_of(user) == (2, 0)


def test_a_batch_of_nothing_that_counts_changes_nothing(user):
    make_allowance()
    assert statuses(send(report(uuid4()), only_user=user)) == ["foreign_user"]
    assert send().results == []
    assert not UsageTracking.objects.exists()


def test_without_an_allowance_nothing_is_counted(user):
    make_project()
    with pytest.raises(NoAllowance):
        send(report(user))


def test_an_event_confirms_its_reservation_and_counts_what_was_used(user):
    make_allowance(quota=10, unit="tokens")
    made = reserve(project_id="acme", user_id=user, amount=8)
    [standing] = send(report(user, 5, reservation=made.reservation_id)).standings
    assert (standing.used, standing.reserved, standing.remaining) == (5, 0, 5)
    assert UsageReservation.objects.get().status == "confirmed"
    assert UsageEvent.objects.get().reservation == made.reservation_id


def test_a_reservation_is_given_back_once_by_whichever_comes_first(user):
    make_allowance(quota=100, unit="tokens")
    other = reserve(project_id="acme", user_id=user, amount=50)
    made = reserve(project_id="acme", user_id=user, amount=8)
    first = report(user, 5, reservation=made.reservation_id)
    send(first, report(user, 1, reservation=made.reservation_id))
    send(first, report(user, 1, reservation=made.reservation_id))
    assert not cancel(made.reservation_id, project_id="acme").released
    assert month_of(user) == (7, other.amount)


@every_case("status", ["confirmed", "cancelled", "expired"], undone=True)
def test_an_event_that_names_an_ended_reservation_counts_without_one(user, status):
    make_allowance(quota=10, unit="tokens")
    make_reservation(user, amount=4)
    ended = make_reservation(user, amount=8, status=status)
    assert statuses(send(report(user, 5, reservation=ended.pk))) == ["accepted"]
    assert statuses(send(report(user, 2, reservation=ended.pk))) == ["over_limit"]
    assert month_of(user) == (7, 4)
    ended.refresh_from_db()
    assert ended.status == status


@every_case("whose", ["nobody", "another user", "another project"], undone=True)
def test_an_event_cannot_end_a_reservation_of_somebody_else(user, whose):
    make_allowance()
    make_allowance("other")
    other = uuid4()
    made = make_reservation(other, amount=3) if whose == "another user" else make_reservation(user, project="other")
    named = uuid4() if whose == "nobody" else made.pk
    assert statuses(send(report(user, reservation=named))) == ["accepted"]
    made.refresh_from_db()
    assert made.status == "active"
    assert month_of(user) == (1, 0)


def test_an_event_counts_in_the_month_of_its_reservation_even_after_that_expired(user):
    make_allowance()
    make_usage_month(user, month="2026-01")
    live = make_reservation(user, month_year="2026-01")
    expired = make_reservation(user, month_year="2026-01", status="expired")
    assert statuses(send(report(user, reservation=live.pk), report(user, reservation=expired.pk))) == [
        "accepted",
        "accepted",
    ]
    assert month_of(user) == (2, 0)


def test_a_reservation_older_than_any_event_does_not_decide_the_month(user):
    make_allowance()
    old = make_reservation(user, month_year="2026-01", status="expired")
    UsageReservation.objects.update(created_at=old.created_at - 36 * DAY)
    send(report(user, reservation=old.pk))
    assert UsageEvent.objects.exclude(month_year="2026-01").count() == 1


@pytest.mark.parametrize("policy", ["strict", "record_overage"])
def test_what_passes_the_quota_is_counted_and_flagged_under_either_policy(user, policy):
    make_allowance(quota=10, unit="tokens", policy=policy)
    batch = [report(user, 10), report(user, 0), report(user, 3)]
    assert statuses(send(*batch)) == ["accepted", "accepted", "over_limit"]
    row = UsageTracking.objects.get()
    assert (row.used, row.overage, row.level) == (13, 3, 101)
    assert list(UsageEvent.objects.filter(over_limit=True).values_list("tokens", flat=True)) == [3]
    assert statuses(send(*batch)) == ["duplicate"] * 3


def test_room_that_others_have_reserved_is_not_there_for_an_event_without_reservation(user):
    make_allowance(quota=10, unit="tokens")
    make_reservation(user, amount=8)
    assert statuses(send(report(user, 2), report(user, 1))) == ["accepted", "over_limit"]


@pytest.mark.parametrize(("cost", "status"), [(4, "accepted"), (5, "over_limit")])
def test_an_event_is_within_its_own_reservation_though_the_quota_is_passed(user, cost, status):
    make_allowance(quota=10, unit="tokens")
    made = make_reservation(user, amount=4)
    make_usage_event(user, amount=10)
    assert statuses(send(report(user, cost, reservation=made.pk))) == [status]


def test_an_event_of_another_user_takes_no_reservation_from_the_one_in_its_batch_that_ends_it(user):
    make_allowance(quota=10, unit="tokens")
    make_usage_event(user, amount=10)
    made = make_reservation(user, amount=4)
    batch = [report(uuid4(), 3, reservation=made.pk), report(user, 4, reservation=made.pk)]
    assert statuses(send(*batch)) == ["accepted", "accepted"]


def test_one_reservation_covers_one_event_of_a_batch(user):
    make_allowance(quota=10, unit="tokens")
    made = make_reservation(user, amount=10)
    batch = [report(user, 8, reservation=made.pk), report(user, 2, reservation=made.pk), report(user, 1)]
    assert statuses(send(*batch)) == ["accepted", "accepted", "over_limit"]


def test_each_event_sees_what_those_before_it_in_the_batch_left(user):
    make_allowance(quota=10, unit="tokens")
    other = uuid4()
    batch = [report(user, 9), report(other, 9), report(user, 2), report(other, 1), report(user, 1)]
    assert statuses(send(*batch)) == ["accepted", "accepted", "over_limit", "accepted", "over_limit"]
    assert month_of(user).used == 12
    assert month_of(other).used == 10


def test_a_month_has_the_quota_of_its_time_and_the_current_one_that_of_now(user):
    make_allowance(quota=5)
    made = make_reservation(user, month_year="2026-01")
    send(report(user))
    make_allowance(quota=9)
    send(report(user, reservation=made.pk), report(user))
    quotas = dict(UsageTracking.objects.values_list("month_year", "quota"))
    assert quotas.pop("2026-01") == 5
    assert list(quotas.values()) == [9]


def test_a_thousand_events_of_fifty_users_take_as_many_statements_as_one(user):
    make_allowance(quota=10, unit="tokens")

    def statements(users, events):
        held = [make_reservation(one).pk for one in users]
        batch = [report(users[n % len(users)], 20, reservation=held[n % len(held)]) for n in range(events)]
        with counted_statements() as sent:
            ingested = send(*batch)
        assert set(statuses(ingested)) == {"over_limit"}
        return [statement for statement in sent if "SAVEPOINT" not in statement]

    few, many = statements([user], 1), statements([uuid4() for _ in range(50)], 1000)
    assert few == many
    assert len(many) == 5


def test_only_who_reported_something_is_told_how_he_stands(user):
    make_allowance()
    other = uuid4()
    make_usage_event(other)
    ingested = send(report(user), report(uuid4(), ago=40 * DAY), report(other), report(user))
    assert [standing.user_id for standing in ingested.standings] == [user, other]


def test_a_reservation_whose_time_is_over_is_confirmed_until_the_sweep_has_come(user):
    make_allowance()
    late = make_reservation(user, expires_at="2026-01-01T00:00Z")
    later = make_reservation(user, expires_at="2026-01-01T00:00Z")
    send(report(user, reservation=late.pk))
    assert expire_reservations() == 1
    send(report(user, reservation=later.pk))
    assert month_of(user) == (2, 0)
    assert dict(UsageReservation.objects.values_list("pk", "status")) == {late.pk: "confirmed", later.pk: "expired"}
