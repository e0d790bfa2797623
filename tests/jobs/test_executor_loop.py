"""An executor inside the test's process: the loop that runs handlers, and the pump that feeds it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError
from pydantic import BaseModel, field_validator
from pydantic_core import PydanticSerializationError

from jobs.classify import is_retryable
from jobs.executor.loop import CANCELLED, OVERRUN_SECONDS, STOPPING, HandlerLoop
from jobs.executor.pump import RECONNECT_SECONDS
from jobs.features.budget_holds import spend
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Coalesce, Continue, Done, RunningJob, handler
from jobs.models import DeadLetter, Executor, Job, JobEvent
from jobs.services.finish import finish
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Progress, Succeeded
from jobs.services.finish.result_text import result_text
from jobs.services.operate.job_actions import cancel_jobs, reset_to_pending
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import WAITING, JobState
from ratelimits.costs import Usage
from tests.factories import make_job, make_jobs, make_project
from tests.support.executing import Driven, Number, Stage, claimed, executing
from tests.support.processes import wait_for

USED = Usage(5, 0, 7, 12)


@pytest.fixture
def driven(stage: Stage) -> Iterator[Driven]:
    loop = HandlerLoop(slots=4, wake=lambda: None)
    loop.start()
    yield Driven(loop)
    loop.stop()


def test_asynchronous_and_synchronous_handlers_are_carried_out(driven):
    jobs = [claimed(kind) for kind in ("test.double", "test.double_in_a_thread", "test.nothing")]
    results = {outcome.job.kind: outcome.result for outcome in driven.run(*jobs)}
    assert results == {
        "test.double": '{"n":8,"attempt":3}',
        "test.double_in_a_thread": '{"n":8}',
        "test.nothing": None,
    }
    assert all(isinstance(outcome, Succeeded) for outcome in driven.outcomes)
    assert driven.loop.active == 0


@pytest.mark.parametrize("together", [None, "k"])
def test_half_of_a_surrogate_pair_does_not_cost_a_result(driven, together):
    @handler(kind="test.halves", service="test", payload=Number, coalesce=together and Coalesce(key=lambda _: "k"))
    async def halves(jobs: Any) -> Any:
        done = Done({"text": "cut \ud83d", "\udc00": [1.5, float("nan")]})
        return [done] if together else done

    [outcome] = driven.run(claimed("test.halves")._replace(coalesce_key=together))
    assert json.loads(outcome.result) == {"text": "cut \ufffd", "\ufffd": [1.5, None]}


@pytest.mark.parametrize(
    ("answer", "digits", "is_kept"),
    [
        (lambda number: Done({"n": number}, usage=USED), 4_301, False),
        (lambda number: Done([1, -number], usage=USED), 4_301, False),
        (lambda number: Done({number: 1}, usage=USED), 4_301, False),
        (lambda number: Done({"n": {number}, "x": "cut \ud83d"}, usage=USED), 4_301, False),
        (lambda number: Continue([number], "half", usage=USED), 4_301, False),
        (lambda number: Done(object(), usage=USED), 1, False),
        (lambda number: Done({"n": number}, usage=USED), 4_300, True),
        (lambda number: Done({"text": "7" * 9_000}, usage=USED), 1, True),
    ],
)
def test_a_result_that_nobody_could_read_fails_and_its_call_stays_counted(driven, answer, digits, is_kept):
    @handler(kind="test.long", service="test", payload=Number)
    async def answered(job: Any) -> Any:
        return answer(10 ** (digits - 1))

    [outcome] = driven.run(claimed("test.long"))
    assert (outcome.usage, outcome.cost) == (USED, 12)
    assert isinstance(outcome, Failed) != is_kept
    if is_kept:
        assert json.loads(outcome.result)
    else:
        assert outcome.failure.code == "result_not_json"
        assert not is_retryable(outcome.failure, repeatable=True)


def test_a_whole_number_is_refused_before_its_digits_are_written():
    vast = 1 << 40_000_000  # to write it takes hours
    for result in ([{"n": vast}], {"n": (1, -vast)}, {vast: 1}, {"x": "cut \ud83d", "n": vast}):
        with pytest.raises(PydanticSerializationError):
            result_text(result)


def test_nothing_of_an_ended_job_waits_for_the_garbage_collector(driven):
    @handler(kind="test.together", service="test", payload=Number, coalesce=Coalesce(key=lambda _: "k"))
    async def together(jobs: Sequence[RunningJob[Number]]) -> list[Done]:
        return [Done() for _ in jobs]

    alone = [claimed(kind) for kind in ("test.double", "test.double_in_a_thread", "test.nothing", "test.raise")]
    group = [claimed("test.together")._replace(coalesce_key="k", group=UUID(int=1)) for _ in range(2)]
    ids = {job.id for job in (*alone, *group)}
    gc.collect()
    gc.disable()
    try:
        driven.run(*alone, *group)
        wait_for(lambda: not known_of(ids), seconds=20, what="the end of what the loop knew of the jobs")
    finally:
        gc.enable()


def known_of(ids: set[UUID]) -> list[Any]:
    found = [one for one in gc.get_objects() if type(one).__name__ in ("_Run", "RunningJob")]
    return [one for one in found if (one.id if isinstance(one, RunningJob) else one.job.id) in ids]


def test_only_the_latest_progress_of_a_job_is_kept_until_it_is_collected(driven):
    [outcome] = driven.run(claimed("test.double"))
    assert driven.notes == [Progress(outcome.job, 90, "nearly")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("test.raise", ("http_503", "answered", 503, 9)),
        ("test.bug", ("handler_error", "unknown", None, None)),
        ("test.exit", ("handler_error", "unknown", None, None)),
        ("test.exit_in_a_thread", ("handler_error", "unknown", None, None)),
        ("test.bad_result", ("result_not_json", "unknown", None, None)),
        ("test.unheard_of", ("unknown_kind", "not_sent", None, None)),
    ],
)
def test_what_goes_wrong_in_a_handler_is_its_jobs_failure(driven, kind, expected):
    [failed] = driven.run(claimed(kind))
    assert isinstance(failed, Failed)
    failure = failed.failure
    assert (failure.code, failure.outcome, failure.status, failure.retry_after) == expected


@pytest.mark.parametrize("together", [None, "k"])
def test_an_error_that_cannot_be_described_is_its_jobs_failure_and_costs_no_slot(driven, together):
    class Untellable(Exception):
        def __str__(self) -> str:
            raise AttributeError("not yet set")

    @handler(kind="test.untellable", service="test", payload=Number, coalesce=together and Coalesce(key=lambda _: "k"))
    async def fail(job: Any) -> Done:
        raise Untellable

    @handler(kind="test.odd_status", service="test", payload=Number, coalesce=together and Coalesce(key=lambda _: "k"))
    async def fail_oddly(job: Any) -> Done:
        raise ProviderError("400", "no", code="no", outcome="answered")  # type: ignore[arg-type]

    jobs = [claimed(kind)._replace(coalesce_key=together) for kind in ("test.untellable", "test.odd_status")]
    failed = {outcome.job.kind: outcome for outcome in driven.run(*jobs)}
    assert {one.failure.code for one in failed.values() if isinstance(one, Failed)} == {"handler_error"}
    assert "Untellable" in failed["test.untellable"].failure.message
    assert "TypeError" in failed["test.odd_status"].failure.message
    assert (driven.loop.active, driven.loop.leaked) == (0, 0)


@pytest.mark.parametrize("kind", ["test.own_limit", "test.own_limit_in_a_thread", "test.own_limit_together"])
def test_a_librarys_own_time_limit_is_not_taken_for_the_jobs(driven, kind):
    coalesce = Coalesce(key=lambda _: "k") if kind.endswith("together") else None

    async def own_limit(job: Any) -> Done:
        raise TimeoutError("timed out connecting to db.example.org")

    def own_limit_in_a_thread(job: RunningJob[Number]) -> Done:
        raise TimeoutError("timed out connecting to db.example.org")

    function = own_limit_in_a_thread if kind.endswith("thread") else own_limit
    handler(kind=kind, service="test", payload=Number, coalesce=coalesce)(function)
    [failed] = driven.run(claimed(kind)._replace(coalesce_key="k" if coalesce else None))
    assert isinstance(failed, Failed)
    assert (failed.failure.code, failed.failure.outcome) == ("timeout", "unknown")
    assert failed.failure.message == "TimeoutError: timed out connecting to db.example.org"
    assert "own_limit" in failed.failure.traceback


@pytest.mark.parametrize("together", [None, "k"])
def test_a_call_that_passes_its_handlers_time_limit_says_how_long_it_took(driven, together):
    @handler(
        kind="test.endless", service="test", payload=Number, timeout=0.1,
        coalesce=together and Coalesce(key=lambda _: "k"),
    )  # fmt: skip
    async def endless(job: Any) -> Done:
        await asyncio.Event().wait()
        raise AssertionError

    [failed] = driven.run(claimed("test.endless")._replace(coalesce_key=together))
    assert isinstance(failed, Failed)
    assert failed.failure.message.startswith("no end after ")
    assert failed.failure.error_class == "TimeoutError"


@pytest.mark.parametrize(
    ("idempotent", "expected"), [(True, ("http_503", "answered", 9)), (False, ("handler_error", "unknown", None))]
)
def test_an_error_in_a_task_group_is_told_and_repeated_where_the_work_may_be(driven, idempotent, expected):
    async def refused() -> None:
        raise ProviderError(503, "not now", code="http_503", outcome="answered", retry_after=9)

    @handler(kind="test.group", service="test", payload=Number, idempotent=idempotent)
    async def grouped(job: RunningJob[Number]) -> Done:
        async with asyncio.TaskGroup() as group:
            group.create_task(refused())
        raise AssertionError

    [failed] = driven.run(claimed("test.group"))
    assert isinstance(failed, Failed)
    assert (failed.failure.code, failed.failure.outcome, failed.failure.retry_after) == expected
    assert "not now" in failed.failure.message


def test_several_errors_of_a_task_group_are_named(driven):
    @handler(kind="test.groups", service="test", payload=Number, idempotent=True)
    async def grouped(job: RunningJob[Number]) -> Done:
        raise ExceptionGroup("both", [LookupError("first"), ExceptionGroup("inner", [ValueError("second")])])

    [failed] = driven.run(claimed("test.groups"))
    assert isinstance(failed, Failed)
    assert failed.failure.code == "handler_error"
    assert "LookupError: first" in failed.failure.message
    assert "ValueError: second" in failed.failure.message


def test_what_is_too_large_to_be_kept_for_the_next_call_ends_the_job_and_its_call_is_paid(driven, settings):
    @handler(kind="test.hoards", service="test", payload=Number, idempotent=True)
    async def hoard(job: RunningJob[Number]) -> Continue:
        return Continue({"rows": "x" * settings.QUEUEOPS.max_payload_bytes}, cost=7)

    [failed] = driven.run(claimed("test.hoards"))
    assert isinstance(failed, Failed)
    assert (failed.failure.code, failed.failure.outcome, failed.cost) == ("partial_lost", "answered", 7)


def test_a_result_that_is_no_answer_is_named(driven):
    @handler(kind="test.bare", service="test", payload=Number)
    async def bare(job: RunningJob[Number]) -> Any:
        return {"n": 1}

    [failed] = driven.run(claimed("test.bare"))
    assert isinstance(failed, Failed)
    assert failed.failure.message == "TypeError: The handler returned a dict: return Done(result), Continue or nothing."


@pytest.mark.parametrize(("percent", "kept"), [(float("nan"), 0), (float("inf"), 100), (-3, 0), ("50", 50), (33.7, 33)])
def test_no_figure_of_progress_costs_a_job_its_work(driven, percent: Any, kept):
    @handler(kind="test.counts", service="test", payload=Number)
    async def counts(job: RunningJob[Number]) -> Done:
        job.progress(percent, LookupError("row 3"))  # type: ignore[arg-type]
        return Done()

    [outcome] = driven.run(claimed("test.counts"))
    assert isinstance(outcome, Succeeded)
    assert driven.notes == [Progress(outcome.job, kept, "row 3")]


@pytest.mark.parametrize("payload", ['{"n": "many"}', "[]"])
def test_a_stored_payload_that_does_not_fit_the_schema_is_given_back_before_the_handler(driven, payload):
    [back] = driven.run(claimed("test.wait", payload))
    assert isinstance(back, GivenBack)
    assert back.misfit


@pytest.mark.parametrize("kind", ["test.slow", "test.slow_in_a_thread"])
def test_a_handler_that_passes_its_time_limit_is_interrupted(driven, stage, kind):
    job = claimed(kind)
    [failed] = driven.run(job)
    assert isinstance(failed, Failed)
    assert failed.failure.code == "timeout"
    wait_for(lambda: stage.interrupted == [job.id], what="the handler's end")
    assert driven.loop.leaked == 0


@pytest.mark.parametrize("kind", ["test.wait", "test.wait_in_a_thread"])
def test_a_cancelled_jobs_handler_is_told_and_its_outcome_dropped(driven, stage, kind):
    job = claimed(kind)
    driven.loop.carry_out([job])
    wait_for(lambda: stage.begun, what="the handler's beginning")
    driven.loop.cancel([job], reason=CANCELLED)
    wait_for(lambda: stage.interrupted == [job.id] and not driven.loop.active, what="the handler's end")
    assert driven.loop.collect() == ([], [])


def test_a_stop_gives_back_what_may_be_repeated_and_owns_up_to_the_rest(driven, stage):
    jobs = [claimed("test.wait"), claimed("test.wait_once")]
    driven.loop.carry_out(jobs)
    wait_for(lambda: len(stage.begun) == 2, what="the handlers' beginning")
    driven.loop.cancel(jobs, reason=STOPPING)
    wait_for(lambda: not driven.loop.active, what="the handlers' end")
    driven.collect()
    repeatable, once = sorted(driven.outcomes, key=lambda outcome: outcome.job.kind)
    assert isinstance(repeatable, GivenBack)
    assert isinstance(once, Failed)
    assert once.failure.code == "outcome_unknown"


def test_a_job_interrupted_before_its_handlers_first_step_is_given_back_at_once(driven, stage):
    jobs = [claimed("test.wait_once"), claimed("test.wait_once")._replace(coalesce_key="together")]
    released = threading.Event()
    driven.loop._loop.call_soon_threadsafe(released.wait)  # or the handlers might begin in between
    driven.loop.carry_out(jobs)
    driven.loop.cancel(jobs, reason=STOPPING)
    released.set()
    wait_for(lambda: driven.loop.waiting_seconds is not None and not driven.loop.active, what="the jobs' end")
    driven.collect()
    assert [type(outcome) for outcome in driven.outcomes] == [GivenBack, GivenBack]
    assert not stage.begun
    assert not driven.loop.leaked


def test_a_function_of_on_close_that_raises_keeps_the_executor_from_nothing(monkeypatch, caplog):
    closed: list[str] = []

    async def fail() -> None:
        raise RuntimeError("already closed")

    async def close() -> None:
        closed.append("the other")

    monkeypatch.setattr(registry, "_closers", [fail, close])
    loop = HandlerLoop(slots=1, wake=lambda: None)
    loop.start()
    loop.stop()
    assert closed == ["the other"]
    assert "fail raised while handlers were closed" in caplog.text


def test_what_could_not_be_written_is_collected_again_in_its_order(driven):
    outcomes = driven.run(claimed("test.double"), claimed("test.nothing"))[:]
    old, new = Progress(outcomes[0].job, 1, "old"), Progress(outcomes[1].job, 2, "kept")
    driven.loop.put_back(outcomes, [old, new])
    assert driven.loop.collect() == (outcomes, [old, new])


@pytest.fixture
def watched(stage: Stage) -> Iterator[Driven]:
    async def hold(job: RunningJob[Number]) -> Done:
        stage.begun.append(job.id)
        stage.let_go.wait(timeout=60)  # the loop's thread waits, not the job alone
        raise ProviderError(503, "not now", code="http_503", outcome="answered")

    @handler(kind="test.hold_in_a_task", service="test", payload=Number)
    async def hold_in_a_task(job: RunningJob[Number]) -> Done:
        task = asyncio.create_task(hold(job))
        work: Any = task.get_coro()
        assert inspect.getcoroutinestate(work) == "CORO_CREATED", "libraries ask tasks for this"
        return await task

    @handler(kind="test.hold_together", service="test", payload=Number, coalesce=Coalesce(key=lambda _: "k"))
    async def hold_together(jobs: Sequence[RunningJob[Number]]) -> list[Done]:
        stage.let_go.wait(timeout=60)
        return [Done() for _ in jobs]

    @handler(kind="test.compute", service="test", payload=Number)
    async def compute(job: RunningJob[Number]) -> Done:
        began = time.thread_time()
        while time.thread_time() - began < 0.2:
            sum(range(1_000_000))  # nothing else runs meanwhile
        return Done()

    handler(kind="test.hold", service="test", payload=Number)(hold)
    loop = HandlerLoop(slots=4, wake=lambda: None, budget_seconds=0.1)
    loop.start()
    yield Driven(loop)
    stage.let_go.set()
    loop.stop()


@pytest.mark.parametrize("kind", ["test.hold", "test.hold_in_a_task"])
def test_a_job_that_holds_the_loop_is_named_while_it_does_and_when_it_comes_back(watched, stage, caplog, kind):
    job, neighbour = claimed(kind), claimed("test.double")
    watched.loop.carry_out([job])
    wait_for(lambda: stage.begun, what="the handler's beginning")
    watched.loop.carry_out([neighbour])
    [first] = wait_for(watched.loop.watch.collect, what="the name of who holds the loop")
    assert (first.job, first.has_ended) == (job, False)
    assert watched.loop.watch.is_held
    assert f"job {job.id} ({kind}, project acme) has held the loop of its worker" in caplog.text
    assert "test_executor_loop.py" in caplog.text, "where it does is not told"
    stage.let_go.set()
    wait_for(lambda: watched.collect() or len(watched.outcomes) == 2, what="the end of both")
    [again] = watched.loop.watch.collect()
    assert (again.job, again.has_ended) == (job, True)
    assert not watched.loop.watch.is_held


def test_jobs_of_one_call_that_holds_the_loop_are_all_named_and_none_comes_back(watched, stage):
    jobs = [claimed("test.hold_together")._replace(coalesce_key="k", group=UUID(int=1)) for _ in range(2)]
    watched.loop.carry_out(jobs)
    assert [one.job for one in wait_for(watched.loop.watch.collect, what="the names")] == jobs
    stage.let_go.set()
    wait_for(lambda: watched.collect() or len(watched.outcomes) == 2, what="the end of both")
    assert watched.loop.watch.collect() == []


def test_a_job_that_computes_with_the_interpreter_to_itself_is_named_afterwards(watched):
    job = claimed("test.compute")
    watched.loop.watch.stop()  # as if it had no turn to look
    watched.run(job)
    [held] = watched.loop.watch.collect()
    assert (held.job, held.has_ended) == (job, False), "it has ended well and does not come back"


def test_a_job_that_waits_holds_nobody_up(watched, stage):
    watched.loop.carry_out([claimed("test.wait"), claimed("test.wait")])
    wait_for(lambda: len(stage.begun) == 2, what="the handlers' beginning")
    begun = watched.loop.last_tick
    wait_for(lambda: watched.loop.last_tick > begun, what="the loop's next tick")
    assert watched.loop.watch.collect() == []
    stage.let_go.set()
    wait_for(lambda: not watched.loop.active, what="the handlers' end")


# The whole executor on the database.


def in_state(job_id: UUID, state: JobState) -> Callable[[], bool]:
    return lambda: Job.objects.get(pk=job_id).status == state


@pytest.mark.django_db(transaction=True)
def test_submitted_jobs_are_carried_out_and_written_down(stage):
    jobs = make_jobs(30, kind="test.double", payload='{"n": 21}')
    thread, gone = make_job(kind="test.double_in_a_thread", payload="{}"), make_job(kind="test.gone", payload="{}")
    with executing():
        wait_for(lambda: not Job.objects.unfinished().exclude(pk=gone.pk).exists(), what="the end of the work")
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", "result__n")) == {
        ("completed", 42)
    }
    assert Job.objects.get(pk=thread.pk).result == {"n": 0}
    gone.refresh_from_db()
    assert (gone.status, gone.retry_count, gone.started_at) == (JobState.QUEUED, 0, None)
    assert not Executor.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_cannot_be_stored_fails_alone(stage):
    jobs = make_jobs(10, kind="test.double", payload='{"n": 21}')
    odd = make_job(kind="test.unstorable", payload="{}")
    with executing(slots=20):
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the end of the work")
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", flat=True)) == {"completed"}
    assert DeadLetter.objects.get().job_id == odd.pk
    assert DeadLetter.objects.get().error_code == "result_not_stored"


@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_the_executor_cannot_send_to_the_database_keeps_no_other_unwritten(stage):
    @handler(kind="test.details", service="test", payload=Number)
    async def details(job: RunningJob[Number]) -> Done:
        raise ProviderError(400, "no", code="no", outcome="answered", details={("not", "a name"): 1})  # type: ignore[dict-item]

    @handler(kind="test.half", service="test", payload=Number)
    async def half(job: RunningJob[Number]) -> Done:
        raise ProviderError(400, "no", code="no", outcome="answered", details={"exception_class": "\ud800"})

    @handler(kind="test.level", service="test", payload=Number)
    async def level(job: RunningJob[Number]) -> Done:
        job.log("done", level=object())  # type: ignore[arg-type]
        return Done({"n": 1})

    odd = {name: make_job(kind=f"test.{name}", payload="{}") for name in ("details", "half", "level")}
    jobs = make_jobs(10, kind="test.double", payload='{"n": 21}')
    with executing(slots=20):
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the end of the work")
    well = [odd["level"].pk, *(job.pk for job in jobs)]
    assert set(Job.objects.filter(pk__in=well).values_list("status", flat=True)) == {"completed"}
    letters = dict(DeadLetter.objects.values_list("job_id", "error_code"))
    assert letters == {odd["details"].pk: "no", odd["half"].pk: "result_not_stored"}


@pytest.mark.django_db(transaction=True)
def test_a_payload_on_which_its_kinds_schema_fails_keeps_no_other_outcome_unwritten(stage):
    class Odd(BaseModel):
        n: int = 0

        @field_validator("n")
        @classmethod
        def known(cls, number: int) -> int:
            return {21: 21}[number]

    @handler(kind="test.billed", service="test", payload=Odd, most=lambda _: Usage(input_tokens=1, output_tokens=1))
    async def billed(job: RunningJob[Odd]) -> Done:
        return Done()

    odd = make_job(kind="test.billed", payload='{"n": 13}')
    jobs = make_jobs(10, kind="test.double", payload='{"n": 21}')
    with executing(slots=20):
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the end of the work")
    assert DeadLetter.objects.get().job_id == odd.pk
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", flat=True)) == {"completed"}


@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_fails_in_an_unforeseen_way_fails_alone(stage, monkeypatch):
    odd = make_job(kind="test.double", payload='{"n": 13}')
    jobs = make_jobs(10, kind="test.double", payload='{"n": 21}')
    told = spend.record_spend

    def record_spend(outcomes: Sequence[Outcome], **given: Any) -> None:
        if any(isinstance(one, Succeeded) and one.job.id == odd.pk for one in outcomes):
            raise KeyError("as a mistake in a handler's code does")
        told(outcomes, **given)

    monkeypatch.setattr(finish, "record_spend", record_spend)
    with executing(slots=20):
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the end of the work")
    assert DeadLetter.objects.get().error_code == "result_not_stored"
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", flat=True)) == {"completed"}


@pytest.mark.django_db(transaction=True)
def test_a_mistake_that_hits_every_outcome_of_a_sort_buries_none_of_them(stage, monkeypatch):
    told, tries, is_mended = spend.record_spend, list[int](), threading.Event()

    def record_spend(outcomes: Sequence[Outcome], **given: Any) -> None:
        if any(isinstance(one, Succeeded) for one in outcomes) and not is_mended.is_set():
            tries.append(len(outcomes))
            raise KeyError("as a mistake of the product does")
        told(outcomes, **given)

    monkeypatch.setattr(finish, "record_spend", record_spend)
    make_jobs(5, kind="test.double", payload='{"n": 21}')
    with executing(slots=20):
        wait_for(lambda: tries.count(5) > 1, what="a second try of all of them")
        assert set(Job.objects.values_list("status", flat=True)) == {"in_progress"}
        is_mended.set()
        wait_for(lambda: not Job.objects.unfinished().exists(), what="the end of the work")
    assert set(Job.objects.values_list("status", "retry_count", "crash_count")) == {("completed", 0, 0)}


@pytest.mark.django_db(transaction=True)
def test_a_job_submitted_while_the_executor_sleeps_wakes_it(stage):
    make_project()
    with executing():
        made = submit_job(JobSpec(kind="test.double", payload={"n": 1}), project_id="acme", actor="key:test")
        wait_for(in_state(made.id, JobState.COMPLETED), what="the job's end")


@pytest.mark.django_db(transaction=True)
def test_an_executor_with_a_thousand_open_files_goes_on_and_hears_of_jobs(stage, caplog):
    make_project()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with executing():
            made = submit_job(JobSpec(kind="test.double", payload={"n": 1}), project_id="acme", actor="key:test")
            wait_for(in_state(made.id, JobState.COMPLETED), what="the job's end")
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "error in the pump" not in caplog.text


@pytest.mark.django_db(transaction=True)
def test_an_executor_claims_no_more_than_it_can_start_now(stage):
    make_jobs(10, kind="test.wait", payload="{}")
    with executing(slots=3):
        wait_for(lambda: len(stage.begun) == 3, what="the first three")
        assert Job.objects.filter(status=JobState.IN_PROGRESS).count() == 3
        assert Job.objects.filter(status=JobState.QUEUED).count() == 7
        stage.let_go.set()
        wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == 10, what="all")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("take_away", [cancel_jobs, reset_to_pending])
def test_a_running_job_that_is_taken_away_is_interrupted_at_once(stage, take_away: Any):
    job = make_job(kind="test.wait_once", payload="{}")
    with executing() as executor:
        wait_for(lambda: stage.begun, what="the handler's beginning")
        executor._next["renew"] = float("inf")  # no renewal would notice by itself
        take_away([job.pk], actor="user:1", reason="x")
        wait_for(lambda: stage.interrupted == [job.pk], what="the handler's end")
        stage.let_go.set()
        final = JobState.CANCELLED if take_away is cancel_jobs else JobState.COMPLETED
        wait_for(in_state(job.pk, final), what="the job's end")
        executor._next["renew"] = 0.0
        wait_for(lambda: executor._leases_lost == 0 and executor._next["renew"] > 0, what="the next heartbeat")
        assert set(Executor.objects.values_list("leases_lost", flat=True)) == {0}
    assert not DeadLetter.objects.exists()
    assert not JobEvent.objects.filter(event_type="error").exists()


@pytest.mark.django_db(transaction=True)
def test_a_stop_lets_running_jobs_end_within_the_grace_period(stage):
    job = make_job(kind="test.wait", payload="{}")
    left = make_job(kind="test.wait", payload="{}", delay_seconds=3600)
    with executing() as executor:
        wait_for(lambda: stage.begun, what="the handler's beginning")
        threading.Thread(target=lambda: executor._stopping.wait(timeout=20) and stage.let_go.set()).start()
    assert Job.objects.get(pk=job.pk).result == "went on"
    assert Job.objects.get(pk=left.pk).status == JobState.QUEUED


@pytest.mark.django_db(transaction=True)
def test_a_stop_hands_back_what_does_not_end_within_the_grace_period(stage):
    repeatable, once = (make_job(kind=kind, payload="{}") for kind in ("test.wait", "test.wait_once"))
    with executing(grace=0.1):
        wait_for(lambda: len(stage.begun) == 2, what="the handlers' beginning")
    row = Job.objects.get(pk=repeatable.pk)
    assert (row.retry_count, row.crash_count) == (0, 0)
    assert row.status in WAITING  # the other executor may have promoted it by now
    event = JobEvent.objects.get(job_id=repeatable.pk, to_status="retried")
    assert event.message == "its executor stops"
    assert Job.objects.get(pk=once.pk).status == JobState.FAILED
    assert DeadLetter.objects.get().error_code == "outcome_unknown"


@pytest.mark.django_db(transaction=True)
def test_an_executor_that_stops_while_the_database_is_away_tries_it_some_times_a_second(stage, monkeypatch):
    make_job(kind="test.wait", payload="{}")
    with executing(grace=1.0) as executor:
        wait_for(lambda: stage.begun, what="the handler's beginning")
        tries: list[float] = []

        def refuse() -> None:
            tries.append(time.monotonic())
            raise OperationalError("the database system is starting up")

        monkeypatch.setattr(executor, "_connect", refuse)
        executor.stop()
        monkeypatch.undo()
    assert 2 < len(tries) < 20 * (1.0 + OVERRUN_SECONDS + RECONNECT_SECONDS)


@pytest.mark.django_db(transaction=True)
def test_progress_is_seen_while_the_job_runs(stage):
    job = make_job(kind="test.report", payload="{}")

    @handler(kind="test.report", service="test", payload=Number)
    async def report(running: RunningJob[Number]) -> Done:
        for percent in range(51):
            running.progress(percent, f"row {percent}")
        while not stage.let_go.is_set():  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.01)
        return Done()

    with executing():
        wait_for(lambda: Job.objects.get(pk=job.pk).progress == 50, what="the progress")
        stage.let_go.set()
        wait_for(in_state(job.pk, JobState.COMPLETED), what="the job's end")
    # Fifty-one reports, but written at most once a second.
    assert JobEvent.objects.filter(job_id=job.pk, event_type="progress").count() <= 2


@pytest.mark.django_db(transaction=True)
def test_suspects_run_in_quarantine_alone(stage):
    suspect = make_job(kind="test.double", payload="{}", crash_count=2)
    with executing() as general:
        wait_for(in_state(suspect.pk, JobState.COMPLETED), what="the suspect's end")
        assert Job.objects.get(pk=suspect.pk).executor != general.id


@pytest.mark.django_db(transaction=True)
def test_a_failed_attempt_is_carried_out_again_when_its_time_has_come(stage):
    attempts: list[int] = []

    @handler(kind="test.second_time", service="test", payload=Number, idempotent=True)
    def second_time(job: RunningJob[Number]) -> Done:
        attempts.append(job.attempt)
        if job.attempt == 1:
            raise ProviderError(503, "not now", code="http_503", outcome="answered", retry_after=0.01)
        return Done()

    job = make_job(kind="test.second_time", payload="{}")
    with executing():
        wait_for(in_state(job.pk, JobState.COMPLETED), what="the second attempt")
    assert attempts == [1, 2]
