"""Comparing months with what they sum up, repairing them, and correcting what was counted."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from queueops.audit.models import AuditEntry
from queueops.core.values.reasons import ReasonRequired
from ratelimits.errors import InvalidCorrection, NoAllowance
from ratelimits.models import UsageEvent, UsageTracking
from ratelimits.usage.ledger import Difference, LedgerCheck, check_ledger, correct, repair_ledger
from ratelimits.usage.standings import standing
from tests.factories import make_allowance, make_project, make_reservation, make_usage_event
from tests.ratelimits.usage.reports import month_of
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

WHY = {"actor": "user:1", "reason": "a test"}


def spoil(user):
    """A month that says too much of both, a month with a row too few, and one that is right."""
    make_allowance()
    make_allowance("other")
    make_usage_event(user, amount=3)
    make_reservation(user, amount=2)
    make_reservation(user, amount=7, status="cancelled")
    make_usage_event(user, amount=4, month_year="2026-01")
    make_usage_event(user, project="other")
    UsageTracking.objects.filter(project_id="acme", month_year="2026-01").delete()
    UsageTracking.objects.filter(project_id="acme").update(used=5, reserved=9)
    return standing("acme", user).month


def test_the_check_names_every_month_that_differs_and_by_how_much(user):
    month = spoil(user)
    found = check_ledger()
    assert found.rows == 3
    assert found.differences == [
        Difference("acme", user, "2026-01", used=0, events=4, reserved=0, reservations=0),
        Difference("acme", user, month, used=5, events=3, reserved=9, reservations=2),
    ]
    assert check_ledger("acme").rows == 2
    assert check_ledger("other").differences == []
    assert check_ledger("nobody") == LedgerCheck(0, [])


def test_a_repair_sets_months_to_their_sums_and_says_so(user):
    month = spoil(user)
    assert len(repair_ledger(**WHY)) == 2
    assert month_of(user, month) == (3, 2)
    assert month_of(user, "2026-01") == (4, 0)
    entries = AuditEntry.objects.filter(action="repair_ledger").order_by("pk")
    assert [(entry.before, entry.after) for entry in entries] == [
        ({"used": 0, "reserved": 0}, {"used": 4, "reserved": 0}),
        ({"used": 5, "reserved": 9}, {"used": 3, "reserved": 2}),
    ]
    assert repair_ledger(**WHY) == []


def test_a_repair_of_one_project_leaves_the_others(user):
    spoil(user)
    assert repair_ledger("other", **WHY) == []
    assert len(check_ledger().differences) == 2


def test_what_is_repaired_or_corrected_needs_a_reason(user):
    spoil(user)
    with pytest.raises(ReasonRequired):
        repair_ledger(actor="user:1", reason=" ")
    with pytest.raises(ReasonRequired):
        correct("acme", user, "2026-01", 1, actor="user:1", reason="")


@pytest.mark.parametrize("amount", [5, -3])
def test_a_correction_is_an_event_of_its_month(user, amount):
    make_allowance()
    make_usage_event(user, amount=3, month_year="2026-01")
    corrected = correct("acme", user, "2026-01", amount, **WHY)
    assert corrected.used == 3 + amount
    event = UsageEvent.objects.get(event_id=corrected.event_id)
    assert (event.amount, event.correction, event.month_year) == (amount, True, "2026-01")
    assert month_of(user) == (3 + amount, 0)
    entry = AuditEntry.objects.get()
    assert (entry.before, entry.project_id) == ({"used": 3}, "acme")
    assert entry.after == {"used": 3 + amount, "event_id": str(event.event_id)}


def test_a_month_without_use_can_be_corrected_upwards_alone(user):
    make_allowance()
    month = standing("acme", user).month
    with pytest.raises(InvalidCorrection):
        correct("acme", user, month, -1, **WHY)
    assert not UsageTracking.objects.exists()
    correct("acme", user, month, 2, **WHY)
    assert month_of(user) == (2, 0)


@every_case("month", ["2999-01", "2026-13", "2026-1", "", "2026-01\n"], undone=True)
def test_a_correction_names_a_month_that_has_begun(user, month):
    make_allowance()
    with pytest.raises(InvalidCorrection) as refused:
        correct("acme", user, month, 1, **WHY)
    assert "month" in refused.value.fields


@every_case("amount", [0, -4, 10**15 + 1], undone=True)
def test_a_correction_leaves_a_month_that_can_be(user, amount):
    make_allowance()
    make_usage_event(user, amount=3, month_year="2026-01")
    with pytest.raises(InvalidCorrection) as refused:
        correct("acme", user, "2026-01", amount, **WHY)
    assert "amount" in refused.value.fields
    assert month_of(user) == (3, 0)


def test_a_correction_needs_an_allowance(user):
    make_project()
    with pytest.raises(NoAllowance):
        correct("acme", user, "2026-01", 1, **WHY)


def test_the_command_tells_what_differs_and_ends_with_1(user, capsys):
    spoil(user)
    with pytest.raises(SystemExit) as ended:
        call_command("check_ledger", project="acme")
    assert ended.value.code == 1
    shown = capsys.readouterr().out
    assert f"acme {user} 2026-01: used 0, events 4; reserved 0, active reservations 0" in shown
    assert "2 months compared, 2 differ" in shown


def test_the_command_repairs_with_a_reason_and_then_finds_nothing(user, capsys):
    spoil(user)
    with pytest.raises(CommandError, match="--reason"):
        call_command("check_ledger", repair=True)
    call_command("check_ledger", repair=True, reason="restored a backup")
    assert "2 months repaired\n3 months compared, 0 differ" in capsys.readouterr().out
    assert AuditEntry.objects.filter(actor="system:check_ledger").count() == 2


def test_a_ledger_of_nothing_agrees():
    assert check_ledger() == LedgerCheck(0, [])
