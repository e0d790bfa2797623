"""Jobs under a budget: what it has no room for waits or fails before it is sent, and says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs.features.budget_holds import waits
from jobs.features.budget_holds.waits import tend_budget_waits
from jobs.handlers import registry
from jobs.handlers.llm.native.payload import LlmCall
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import BudgetWait, DeadLetter, Job, JobEvent
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.finish.bounds import bound_of
from jobs.services.operate import pauses
from jobs.services.submit.submit import submit_batch
from jobs.services.upkeep.upkeep import rescue_lapsed
from jobs.states import JobState
from jobs.testing import drain
from ratelimits.costs import Usage
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, Price, QuotaAlert, Spend, Via
from ratelimits.money import budgets, prices
from ratelimits.money.reports import total
from ratelimits.money.save_budget import change_budget, create_budget, delete_budget
from ratelimits.money.spend import MadeCall, Payer, Unpriced, record_calls, tell_missing
from tests.factories import make_jobs, make_project
from tests.support.cases import every_case
from tests.support.documents import OUTPUT_TOKENS, PROJECT, Model
from tests.support.money import set_prices

pytestmark = pytest.mark.django_db

WORDS = "word " * 80  # 100 tokens in 400 bytes
COST = 100 * 2 + OUTPUT_TOKENS * 8
BOUND = (400 + 2 * 32) * 2 + OUTPUT_TOKENS * 8


@pytest.fixture
def model(sandbox) -> Model:
    found = Model("openai", 1, late_seconds=0.9)
    found.set_up(sandbox)
    return found


def a_budget(amount: int, **figures: Any) -> Budget:
    saved = create_budget(PROJECT, {"name": "pilot", "amount": amount, **figures}, actor="user:1")
    budgets.forget()
    return Budget.objects.get(pk=saved.id)


def submit(model: Model, count: int, *, user: UUID | None = None) -> UUID:
    lines = [model.line(WORDS, max_output_tokens=OUTPUT_TOKENS) for _ in range(count)]
    return submit_batch(lines, project_id=PROJECT, actor="key:test").id


def states() -> dict[str, int]:
    rows = Job.objects.values_list("status", "held")
    return {f"{status}{' held' if held else ''}": list(rows).count((status, held)) for status, held in set(rows)}


def test_jobs_beyond_a_budget_wait_say_so_and_go_on_when_it_is_raised(model):
    set_prices(model.service)
    budget = a_budget(3 * COST + BOUND - 1)
    submit(model, 5)
    for _ in range(6):
        drain()
        tend_budget_waits()
    drain()
    assert states() == {JobState.COMPLETED: 3, "queued held": 2}
    assert total(Spend.objects.all()).money == 3 * COST == BudgetPeriod.objects.get().spent
    waiting = explain_waiting(Job.objects.filter(held=True)[0])
    assert waiting is not None
    reason = waiting.reasons[0]
    assert (reason.code, reason.limit, reason.needed, reason.available) == ("budget", "pilot", BOUND, BOUND - 1)
    assert "budget pilot has no room" in reason.text
    pauses.settle_holds()
    assert states()["queued held"] == 2
    change_budget(budget.pk, {"amount": 10 * BOUND}, actor="user:1")
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 5}
    assert not BudgetHold.objects.exists()
    assert BudgetPeriod.objects.get().held == 0


@every_case(("ttl", "rate"), [("1h", 4), ("5m", 2), (None, 2)], undone=True)
def test_only_a_call_that_asks_for_a_cache_of_an_hour_reserves_at_its_price(ttl, rate):
    set_prices("anthropic")
    Price.objects.create(
        provider="anthropic",
        model="small-1",
        unit="written_1h_tokens",
        amount=4 * 10**6,
        valid_from="2026-01-01T00:00Z",
    )
    prices.forget()
    kept = {} if ttl is None else {"cache_control": {"type": "ephemeral", "ttl": ttl}}
    body = {"model": "small-1", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello", **kept}]}
    called = LlmCall.model_validate({"provider": "anthropic", "credential": "key", "body": body})
    asked = LlmGenerate.model_validate(
        {"provider": "anthropic", "credential": "key", "model": "small-1", "prompt": "Hello", "max_output_tokens": 1}
        | {"options": {"system": [{"type": "text", "text": "x", **kept}]}}
    )
    for kind, payload in (("llm.call", called), ("llm.generate", asked)):
        handler = registry.find_handler(kind)
        job = SimpleNamespace(service="anthropic", model="small-1", claimed_at=datetime.now(UTC).timestamp())
        tokens = payload.most().input_tokens
        assert tokens is not None
        assert bound_of(job, handler, payload, Via.LIVE, alone=True) == (tokens * rate + 8, "")


@pytest.fixture
def served() -> Callable[..., None]:
    """Prices of the usual tier and of others, and a call that was served by one of these."""
    set_prices("openai")
    for via, unit, amount in (
        ("priority", "input_tokens", 4),
        ("priority", "output_tokens", 7),
        ("flex", "input_tokens", 1),
    ):
        Price.objects.create(
            provider="openai",
            model="small-1",
            unit=unit,
            via=via,
            amount=amount * 10**6,
            valid_from="2026-01-01T00:00Z",
        )

    def call(tier: str, *, project: str = PROJECT, at: datetime | None = None) -> None:
        payer = Payer(make_project(project).pk, None, None)
        at = at or datetime.now(UTC)
        record_calls([MadeCall(uuid4(), 1, payer, "openai", "other-1", at.timestamp(), Usage(10, tier=tier))])
        prices.forget()

    return call


def bound(usage: Usage, via: Via = Via.LIVE) -> int | None:
    job = SimpleNamespace(project=PROJECT, service="openai", model="small-1", claimed_at=datetime.now(UTC).timestamp())
    handler = SimpleNamespace(kind="test.paid", most=lambda payload: usage, coalesce=None)
    return bound_of(job, handler, None, via, alone=True)[0]  # type: ignore[arg-type]


def test_a_call_reserves_by_the_dearest_tier_that_its_provider_serves_its_project_by(served):
    usual, dearest = 10 * 2 + 5 * 8, 10 * 4 + 5 * 8
    served("")
    served("flex")
    served("priority", project="other")
    served("priority", at=datetime.now(UTC) - timedelta(days=8))
    assert bound(Usage(10, 0, 5)) == usual
    served("priority")
    assert bound(Usage(10, 0, 5)) == dearest
    assert bound(Usage(10, 0, 5, tier="flex")) == usual


@every_case(("tier", "rate"), [("priority", 4), ("flex", 2), ("batch", 2), ("", 2)], undone=True)
def test_a_call_reserves_by_the_dearer_of_the_usual_tier_and_the_one_that_its_handler_asks_for(served, tier, rate):
    prices.forget()
    assert bound(Usage(10, 0, 5, tier=tier)) == 10 * rate + 5 * 8


def test_a_budget_that_rejects_fails_what_it_has_no_room_for(model):
    set_prices(model.service)
    a_budget(BOUND - 1, policy="reject")
    submit(model, 2)
    drain()
    assert states() == {JobState.FAILED: 2}
    letter = DeadLetter.objects.all()[0]
    assert letter.error_code == "budget_exhausted"
    assert "pilot: it can cost" in letter.error_message
    assert not Spend.objects.exists()


def test_a_job_without_a_price_waits_under_a_budget_and_is_told_of(model):
    budget = a_budget(10 * BOUND)
    submit(model, 2)
    drain()
    assert states() == {"queued held": 2}
    assert QuotaAlert.objects.filter(kind="missing_price", resolved_at=None).count() == 1
    waiting = explain_waiting(Job.objects.all()[0])
    assert waiting is not None
    assert waiting.reasons[0].text == f"budget pilot cannot count it: {model.service} small-1 has no price"
    assert tend_budget_waits() == 0
    set_prices(model.service)
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2}
    delete_budget(budget.pk, actor="user:1")


def unstated(monkeypatch: pytest.MonkeyPatch, *, service: str = "translator", **options: Any) -> None:
    """A kind whose handler does not say how much a call can use, and tells it afterwards."""
    monkeypatch.setattr(registry, "_handlers", {**registry._handlers})
    registry._handlers.pop("test.translate", None)

    @handler(kind="test.translate", service=service, payload=dict[str, str], model=lambda _: "small-1", **options)
    async def translate(job: RunningJob[dict[str, str]]) -> Done:
        return Done(usage=Usage(input_tokens=10, output_tokens=10))


def translate(count: int = 1) -> None:
    make_project(PROJECT)
    submit_batch([{"kind": "test.translate", "payload": {}}] * count, project_id=PROJECT, actor="key:test")


def test_a_job_whose_handler_states_no_most_waits_under_a_budget_until_it_does(monkeypatch):
    unstated(monkeypatch)
    set_prices("translator")
    make_project(PROJECT)
    a_budget(1_000)
    translate(2)
    drain()
    assert states() == {"queued held": 2}
    assert not Spend.objects.exists()
    assert BudgetWait.objects.values_list("why", flat=True).distinct().get() == "unstated"
    waiting = explain_waiting(Job.objects.all()[0])
    assert waiting is not None
    assert waiting.text == (
        "budget pilot cannot count it: the handler of test.translate does not say how much a call can use at most"
    )
    assert tend_budget_waits() == 0
    unstated(monkeypatch, most=lambda _: Usage(input_tokens=10, output_tokens=10))
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2}
    assert BudgetPeriod.objects.get().spent == 2 * (10 * 2 + 10 * 8)


def test_a_job_whose_budget_has_no_known_zone_waits_until_it_has_one(model):
    set_prices(model.service)
    budget = a_budget(10 * BOUND)
    submit(model, 2)
    for zone in ("localtime", "No/Such"):
        Budget.objects.filter(pk=budget.pk).update(time_zone=zone)
        budgets.forget()
        drain()
        assert tend_budget_waits() == 0
        waiting = explain_waiting(Job.objects.all()[0])
        assert waiting is not None
        assert "budget pilot cannot count it: the database does not know its time zone" in waiting.reasons[0].text
    Budget.objects.filter(pk=budget.pk).update(time_zone="Europe/Vienna")
    budgets.forget()
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2}


def priced(unit: str, *, via: str = "live", amount: int = 2_000_000) -> None:
    Price.objects.create(
        provider="translator", model="small-1", unit=unit, via=via, amount=amount, valid_from="2026-01-01T00:00Z"
    )
    prices.forget()


def hold(monkeypatch: pytest.MonkeyPatch, **most: Any) -> None:
    """Two jobs that can use so much at most are held, because their model has no price."""
    unstated(monkeypatch, most=lambda _: Usage(**most))
    make_project(PROJECT)
    a_budget(1_000)
    translate(2)
    drain()
    assert states() == {"queued held": 2}


def whys() -> set[str]:
    return set(BudgetWait.objects.values_list("why", flat=True))


@pytest.mark.parametrize(
    ("most", "unit"),
    [({"input_tokens": 10, "output_tokens": 0}, "input_tokens"), ({"input_tokens": 0, "output_tokens": 0}, "requests")],
)
def test_a_job_that_brings_no_output_needs_no_price_of_output(monkeypatch, most, unit):
    hold(monkeypatch, **most)
    assert whys() == {"missing_price"}
    priced(unit)
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2}


def test_a_job_waits_for_the_price_that_it_lacks_and_no_longer(monkeypatch):
    hold(monkeypatch, input_tokens=10, output_tokens=10)
    priced("input_tokens")
    assert tend_budget_waits() == 2, "what it can bring is not known before it is asked again"
    drain()
    assert whys() == {"no_output_price"}
    waiting = explain_waiting(Job.objects.all()[0])
    assert waiting is not None
    assert waiting.text == "budget pilot cannot count it: translator small-1 has no price of output tokens"
    priced("requests")
    priced("output_tokens", via="batch")
    assert tend_budget_waits() == 0, "it can go live alone"
    priced("output_tokens")
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2}


def test_a_price_by_batch_lets_the_jobs_go_that_wait_for_one(monkeypatch):
    hold(monkeypatch, input_tokens=10, output_tokens=0)
    first = Job.objects.all()[0].pk
    Job.objects.filter(pk=first).update(via="batch", scheduled_at=datetime(2030, 1, 1, tzinfo=UTC))
    priced("input_tokens", via="batch")
    assert tend_budget_waits() == 1
    assert not Job.objects.get(pk=first).held
    assert states()["queued held"] == 1


def test_jobs_that_nobody_can_ever_count_keep_no_other_waiting(monkeypatch):
    monkeypatch.setattr(waits, "RELEASED_AT_ONCE", 2)
    hold(monkeypatch, input_tokens=10, output_tokens=10)
    budget = Budget.objects.get().pk
    for why, model in [("uncounted", "small-1"), ("no_output_price", "odd"), ("unstated", "small-1")]:
        make_waits(budget, why=why, model=model)
    set_prices("translator")
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2, "queued held": 9}


def make_waits(budget: int, **named: str) -> None:
    """Three jobs that have waited for longer than any other."""
    monday = datetime(2026, 1, 5, tzinfo=UTC)
    for job in make_jobs(3, project=PROJECT, kind="test.unknown", held=True):
        BudgetWait.objects.create(
            job_id=job.pk, project_id=PROJECT, budget_id=budget, provider="translator", since=monday, **named
        )


@pytest.mark.parametrize("options", [{}, {"most": lambda _: Usage(output_tokens=10)}])
def test_a_budget_that_rejects_fails_what_no_price_lets_it_count(monkeypatch, options):
    unstated(monkeypatch, **options)
    set_prices("translator")
    make_project(PROJECT)
    a_budget(1_000, policy="reject")
    translate()
    drain()
    letter = DeadLetter.objects.get()
    assert (letter.error_code, letter.error_message.partition(":")[0]) == ("cost_unknown", "pilot")
    assert "`most`" in letter.remediation
    assert not Spend.objects.exists()


def test_the_alert_of_a_missing_price_names_each_project_that_it_concerns():
    for projects in (("acme", "beta"), ("gamma",)):
        tell_missing([Unpriced("openai", "m", "live", project, frozenset()) for project in projects])
    assert QuotaAlert.objects.get(kind="missing_price").figures["projects"] == ["acme", "beta", "gamma"]


def test_a_job_of_who_bills_nothing_goes_under_a_budget_and_one_that_is_billed_after_all_waits(monkeypatch):
    unstated(monkeypatch)
    make_project(PROJECT)
    budget = a_budget(1_000)
    translate()
    drain()
    assert states() == {JobState.COMPLETED: 1}
    assert QuotaAlert.objects.filter(kind="missing_price", resolved_at=None).count() == 1
    prices.forget()
    translate()
    drain()
    assert states() == {JobState.COMPLETED: 1, "queued held": 1}
    delete_budget(budget.pk, actor="user:1")
    assert tend_budget_waits() == 1


def test_a_job_that_never_fits_keeps_no_other_waiting(model):
    set_prices(model.service)
    budget = a_budget(1)
    submit_batch([model.line(WORDS, max_output_tokens=100 * OUTPUT_TOKENS)], project_id=PROJECT, actor="key:test")
    drain()
    submit(model, 2)
    drain()
    assert states() == {"queued held": 3}
    change_budget(budget.pk, {"amount": 4 * BOUND}, actor="user:1")
    assert tend_budget_waits() == 2
    drain()
    assert states() == {"queued held": 1, JobState.COMPLETED: 2}


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_call_that_a_budget_counts_shares_no_commit_with_a_claim(model):
    """Both lock budgets' periods: two executors, each with the end of the other's next budget, would deadlock."""
    set_prices(model.service)
    a_budget(40 * BOUND)
    submit(model, 30)
    drain(slots=2)
    assert states() == {JobState.COMPLETED: 30}
    moves = JobEvent.objects.filter(to_status__in=["dispatched", "completed"]).values_list("to_status", "xid")
    ended, claimed = ({xid for status, xid in moves if status == wanted} for wanted in ("completed", "dispatched"))
    assert ended
    assert ended & claimed == set()


def test_a_deleted_budget_lets_its_jobs_go_and_without_one_nothing_is_held(model):
    set_prices(model.service)
    budget = a_budget(1)
    submit(model, 2)
    drain()
    assert states() == {"queued held": 2}
    delete_budget(budget.pk, actor="user:1")
    budgets.forget()
    assert tend_budget_waits() == 2
    drain()
    assert states() == {JobState.COMPLETED: 2}
    assert not BudgetWait.objects.exists()


def test_what_costs_nothing_goes_under_a_budget_that_was_lowered_below_what_is_spent(model):
    set_prices(model.service)
    budget = a_budget(10 * BOUND)
    submit(model, 1)
    drain()
    change_budget(budget.pk, {"amount": COST - 1}, actor="user:1")
    submit(model, 1)
    drain()
    assert states() == {JobState.COMPLETED: 1, "queued held": 1}
    Price.objects.update(amount=0)
    prices.forget()
    submit(model, 2)
    drain()
    assert states() == {JobState.COMPLETED: 3, "queued held": 1}
    BudgetWait.objects.update(needed=0)
    assert tend_budget_waits() == 1
    assert total(Spend.objects.all()).money == COST == BudgetPeriod.objects.get().spent


def test_what_a_crashed_worker_may_have_spent_stays_counted(model):
    set_prices(model.service)
    a_budget(BOUND)
    submit(model, 1)
    executor = UUID(int=1)
    [job] = claim_jobs(executor, wanted=1, lease_seconds=30, turns=ClassTurns())
    assert job.bound == BOUND == BudgetPeriod.objects.get().held
    Job.objects.update(lease_expires_at="2026-01-01T00:00:00Z")
    rescue_lapsed()
    period, spend = BudgetPeriod.objects.get(), Spend.objects.get()
    assert (period.spent, period.held, spend.money, spend.kind) == (BOUND, 0, BOUND, "unknown")
    drain()
    assert states()["retried held" if "retried held" in states() else "queued held"] == 1


def test_a_price_of_output_says_how_much_a_job_without_a_maximum_can_bring(model):
    set_prices(model.service)
    a_budget(100_000)
    submit_batch([model.line(WORDS, max_output_tokens=None)], project_id=PROJECT, actor="key:test")
    drain()
    assert BudgetWait.objects.get().why == "unbounded"
    Price.objects.filter(unit="output_tokens").update(most_tokens=OUTPUT_TOKENS)
    prices.forget()
    assert tend_budget_waits() == 1
    drain()
    assert states() == {JobState.COMPLETED: 1}


def test_a_job_without_a_maximum_is_held_at_what_its_provider_documents_of_the_model(model):
    set_prices(model.service)
    Price.objects.update(model="gpt-4o")
    prices.forget()
    a_budget(100_000_000)
    line = model.line(WORDS, max_output_tokens=None)
    line["payload"]["model"] = "gpt-4o"
    submit_batch([line], project_id=PROJECT, actor="key:test")
    [job] = claim_jobs(UUID(int=1), wanted=1, lease_seconds=30, turns=ClassTurns())
    assert job.bound is not None
    Price.objects.filter(unit="output_tokens").update(amount=0)
    prices.forget()
    submit_batch([line], project_id=PROJECT, actor="key:test")
    [free] = claim_jobs(UUID(int=1), wanted=1, lease_seconds=30, turns=ClassTurns())
    assert free.bound is not None
    assert job.bound - free.bound == 16_384 * 8


@pytest.mark.parametrize("above", [463, 464])
def test_the_most_that_a_job_can_cost_is_at_the_dearest_price_its_input_can_reach(model, above):
    set_prices(model.service)
    Price.objects.create(
        provider=model.service, model="small-1", unit="input_tokens", above_tokens=above, amount=20 * 10**6,
        valid_from="2026-01-01T00:00Z",
    )  # fmt: skip
    prices.forget()
    a_budget(10**9)
    submit(model, 1)
    [job] = claim_jobs(UUID(int=1), wanted=1, lease_seconds=30, turns=ClassTurns())
    assert job.bound == BOUND + (464 * 18 if above < 464 else 0)
