"""Jobs that leave as one call: which do, what becomes of each, and what the call costs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs.executor.loop import CANCELLED, STOPPING, HandlerLoop
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Bisect, Coalesce, Continue, Done, Poison, RunningJob, handler
from jobs.models import Job, PauseSwitch
from jobs.services.claim.claim import promote_due
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, GivenBack, Succeeded
from jobs.states import JobState
from ratelimits.limits import catalogue
from ratelimits.models import Charge, Limit
from tests.factories import make_batch
from tests.jobs import merging
from tests.jobs.merging import MOST, Piece, claim, groups, submit
from tests.ratelimits.counting import used
from tests.support.executing import Driven
from tests.support.executing import claimed as claimed_alone
from tests.support.processes import wait_for

Answers = Callable[[Sequence[RunningJob[Piece]]], Any]


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    merging.declare(monkeypatch)


# In the loop: what becomes of each job of a group


@pytest.fixture
def driven(kinds: None) -> Iterator[Driven]:
    loop = HandlerLoop(slots=4, wake=lambda: None)
    loop.start()
    yield Driven(loop)
    loop.stop()


def together(answer: Answers, *, idempotent: bool = True) -> None:
    """Let `answer` carry out the jobs of test.together."""

    @handler(
        kind="test.together", service="svc", payload=Piece, idempotent=idempotent, coalesce=Coalesce(key=lambda p: "k")
    )
    async def carry_out(jobs: Sequence[RunningJob[Piece]]) -> Any:
        answers = answer(jobs)
        return await answers if asyncio.iscoroutine(answers) else answers


def group(*payloads: str) -> list[ClaimedJob]:
    leader = uuid4()
    return [
        claimed_alone("test.together", payload)._replace(
            id=uuid4() if number else leader, group=leader, coalesce_key="test.together||lane|k"
        )
        for number, payload in enumerate(payloads)
    ]


def by_job(driven: Driven, jobs: Sequence[ClaimedJob]) -> list[Any]:
    outcomes = {outcome.job.id: outcome for outcome in driven.run(*jobs)}
    assert len(outcomes) == len(jobs)
    return [outcomes[job.id] for job in jobs]


def said(outcome: Any) -> Any:
    """What an outcome says, short enough for a table."""
    if isinstance(outcome, Succeeded):
        return json.loads(outcome.result or "null")
    if isinstance(outcome, Failed):
        return outcome.failure.code
    return "misfit" if outcome.misfit else outcome.reason


REFUSED = ProviderError(400, "bad cell", code="invalid_argument", outcome="answered")
OTHER = ProviderError(400, "bad cell", code="other", outcome="answered")
AGAIN = "sent again without another"


def raises(error: BaseException) -> Answers:
    def answer(jobs: Sequence[RunningJob[Piece]]) -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda jobs: [Done(job.payload.n) for job in jobs], [0, 1, 2]),
        (lambda jobs: [Done(len(jobs))] * 3, [3, 3, 3]),
        (lambda jobs: [Done("a"), REFUSED, Done("c")], ["a", "invalid_argument", "c"]),
        (lambda jobs: [None, LookupError("x"), None], [None, "handler_error", None]),
        (lambda jobs: [Done("a"), Done(object()), Done("c")], ["a", "result_not_json", "c"]),
        (lambda jobs: [Done("a"), Continue({"row": 5}, "goes on"), Done("c")], ["a", "goes on", "c"]),
        (lambda jobs: [Done("a")], ["handler_error"] * 3),
        (lambda jobs: None, ["handler_error"] * 3),
        (raises(Poison({1: REFUSED})), [AGAIN, "invalid_argument", AGAIN]),
        (raises(Poison({2: OTHER, 0: REFUSED})), ["invalid_argument", AGAIN, "other"]),
        (raises(Poison({3: REFUSED})), ["invalid_argument"] * 3),
        (raises(Poison({-1: REFUSED})), ["invalid_argument"] * 3),
        (raises(REFUSED), ["invalid_argument"] * 3),
        (raises(LookupError("bug")), ["handler_error"] * 3),
        (raises(SystemExit(3)), ["handler_error"] * 3),
        (raises(Bisect()), ["sent again in two halves"] * 3),
    ],
)
def test_every_job_of_a_group_ends_in_one_outcome_of_its_own(driven, answer, expected):
    together(answer)
    assert [said(one) for one in by_job(driven, group('{"n": 0}', '{"n": 1}', '{"n": 2}'))] == expected
    assert driven.loop.active == 0


def test_a_group_is_one_call_and_others_are_others(driven):
    calls: list[int] = []

    def answer(jobs: Sequence[RunningJob[Piece]]) -> list[Done]:
        calls.append(len(jobs))
        return [Done()] * len(jobs)

    together(answer)
    driven.run(*group("{}", "{}"), *group("{}"), *group("{}", "{}", "{}"))
    assert sorted(calls) == [1, 2, 3]


def test_what_was_stored_by_continuing_is_kept(driven):
    together(lambda jobs: [Continue({"row": 5}, cost=7)])
    [outcome] = by_job(driven, group("{}"))
    assert isinstance(outcome, GivenBack)
    assert (outcome.partial, outcome.cost, outcome.coalesce_key) == ('{"row":5}', 7, None)


def test_an_invalid_payload_is_given_back_alone_and_before_the_call(driven):
    together(lambda jobs: [Done(len(jobs))] * len(jobs))
    outcomes = by_job(driven, group('{"n": 1}', '{"n": "many"}', '{"n": 3}'))
    assert [said(one) for one in outcomes] == [2, "misfit", 2]


def test_no_call_is_made_for_invalid_payloads_alone(driven):
    together(raises(AssertionError("called")))
    assert [said(one) for one in by_job(driven, group('{"n": "x"}'))] == ["misfit"]


def test_halves_never_leave_together_again_and_neither_do_halves_of_halves(driven):
    together(raises(Bisect()))
    first = [one.coalesce_key for one in by_job(driven, group(*["{}"] * 5))]
    assert first[0] == first[1] != first[2] == first[3] == first[4]
    driven.outcomes.clear()
    jobs = [job._replace(coalesce_key=first[2]) for job in group(*["{}"] * 3)]
    second = [one.coalesce_key for one in by_job(driven, jobs)]
    assert second[0] != second[1] == second[2]
    assert len({*first, *second}) == 4
    assert {tuple(str(key).split("#"))[:-1] for key in [*first, *second]} == {("test.together||lane|k",)}


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf"), "3", True])
def test_a_cost_that_is_none_is_left_out_and_the_job_has_succeeded(driven, cost):
    together(lambda jobs: [Done("x", cost=cost)])
    [outcome] = by_job(driven, group("{}"))
    assert (said(outcome), outcome.cost) == ("x", None)


class Waiting:
    """A call that waits to be let go."""

    def __init__(self) -> None:
        self.begun, self.interrupted, self.let_go = threading.Event(), threading.Event(), threading.Event()

    async def __call__(self, jobs: Sequence[RunningJob[Piece]]) -> list[Done]:
        self.begun.set()
        try:
            while not self.let_go.is_set():  # noqa: ASYNC110 (another thread sets it)
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.interrupted.set()
            raise
        return [Done(len(jobs)) for _ in jobs]


def ended(driven: Driven, count: int) -> Callable[[], bool]:
    def have_ended() -> bool:
        driven.collect()
        return len(driven.outcomes) == count

    return have_ended


def test_a_member_that_is_cancelled_gets_no_outcome_and_the_call_goes_on_for_the_others(driven):
    call = Waiting()
    together(call)
    jobs = group("{}", "{}", "{}")
    driven.loop.carry_out(jobs)
    assert call.begun.wait(10)
    driven.loop.cancel([jobs[0]], reason=CANCELLED)
    wait_for(lambda: driven.loop.active == 2, what="the end of the cancelled job")
    call.let_go.set()
    wait_for(ended(driven, 2), what="the others' end")
    assert {outcome.job.id for outcome in driven.outcomes} == {jobs[1].id, jobs[2].id}
    assert not call.interrupted.is_set()


def test_a_call_whose_members_are_all_cancelled_is_interrupted(driven):
    call = Waiting()
    together(call)
    jobs = group("{}", "{}")
    driven.loop.carry_out(jobs)
    assert call.begun.wait(10)
    driven.loop.cancel(jobs, reason=CANCELLED)
    assert call.interrupted.wait(10)
    wait_for(lambda: driven.loop.active == 0, what="the group's end")
    driven.collect()
    assert driven.outcomes == []


@pytest.mark.parametrize(("idempotent", "expected"), [(True, "its executor stops"), (False, "outcome_unknown")])
def test_a_stopped_group_is_given_back_or_its_outcome_is_unknown(driven, idempotent, expected):
    call = Waiting()
    together(call, idempotent=idempotent)
    jobs = group("{}", "{}")
    driven.loop.carry_out(jobs)
    assert call.begun.wait(10)
    driven.loop.cancel(jobs, reason=STOPPING)
    wait_for(ended(driven, 2), what="the group's end")
    assert [said(one) for one in driven.outcomes] == [expected] * 2


# In the claim: which jobs leave together


@pytest.fixture
def limit(db: None) -> Iterator[Limit]:
    """Ten calls a minute for each project."""
    Limit.objects.all().delete()
    made = Limit.objects.create(name="limit", service="svc", capacity=10)
    catalogue.forget()
    yield made
    catalogue.forget()


def test_jobs_of_one_key_leave_as_calls_of_bounded_size_and_each_call_is_charged_once(limit):
    jobs = [submit(n=number).pk for number in range(7)]
    assert groups(claim()) == [jobs[:3]]
    assert groups(claim()) == [jobs[3:6]]
    assert groups(claim()) == [jobs[6:]]
    assert used(limit) == 3
    assert Job.objects.filter(status=JobState.IN_PROGRESS).count() == 7


def test_a_call_holds_no_more_than_its_bytes(limit):
    jobs = [submit(text="x" * 150).pk for _ in range(3)]
    assert groups(claim()) == [jobs[:2]]
    assert groups(claim()) == [jobs[2:]]


def test_one_too_large_for_any_company_leaves_alone(limit):
    jobs = [submit(text="x" * 390).pk, submit().pk]
    assert groups(claim()) == [[jobs[0]]]
    assert groups(claim()) == [[jobs[1]]]


@pytest.mark.parametrize(
    "other",
    [
        {"sheet": "b"},
        {"option": "raw"},
        {"project": "beta"},
        {"spec": {"user_id": UUID(int=1)}},
        {"spec": {"model": "large"}},
    ],
)
def test_jobs_that_differ_in_what_the_call_depends_on_never_share_it(limit, other):
    first, second = submit(), submit(**other)
    assert sorted(groups(claim())) == sorted([[first.pk], [second.pk]])


def test_slots_are_counted_by_calls(limit):
    first, second, _, first_too, second_too = [submit(sheet=sheet).pk for sheet in "abcab"]
    assert sorted(groups(claim(2))) == sorted([[first, first_too], [second, second_too]])


def test_a_full_limit_keeps_the_whole_group_back(limit):
    Limit.objects.update(capacity=1)
    catalogue.forget()
    submit(sheet="a")
    assert len(claim()) == 1
    late = [submit(sheet="b").pk for _ in range(3)]
    assert claim() == []
    Limit.objects.update(capacity=2)
    catalogue.forget()
    assert groups(claim()) == [late]
    assert used(limit) == 2


def test_companions_that_may_not_run_now_are_left_behind(limit):
    batch = make_batch()
    leader, held, paused, expired, later, fine = [submit(n=number).pk for number in range(6)]
    Job.objects.filter(pk=held).update(held=True)
    Job.objects.filter(pk=paused).update(batch=batch)
    Job.objects.filter(pk=expired).update(expires_at="2020-01-01T00:00:00Z")
    Job.objects.filter(pk=later).update(scheduled_at="2100-01-01T00:00:00Z")
    PauseSwitch.objects.create(scope="batch", key=str(batch.pk), paused_by="user:1")
    assert groups(claim()) == [[leader, fine]]


def test_the_members_of_a_call_have_its_token_and_one_charge(limit):
    Limit.objects.create(name="slots", service="svc", unit="in_flight", algorithm="concurrency", capacity=5)
    catalogue.forget()
    for _ in range(MOST):
        submit()
    claimed = claim(1)
    assert set(Job.objects.values_list("fencing_token", flat=True)) == {job.token for job in claimed}
    assert len({job.token for job in claimed}) == 1
    assert [job.holds for job in claimed] == [True, False, False]
    assert Charge.objects.get().holder == claimed[0].holder


def test_halves_are_claimed_as_two_calls_and_nobody_pays_an_attempt(limit):
    for _ in range(3):
        submit()
    jobs = claim()
    keys = ["k#1", "k#2", "k#2"]
    given = [GivenBack(job, "halves", coalesce_key=key) for job, key in zip(jobs, keys, strict=True)]
    record_outcomes(given, policies=retry_policies())
    assert promote_due()[0] == 3
    assert groups(claim()) == [[jobs[0].id], [jobs[1].id, jobs[2].id]]
    assert not Job.objects.filter(retry_count__gt=0).exists()
