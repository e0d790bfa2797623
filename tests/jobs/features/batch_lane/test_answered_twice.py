"""A line that a provider answers twice, first with an error: the success counts, and its money once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from jobs.features.batch_lane.steps import advance
from jobs.handlers.errors import ProviderError
from jobs.models import Job, JobEvent, ProviderBatch
from queueops.core.outbound.client import OutboundResponse
from ratelimits.models import BudgetPeriod, Price, Spend
from ratelimits.money import budgets, prices
from ratelimits.money.save_budget import create_budget
from tests.support.batch_provider import ProviderWire, Telling
from tests.support.provider_batches import make_round

pytestmark = pytest.mark.django_db(transaction=True)

COST = 10 * 1 + 5 * 4


@pytest.fixture(autouse=True)
def own_prices(db: None) -> Iterator[None]:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    for unit, amount in {"input_tokens": 1, "output_tokens": 4}.items():
        Price.objects.create(
            provider="openai", model="small-1", unit=unit, via="batch", amount=amount * 10**6, valid_from=since
        )
    prices.forget()
    budgets.forget()
    yield
    prices.forget()
    budgets.forget()


def success() -> dict[str, Any]:
    body = {
        "choices": [{"message": {"content": "an answer"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return {"response": {"status_code": 200, "body": body}, "error": None}


def failure(status: int) -> dict[str, Any]:
    return {"response": {"status_code": status, "body": {"error": {"message": "no"}}}, "error": None}


UNREADABLE = {"response": {"status_code": 200, "body": {"choices": []}}, "error": None}


def booked() -> tuple[str, int | None]:
    [row] = Spend.objects.values_list("kind", "money")
    assert BudgetPeriod.objects.get().spent == row[1]
    return row


@pytest.mark.parametrize("lines_at_once", [1, 500])
@pytest.mark.parametrize("first", [failure(500), UNREADABLE], ids=["500", "unreadable"])
def test_a_success_counts_whatever_error_comes_before_or_after_it(lane, monkeypatch, first, lines_at_once):
    monkeypatch.setattr(advance, "LINES_OF_A_SLICE", lines_at_once)
    lane.credential()
    create_budget("acme", {"name": "all", "amount": 10**9, "period": "total"}, actor="user:1")
    lane.submit(1)
    wire = ProviderWire(Telling(output=[(0, first), (0, success()), (0, first)], errors=[(0, first)]))
    for _ in range(2):
        ProviderBatch.objects.update(look_at=timezone.now())
        make_round(wire)
    wire.close()
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.succeeded, batch.failed, batch.handed_back, batch.dropped) == ("completed", 1, 0, 0, 0)
    assert booked() == ("call", COST)
    assert list(Job.objects.values_list("status", "retry_count")) == [("completed", 0)]
    assert not JobEvent.objects.filter(to_status="retried").exists()


class CutAfterOne(ProviderWire):
    """The connection breaks after the first result, once."""

    def __init__(self, provider: Telling) -> None:
        super().__init__(provider)
        self.cuts = 1

    async def send(self, *where: str, on_line: Any = None, **given: Any) -> OutboundResponse:
        response: OutboundResponse = await super().send(*where, **given)
        lines = response.body.splitlines() if on_line else []
        is_cut, self.cuts = bool(lines and self.cuts), self.cuts - bool(lines and self.cuts)
        for line in lines[:1] if is_cut else lines:
            on_line(line)
        if is_cut:
            raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")
        return response


@pytest.mark.parametrize("status", [400, 500])
def test_a_success_that_is_read_after_its_failure_was_written_is_dropped_and_booked_once(lane, status):
    lane.credential()
    create_budget("acme", {"name": "all", "amount": 10**9, "period": "total"}, actor="user:1")
    lane.submit(1)
    wire = CutAfterOne(Telling(output=[(0, failure(status)), (0, success()), (0, success())]))
    for _ in range(3):
        ProviderBatch.objects.filter(closed_at=None).update(look_at=timezone.now())
        make_round(wire)
    wire.close()
    batch = ProviderBatch.objects.earliest("created_at")
    assert (batch.state, batch.succeeded, batch.failed + batch.handed_back, batch.dropped) == ("completed", 0, 1, 1)
    assert booked() == ("call", COST)
