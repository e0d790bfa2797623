"""Lines of providers' batches are reserved of budgets at the prices of batches, and settled one by one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.features.batch_lane.steps import settle
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.models import DeadLetter, Job
from jobs.services.finish.result_text import ResultTooLarge
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


def test_a_result_that_cannot_be_kept_costs_what_the_provider_says_all_the_same(lane, sandbox, monkeypatch):
    def refuse(result: Any) -> str:
        raise ResultTooLarge(2_000, 1_000)

    monkeypatch.setattr(settle, "result_text", refuse)
    lane.credential()
    lane.submit(2)
    assert lane.tend_until_closed().failed == 2
    assert set(DeadLetter.objects.values_list("error_code", flat=True)) == {"result_too_large"}
    [billed] = sandbox.billing()["billed"]
    rows = Spend.objects.values_list("kind", "money")
    assert {kind for kind, _ in rows} == {"call"}
    assert sum(money or 0 for _, money in rows) == (INPUT * billed["prompt_tokens"] + OUTPUT * billed["output_tokens"])
