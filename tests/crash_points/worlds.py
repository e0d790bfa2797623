"""A small queue under limits and a budget, in which whoever carries out jobs may die anywhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Self, TypeVar
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import Sum

from jobs.classify import Failure
from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.features.recovery.event_fold import FoldedJob, fold
from jobs.handlers import registry
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import DeadLetter, Executor, Job, JobCount, JobEvent, RetryPolicy
from jobs.services.claim.claim import promote_due
from jobs.services.finish.claimed import ClaimedJob, holder_of
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Progress, Succeeded
from jobs.services.submit.submit import submit_batch
from jobs.services.upkeep.upkeep import expire_waiting, rescue_lapsed
from jobs.states import TERMINAL, JobState
from ratelimits.algorithms.measures import MICRO
from ratelimits.costs import Usage
from ratelimits.feedback import PushBack
from ratelimits.limits import catalogue
from ratelimits.models import BudgetHold, BudgetPeriod, Charge, Limit, Price, Spend
from ratelimits.models import Counter as LimitCounter
from ratelimits.money.save_budget import create_budget
from tests.factories import make_project
from tests.support.crash_points import Case

Operation = Callable[[], object]
World = TypeVar("World", bound="Queue")

PROJECT, POOR = "acme", "poor"  # the one has a budget
SERVICE = "crash"
REPEATABLE, ONCE, FREE = "crash.repeatable", "crash.once", "crash.free"  # no limit counts the last
ESTIMATE, TOOK = 60, 40  # tokens
MOST, USED = Usage(input_tokens=10, output_tokens=20), Usage(input_tokens=10, output_tokens=10)
BOUND, COST = 180, 100  # what these cost
LEASE_SECONDS = 600.0
ROUNDS = 12

# Those before others that they refer to. What is not here is the same for all.
TOUCHED = (
    "jobs_deadletter", "jobs_budgetwait", "jobs_dependency", "jobs_providerbatchline", "jobs_providerbatch",
    "jobs_batchpace", "jobs_flowsample", "jobs_resultstoretotals", "jobs_webhookjob", "jobs_webhookdelivery",
    "jobs_tag", "jobs_idempotencyrecord", "jobs_jobevent", "jobs_jobcount", "jobs_job", "jobs_batch", "jobs_executor",
    "jobs_dutylease", "jobs_servicebreaker", "jobs_pauseswitch", "ratelimits_charge", "ratelimits_counter",
    "ratelimits_calltally", "ratelimits_costestimate", "ratelimits_spend", "ratelimits_budgethold",
    "ratelimits_budgetperiod", "ratelimits_quotaalert", "ratelimits_counterfeedback",
)  # fmt: skip
LINES = " UNION ALL ".join(f"SELECT '{one}' || row AS line FROM {one} AS row" for one in (*TOUCHED, "jobs_flowcursor"))  # noqa: S608
# The audit trail only grows: nobody may delete what is there.
STORED = f"""
SELECT (SELECT md5(string_agg(line, '' ORDER BY line)) FROM ({LINES}) AS lines), (SELECT count(*) FROM jobs_auditentry)
"""  # noqa: S608
AGED = (
    "UPDATE jobs_job SET lease_expires_at = now() - interval '1 second' WHERE status IN ('dispatched', 'in_progress')"
)
# Time passes: what waits is due, refusals are over, and a worker has come that knows what was set aside.
DUE = """
UPDATE jobs_job SET scheduled_at = now() WHERE scheduled_at > now();
DELETE FROM jobs_pauseswitch;
UPDATE jobs_job SET held = false WHERE held AND id NOT IN (SELECT owner_id FROM jobs_dependency);
UPDATE ratelimits_limit SET capacity = 100 WHERE name = 'places';
UPDATE ratelimits_counter SET blocked_until = NULL, pressure = 1 WHERE blocked_until IS NOT NULL
"""


@pytest.fixture
def queue(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr(registry, "_handlers", {**registry._handlers})
    options = {"payload": dict[str, str], "model": lambda _: "small-1", "most": lambda _: MOST}
    for kind, service in ((REPEATABLE, SERVICE), (ONCE, SERVICE), (FREE, "free")):

        @handler(kind=kind, service=service, idempotent=kind != ONCE, cost=ESTIMATE, **options)  # type: ignore[arg-type]
        async def call(job: RunningJob[dict[str, str]]) -> Done:
            return Done()

    make_project(PROJECT)
    make_project(POOR)
    RetryPolicy.objects.create(name="quick", initial_seconds=1, multiplier=1, max_delay_seconds=1, max_retries=3)
    hour = {"service": SERVICE, "scope": "project", "window_seconds": 3600}
    shape = {"algorithm": "sliding_window", **hour}
    Limit.objects.create(name="calls", unit="requests", capacity=1000, **shape)
    Limit.objects.create(name="tokens", unit="tokens", capacity=100_000, **shape)
    Limit.objects.create(
        name="places", unit="in_flight", capacity=100, algorithm="concurrency", lease_seconds=LEASE_SECONDS, **hour
    )
    for service in (SERVICE, "free"):
        for unit, amount in (("input_tokens", 2_000_000), ("output_tokens", 8_000_000)):
            Price.objects.create(
                provider=service, model="small-1", unit=unit, amount=amount, valid_from="2026-01-01T00:00Z"
            )
    create_budget(PROJECT, {"name": "pilot", "amount": 10**9, "period": "total"}, actor="user:1")
    made = Queue()
    yield made
    made.close()


@dataclass
class Queue:
    """
    Attributes:
        pump: Of the executor that carries out jobs; it is not started, so each of its steps is the test's.
        called: How often the work of each job was done, by the key by which its provider drops repetitions.
        took: By claim, the tokens that its call took, as its executor says.
    """

    project: str = PROJECT
    pump: ExecutorPump = field(init=False)
    pumps: list[ExecutorPump] = field(default_factory=list)
    called: Counter[str] = field(default_factory=Counter)
    took: dict[str, int] = field(default_factory=dict)
    under_way: list[ClaimedJob] = field(default_factory=list)

    def empty(self) -> None:
        self.run("; ".join(f"DELETE FROM {table}" for table in TOUCHED))  # noqa: S608
        self.called.clear()
        self.took.clear()

    def outside(self) -> object:
        return self.called.copy()

    def stored(self) -> object:
        with connection.cursor() as cursor:
            return cursor.execute(STORED).fetchone()

    def renew(self, jobs: Sequence[ClaimedJob]) -> None:
        self.pump._owned.update((job.id, job) for job in jobs)
        self.pump._renew()

    def begin(self) -> None:
        """Be another executor."""
        self.close()
        own = settings.QUEUEOPS
        self.pump = ExecutorPump(
            ExecutorSettings(
                slots=20,
                lease_seconds=LEASE_SECONDS,
                renew_seconds=own.renew_seconds,
                sweep_seconds=own.sweep_seconds,
                poll_seconds=1.0,
                drain_grace_seconds=1.0,
                listen=False,
            ),
            cluster_pid=os.getpid(),
        )
        self.pumps.append(self.pump)

    def case(self, prepare: Callable[[Self], Operation], recover: Callable[[Self], object] | None = None) -> Case:
        def begin() -> Operation:
            self.begin()
            operation = prepare(self)

            def carry_out() -> None:
                self.begin()  # it knows nothing of what the one before did in this world
                operation()

            return carry_out

        return Case(prepare.__name__, self, begin, partial(recover or type(self).recover, self))

    def close(self) -> None:
        for pump in self.pumps:
            os.close(pump._ears)
            os.close(pump._mouth)
            pump.loop._loop.close()
        self.pumps.clear()

    def submit(self, *kinds: str, **fields: object) -> list[UUID]:
        lines = [{"kind": kind, "payload": {}, "retry_policy": "quick", **fields} for kind in kinds]
        batch = submit_batch(lines, project_id=self.project, actor="key:test").id
        return list(Job.objects.filter(batch=batch).order_by("pk").values_list("pk", flat=True))

    def claim(self, outcomes: Sequence[Outcome] = (), *, new: bool = False) -> list[ClaimedJob]:
        """Write what has ended, and claim, as the pump does: in one commit."""
        return self.pump._write(list(outcomes), [], wanted=10, new=new)[1]

    def write(self, *outcomes: Outcome, notes: Sequence[Progress] = ()) -> set[UUID]:
        return self.pump._write(list(outcomes), list(notes), wanted=0)[0]

    def running(self, *kinds: str) -> list[ClaimedJob]:
        """Jobs whose calls were made; their ends are not written."""
        self.submit(*kinds)
        jobs = self.claim()
        assert len(jobs) == len(kinds)
        for job in jobs:
            self.call(job)
        self.under_way = jobs
        return jobs

    def call(self, job: ClaimedJob) -> None:
        self.called[job.effect_key] += 1
        self.took[job.holder] = ESTIMATE

    def succeeded(self, job: ClaimedJob) -> Succeeded:
        self.took[job.holder] = TOOK
        return Succeeded(job, job.service, '{"done": true}', 5.0, cost=TOOK, usage=USED)

    def failed(self, job: ClaimedJob, status: int, *, repeatable: bool = True, refused: bool = False) -> Failed:
        failure = Failure(
            f"http_{status}",
            "ProviderError",
            "an answer",
            status=status,
            outcome="answered",
            push_back=PushBack() if refused else None,
        )
        return Failed(job, SERVICE, "quick", repeatable=repeatable, failure=failure, duration_ms=5.0)

    def given_back(self, job: ClaimedJob, partial: str | None = None, **options: object) -> GivenBack:
        if partial is not None:
            self.took[job.holder] = TOOK
            return GivenBack(job, "goes on", partial=partial, cost=TOOK, usage=USED)
        self.took[job.holder] = ESTIMATE
        return GivenBack(job, "its executor stops", **options)  # type: ignore[arg-type]

    def recover(self) -> None:
        """What others do once an executor is gone: its leases end, and they carry on to the end."""
        self.check_log()
        self.run(AGED)
        rescue_lapsed()
        expire_waiting()
        self.carry_on()

    def carry_on(self) -> None:
        self.begin()
        for _ in range(ROUNDS):
            self.run(DUE)
            if not Job.objects.unfinished().filter(held=False).exists():
                break
            promote_due()
            claimed = self.claim() or self.claim_suspect()
            for job in claimed:
                self.call(job)
            self.write(*map(self.succeeded, claimed))

    def claim_suspect(self) -> list[ClaimedJob]:
        self.pump._role = Executor.Role.QUARANTINE
        try:
            return self.claim()
        finally:
            self.pump._role = Executor.Role.GENERAL

    def run(self, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def check(self) -> None:
        """Nothing is lost, nothing doubled, and every figure is the sum of what it counts."""
        jobs = list(Job.objects.all())
        assert jobs
        assert {job.status for job in jobs} <= TERMINAL, f"not ended: {[job.status for job in jobs]}"
        self.check_log()
        claims = claims_by_job()
        self.check_claims(jobs, claims)
        self.check_limits([claim for job in jobs if job.service == SERVICE for claim in claims.get(job.pk, [])])
        self.check_money()

    def check_log(self) -> None:
        """Also in the middle: the log folds to the rows, and the counts are theirs."""
        columns = attrgetter(*[column.name for column in fields(FoldedJob)])
        events = JobEvent.objects.order_by("job_id", "id")
        folded = {job_id: fold(lines) for job_id, lines in groupby(events, key=attrgetter("job_id"))}
        rows = {job.pk: FoldedJob(*columns(job)) for job in Job.objects.all()}
        assert folded == rows, "the log tells of other rows"
        counted: Counter[str] = Counter()
        for row in JobCount.objects.filter(project_id=self.project, batch_id=UUID(int=0)).values(*JobState.values):
            counted.update(row)
        requeued = set(DeadLetter.objects.exclude(requeued_as=None).values_list("job_id", flat=True))
        found = Counter(row.status for pk, row in rows.items() if pk not in requeued)
        assert +counted == found, f"counted are {+counted}, there are {found}"

    def check_claims(self, jobs: Sequence[Job], claims_of: Mapping[UUID, Sequence[Claim]]) -> None:
        by_key: dict[str, list[Job]] = {}  # what was requeued goes on under its key
        for job in jobs:
            by_key.setdefault(job.effect_key, []).append(job)
        for key, alike in by_key.items():
            claims = [claim for job in alike for claim in claims_of.get(job.pk, [])]
            assert len({claim.token for claim in claims}) == len(claims), "a token has two owners"
            assert all(claim.end for claim in claims), "a claim never ended"
            done = self.called[key]
            assert done or all(job.status != JobState.COMPLETED for job in alike), "nobody did what is completed"
            assert done <= len(claims), "it was done without a claim"
            assert done <= len(alike) or alike[0].kind != ONCE, "it was repeated, and may not be"

    def check_limits(self, claims: Sequence[Claim]) -> None:
        """Requests are what was claimed, tokens what calls took; what crashed took none that anybody knows."""
        assert not Charge.objects.exists(), "a charge is held by nobody"
        kept = [claim for claim in claims if claim.end and "crash_count" not in (claim.end.data or {})]
        tokens = sum(self.took.get(claim.holder, 0) for claim in kept)
        assert used() == {"calls": len(claims), "tokens": tokens, "places": 0}

    def check_money(self) -> None:
        self.check_ledger()
        assert set(Spend.objects.values_list("money", flat=True)) <= {COST, BOUND}

    def check_ledger(self) -> None:
        ledger = Spend.objects.aggregate(sum=Sum("money", default=0))["sum"]
        sums = list(BudgetPeriod.objects.values_list("spent", "held"))
        if self.project == PROJECT and ledger:
            assert sums == [(ledger, 0)], f"the ledger says {ledger}, the budget {sums}"
        assert not BudgetHold.objects.filter(lost=False).exists(), "money is held for nobody"


@dataclass
class Claim:
    """`end`: the event that ended it; None: it holds still."""

    holder: str
    token: int
    end: JobEvent | None = None


def claims_by_job() -> dict[UUID, list[Claim]]:
    found: dict[UUID, list[Claim]] = {}
    for event in JobEvent.objects.filter(event_type="state_change").order_by("id"):
        claims = found.setdefault(event.job_id, [])
        held = claims[-1] if claims and claims[-1].end is None else None
        if event.to_status == JobState.DISPATCHED:
            assert held is None, "two own it"
            token = (event.data or {})["fencing_token"]
            claims.append(Claim(holder_of(event.job_id, token), token))
        elif event.to_status != JobState.IN_PROGRESS and held:
            held.end = event
    return found


def used() -> dict[str, float]:
    """What is used of each limit, by its name."""
    rules = {rule.id: rule for rule in catalogue.rules() if rule.service == SERVICE}
    found = dict.fromkeys((rule.name for rule in rules.values()), 0.0)
    with connection.cursor() as cursor:
        [(now,)] = cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
    for counter in LimitCounter.objects.filter(limit__in=rules):
        algorithm = rules[counter.limit_id].algorithm(counter.key)
        found[rules[counter.limit_id].name] = round(
            algorithm.capacity - algorithm.open(counter.state, now).available() / MICRO, 6
        )
    return found
