"""Random histories on the real database against a model; after every step the log folds to the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import count, groupby
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobs.backoff import Policy
from jobs.classify import Failure
from jobs.features.recovery.event_fold import FoldedJob, fold
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.claim.claim import claim_jobs, claim_suspect, promote_due, renew_leases
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.snapshots import project_counts
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Progress, Succeeded
from jobs.services.operate import dead_letters, job_actions
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.services.upkeep import upkeep
from jobs.states import RUNNING, TERMINAL, WAITING, JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql
from tests.factories import KIND, make_project

pytestmark = pytest.mark.proves("R8")

S = JobState
HOUR = timedelta(hours=1)
URGENCY = {Priority.URGENT: 2, Priority.NORMAL: 1, Priority.LOW: 0}

# No jitter and an hour between attempts: what is scheduled is due only once somebody makes it so.
POLICIES = {"moderate": Policy(initial=3600, multiplier=1, max_delay=3600, max_retries=2, jitter="none", window=None)}
FAILURES = {
    "unknown": Failure("broken", "ConnectionError", "the connection broke", outcome="unknown"),
    "429": Failure("http_429", "ProviderError", "slow down", outcome="answered", status=429),
    "404": Failure("http_404", "ProviderError", "not there", outcome="answered", status=404),
}

indexes = st.integers(0, 1_000)
tiers = st.sampled_from(Priority)
numbers = count()


@dataclass
class Known:
    """What the model knows of a job."""

    id: UUID
    effect_key: str
    repeatable: bool
    priority: str
    status: str = S.QUEUED.value
    waits: str = "ready"  # or "due", "later", "no time"; only of a waiting job
    retries: int = 0
    crashes: int = 0
    deferrals: int = 0
    token: int = 0
    expired: bool = False
    lapsed: bool = False
    origin: UUID | None = None
    letter_open: bool = False
    error: str = ""
    progress: int = 0

    @property
    def is_ready(self) -> bool:
        return self.status == S.QUEUED and self.waits == "ready" and not self.expired


class Queue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.project = f"r8-{next(numbers)}"
        self.jobs: dict[UUID, Known] = {}
        self.claims: list[ClaimedJob] = []
        self.counts: Counter[str] = Counter()
        self.turns = ClassTurns(0.0)

    @initialize()
    def begin(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")  # thousands of commits, none of them to be kept
        make_project(self.project)

    def teardown(self) -> None:
        """The next history must not claim what this one leaves."""
        left = Job.objects.filter(project=self.project, status__in=WAITING | RUNNING).ids()
        move_jobs("cancel", [Move(job_id) for job_id in left])

    # The model's own moves.

    def move(self, job: Known, status: JobState, *, waits: str = "ready", error: str = "") -> None:
        self.counts[job.status] -= 1
        self.counts[status.value] += 1
        job.status, job.waits, job.lapsed = status.value, waits, False
        job.error = error or job.error
        if status == S.FAILED:
            job.letter_open = True
        elif status in {S.IN_PROGRESS, S.COMPLETED}:
            job.progress = 100 if status == S.COMPLETED else 0

    def those(self, wanted: Callable[[Known], Any]) -> list[Known]:
        return [job for job in self.jobs.values() if wanted(job)]

    def pick(self, index: int, wanted: Callable[[Known], Any] = lambda job: True) -> Known | None:
        found = self.those(wanted)
        return found[index % len(found)] if found else None

    def add(self, job_id: UUID, **given: Any) -> None:
        self.jobs[job_id] = Known(job_id, **given)
        self.counts["queued"] += 1

    # Producers.

    @rule(priority=tiers, later=st.booleans(), repeatable=st.booleans(), key=st.none() | st.sampled_from("ab"))
    def submit(self, priority: Priority, later: bool, repeatable: bool, key: str | None) -> None:
        payload = {"method": "GET" if repeatable and not key else "POST", "url": "http://127.0.0.1:9/"}
        spec = JobSpec(
            kind=KIND, payload=payload, priority=priority, delay_seconds=3600 if later else None, idempotency_key=key
        )
        known = Job.objects.filter(project=self.project, idempotency_key=key).first() if key else None
        made = submit_job(spec, project_id=self.project, actor="key:test")
        assert made.created is (known is None)
        if known is not None:
            assert made.id == known.pk
            return
        self.add(
            made.id,
            effect_key=str(made.id),
            repeatable=repeatable and not key,
            priority=priority.value,
            waits="later" if later else "ready",
        )

    @rule(index=indexes)
    def cancel(self, index: int) -> None:
        if job := self.pick(index):
            moved = job_actions.cancel_jobs([job.id], actor="user:1", reason="x").moved
            assert moved == ([job.id] if job.status not in TERMINAL else [])
            if moved:
                self.move(job, S.CANCELLED)

    @rule(index=indexes, delay=st.sampled_from([timedelta(), HOUR]))
    def schedule(self, index: int, delay: timedelta) -> None:
        if job := self.pick(index):
            moved = job_actions.schedule_jobs([job.id], delay=delay, actor="user:1").moved
            assert moved == ([job.id] if job.status in WAITING else [])
            if moved:
                job.waits = "later" if delay else "ready" if job.status == S.QUEUED else "due"

    @rule(index=indexes, priority=tiers)
    def change_priority(self, index: int, priority: Priority) -> None:
        if job := self.pick(index, lambda job: job.status in WAITING):
            job_actions.change_priority([job.id], priority=priority, actor="user:1")
            job.priority = priority.value

    # Executors.

    @rule(wanted=st.integers(1, 4))
    def claim(self, wanted: int) -> None:
        ready = self.those(lambda job: job.is_ready and job.crashes < 2)
        claimed = claim_jobs(uuid4(), wanted=wanted, lease_seconds=600, turns=self.turns)
        ids = {job.id for job in claimed}
        assert len(claimed) == len(ids) == min(wanted, len(ready))
        assert ids <= {job.id for job in ready}
        left = [URGENCY[Priority(job.priority)] for job in ready if job.id not in ids]
        taken = [URGENCY[Priority(job.priority)] for job in ready if job.id in ids]
        assert not left or not taken or min(taken) >= max(left)
        self.own(claimed)

    @precondition(lambda self: any(job.crashes >= 2 for job in self.jobs.values()))
    @rule()
    def claim_suspect(self) -> None:
        suspects = {job.id for job in self.those(lambda job: job.is_ready and job.crashes >= 2)}
        claimed = claim_suspect(uuid4(), lease_seconds=600)
        assert len(claimed) == min(1, len(suspects))
        assert {job.id for job in claimed} <= suspects
        self.own(claimed)

    def own(self, claimed: list[ClaimedJob]) -> None:
        for claim in claimed:
            job = self.jobs[claim.id]
            assert claim.token > job.token
            assert (claim.effect_key, claim.retry_count, claim.crash_count) == (
                job.effect_key,
                job.retries,
                job.crashes,
            )
            self.move(job, S.DISPATCHED)
            self.move(job, S.IN_PROGRESS)
            job.token = claim.token
        self.claims += claimed

    def owner(self, claim: ClaimedJob) -> Known | None:
        """The claim's job, if the claim still owns it."""
        job = self.jobs.get(claim.id)
        return job if job and job.token == claim.token and job.status in RUNNING else None

    @precondition(lambda self: self.claims)
    @rule()
    def heartbeat(self) -> None:
        newest = {claim.id: claim.token for claim in self.claims}
        stale = {claim.id: claim.token for claim in reversed(self.claims)}
        for owned in (newest, stale):
            owners = {claim.id for claim in self.claims if self.owner(claim) and owned[claim.id] == claim.token}
            assert renew_leases(owned, lease_seconds=600) == set(owned) - owners
            for job_id in owners:
                self.jobs[job_id].lapsed = False

    def write(self, index: int, outcome: Callable[[ClaimedJob], Outcome]) -> Known | None:
        """Write an outcome for any claim ever made; the owner's job if it was to be accepted, and was."""
        claim = self.claims[index % len(self.claims)]
        job = self.owner(claim)
        lost = record_outcomes([outcome(claim)], policies=POLICIES).lost
        assert lost == (set() if job else {claim.id})
        return job

    @precondition(lambda self: self.claims)
    @rule(index=indexes)
    def complete(self, index: int) -> None:
        if job := self.write(index, lambda claim: Succeeded(claim, "http", '{"a": 1}', 1.0)):
            self.move(job, S.COMPLETED)

    @precondition(lambda self: self.claims)
    @rule(index=indexes, failure=st.sampled_from(sorted(FAILURES)))
    def fail(self, index: int, failure: str) -> None:
        def outcome(claim: ClaimedJob) -> Outcome:
            known = self.jobs.get(claim.id)
            repeatable = known is not None and known.repeatable
            return Failed(claim, "http", "moderate", repeatable, FAILURES[failure], 1.0)

        if job := self.write(index, outcome):
            again = failure == "429" or (failure == "unknown" and job.repeatable)
            if again and job.retries < 2:
                self.move(job, S.RETRIED, waits="later", error=FAILURES[failure].code)
                job.retries += 1
            else:
                self.move(job, S.FAILED, error=FAILURES[failure].code)

    @precondition(lambda self: self.claims)
    @rule(index=indexes)
    def hand_back(self, index: int) -> None:
        if job := self.write(index, lambda claim: GivenBack(claim, "its executor stops")):
            self.move(job, S.RETRIED, waits="due")

    @precondition(lambda self: self.claims)
    @rule(index=indexes, percent=st.integers(0, 100))
    def report(self, index: int, percent: int) -> None:
        claim = self.claims[index % len(self.claims)]
        job = self.owner(claim)
        lost = record_outcomes([], [Progress(claim, percent, "on the way")], policies=POLICIES).lost
        assert lost == (set() if job else {claim.id})
        if job:
            job.progress = percent

    @rule(index=indexes, delay=st.sampled_from([None, 0.0, 3600.0]))
    def defer(self, index: int, delay: float | None) -> None:
        if job := self.pick(index):
            moved = move_jobs("park", [Move(job.id, delay_seconds=delay)], message="no room")
            assert bool(moved) is (job.status in {S.QUEUED, S.RETRIED})
            if moved:
                self.move(job, S.RATE_LIMITED, waits={None: "no time", 0.0: "due", 3600.0: "later"}[delay])
                job.deferrals += 1

    @rule(index=indexes)
    def release(self, index: int) -> None:
        if job := self.pick(index):
            moved = move_jobs("release", [Move(job.id)])
            assert bool(moved) is (job.status in {S.RATE_LIMITED, S.RETRIED})
            if moved:
                self.move(job, S.QUEUED)

    @rule(index=indexes, delay=st.sampled_from([timedelta(), HOUR]))
    def reset(self, index: int, delay: timedelta) -> None:
        if job := self.pick(index):
            moved = job_actions.reset_to_pending([job.id], delay=delay, actor="user:1").moved
            assert bool(moved) is (job.status in RUNNING)
            if moved:
                self.move(job, S.RETRIED, waits="later" if delay else "due")

    # House-keeping.

    @rule()
    def promote(self) -> None:
        due = self.those(lambda job: job.status in WAITING and job.waits == "due")
        assert promote_due()[0] == len(due)
        for job in due:
            self.move(job, S.QUEUED)

    @precondition(lambda self: any(job.status in RUNNING for job in self.jobs.values()))
    @rule(index=indexes)
    def lapse(self, index: int) -> None:
        if job := self.pick(index, lambda job: job.status in RUNNING):
            Job.objects.filter(pk=job.id).update(lease_expires_at=Now() - HOUR)
            job.lapsed = True

    @rule()
    def rescue(self) -> None:
        lapsed = self.those(lambda job: job.lapsed)
        assert upkeep.rescue_lapsed() == len(lapsed)
        for job in lapsed:
            job.crashes += 1
            if job.crashes >= 3:
                self.move(job, S.FAILED, error="poison")
            elif not job.repeatable:
                self.move(job, S.FAILED, error="outcome_unknown")
            else:
                self.move(job, S.RETRIED, waits="due")

    @rule(index=indexes)
    def expire(self, index: int) -> None:
        if job := self.pick(index):
            Job.objects.filter(pk=job.id).update(expires_at=Now() - HOUR)
            job.expired = True

    @rule()
    def bury_expired(self) -> None:
        expired = self.those(lambda job: job.status in WAITING and job.expired)
        assert upkeep.expire_waiting() == len(expired)
        for job in expired:
            self.move(job, S.FAILED, error="expired")

    @precondition(lambda self: any(job.letter_open for job in self.jobs.values()))
    @rule(index=indexes, requeue=st.booleans())
    def resolve(self, index: int, requeue: bool) -> None:
        job = self.pick(index, lambda job: job.letter_open)
        assert job is not None
        letter = DeadLetter.objects.get(job=job.id)
        job.letter_open = False
        if not requeue:
            assert dead_letters.discard_dead_letters([letter.pk], actor="user:1", reason="x").moved == [letter.pk]
            return
        new = dead_letters.requeue_dead_letters([letter.pk], actor="user:1").moved[letter.pk]
        self.counts["failed"] -= 1
        self.add(new, effect_key=job.effect_key, repeatable=job.repeatable, priority=job.priority, origin=job.id)

    @rule()
    def prune(self) -> None:
        """Everything that has ended, as if retention had passed. What is pruned stays counted."""
        needed = {job.origin for job in self.jobs.values()}
        gone = self.those(lambda job: job.status in TERMINAL and not job.letter_open and job.id not in needed)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        deleted = {row[0] for row in run_sql("jobs", "delete_finished_jobs", {"before": tomorrow, "most": 1000})}
        assert {job.id for job in gone} <= deleted
        assert not deleted & (self.jobs.keys() - {job.id for job in gone})
        for job in gone:
            del self.jobs[job.id]

    # What holds after every step.

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        rows = {row.pk: row for row in Job.objects.filter(project=self.project)}
        assert rows.keys() == self.jobs.keys()
        for job in self.jobs.values():
            row = rows[job.id]
            assert (row.status, row.priority, row.effect_key) == (job.status, job.priority, job.effect_key)
            assert (row.retry_count, row.crash_count, row.deferral_count) == (job.retries, job.crashes, job.deferrals)
            assert (row.fencing_token, row.progress, row.last_error_code) == (job.token, job.progress, job.error)
            assert row.origin_id == job.origin
            assert (row.scheduled_at is not None) is (job.status in WAITING and job.waits in {"due", "later"})
        opened = DeadLetter.objects.filter(project=self.project).open().values_list("job_id", flat=True)
        assert set(opened) == {job.id for job in self.jobs.values() if job.letter_open}

    @invariant()
    def the_log_folds_to_the_rows(self) -> None:
        events = JobEvent.objects.filter(job_id__in=self.jobs).order_by("job_id", "id")
        folded = {job_id: fold(lines) for job_id, lines in groupby(events, key=attrgetter("job_id"))}
        columns = [column.name for column in fields(FoldedJob)]
        rows = {row.pk: row for row in Job.objects.filter(project=self.project)}
        assert folded == {job_id: FoldedJob(*attrgetter(*columns)(row)) for job_id, row in rows.items()}

    @invariant()
    def the_counts_are_those_of_the_moves(self) -> None:
        counts = project_counts(self.project) if self.jobs or self.counts else {}
        assert {state: number for state, number in counts.items() if number} == +self.counts


@pytest.mark.django_db(transaction=True)
def test_random_histories_follow_the_model_and_the_log_folds_to_the_row():
    run_state_machine_as_test(
        Queue,
        settings=settings(max_examples=15, stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_long_random_histories_follow_the_model():
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=150, stateful_step_count=50, derandomize=False, suppress_health_check=list(HealthCheck)
        ),
    )
