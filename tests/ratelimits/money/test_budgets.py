"""A budget is never passed, whatever the order of crash, late answer and retry; and its sum is that of its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.db.models import Sum
from django.db.models.functions import Now
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueops.core.clock import database_now
from queueops.core.postgres import zones
from ratelimits.costs import Usage
from ratelimits.errors import InvalidBudget
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, Price, QuotaAlert, Spend
from ratelimits.money import budget_alerts, budgets, prices
from ratelimits.money.budget_alerts import tend_budget_alerts
from ratelimits.money.budgets import AskedMoney, hold_money, weigh_budgets
from ratelimits.money.holds import end_holds, lose_holds, recount_periods
from ratelimits.money.save_budget import change_budget, create_budget, delete_budget
from ratelimits.money.spend import MadeCall, Payer, price_unpriced, record_calls
from ratelimits.money.standings import begin_of, standing_of, standings_of
from tests.factories import make_batch, make_project
from tests.support.cases import every_case

TOKEN = 1_000_000  # a token of input costs as much as a micro-unit
CAP = 1_000


@pytest.fixture(autouse=True)
def own_prices(db: None) -> Iterator[None]:
    make_project("acme")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    Price.objects.create(provider="openai", model="m", unit="input_tokens", amount=TOKEN, valid_from=since)
    prices.forget()
    budgets.forget()
    yield
    prices.forget()
    budgets.forget()


def a_budget(amount: int = CAP, **figures: Any) -> Budget:
    saved = create_budget("acme", {"name": f"b{uuid4().hex[:6]}", "amount": amount, **figures}, actor="user:1")
    budgets.forget()
    return Budget.objects.get(pk=saved.id)


def ask(most: int | None, *, user: UUID | None = None, batch: UUID | None = None, token: int = 1) -> AskedMoney:
    return AskedMoney(uuid4(), token, Payer("acme", user, batch), "openai", "m", database_now(), most, 60.0)


def claim(*calls: AskedMoney) -> list[AskedMoney]:
    with transaction.atomic():
        weighed = weigh_budgets(calls)
        going = [call for call in calls if call.job_id not in weighed.shortages]
        hold_money(going, weighed)
    return going


def made(call: AskedMoney, used: int) -> MadeCall:
    return MadeCall(call.job_id, call.token, call.payer, call.provider, call.model, call.at, Usage(used, 0, None))


def settle(call: AskedMoney, used: int) -> None:
    with transaction.atomic():
        end_holds([(call.job_id, call.token)])
        record_calls([made(call, used)], bounds={(call.job_id, call.token): call.most or 0})


def ledger() -> int:
    return int(Spend.objects.aggregate(sum=Sum("money", default=0))["sum"])


def test_what_fits_goes_and_what_does_not_takes_nothing():
    budget = a_budget()
    calls = [ask(400), ask(400), ask(300), ask(200)]
    assert claim(*calls) == [calls[0], calls[1], calls[3]]
    settle(calls[0], 100)
    standing = standing_of(budget)
    assert (standing.spent, standing.held, standing.left) == (100, 600, 300)
    [short] = weigh_budgets([ask(301)]).shortages.values()
    assert not short.is_spent
    assert claim(ask(300))


def test_every_budget_of_a_call_must_have_room_or_none_pays():
    user = uuid4()
    whole, own = a_budget(), a_budget(100, scope="each_user")
    assert not claim(ask(150, user=user))
    assert claim(ask(90, user=user), ask(90, user=uuid4()))
    assert (standing_of(whole).held, standing_of(own, str(user)).held) == (180, 90)
    assert claim(ask(500))  # of nobody: no user's budget counts it


def test_a_budget_counts_what_was_spent_before_it_was_made():
    record_calls([made(ask(None), 700)])
    budget = a_budget()
    assert standing_of(budget).spent == 700
    assert not claim(ask(301))
    assert claim(ask(300))
    assert standing_of(budget).spent == 700


def test_a_stored_zone_that_the_database_does_not_know_holds_the_calls_of_its_budget_alone():
    make_project("other")
    whole, lost = a_budget(), Budget.objects.get(pk=create_budget("other", {"name": "b", "amount": CAP}, actor="u").id)
    theirs = ask(10)._replace(payer=Payer("other", None, None))
    assert claim(theirs) == [theirs]
    Budget.objects.filter(pk=lost.pk).update(time_zone="localtime")
    budgets.forget()
    more = theirs._replace(job_id=uuid4())
    calls = [ask(10), more]
    assert claim(*calls) == calls[:1]
    [short] = weigh_budgets([more]).shortages.values()
    assert (short.budget, short.why, short.rejects) == (lost.pk, budgets.NO_ZONE, False)
    with transaction.atomic():
        end_holds([(call.job_id, 1) for call in (calls[0], theirs)], paid=[(call.payer, call.at) for call in calls])
        record_calls([made(calls[0], 7), made(theirs, 7)])
    assert (standing_of(whole).spent, BudgetHold.objects.count(), ledger()) == (7, 0, 14)
    tend_budget_alerts()
    BudgetPeriod.objects.update(created_at=Now() - timedelta(hours=1))  # no young ones, which are recounted
    Budget.objects.filter(pk=lost.pk).update(time_zone="UTC")
    budgets.forget()
    tend_budget_alerts()
    assert standing_of(Budget.objects.get(pk=lost.pk)).spent == 7  # what was under way when the zone was lost
    assert recount_periods() == []


@pytest.mark.parametrize(("figures", "user"), [({}, None), ({"scope": "each_user", "period": "day"}, uuid4())])
def test_a_call_that_is_priced_later_counts_in_its_budget_then(figures, user):
    budget = a_budget(**figures)
    key = str(user) if user else ""
    [known] = claim(ask(10, user=user))
    settle(known, 10)
    record_calls([made(ask(None, user=user)._replace(model="new"), 300)])
    assert standing_of(budget, key).spent == 10
    Price.objects.create(
        provider="openai", model="new", unit="input_tokens", amount=TOKEN, valid_from=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert price_unpriced(actor="user:1").filled == 1
    assert price_unpriced(actor="user:1").filled == 0
    assert standing_of(budget, key).spent == 310 == ledger()
    assert recount_periods() == []


@every_case(("scope", "pays"), [("project", 3), ("each_user", 2), ("user", 1), ("batch", 1)], undone=True)
def test_a_budget_pays_for_those_that_it_names_alone(scope, pays):
    user, batch = uuid4(), make_batch().pk
    whose: dict[str, Any] = {"user": {"user_id": user}, "batch": {"batch_id": batch}}.get(scope, {})
    a_budget(scope=scope, **whose)
    claim(ask(1, user=user), ask(1, user=uuid4(), batch=batch), ask(1))
    assert BudgetHold.objects.count() == pays


def test_a_call_of_a_crashed_worker_counts_at_its_most_until_its_answer_comes_after_all():
    budget = a_budget()
    [call] = claim(ask(400))
    for _ in range(2):
        lose_holds([(call.job_id, call.token)])
    standing = standing_of(budget)
    assert (standing.spent, standing.held) == (400, 0)
    assert Spend.objects.get().kind == Spend.Kind.UNKNOWN
    settle(call, 120)
    settle(call, 120)
    standing = standing_of(budget)
    assert (standing.spent, standing.held) == (120, 0) == (ledger(), 0)
    assert Spend.objects.get().kind == Spend.Kind.CALL


def test_the_next_day_begins_anew_and_a_call_counts_in_the_one_it_was_claimed_in():
    budget = a_budget(period="day", time_zone="Europe/Vienna")
    call = ask(CAP)
    yesterday = call._replace(at=call.at - 86_400)
    assert claim(yesterday)
    assert claim(call)
    settle(yesterday, 10)
    assert standing_of(budget).spent == 0
    assert BudgetPeriod.objects.order_by("starts_at").values_list("spent", flat=True)[0] == 10
    rows = BudgetPeriod.objects.order_by("-starts_at")
    assert rows[0].starts_at == begin_of(budget, datetime.fromtimestamp(call.at, UTC))


def test_a_raise_makes_room_and_a_deleted_budget_holds_nobody():
    budget = a_budget()
    assert not claim(ask(1_500))
    change_budget(budget.pk, {"amount": 2_000}, actor="user:1")
    assert claim(ask(1_500))
    delete_budget(budget.pk, actor="user:1")
    budgets.forget()
    assert claim(ask(10**9))
    assert not BudgetHold.objects.exists()


def test_a_zone_that_the_database_lacks_is_refused(monkeypatch):
    make_project()
    # Python's zones may be newer than the database's.
    monkeypatch.setattr(zones, "available_timezones", lambda: {"UTC", "Mars/Olympus"})
    with pytest.raises(InvalidBudget) as refused:
        create_budget("acme", {"name": "x", "amount": 1, "time_zone": "Mars/Olympus"}, actor="user:1")
    assert list(refused.value.fields) == ["time_zone"]


def test_all_budgets_of_a_list_are_read_at_once(django_assert_max_num_queries):
    much, little = uuid4(), uuid4()
    own, many = a_budget(scope="each_user", period="day"), [a_budget() for _ in range(5)]
    claim(ask(90, user=little), ask(50))
    [call] = claim(ask(60, user=much))
    settle(call, 60)
    with django_assert_max_num_queries(3):
        found = standings_of([own, *many])
    assert found[own.pk] == standing_of(own, str(much))
    assert [found[one.pk] for one in many] == [standing_of(one) for one in many]
    assert (found[many[0].pk].spent, found[many[0].pk].held) == (60, 140)
    unasked = a_budget(period="total")
    assert standings_of([unasked])[unasked.pk].spent == 60


def test_people_are_told_at_each_level_once_and_no_longer_when_it_is_raised():
    budget = a_budget(100)
    told = QuotaAlert.objects.filter(kind="budget", resolved_at=None)
    for used, severity in ((59, None), (1, "notice"), (20, "warning"), (20, "critical")):
        [call] = claim(ask(used))
        settle(call, used)
        tend_budget_alerts()
        assert list(told.values_list("severity", flat=True)) == ([severity] if severity else [])
    change_budget(budget.pk, {"amount": 1_000}, actor="user:1")
    tend_budget_alerts()
    assert not told.exists()
    change_budget(budget.pk, {"amount": 100}, actor="user:1")
    tend_budget_alerts()
    assert told.count() == 1
    delete_budget(budget.pk, actor="user:1")
    assert not told.exists(), "nobody could end it later: its budget is gone"


def test_people_are_told_of_a_budget_in_all_however_many_periods_came_after_it(monkeypatch):
    monkeypatch.setattr(budget_alerts, "PERIODS_AT_ONCE", 5)
    whole, daily = a_budget(100, period="total"), a_budget(100, scope="each_user", period="day")
    [call] = claim(ask(90))
    settle(call, 90)
    today = begin_of(daily, datetime.fromtimestamp(database_now(), UTC))
    begun: dict[str, Any] = {"starts_at": today, "created_at": today - timedelta(hours=1)}  # not recounted any more
    BudgetPeriod.objects.bulk_create(
        BudgetPeriod(budget=daily, project_id="acme", key=str(uuid4()), spent=70, **begun) for _ in range(12)
    )
    assert tend_budget_alerts() == 13
    told = QuotaAlert.objects.filter(kind="budget", resolved_at=None)
    assert told.filter(message__contains=whole.name).values_list("severity", flat=True).get() == "warning"
    BudgetPeriod.objects.filter(budget=daily).update(starts_at=today - timedelta(days=3))
    assert tend_budget_alerts() == 12
    assert told.count() == 1
    assert tend_budget_alerts() == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "settle", "crash", "late", "nothing"]), st.integers(0, 9), st.integers(1, 400)),
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_budget_is_never_passed_and_is_what_its_ledger_says(steps):
    with transaction.atomic():
        budget = a_budget()
        under_way: list[AskedMoney] = []
        crashed: list[AskedMoney] = []
        billed: dict[UUID, int] = {}
        for what, which, amount in steps:
            if what == "claim":
                under_way += claim(ask(amount))
            elif what == "late" and crashed:
                call = crashed[which % len(crashed)]
                settle(call, billed.setdefault(call.job_id, min(amount, call.most or 0)))
            elif under_way:
                call = under_way.pop(which % len(under_way))
                if what == "settle":
                    settle(call, billed.setdefault(call.job_id, min(amount, call.most or 0)))
                elif what == "crash":
                    lose_holds([(call.job_id, call.token)])
                    crashed.append(call)
                else:
                    end_holds([(call.job_id, call.token)])
            standing = standing_of(budget)
            assert standing.spent + standing.held <= CAP
            assert standing.held == sum(call.most or 0 for call in under_way)
            assert standing.spent == ledger() >= sum(billed.values())
        assert recount_periods() == []
        transaction.set_rollback(True)
