"""Real connections that want the same jobs at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection, connections, transaction
from django.db.models.functions import Now

from jobs.models import Batch, Job, JobEvent
from jobs.services.claim.claim import claim_jobs, claim_new, claim_suspect, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.scan_cursor import ScanCursor
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Succeeded
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.services.upkeep.batches import finish_batches
from jobs.services.upkeep.upkeep import rescue_lapsed
from jobs.states import JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.core.errors import IdempotencyKeyReused
from tests.factories import KIND, make_batch, make_dead_letter, make_jobs, make_project
from tests.support.processes import wait_for
from tests.support.racing import at_once

pytestmark = pytest.mark.django_db(transaction=True)

EXECUTORS = 8


@pytest.mark.parametrize("wanted", [1, 7])
@pytest.mark.parametrize("projects", ["abc", "a"])
def test_eight_executors_claim_every_job_once(wanted, projects):
    ids = {job.pk for project in projects for job in make_jobs(50, project=project)}
    claims: list[ClaimedJob] = []

    def execute() -> None:
        turns, gate, heads, executor = ClassTurns(), LaneGate(), ScanCursor(lambda: 0.0), uuid4()
        while got := (
            claim_new(executor, lease_seconds=30, turns=turns, gate=gate)
            or claim_jobs(executor, wanted=wanted, lease_seconds=30, turns=turns, heads=heads)
        ):
            claims.extend(got)

    at_once(*[execute] * EXECUTORS)
    assert Counter(job.id for job in claims) == Counter(ids)
    events = JobEvent.objects.filter(job_id__in=ids, to_status="dispatched").values_list("job_id", flat=True)
    assert Counter(events) == Counter(ids)
    tokens = {job.id: job.token for job in claims}
    assert dict(Job.objects.values_list("pk", "fencing_token")) == tokens


@pytest.mark.parametrize("knows_one_queue", [False, True])
def test_an_executor_finds_work_behind_the_heads_that_another_has_locked(knows_one_queue, monkeypatch):
    monkeypatch.setattr(ScanCursor, "had_one_queue", knows_one_queue)
    make_jobs(40)
    with transaction.atomic():
        first = claim_jobs(uuid4(), wanted=10, lease_seconds=30, turns=ClassTurns())
        behind: list[ClaimedJob] = []
        # The other claim neither waits for this transaction nor takes what it holds.
        at_once(lambda: behind.extend(claim_jobs(uuid4(), wanted=10, lease_seconds=30, turns=ClassTurns())))
    assert len(first) == len(behind) == 10
    assert not {job.id for job in first} & {job.id for job in behind}


def test_an_urgent_job_that_another_looks_at_is_passed_by_and_is_the_next():
    make_jobs(5)
    [urgent] = make_jobs(1, priority="urgent")
    claims: list[UUID] = []

    def execute() -> None:
        claims.extend(job.id for job in claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns()))

    with transaction.atomic():
        Job.objects.select_for_update().get(pk=urgent.pk)
        at_once(execute)
    assert urgent.pk not in claims
    execute()
    assert len(claims) == 2
    assert claims[1] == urgent.pk


def test_quarantine_seats_claim_every_suspect_once():
    ids = {job.pk for job in make_jobs(20, crash_count=2)}
    claims: list[UUID] = []

    def execute() -> None:
        while got := claim_suspect(uuid4(), lease_seconds=30):
            claims.extend(job.id for job in got)

    at_once(*[execute] * 4)
    assert Counter(claims) == Counter(ids)


def test_every_due_job_is_promoted_once():
    ids = [job.pk for job in make_jobs(100)]
    move_jobs("park", [Move(job_id, delay_seconds=0) for job_id in ids])
    promoted: list[int] = []
    at_once(*[lambda: promoted.append(promote_due(most=30)[0])] * EXECUTORS)
    promoted.append(promote_due()[0])
    assert sum(promoted) == 100
    assert JobEvent.objects.filter(job_id__in=ids, from_status="rate_limited", to_status="queued").count() == 100


def started(count: int) -> list[ClaimedJob]:
    make_jobs(count)
    return claim_jobs(uuid4(), wanted=count, lease_seconds=30, turns=ClassTurns())


def complete(jobs: Sequence[ClaimedJob], lost: set[UUID]) -> None:
    for job in jobs:
        lost |= record_outcomes([Succeeded(job, "http", None, 1.0)], policies={}).lost


def ids_in(state: JobState) -> set[UUID]:
    return set(Job.objects.filter(status=state).values_list("pk", flat=True))


def test_a_job_is_completed_or_cancelled_and_the_loser_is_told():
    jobs, lost, cancelled = started(40), set[UUID](), set[UUID]()

    def cancel() -> None:
        for job in reversed(jobs):
            cancelled.update(cancel_jobs([job.id], actor="user:1", reason="x").moved)

    at_once(cancel, lambda: complete(jobs, lost))
    assert cancelled == lost == ids_in(JobState.CANCELLED)
    assert ids_in(JobState.COMPLETED) == {job.id for job in jobs} - cancelled


def test_a_lapsed_job_is_completed_or_rescued_and_never_both():
    jobs, lost = started(40), set[UUID]()
    Job.objects.update(lease_expires_at=Now() - timedelta(seconds=1))

    def rescue() -> None:
        while rescue_lapsed():
            pass

    at_once(rescue, rescue, lambda: complete(jobs, lost))
    rescued = set(Job.objects.filter(crash_count=1).values_list("pk", flat=True))
    assert rescued == lost == ids_in(JobState.RETRIED)
    assert ids_in(JobState.COMPLETED) == {job.id for job in jobs} - rescued
    assert JobEvent.objects.filter(job_id__in=rescued | lost, to_status="retried").count() == len(rescued)


def test_the_jobs_of_a_frozen_executor_go_to_another_and_its_late_writes_change_nothing():
    stale = started(20)
    Job.objects.update(lease_expires_at=Now() - timedelta(seconds=1))
    assert rescue_lapsed() == 20
    promote_due()
    fresh = claim_jobs(uuid4(), wanted=20, lease_seconds=30, turns=ClassTurns())
    lost_late, lost = set[UUID](), set[UUID]()
    at_once(lambda: complete(stale, lost_late), lambda: complete(fresh[::-1], lost))
    assert lost_late == {job.id for job in stale}
    assert lost == set()
    assert ids_in(JobState.COMPLETED) == {job.id for job in fresh}


def test_submits_with_one_idempotency_key_make_one_job():
    make_project()
    spec = JobSpec(kind=KIND, payload={"method": "GET", "url": "http://127.0.0.1:9/"}, idempotency_key="once")
    other = spec.model_copy(update={"payload": {"method": "GET", "url": "http://127.0.0.1:9/other"}})
    answers, refused = [], []

    def submit(wanted: JobSpec) -> None:
        try:
            answers.append(submit_job(wanted, project_id="acme", actor="key:test"))
        except IdempotencyKeyReused:
            refused.append(wanted)

    at_once(*[lambda: submit(spec)] * (EXECUTORS - 1), lambda: submit(other))
    [job] = Job.objects.all()
    assert {answer.id for answer in answers} == {job.pk}
    assert [answer.created for answer in answers].count(True) == 1
    winner, loser = (other, spec) if job.payload["url"].endswith("other") else (spec, other)
    assert refused == [loser] * (EXECUTORS - 1 if winner is other else 1)
    assert JobEvent.objects.filter(job_id=job.pk).count() == 1


def test_claims_ends_and_operators_together_leave_nothing_twice_and_nothing_behind():
    for tier in Priority:
        make_jobs(40, priority=tier)
    ended: list[UUID] = []
    policies = retry_policies()

    def execute() -> None:
        turns, executor = ClassTurns(), uuid4()
        while got := claim_jobs(executor, wanted=5, lease_seconds=30, turns=turns):
            lost = record_outcomes([Succeeded(job, "http", None, 1.0) for job in got], policies=policies).lost
            ended.extend(job.id for job in got if job.id not in lost)

    def cancel() -> None:
        for job_id in Job.objects.order_by("-id").values_list("pk", flat=True)[:40]:
            ended.extend(cancel_jobs([job_id], actor="user:1", reason="x").moved)

    at_once(*[execute] * 4, cancel)
    assert sorted(ended) == sorted(Job.objects.values_list("pk", flat=True))
    assert ids_in(JobState.COMPLETED) | ids_in(JobState.CANCELLED) == set(ended)


def test_a_batch_is_not_closed_while_a_requeue_is_adding_to_it():
    letter = make_dead_letter(batch=make_batch())

    def keep() -> None:
        finish_batches()
        connections.close_all()

    keeper = threading.Thread(target=keep)
    with transaction.atomic():
        assert requeue_dead_letters([letter.pk], actor="user:1").moved
        keeper.start()  # sees the batch ended: the new job is not committed yet
        wait_for(lambda: somebody_waits_for_a_lock() or not keeper.is_alive(), what="the keeper at the batch")
    keeper.join(timeout=20)
    assert not keeper.is_alive()
    assert Batch.objects.get().finished_at is None


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid IN (
                           SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database
                            WHERE datname = current_database()))
            """
        )
        return bool(cursor.fetchone()[0])
