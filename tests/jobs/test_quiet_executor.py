"""An executor that has nothing to do looks seldom, and is told at once of whatever there is to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from jobs.executor import pump
from jobs.executor.duties import Duties
from jobs.executor.pump import ExecutorPump
from jobs.features.flow import flow
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import (
    Batch,
    BatchSearch,
    BudgetWait,
    Dependency,
    Executor,
    FlowCursor,
    Job,
    PauseSwitch,
    PoolSweep,
    ProviderBatch,
    Schedule,
    ServiceBreaker,
    WebhookJob,
)
from jobs.services.claim import claim
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.operate import job_actions
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.services.upkeep import upkeep
from jobs.services.upkeep.upkeep import look_around
from jobs.states import JobState
from queueops.core.notify import Channel, notify
from queueops.tenancy.models import Project
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, Charge, ResumeRamp
from tests.factories import (
    make_batch,
    make_job,
    make_project,
    make_provider_batch,
    make_schedule,
    make_webhook,
    make_window,
)
from tests.support.cases import every_case
from tests.support.executing import Number, executing
from tests.support.processes import wait_for

AT_ONCE = 60.0  # seconds: a busy machine takes some; the executor would sleep for more than three times as long

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExecutorPump]:
    """An executor that would look by itself only after minutes, and has come to that."""
    monkeypatch.setattr(pump, "SLEEP_AFTER_SECONDS", 0.3)
    monkeypatch.setattr(pump, "SELDOM_SECONDS", 300.0)
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    make_project()
    tried: set[str] = set()

    @handler(kind="test.quiet", service="test", payload=Number, retry="moderate")
    async def works(job: RunningJob[Number]) -> Done:
        return Done(job.payload.n)

    @handler(kind="test.quiet_fails_once", service="test", payload=Number, idempotent=True, retry="moderate")
    async def fails_once(job: RunningJob[Number]) -> Done:
        if str(job.id) not in tried:
            tried.add(str(job.id))
            raise ProviderError(503, "busy", code="http_503", outcome="answered")
        return Done(job.payload.n)

    with executing() as executor:
        wait_until_quiet(executor)
        yield executor


def wait_until_quiet(executor: ExecutorPump) -> None:
    def sleeps() -> bool:
        waits = min(executor._next[name] for name in ("claim", "promote", "tick", "park")) - time.monotonic()
        return executor._is_quiet(time.monotonic()) and waits > 200

    wait_for(sleeps, what="quiet")


def ended(job_id: UUID) -> bool:
    return Job.objects.get(pk=job_id).status == JobState.COMPLETED


def submitted(**options: object) -> UUID:
    spec = JobSpec.model_validate({"kind": "test.quiet", "payload": {"n": 1}, **options})
    return submit_job(spec, project_id="acme", actor="key:test").id


def submitted_apart() -> UUID:
    """For a thread of its own."""
    try:
        return submitted()
    finally:
        connection.close()


@pytest.mark.parametrize("options", [{}, {"delay_seconds": 1}], ids=["now", "in a second"])
def test_it_hears_of_a_job_that_is_submitted(quiet: ExecutorPump, options: dict[str, object]):
    job = submitted(**options)
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="its end")


@pytest.fixture
def claims(quiet: ExecutorPump, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each claim got; it claims nothing but what it has reason to look for."""
    quiet._often["claim"] = 300.0
    counts: list[int] = []
    after_each_claim(monkeypatch, lambda claimed: counts.append(len(claimed)))
    return counts


def after_each_claim(monkeypatch: pytest.MonkeyPatch, happens: Callable[[list[ClaimedJob]], None]) -> None:
    """In its transaction."""

    def watched(real: Callable[..., list[ClaimedJob]]) -> Callable[..., list[ClaimedJob]]:
        def claims(*arguments: Any, **options: Any) -> list[ClaimedJob]:
            claimed = real(*arguments, **options)
            happens(claimed)
            return claimed

        return claims

    monkeypatch.setattr(claim, "claim_new", watched(claim.claim_new))
    monkeypatch.setattr(claim, "claim_jobs", watched(claim.claim_jobs))


def test_a_single_job_is_looked_for_once(quiet: ExecutorPump, claims: list[int]):
    job = submitted()
    wait_for(lambda: ended(job) and not quiet._owned, seconds=AT_ONCE, what="its end")
    assert claims == [1]


def test_behind_several_jobs_it_looks_for_more(quiet: ExecutorPump, claims: list[int]):
    submit_batch([b'{"kind": "test.quiet", "payload": {"n": 1}}'] * 3, project_id="acme", actor="key:test")
    # Before them it may have looked for one that is alone: not where its last look took long, as on a busy machine.
    wait_for(lambda: (3, 0) in pairwise(claims), seconds=AT_ONCE, what="a second look")


def test_one_slot_goes_from_job_to_job(quiet: ExecutorPump):
    quiet._slots = 1
    quiet._often["claim"] = 300.0
    submit_batch([b'{"kind": "test.quiet", "payload": {"n": 1}}'] * 5, project_id="acme", actor="key:test")
    wait_for(lambda: not Job.objects.unfinished().exists(), seconds=AT_ONCE, what="the end of all")


@pytest.mark.parametrize("found", [0, 1])
def test_it_hears_of_a_job_that_comes_while_it_claims(quiet: ExecutorPump, monkeypatch: pytest.MonkeyPatch, found: int):
    """Its notification arrives with the commit of the claim that did not see it."""
    jobs: list[UUID] = []
    quiet._often["claim"] = 300.0  # or it would find it by itself

    def submit_one(claimed: list[ClaimedJob]) -> None:
        if not jobs:
            with ThreadPoolExecutor(1) as producer:
                jobs.append(producer.submit(submitted_apart).result())

    after_each_claim(monkeypatch, submit_one)
    if found:
        submitted()
    else:
        notify(Channel.READY)
    wait_for(lambda: jobs and ended(jobs[0]), seconds=AT_ONCE, what="the end of what came meanwhile")


def test_it_comes_back_to_what_it_retries(quiet: ExecutorPump):
    job = submitted(kind="test.quiet_fails_once")
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="its end")
    assert Job.objects.get(pk=job).retry_count == 1


def test_it_wakes_when_what_it_knows_to_be_due_is_due(quiet: ExecutorPump):
    job = submitted(delay_seconds=4)
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="its end")


def test_it_hears_of_what_an_operator_lets_go(quiet: ExecutorPump):
    job = submitted(delay_seconds=3600)
    batch = submit_batch([{"kind": "test.quiet", "payload": {"n": 1}}], project_id="acme", actor="key:test")
    wait_for(lambda: Batch.objects.get(pk=batch.id).finished_at is not None, what="the batch's end")
    pause_scope(PauseSwitch.Scope.PROJECT, "acme", actor="user:1", reason="x")
    held = submitted()
    wait_until_quiet(quiet)
    resume_scope(PauseSwitch.Scope.PROJECT, "acme", actor="user:1", reason="x")
    wait_for(lambda: ended(held), seconds=AT_ONCE, what="the held job's end")
    wait_until_quiet(quiet)
    job_actions.schedule_jobs([job], delay=timedelta(), actor="user:1", reason="x")
    wait_for(lambda: ended(job), seconds=AT_ONCE, what="the scheduled job's end")


def test_whoever_promotes_wakes_the_others(quiet: ExecutorPump):
    job = make_job(kind="test.quiet", payload='{"n": 1}', scheduled_at=timezone.now() + timedelta(hours=1))
    Job.objects.filter(pk=job.pk).update(scheduled_at=timezone.now())  # as nobody here could know
    assert claim.promote_due()[0] == 1
    wait_for(lambda: ended(job.pk), seconds=AT_ONCE, what="its end")


def test_work_of_others_keeps_awake_whoever_does_what_is_for_all():
    assert not look_around().is_under_way
    make_job(scheduled_at=timezone.now() + timedelta(hours=1))
    make_job(batch=make_batch(paused=True))
    assert not look_around().is_under_way
    for state in (JobState.QUEUED, JobState.RATE_LIMITED, JobState.IN_PROGRESS):
        make_job(state=state)
        assert look_around().is_under_way, state
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobs_job CASCADE")
    assert not Executor.objects.exists()


def ago(**span: float) -> datetime:
    return timezone.now() - timedelta(**(span or {"minutes": 10}))  # before any transaction here began


def hold_money(**figures: Any) -> None:
    budget = Budget.objects.create(project_id="acme", name="all", amount=10**6)
    period = BudgetPeriod.objects.create(budget=budget, key="", project_id="acme", starts_at=ago(days=1))
    given = {"job_id": uuid4(), "token": 1, "amount": 1, "project_id": "acme", "provider": "openai", "at": ago(hours=1)}
    BudgetHold.objects.create(period=period, **given, **figures)


def search_open() -> None:
    BatchSearch.objects.create(kind="llm.generate", service="openai", credential="main", made_before=ago(days=1))


def batch_kept() -> None:
    state = ProviderBatch.State.COMPLETED
    make_provider_batch(state=state, closed_at=ago(hours=1), is_kept=True)


def make_told(*, move: str = "", **fields: Any) -> None:
    webhook = make_webhook(make_project(), hears_jobs=True, **fields)
    Project.objects.update(move=move)
    WebhookJob.objects.create(webhook=webhook, project=webhook.project, job_id=uuid4())


# What each duty has to do, by what it waits for.
DUE: dict[str, Callable[[], object]] = {
    "a job expires": lambda: Job.objects.filter(pk=make_job(scheduled_at=ago(days=-1)).pk).update(expires_at=ago()),
    "a batch is open": make_batch,
    "one waits for another": lambda: Dependency.objects.create(
        owner_id=uuid4(), on_id=uuid4(), project_id="acme", of_batch=False, on_batch=False, on_failure="run"
    ),
    "one waits for money": lambda: BudgetWait.objects.create(job_id=uuid4(), budget_id=1, project_id="acme"),
    "something failed": lambda: ServiceBreaker.objects.create(service="test", project_id="acme"),
    "pools changed": lambda: PoolSweep.objects.update_or_create(defaults={"xid": 1, "passes": 0}),
    "a schedule fires": lambda: Schedule.objects.filter(pk=make_schedule().pk).update(next_fire_at=ago()),
    "an ended job is to be told": make_told,
    "a maintenance window comes or goes": lambda: make_window(next_change_at=ago()),
    "one waits to be collected": lambda: Job.objects.filter(pk=make_job(scheduled_at=ago(days=-1)).pk).update(
        via="batch"
    ),
    "providers' lists are read": search_open,
    **{f"a batch is {state}": partial(make_provider_batch, state=state) for state in ProviderBatch.UNFINISHED},
    "a provider keeps files": batch_kept,
    "an estimate lapses": lambda: Charge.objects.create(holder="x", entries=[], expires_at=ago()),
    "a call may have cost money": lambda: hold_money(expires_at=ago()),
    "a ramp stands ready": lambda: ResumeRamp.objects.create(over_seconds=60, slots=1),
    "a ramp is held": lambda: ResumeRamp.objects.create(
        over_seconds=1, slots=1, started_at=ago(hours=1), held_share=0.5
    ),
    "a ramp grows": lambda: ResumeRamp.objects.create(over_seconds=6000, slots=1, started_at=ago()),
}
NOT_DUE: dict[str, Callable[[], object]] = {
    "it expires later": lambda: make_job(scheduled_at=ago(days=-1), expires_at=ago(days=-2)),
    "a batch has ended": lambda: make_batch(finished_at=ago()),
    "a schedule fires later": make_schedule,
    "a webhook that is switched off waits": lambda: make_told(enabled=False),
    "a webhook that is paused waits": lambda: make_told(paused_at=ago()),
    "a webhook of a project that has moved waits": lambda: make_told(move="moved"),
    "a maintenance window comes later": make_window,
    "a maintenance window of a project that has moved": lambda: (
        make_window(next_change_at=ago()),
        Project.objects.update(move="moved"),
    ),
    "an estimate holds": lambda: Charge.objects.create(holder="x", entries=[], expires_at=ago(hours=-1)),
    "money is lost already": lambda: hold_money(expires_at=ago(), lost=True),
    "a ramp is over": lambda: ResumeRamp.objects.create(over_seconds=1, slots=1, started_at=ago(hours=1)),
}


@pytest.mark.django_db
@every_case("what", [*DUE, *NOT_DUE], undone=True)
def test_an_idle_installation_knows_whether_a_duty_has_something_to_do(what: str):
    make_project()
    take_for_counted()
    assert look_around() == (False, False)
    {**DUE, **NOT_DUE}[what]()
    take_for_counted()
    assert look_around() == (False, what in DUE)


def take_for_counted() -> None:
    """As if all that was logged were in the sums, into which nothing comes before its transaction has ended."""
    FlowCursor.objects.all().delete()
    for log in flow.SEQUENCES:
        flow._begin(log)


@pytest.mark.parametrize("log", flow.SEQUENCES)
def test_an_idle_installation_knows_that_something_was_logged(log: str):
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(%s)", [flow.SEQUENCES[log]])
    count_all()
    assert not look_around().is_due
    sums = FlowCursor.objects.filter(log=log)
    sums.update(counted=F("counted") - 1)  # marked
    assert look_around().is_due
    sums.update(mark=F("mark") - 1)  # drawn
    assert look_around().is_due


def count_all() -> None:
    """Until all that was logged is in the sums."""

    def is_counted() -> bool:
        flow.sum_up(settle_seconds=0)
        behind = FlowCursor.objects.extra(
            where=[
                "counted < mark OR mark < coalesce(pg_sequence_last_value(CASE log WHEN %s THEN %s ELSE %s END), 0)"
            ],
            params=[flow.EVENT_LOG, *flow.SEQUENCES.values()],
        )
        return FlowCursor.objects.count() == len(flow.SEQUENCES) and not behind.exists()

    wait_for(is_counted, what="the sums")


def test_where_nothing_is_due_the_duties_are_asked_about_once_and_done_seldom(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
):
    done: list[str] = []
    monkeypatch.setattr(upkeep, "expire_waiting", lambda: done.append("all"))
    duties = Duties(uuid4(), sweep_seconds=1000, silent_seconds=30, stuck_seconds=30)
    count_all()
    duties.do(1.0)
    duties.do(2.0)  # somebody has work, as far as it knows
    assert len(done) == 2
    with django_assert_num_queries(1):  # who has time; what is due goes past Django's cursor
        assert not duties.do(3.0, quiet=True)
    for at in (8.0, 13.0, 18.0):
        assert not duties.do(at, quiet=True)
    assert len(done) == 2
    duties.do(23.0, quiet=True)
    assert len(done) == 3
    make_job()
    assert duties.do(24.0, quiet=True)
    assert len(done) == 4
