"""Real connections race for the same months, reservations and events: nothing is granted or counted twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from ratelimits.errors import QuotaExceeded
from ratelimits.models import UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.allowance_alerts import tend_allowance_alerts
from ratelimits.usage.allowances import set_allowance
from ratelimits.usage.ledger import check_ledger, correct, repair_ledger
from ratelimits.usage.release import cancel, expire_reservations
from ratelimits.usage.reserve import reserve
from ratelimits.usage.standings import standing
from tests.factories import make_allowance, make_reservation, make_usage_month
from tests.ratelimits.usage.reports import month_of, report, send, statuses
from tests.support.processes import wait_for
from tests.support.racing import run_together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("R11")]

ACTOR = "user:1"


def ask(user: UUID, amount: int = 1, key: str | None = None) -> UUID | None:
    try:
        return reserve(project_id="acme", user_id=user, amount=amount, idempotency_key=key).reservation_id
    except QuotaExceeded:
        return None


def asking(user: UUID, amount: int, key: str | None = None) -> Callable[[int], UUID | None]:
    return lambda _: ask(user, amount, key)


@pytest.mark.parametrize("has_row", [False, True])
def test_of_many_reservations_at_once_as_many_are_granted_as_there_is_room(user, has_row):
    make_allowance(quota=10)
    if has_row:
        make_usage_month(user)
    granted = run_together(16, lambda _: [ask(user), ask(user)])
    assert sum(made is not None for pair in granted for made in pair) == 10
    assert month_of(user) == (0, 10)
    assert UsageTracking.objects.get().refused == 22


def test_a_months_first_reservations_do_not_pass_each_other(user):
    make_allowance(quota=10)
    for month in range(5):
        other = uuid4()
        granted = run_together(8, asking(other, 6))
        assert len([made for made in granted if made]) == 1, month
        assert month_of(other) == (0, 6)


def test_one_key_makes_one_reservation_however_many_ask_at_once(user):
    make_allowance(quota=100)
    for key in ("a", "b", "c"):
        made = run_together(12, asking(user, 2, key))
        assert len(set(made)) == 1
    assert month_of(user) == (0, 6)


def test_a_reservation_ends_once_whoever_ends_it(user):
    make_allowance(quota=1000)
    kept = make_reservation(user, amount=7)
    for _ in range(6):
        late = make_reservation(user, amount=5, expires_at=timezone.now() - timedelta(seconds=1))

        def end(number: int, late: UsageReservation = late) -> None:
            match number % 3:
                case 0:
                    cancel(late.pk, project_id="acme")
                case 1:
                    send(report(user, reservation=late.pk))
                case 2:
                    expire_reservations()

        run_together(9, end)
    month = month_of(user)
    assert month.reserved == kept.amount
    assert month.used == UsageEvent.objects.count() == 18


def test_batches_of_the_same_events_in_any_order_count_each_once_and_wait_for_each_other_in_one_order():
    make_allowance(quota=100)
    users = [uuid4() for _ in range(12)]
    for round_ in range(4):
        held = {one: make_reservation(one).pk for one in users}
        events = [report(user, reservation=held[user]) for user in users for _ in range(10)]

        def send_shuffled(number: int, events=events, round_=round_):
            mine = random.Random(round_ * 100 + number).sample(events, len(events))  # noqa: S311 - no secret
            return [statuses(send(*mine[:60])), statuses(send(*mine[60:]))]

        found = run_together(8, send_shuffled)
        accepted = sum(status != "duplicate" for halves in found for half in halves for status in half)
        assert accepted == len(events)
    assert {month_of(one) for one in users} == {(40, 0)}


def test_who_waits_for_a_reservation_holds_none_of_a_higher_id(user):
    """Else two batches that name the same ones in another order would wait for each other."""
    make_allowance()
    higher, lower = (make_reservation(user, id=UUID(int=number)) for number in (2, 1))
    with ThreadPoolExecutor(1) as thread:
        with transaction.atomic():
            UsageReservation.objects.select_for_update().get(pk=lower.pk)
            batch = thread.submit(in_thread, send, *[report(user, reservation=held.pk) for held in (higher, lower)])
            wait_for(is_waited_for, what="the batch's wait")
            UsageReservation.objects.select_for_update(nowait=True).get(pk=higher.pk)
        batch.result(30)
    assert month_of(user) == (2, 0)


def in_thread(call: Callable[..., object], *args: object) -> None:
    try:
        call(*args)
    finally:
        connection.close()


def is_waited_for() -> bool:
    """Whether somebody waits for this connection's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))")
        return bool(cursor.rowcount)


def test_nothing_that_locks_months_or_reservations_waits_for_another_in_a_circle():
    make_allowance(quota=1000)
    users = sorted(uuid4() for _ in range(10))
    month = standing("acme", users[0]).month

    def storm(number: int) -> None:
        drawn = random.Random(number)  # noqa: S311 - no secret
        for round_ in range(6):
            shuffled = drawn.sample(users, len(users))
            held = [ask(one) for one in shuffled[:4]]
            match number % 6:
                case 0 | 1:
                    send(*[report(one, reservation=drawn.choice(held)) for one in shuffled])
                case 2:
                    for reservation in held:
                        if reservation:
                            cancel(reservation, project_id="acme")
                    correct("acme", shuffled[0], month, 1, actor=ACTOR, reason="a test")
                case 3:
                    UsageReservation.objects.filter(pk__in=filter(None, held)).update(expires_at=timezone.now())
                    expire_reservations()
                case 4:
                    quota = drawn.randint(5, 500)
                    set_allowance(
                        "acme",
                        unit="requests",
                        quota=quota,
                        policy="record_overage",
                        time_zone="UTC",
                        reservation_seconds=300,
                        actor=ACTOR,
                    )
                case 5:
                    UsageTracking.objects.filter(user_id=shuffled[round_]).update(used=0)
                    repair_ledger(actor=ACTOR, reason="a test")
                    tend_allowance_alerts()

    run_together(12, storm)
    repair_ledger(actor=ACTOR, reason="what was spoilt last")
    assert check_ledger().differences == []


def test_a_repair_sees_what_is_being_counted():
    """Events committed while the months are locked, and those that wait for them, are in the sums once."""
    make_allowance(quota=10_000)
    users = [uuid4() for _ in range(5)]
    for one in users:
        make_usage_month(one)

    def count_or_repair(number: int) -> None:
        for _ in range(8):
            if number % 2:
                send(*[report(one) for one in users])
            else:
                UsageTracking.objects.filter(user_id=users[number % 5]).update(used=1)
                repair_ledger(actor=ACTOR, reason="a test")

    run_together(8, count_or_repair)
    repair_ledger(actor=ACTOR, reason="what was spoilt last")
    assert {month_of(one) for one in users} == {(32, 0)}
