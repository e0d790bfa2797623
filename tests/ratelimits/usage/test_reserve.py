"""Reserving: the room of a month, its edge, and the same key again."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db.models.signals import post_save

from queueops.audit.models import AuditEntry
from queueops.core.errors import IdempotencyKeyReused
from ratelimits.errors import NoAllowance, QuotaExceeded
from ratelimits.models import UsageReservation, UsageTracking
from ratelimits.usage.allowances import remove_override, set_override
from ratelimits.usage.release import cancel
from ratelimits.usage.reserve import Reserved, reserve
from ratelimits.usage.standings import standing
from tests.factories import make_allowance, make_project, make_usage_event, make_usage_month
from tests.ratelimits.usage.reports import counted_statements, month_of
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ACTOR = "user:1"


def ask(user, amount=1, *, key=None, project="acme") -> Reserved:
    return reserve(project_id=project, user_id=user, amount=amount, idempotency_key=key)


def test_a_reservation_takes_room_and_tells_what_is_left(user):
    make_allowance(quota=10, reservation_seconds=60)
    made = ask(user, 3)
    assert (made.amount, made.remaining, made.over_limit, made.replayed) == (3, 7, False, False)
    row = UsageReservation.objects.get(pk=made.reservation_id)
    assert (row.status, row.month_year, row.user_id) == ("active", made.month, user)
    assert 59 < (row.expires_at - row.created_at).total_seconds() < 61
    assert month_of(user) == (0, 3)


@every_case("policy", ["strict", "record_overage"])
@every_case("has_row", [False, True])
@every_case("amount", [9, 10, 11], undone=True)
def test_the_last_unit_of_a_quota_can_be_reserved_and_no_more_unless_overage_is_recorded(user, policy, has_row, amount):
    make_allowance(quota=10, policy=policy)
    if has_row:
        make_usage_month(user)
    if amount <= 10 or policy == "record_overage":
        made = ask(user, amount)
        assert (made.remaining, made.over_limit) == (max(0, 10 - amount), amount > 10)
        assert month_of(user) == (0, amount)
    else:
        with pytest.raises(QuotaExceeded) as refused:
            ask(user, amount)
        assert (refused.value.details["remaining"], refused.value.details["quota"]) == (10, 10)
        assert month_of(user) == (0, 0)


@pytest.mark.parametrize("unit", ["requests", "tokens"])
def test_what_was_used_takes_room_as_what_is_reserved(user, unit):
    make_allowance(quota=10, unit=unit)
    make_usage_event(user, amount=6)
    ask(user, 3)
    with pytest.raises(QuotaExceeded):
        ask(user, 2)
    assert ask(user, 1).remaining == 0
    assert month_of(user) == (6, 4)


def test_a_quota_of_nothing_grants_nothing(user):
    make_allowance(quota=0)
    with pytest.raises(QuotaExceeded) as refused:
        ask(user)
    assert refused.value.details["remaining"] == 0


def test_users_and_projects_have_quotas_of_their_own(user):
    make_allowance(quota=1)
    make_allowance("other", quota=1)
    ask(user)
    ask(user, project="other")
    ask(uuid4())
    with pytest.raises(QuotaExceeded):
        ask(user)


def test_without_an_allowance_there_is_nothing_to_reserve(user):
    make_project()
    with pytest.raises(NoAllowance):
        ask(user)
    with pytest.raises(NoAllowance):
        ask(user, key="a")


def test_refusals_are_counted_and_never_say_that_there_is_enough(user):
    make_allowance(quota=10)
    for _ in range(2):
        with pytest.raises(QuotaExceeded) as refused:
            ask(user, 11)
    assert refused.value.details["remaining"] == 10
    assert refused.value.details["resets_at"] == standing("acme", user).resets_at
    assert UsageTracking.objects.get().refused == 2


def test_the_same_key_gets_the_same_reservation_whatever_became_of_it(user):
    make_allowance(quota=10)
    first = ask(user, 4, key="once")
    ask(user, 6)
    cancel(first.reservation_id, project_id="acme")
    again = ask(user, 4, key="once")
    assert again.replayed
    assert {**as_shown(again), "replayed": False} == as_shown(first)
    assert month_of(user) == (0, 6)


def test_a_replay_still_says_that_the_quota_was_passed(user):
    make_allowance(quota=3, policy="record_overage")
    first = ask(user, 4, key="once")
    assert first.over_limit
    assert ask(user, 4, key="once").over_limit


@pytest.mark.parametrize("change", ["amount", "user"])
def test_a_key_stands_for_one_reservation(user, change):
    make_allowance()
    ask(user, 1, key="once")
    with pytest.raises(IdempotencyKeyReused):
        ask(uuid4() if change == "user" else user, 2 if change == "amount" else 1, key="once")
    assert month_of(user) == (0, 1)


def test_a_key_belongs_to_its_project(user):
    make_allowance()
    make_allowance("other")
    assert ask(user, key="once").reservation_id != ask(user, key="once", project="other").reservation_id


def test_an_override_counts_at_once_and_its_removal_too(user):
    make_allowance(quota=2)
    ask(user, 2)
    set_override("acme", user, quota=5, actor=ACTOR)
    assert ask(user, 3).remaining == 0
    remove_override("acme", user, actor=ACTOR)
    with pytest.raises(QuotaExceeded) as refused:
        ask(user)
    assert refused.value.details == {"remaining": 0, "quota": 2, "resets_at": standing("acme", user).resets_at}


def test_a_quota_that_was_changed_counts_though_the_month_has_the_old_one(user):
    make_allowance(quota=2)
    ask(user, 2)
    make_allowance(quota=5)  # past the service, as for a month that was inserted meanwhile
    assert ask(user, 3).remaining == 0
    assert UsageTracking.objects.get().quota == 5


def test_a_reservation_is_one_statement(user):
    make_allowance()
    with counted_statements() as sent:
        ask(user)
    assert len(sent) == 1


def as_shown(made: Reserved) -> dict[str, object]:
    return {name: getattr(made, name) for name in Reserved.__slots__}


@pytest.mark.parametrize("key", [None, "once"])
def test_what_an_operator_reserves_is_in_the_trail_or_is_not_reserved(user, key):
    make_allowance()

    def fail(**_told):
        raise OSError

    post_save.connect(fail, sender=AuditEntry)
    try:
        with pytest.raises(OSError):  # noqa: PT011 - it has no message
            reserve(project_id="acme", user_id=user, amount=1, idempotency_key=key, actor=ACTOR)
    finally:
        post_save.disconnect(fail, sender=AuditEntry)
    assert not UsageReservation.objects.exists()
