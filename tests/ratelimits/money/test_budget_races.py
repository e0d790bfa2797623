"""Real connections that claim under budgets, end calls, lose them and take budgets away at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, connections, transaction

from jobs.features.erasure.erase_user import erase_user
from queueops.core.clock import database_now
from ratelimits.costs import Usage
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, Price, Spend
from ratelimits.money import budgets, prices
from ratelimits.money.budget_alerts import tend_budget_alerts
from ratelimits.money.budgets import AskedMoney, hold_money, weigh_budgets
from ratelimits.money.holds import end_holds, lose_holds, recount_periods
from ratelimits.money.save_budget import create_budget, delete_budget
from ratelimits.money.spend import MadeCall, Payer, price_unpriced, record_calls
from tests.factories import make_project
from tests.support.processes import wait_for
from tests.support.racing import run_together, waiting_for

pytestmark = pytest.mark.django_db(transaction=True)

MOST = 100
USERS = [uuid4() for _ in range(4)]


@pytest.fixture(autouse=True)
def a_project() -> Iterator[None]:
    make_project("acme")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    Price.objects.create(provider="openai", model="m", unit="input_tokens", amount=10**6, valid_from=since)
    for one in (prices, budgets):
        one.forget()
    yield
    for one in (prices, budgets):
        one.forget()


def a_budget(**figures: str) -> int:
    saved = create_budget("acme", {"name": uuid4().hex, "amount": 10**9, **figures}, actor="user:1")
    budgets.forget()
    return saved.id


def ask(user: UUID | None = None, *, model: str = "m") -> AskedMoney:
    return AskedMoney(uuid4(), 1, Payer("acme", user, None), "openai", model, database_now(), MOST, 60.0)


def begin(*calls: AskedMoney) -> None:
    with transaction.atomic():
        hold_money(calls, weigh_budgets(calls))


def end(*calls: AskedMoney) -> None:
    ended = [
        MadeCall(one.job_id, one.token, one.payer, one.provider, one.model, one.at, Usage(10, 0, None)) for one in calls
    ]
    with transaction.atomic():
        locked = end_holds([(one.job_id, one.token) for one in calls], paid=[(one.payer, one.at) for one in calls])
        record_calls(ended, locked=locked)


def beside(
    action: Callable[[], object], meanwhile: Callable[[], object], *, then: Callable[[], object] = lambda: None
) -> None:
    """Carry out `meanwhile` in a transaction that does `then`, and ends, when `action`, elsewhere, waits for it."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                meanwhile()
                blockers.append(connection.connection)
                begun.set()
                assert over.wait(60)
                then()
        finally:
            begun.set()
            connections.close_all()

    def act() -> None:
        try:
            action()
        finally:
            connections.close_all()

    blockers: list[psycopg.Connection[object]] = []
    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(hold)
        assert begun.wait(60)
        acted = threads.submit(act)
        try:
            wait_for(lambda: acted.done() or waiting_for(blockers[0]), what="the other to wait")
            assert not acted.done()
        finally:
            over.set()
        held.result(60)
        acted.result(60)


def test_a_claim_that_begins_a_period_is_waited_for_by_who_deletes_its_budget():
    budget = a_budget(scope="each_user")
    begin(ask(USERS[0]))
    calls = [ask(USERS[0]), ask(USERS[1])]  # one period is there, and one has to be begun
    beside(
        lambda: delete_budget(budget, actor="user:1"),
        lambda: hold_money(calls, weigh_budgets(calls)),
    )
    assert not Budget.objects.exists()
    assert not BudgetPeriod.objects.exists()
    assert not BudgetHold.objects.exists()


def test_a_call_that_ends_is_waited_for_by_who_deletes_its_budget_and_by_who_counts_it_as_lost():
    budget, other = a_budget(), a_budget()
    calls = [ask() for _ in range(3)]
    begin(*calls)
    beside(lambda: lose_holds([(one.job_id, one.token) for one in reversed(calls)]), lambda: end(*calls))
    assert list(BudgetPeriod.objects.values_list("spent", "held")) == [(30, 0)] * 2
    begin(*(again := [ask()]))
    beside(lambda: delete_budget(budget, actor="user:1"), lambda: end(*again))
    assert list(BudgetPeriod.objects.values_list("budget_id", "spent", "held")) == [(other, 40, 0)]


def test_a_claim_that_waits_to_begin_a_period_has_locked_none():
    budget = a_budget(scope="each_user")
    begin(ask(USERS[0]))
    calls = [ask(USERS[0]), ask(USERS[1])]
    beside(
        lambda: begin(*calls),
        lambda: Budget.objects.select_for_update().get(pk=budget),
        then=lambda: delete_budget(budget, actor="user:1"),
    )
    assert not BudgetPeriod.objects.exists()
    assert not BudgetHold.objects.exists()


@pytest.mark.parametrize("action", ["end", "lose", "price"])
def test_who_waits_for_a_period_has_locked_no_hold_and_no_line_of_the_ledger(action):
    a_budget()
    held, unpriced = ask(), ask(model="new")
    begin(held)
    end(unpriced)
    price = Price.objects.get()
    price.pk, price.model = None, "new"
    price.save()
    prices.forget()
    actions: dict[str, Callable[[], object]] = {
        "end": lambda: end(held),
        "lose": lambda: lose_holds([(held.job_id, held.token)]),
        "price": lambda: price_unpriced(actor="user:1"),
    }
    beside(
        actions[action],
        lambda: BudgetPeriod.objects.select_for_update().get(),
        then=lambda: (
            BudgetHold.objects.select_for_update(nowait=True).get(),
            Spend.objects.select_for_update(nowait=True).get(),
        ),
    )


def test_an_erasure_waits_for_the_periods_of_a_user_before_it_touches_what_they_spent():
    a_budget(scope="each_user")
    call = ask(USERS[0])
    begin(call)
    lose_holds([(call.job_id, call.token)])  # its line of the ledger says what it used when the answer comes, late
    beside(
        lambda: erase_user("acme", USERS[0], store=None, cancel=False, actor="user:1", reason="-", say=lambda _: None),
        lambda: BudgetPeriod.objects.select_for_update().get(),
        then=lambda: end(call),
    )
    assert not Spend.objects.filter(user_id=USERS[0]).exists()
    assert Spend.objects.get().money == 10
    assert not BudgetPeriod.objects.exists()


def test_whatever_is_done_to_budgets_at_once_nobody_waits_in_a_circle():
    a_budget()
    a_budget(scope="each_user", period="day")

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - a test's
        for step in range(30):
            calls = [ask(chance.choice([*USERS, None])) for _ in range(4)]
            begin(*calls)
            chance.shuffle(calls)
            gone, rest = calls[:2], calls[2:]
            lose_holds([(one.job_id, one.token) for one in gone])
            end(*chance.sample(gone, 1), *rest, ask(chance.choice(USERS), model="new"))  # one that holds nothing, too
            if step % 10 == number:
                price_unpriced(actor="user:1")
                tend_budget_alerts()
            if step % 5 == number:
                own = a_budget(scope="each_user")
                begin(*(calls := [ask(user) for user in USERS]))
                delete_budget(own, actor="user:1")
                end(*calls)

    run_together(4, work)
    assert recount_periods() == []
    assert set(BudgetPeriod.objects.values_list("held", flat=True)) == {0}
    assert not BudgetHold.objects.filter(lost=False).exists()
