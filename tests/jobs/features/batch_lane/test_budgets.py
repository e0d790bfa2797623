"""Lines of providers' batches are reserved of budgets at the prices of batches, and settled one by one."""

from datetime import UTC, datetime

import pytest

from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.models import Job
from ratelimits.models import BudgetHold, BudgetPeriod, Price, Spend
from ratelimits.money import budgets, prices
from ratelimits.money.save_budget import create_budget

pytestmark = pytest.mark.django_db(transaction=True)

INPUT, OUTPUT = 1, 4  # micro-units for a token, by batch


@pytest.fixture(autouse=True)
def own_prices(db):
    since = datetime(2026, 1, 1, tzinfo=UTC)
    for unit, amount in (("input_tokens", INPUT), ("output_tokens", OUTPUT)):
        Price.objects.create(
            provider="openai", model="small-1", unit=unit, via="batch", amount=amount * 10**6, valid_from=since
        )
    prices.forget()
    budgets.forget()
    yield
    prices.forget()
    budgets.forget()


def test_a_batch_has_no_more_lines_than_its_budget_can_pay_for(lane):
    lane.credential()
    lane.submit(8)
    most = LlmGenerate.model_validate(Job.objects.all()[0].payload).most()
    bound = INPUT * (most.input_tokens or 0) + OUTPUT * (most.output_tokens or 0)
    create_budget("acme", {"name": "pilot", "amount": 5 * bound, "period": "total"}, actor="user:1")
    budgets.forget()
    lane.tend(now=False)
    period = BudgetPeriod.objects.get()
    assert (period.held, period.spent) == (5 * bound, 0)
    assert Job.objects.filter(held=True).count() == 3
    batch = lane.tend_until_closed()
    period.refresh_from_db()
    assert (batch.lines, batch.succeeded) == (5, 5)
    assert period.held == 0
    assert not BudgetHold.objects.exists()
    rows = Spend.objects.values_list("via", "kind", "money")
    assert period.spent == sum(money or 0 for _, _, money in rows) <= 5 * bound
    assert {(via, kind) for via, kind, _ in rows} == {("batch", "call")}
