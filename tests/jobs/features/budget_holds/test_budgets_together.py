"""Jobs that leave as one call, under budgets: one call, one cost, whoever is told it and whatever becomes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.classify import Failure
from jobs.executor.loop import CANCELLED, HandlerLoop
from jobs.features.budget_holds.spend import told_once
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Coalesce, Done, Poison, RunningJob, handler
from jobs.models import BudgetWait, Job
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.cost_samples import CostSamples
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Succeeded
from jobs.services.upkeep.upkeep import rescue_lapsed
from ratelimits.costs import Usage
from ratelimits.limits import catalogue
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, CostEstimate, Limit, Price, Spend
from ratelimits.money import budgets, prices
from ratelimits.money.holds import recount_periods
from ratelimits.money.save_budget import create_budget
from tests.factories import make_batch, make_project
from tests.jobs.merging import Piece, claim, groups, submit
from tests.support.examples import examples
from tests.support.executing import Driven
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db

KIND = "test.paid"
TOKEN, REQUEST = 2, 5  # micro-units


@pytest.fixture(autouse=True)
def paid_kind(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kind whose jobs leave together, of `n` tokens at most each, at a provider who bills tokens and requests."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    declare()
    make_project("acme")
    Limit.objects.all().delete()
    since = "2026-01-01T00:00Z"
    for unit, amount in (("input_tokens", TOKEN), ("requests", REQUEST)):
        Price.objects.create(provider="svc", model="m", unit=unit, amount=amount * 10**6, valid_from=since)
    forget()
    yield
    forget()


def forget() -> None:
    for one in (budgets, catalogue, prices):
        one.forget()


def declare(answer: Any = None) -> None:
    registry._handlers.pop(KIND, None)

    @handler(
        kind=KIND,
        service="svc",
        payload=Piece,
        idempotent=True,
        coalesce=Coalesce(key=lambda piece: piece.sheet, max_items=4),
        model=lambda piece: "m",
        most=lambda piece: Usage(input_tokens=piece.n, output_tokens=0),
    )
    async def paid(jobs: Sequence[RunningJob[Piece]]) -> Any:
        return answer(jobs)


def a_budget(amount: int, **figures: Any) -> Budget:
    saved = create_budget("acme", {"name": f"of {figures}", "amount": amount, **figures}, actor="user:1")
    forget()
    return Budget.objects.get(pk=saved.id)


def paid(n: int, **spec: Any) -> Job:
    return submit(kind=KIND, n=n, spec=spec)


def held() -> list[int]:
    return list(BudgetPeriod.objects.order_by("pk").values_list("held", flat=True))


def spent() -> list[int]:
    return list(BudgetPeriod.objects.order_by("pk").values_list("spent", flat=True))


def succeeded(job: ClaimedJob, usage: Usage | None = None) -> Succeeded:
    return Succeeded(job, "svc", None, 1.0, usage=usage)


def record(*outcomes: Outcome | None, bound: int | None) -> None:
    told = told_once(outcomes, bound=bound)
    record_outcomes([one for one in told if one is not None], policies=retry_policies())


def test_a_call_holds_what_all_its_jobs_can_cost_and_one_request():
    a_budget(1_000)
    first = paid(10)
    for n in (20, 30):
        paid(n)
    claimed = claim()
    assert groups(claimed) == [[job.id for job in claimed]]
    assert [job.bound for job in claimed] == [60 * TOKEN + REQUEST, None, None]
    assert held() == [60 * TOKEN + REQUEST]
    assert BudgetHold.objects.get().job_id == first.pk


def test_the_length_of_a_call_is_that_of_all_its_jobs():
    since = "2026-01-01T00:00Z"
    dear = {"above_tokens": 15, "amount": 9 * 10**6, "valid_from": since}
    Price.objects.create(provider="svc", model="m", unit="input_tokens", **dear)
    forget()
    a_budget(1_000)
    for _ in range(2):
        paid(10)
    claimed = claim()
    record(*(succeeded(job, Usage(10)) for job in claimed), bound=claimed[0].bound)
    assert claimed[0].bound == Spend.objects.get().money == 20 * 9 + REQUEST


def test_no_more_jobs_leave_together_than_the_budget_can_pay_for():
    a_budget(30 * TOKEN + REQUEST)
    jobs = [paid(n).pk for n in (10, 15, 40, 5)]
    claimed = claim(1)
    assert [job.id for job in claimed] == [jobs[0], jobs[1], jobs[3]]
    assert held() == [30 * TOKEN + REQUEST]
    assert Job.objects.get(pk=jobs[2]).status == "queued"
    assert claim(1) == []
    assert BudgetWait.objects.get().job_id == jobs[2]


def test_a_batch_that_has_a_budget_pays_for_its_own_jobs_alone():
    batch, other = make_batch(), make_batch()
    a_budget(1_000, scope="batch", batch_id=batch.pk)
    a_budget(1_000)
    own, strange, second = [paid(10).pk for _ in range(3)]
    Job.objects.filter(pk__in=[own, second]).update(batch=batch)
    Job.objects.filter(pk=strange).update(batch=other)
    assert groups(claim(1)) == [[own, second]]
    assert groups(claim(1)) == [[strange]]
    assert held() == [20 * TOKEN + REQUEST, 30 * TOKEN + 2 * REQUEST]


@pytest.mark.parametrize(
    "usages",
    [
        [Usage(12, requests=1), None, None],
        [None, None, Usage(12, requests=1)],
        [Usage(2), Usage(4), Usage(6)],
    ],
)
def test_what_a_call_used_is_paid_once_whichever_of_its_jobs_tells_it(usages):
    a_budget(1_000)
    for _ in range(3):
        paid(10)
    claimed = claim()
    record(*(succeeded(job, usage) for job, usage in zip(claimed, usages, strict=True)), bound=claimed[0].bound)
    [row] = Spend.objects.all()
    assert (row.job_id, row.money, row.requests, row.kind) == (claimed[0].id, 12 * TOKEN + REQUEST, 1, "call")
    assert (spent(), held()) == ([row.money], [0])


def test_a_call_that_nobody_tells_the_use_of_counts_at_its_most_once():
    a_budget(1_000)
    for _ in range(3):
        paid(10)
    claimed = claim()
    record(*map(succeeded, claimed), bound=claimed[0].bound)
    [row] = Spend.objects.all()
    assert (row.money, row.kind) == (30 * TOKEN + REQUEST, "unknown")
    assert (spent(), held()) == ([row.money], [0])


def test_a_part_that_is_not_told_is_not_known_of_the_whole():
    jobs = [paid(10), paid(10)]
    claimed = claim()
    assert len(claimed) == len(jobs)
    first, second = told_once([succeeded(claimed[0], Usage(3, tokens=5)), succeeded(claimed[1], Usage())], bound=7)
    assert first is not None
    assert second is not None
    assert (first.usage, first.job.bound) == (Usage(None, requests=1), 7)
    assert (second.usage, second.job.bound) == (None, None)


def test_a_cost_that_follows_from_tokens_is_told_once_and_a_stated_one_stays():
    for n in (10, 20, 30):
        paid(n)
    claimed = claim()
    outcomes = [
        replace(succeeded(claimed[0], Usage(3, tokens=5)), cost=5),
        replace(succeeded(claimed[1], Usage(4, tokens=6)), cost=6),
        replace(succeeded(claimed[2], Usage(1, tokens=2)), cost=100),
    ]
    assert [one.cost for one in told_once(outcomes, bound=None) if one is not None] == [13, 0, 100]


def test_jobs_that_left_together_teach_nothing_of_what_one_costs():
    """The first one's cost is that of all: limits would reserve so much for each."""
    paid(10)
    [job] = [one._replace(known_cost=3) for one in claim()]
    for key, learned in ((job.coalesce_key, False), (None, True)):
        learning = CostSamples()
        learning.note([replace(succeeded(job._replace(coalesce_key=key)), cost=30, known_cost=5)])
        learning.write(math.inf)
        assert CostEstimate.objects.exists() is learned


def test_companions_of_a_crashed_worker_are_lost_as_one_call():
    a_budget(1_000)
    for _ in range(3):
        paid(10)
    claim()
    Job.objects.update(lease_expires_at="2026-01-01T00:00:00Z")
    rescue_lapsed()
    assert Spend.objects.get().money == 30 * TOKEN + REQUEST == spent()[0]
    assert held() == [0]


# In the loop


@pytest.fixture
def driven(paid_kind: None) -> Iterator[Driven]:
    loop = HandlerLoop(slots=4, wake=lambda: None)
    loop.start()
    yield Driven(loop)
    loop.stop()


def three() -> list[ClaimedJob]:
    a_budget(1_000)
    for _ in range(3):
        paid(10)
    return claim()


REFUSED = ProviderError(400, "bad cell", code="invalid_argument", outcome="answered", details={})


def refuse_the_first(jobs: Sequence[RunningJob[Piece]]) -> None:
    raise Poison({0: REFUSED})


def break_off(jobs: Sequence[RunningJob[Piece]]) -> None:
    raise ProviderError(None, "broke off", code="stream_error", outcome="unknown", used=(12, Usage(12)))


def break_off_for_no_job(jobs: Sequence[RunningJob[Piece]]) -> None:
    raise Poison({9: ProviderError(500, "broke off", code="odd", outcome="answered", used=(12, Usage(12)))})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (break_off, 12 * TOKEN + REQUEST),
        (break_off_for_no_job, 12 * TOKEN + REQUEST),
        (lambda jobs: [Done(), Done(usage=Usage(12)), Done()], 12 * TOKEN + REQUEST),
        (lambda jobs: [REFUSED, Done(usage=Usage(12)), Done()], 12 * TOKEN + REQUEST),
        (lambda jobs: [REFUSED, Done(), Done()], 30 * TOKEN + REQUEST),
        (lambda jobs: [REFUSED, REFUSED, REFUSED], 0),
        (refuse_the_first, 0),
    ],
)
def test_a_call_ends_what_it_holds_whatever_became_of_its_jobs(driven, answer, expected):
    declare(answer)
    driven.run(*three())
    record_outcomes(driven.outcomes, policies=retry_policies())
    assert (spent(), held()) == ([expected], [0])
    assert not BudgetHold.objects.exists()


def test_a_cancelled_leader_leaves_the_money_to_those_who_go_on(driven):
    claimed = three()

    def cancel_the_first(jobs: Sequence[RunningJob[Piece]]) -> list[Done]:
        driven.loop._interrupt([claimed[0]], CANCELLED)
        return [Done(usage=Usage(4)), *[Done(usage=Usage(2))] * 2]

    declare(cancel_the_first)
    driven.loop.carry_out(claimed)
    wait_for(lambda: driven.collect() or len(driven.outcomes) == 2, what="the end of the others")
    assert [one.job.id for one in driven.outcomes] == [job.id for job in claimed[1:]]
    record_outcomes(driven.outcomes, policies=retry_policies())
    assert (spent(), held()) == ([4 * TOKEN + REQUEST], [0])


def test_a_job_that_cannot_be_read_leaves_the_money_to_the_others(driven):
    claimed = three()
    declare(lambda jobs: [Done(usage=Usage(4)) for _ in jobs])
    driven.run(claimed[0]._replace(payload='{"n": "many"}'), *claimed[1:])
    record_outcomes(driven.outcomes, policies=retry_policies())
    assert (spent(), held()) == ([8 * TOKEN + REQUEST], [0])


# Whatever happens


ENDS = st.lists(st.sampled_from(["tells", "silent", "refused", "back", "cancelled"]), min_size=4, max_size=4)
STEPS = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=5), ENDS, st.booleans()),
    min_size=1,
    max_size=6,
)


def ended(job: ClaimedJob, how: str, used: int) -> Outcome | None:
    match how:
        case "tells":
            return succeeded(job, Usage(used))
        case "silent":
            return succeeded(job)
        case "refused":
            failure = Failure("http_400", "ProviderError", "no", "answered", status=400)
            return Failed(job, "svc", "moderate", repeatable=True, failure=failure, duration_ms=1.0)
        case "back":
            return GivenBack(job, "sent again without another", cost=0)
    return None


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_books_are_exact_whoever_leaves_with_whom_and_however_each_ends(steps):
    with transaction.atomic():
        batch = make_batch()
        budgets_made = [a_budget(300), a_budget(200, scope="batch", batch_id=batch.pk)]
        calls = 0
        for wanted, ends, crashes in steps:
            for n, in_batch in wanted:
                job = paid(n)
                Job.objects.filter(pk=job.pk).update(batch=batch if in_batch else None)
            claimed = {job.id: job for job in claim(2)}
            for members in groups(list(claimed.values())):
                calls += 1
                jobs = [claimed[one] for one in members]
                assert len({job.batch_id for job in jobs}) == 1
                bound = jobs[0].bound
                assert bound == sum(int(Job.objects.get(pk=one).payload["n"]) for one in members) * TOKEN + REQUEST
                if crashes:
                    Job.objects.filter(pk__in=members).update(lease_expires_at="2026-01-01T00:00:00Z")
                    rescue_lapsed()
                else:
                    outcomes = [ended(job, how, 1) for job, how in zip(jobs, ends, strict=False)]
                    record(*outcomes, bound=bound)
            for period in BudgetPeriod.objects.select_related("budget"):
                assert period.spent + period.held <= period.budget.amount
        keys = {(row.job_id, row.token) for row in Spend.objects.all()}
        assert len(keys) == Spend.objects.count() <= calls
        ledger = Spend.objects.aggregate(sum=Sum("money", default=0))["sum"]
        [whole] = BudgetPeriod.objects.filter(budget=budgets_made[0]) or [None]
        assert ledger == (whole.spent if whole else 0)
        assert recount_periods() == []
        transaction.set_rollback(True)
