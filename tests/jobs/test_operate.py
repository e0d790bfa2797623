"""What operators do to jobs by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from jobs.errors import InvalidDelay, NeverRuns
from jobs.models import Job, JobEvent, new_id
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.snapshots import project_counts
from jobs.services.operate import job_actions
from jobs.services.submit.documents.accept_document import TooManyJobs
from jobs.services.submit.results import MAX_BULK_JOBS
from jobs.states import RUNNING, TERMINAL, WAITING, JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.audit.models import AuditEntry
from queueops.core.values.reasons import ReasonRequired
from tests.factories import make_job, make_jobs, move_along
from tests.support.cases import every_case
from tests.support.racing import run_together

ACTOR = "user:7"
MINUTE = timedelta(minutes=1)


def last_event(job: Job) -> Any:
    return JobEvent.objects.filter(job_id=job.pk).latest("id")


def delay_of(job: Job) -> float:
    """Seconds from the transaction's time until the job may run, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM scheduled_at - updated_at)::float8 FROM jobs_job WHERE id = %s",
            [job.pk],
        )
        [seconds] = cursor.fetchone()
    return float(seconds)


@pytest.mark.django_db
@every_case("state", sorted(WAITING | RUNNING), undone=True)
def test_a_job_that_has_not_ended_can_be_cancelled(state):
    job = make_job(state=state)
    result = job_actions.cancel_jobs([job.pk], actor=ACTOR, reason="not wanted")
    job.refresh_from_db()
    assert (result.moved, result.unmoved) == ([job.pk], [])
    assert (job.status, job.lease_expires_at) == (JobState.CANCELLED, None)
    event = last_event(job)
    assert (event.from_status, event.to_status, event.message) == (state, "cancelled", "not wanted")
    assert event.data == {"actor": ACTOR}


@pytest.mark.django_db
@every_case("state", sorted(TERMINAL), undone=True)
def test_a_job_that_has_ended_is_left_alone_by_every_operation(state):
    job = make_job(state=state)
    events = JobEvent.objects.filter(job_id=job.pk).count()
    results = [
        job_actions.cancel_jobs([job.pk], actor=ACTOR, reason="late"),
        job_actions.schedule_jobs([job.pk], delay=MINUTE, actor=ACTOR),
        job_actions.reset_to_pending([job.pk], actor=ACTOR),
        job_actions.change_priority([job.pk], priority=Priority.URGENT, actor=ACTOR),
    ]
    assert [(result.moved, result.unmoved) for result in results] == [([], [job.pk])] * 4
    assert JobEvent.objects.filter(job_id=job.pk).count() == events


@pytest.mark.django_db
def test_unknown_and_repeated_ids_are_reported_once_in_the_order_given():
    first, second = make_jobs(2)
    unknown = uuid4()
    result = job_actions.cancel_jobs([second.pk, unknown, first.pk, second.pk], actor=ACTOR, reason="x")
    assert (result.moved, result.unmoved) == ([second.pk, first.pk], [unknown])


@pytest.mark.django_db
def test_a_call_writes_one_audit_entry_with_what_moved():
    jobs = make_jobs(3)
    job_actions.cancel_jobs([job.pk for job in jobs] + [uuid4()], actor=ACTOR, reason="not wanted")
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.target) == (ACTOR, "cancel_jobs", "4 jobs")
    assert (entry.moved, entry.reason, entry.project_id) == (3, "not wanted", "acme")


@pytest.mark.django_db
def test_the_audit_entry_names_no_project_when_the_jobs_are_of_several():
    jobs = [make_job(project="acme"), make_job(project="globex")]
    job_actions.cancel_jobs([job.pk for job in jobs], actor=ACTOR, reason="x")
    assert AuditEntry.objects.get().project_id == ""


@pytest.mark.django_db
@every_case("reason", ["", "  ", "\0"], undone=True)
def test_cancelling_without_a_reason_is_refused(reason):
    job = make_job()
    with pytest.raises(ReasonRequired) as caught:
        job_actions.cancel_jobs([job.pk], actor=ACTOR, reason=reason)
    assert (caught.value.code, caught.value.status) == ("reason_required", 422)
    job.refresh_from_db()
    assert job.status == JobState.QUEUED


@pytest.mark.django_db
def test_more_ids_than_one_transaction_should_lock_are_refused():
    job = make_job()
    with pytest.raises(TooManyJobs):
        job_actions.cancel_jobs([job.pk, *(new_id() for _ in range(MAX_BULK_JOBS))], actor=ACTOR, reason="x")
    job.refresh_from_db()
    assert job.status == JobState.QUEUED


@pytest.mark.django_db
@every_case("state", sorted(WAITING), undone=True)
def test_scheduling_gives_a_waiting_job_a_new_time_and_keeps_its_state_and_age(state):
    job = make_job(state=state)
    assert job_actions.schedule_jobs([job.pk], delay=MINUTE * 10, actor=ACTOR, reason="quota").moved == [job.pk]
    scheduled = Job.objects.get(pk=job.pk)
    assert delay_of(job) == 600
    assert (scheduled.status, scheduled.eligible_since) == (state, job.eligible_since)
    event = last_event(job)
    assert (event.event_type, event.from_status, event.to_status, event.message) == (
        "scheduling",
        None,
        None,
        "quota",
    )
    assert event.data["delay_seconds"] == 600
    assert event.data["actor"] == ACTOR
    assert event.data["scheduled_at"].startswith(f"{scheduled.scheduled_at:%Y-%m-%dT%H:%M}")


@pytest.mark.django_db
@every_case("state", sorted(WAITING), undone=True)
def test_scheduling_without_delay_lets_a_job_run_now(state):
    job = make_job(state=state, delay_seconds=3600 if state == JobState.QUEUED else None)
    job_actions.schedule_jobs([job.pk], delay=timedelta(), actor=ACTOR)
    job.refresh_from_db()
    if state == JobState.QUEUED:
        assert job.scheduled_at is None
    else:
        assert delay_of(job) == 0


@pytest.mark.django_db
def test_a_job_let_run_now_counts_from_now_and_goes_before_those_that_come_after_it():
    later = make_job(delay_seconds=3600)
    job_actions.schedule_jobs([later.pk], delay=timedelta(), actor=ACTOR)
    after = make_job()
    claimed = claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns())
    assert [(job.id, job.waited) for job in claimed] == [(later.pk, 0), (after.pk, 0)]


@pytest.mark.django_db
@every_case("hours", [0.5, 2], undone=True)
def test_a_job_that_has_not_begun_to_wait_begins_at_its_new_time(hours):
    job = make_job(delay_seconds=3600)
    job_actions.schedule_jobs([job.pk], delay=timedelta(hours=hours), actor=ACTOR)
    job.refresh_from_db()
    assert job.eligible_since == job.scheduled_at
    assert delay_of(job) == hours * 3600


@pytest.mark.django_db
@every_case("state", sorted(RUNNING), undone=True)
def test_scheduling_leaves_a_running_job_to_reset(state):
    job = make_job(state=state)
    assert job_actions.schedule_jobs([job.pk], delay=MINUTE, actor=ACTOR).unmoved == [job.pk]


@pytest.mark.django_db
@every_case("delay", [timedelta(seconds=-1), timedelta(days=10_000)], undone=True)
def test_a_delay_out_of_range_is_refused(delay):
    job = make_job()
    with pytest.raises(InvalidDelay):
        job_actions.schedule_jobs([job.pk], delay=delay, actor=ACTOR)
    with pytest.raises(InvalidDelay):
        job_actions.reset_to_pending([job.pk], delay=delay, actor=ACTOR)


@pytest.mark.django_db
@every_case(
    ("state", "delay", "seconds"),
    [(state, delay, seconds) for state in sorted(RUNNING) for delay, seconds in [(None, 0), (MINUTE, 60)]],
    undone=True,
)
def test_a_reset_takes_a_running_job_back_without_consuming_an_attempt(state, delay, seconds):
    job = make_job(state=state)
    assert job_actions.reset_to_pending([job.pk], delay=delay, reason="stuck", actor=ACTOR).moved == [job.pk]
    reset = Job.objects.get(pk=job.pk)
    assert (reset.status, reset.lease_expires_at) == (JobState.RETRIED, None)
    assert (reset.retry_count, reset.crash_count, reset.deferral_count) == (0, 0, 0)
    assert delay_of(job) == seconds
    assert last_event(job).data["actor"] == ACTOR


@pytest.mark.django_db
def test_the_executor_that_a_job_was_taken_from_can_not_complete_it():
    job = make_job(state=JobState.IN_PROGRESS)
    job_actions.reset_to_pending([job.pk], actor=ACTOR)
    late = Move(job.pk, token=job.fencing_token)
    assert move_jobs("complete", [late]) == set()
    move_jobs("release", [Move(job.pk)])
    move_along("dispatch", [job.pk])
    move_along("start", [job.pk])
    assert move_jobs("complete", [late]) == set()


@pytest.mark.django_db
@every_case("state", sorted(WAITING), undone=True)
def test_a_waiting_job_takes_another_priority_and_keeps_its_age(state):
    job = make_job(state=state)
    assert job_actions.change_priority([job.pk], priority=Priority.URGENT, actor=ACTOR).moved == [job.pk]
    changed = Job.objects.get(pk=job.pk)
    assert (changed.priority, changed.status, changed.eligible_since) == ("urgent", state, job.eligible_since)
    event = last_event(job)
    assert event.event_type == "audit"
    assert event.data == {"from_priority": "normal", "priority": "urgent", "actor": ACTOR}
    assert job_actions.change_priority([job.pk], priority=Priority.URGENT, actor=ACTOR).unmoved == [job.pk]


@pytest.mark.django_db
def test_counts_follow_operations():
    waiting, running = make_jobs(3), make_jobs(2, state=JobState.IN_PROGRESS)
    job_actions.cancel_jobs([waiting[0].pk], actor=ACTOR, reason="x")
    job_actions.reset_to_pending([running[0].pk], actor=ACTOR)
    counts = {state: count for state, count in project_counts("acme").items() if count}
    assert counts == {"queued": 2, "cancelled": 1, "retried": 1, "in_progress": 1}


@pytest.mark.django_db(transaction=True)
def test_executors_are_told_at_commit_that_running_jobs_were_taken_from_them():
    job = make_job(state=JobState.IN_PROGRESS)
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}, autocommit=True) as listener:
        listener.execute("LISTEN queueops_cancel")
        with transaction.atomic():
            job_actions.cancel_jobs([job.pk], actor=ACTOR, reason="x")
            assert list(listener.notifies(timeout=0, stop_after=1)) == []
        [notice] = listener.notifies(timeout=10, stop_after=1)
        assert notice.channel == "queueops_cancel"


@pytest.mark.django_db(transaction=True)
def test_a_job_is_either_cancelled_or_completed_when_both_come_at_once():
    jobs = make_jobs(30, state=JobState.IN_PROGRESS)

    def cancel() -> set[UUID]:
        moved = [job_actions.cancel_jobs([job.pk], actor=ACTOR, reason="x").moved for job in reversed(jobs)]
        return {one for some in moved for one in some}

    def complete() -> set[UUID]:
        won: set[UUID] = set()
        for job in jobs:
            with transaction.atomic():
                won |= move_jobs("complete", [Move(job.pk, token=job.fencing_token)])
        return won

    cancelled, completed = run_together(2, lambda number: (cancel, complete)[number]())
    assert cancelled | completed == {job.pk for job in jobs}
    assert not cancelled & completed
    for status, ids in {"cancelled": cancelled, "completed": completed}.items():
        assert set(Job.objects.filter(status=status).values_list("pk", flat=True)) == ids


@pytest.mark.django_db(transaction=True)
def test_calls_over_the_same_jobs_in_opposite_orders_do_not_deadlock():
    ids = [job.pk for job in make_jobs(200)]
    priorities = [Priority.LOW, Priority.URGENT]

    def change(number: int) -> int:
        order, wanted = (ids[::-1], priorities[::-1]) if number else (ids, priorities)
        return len([job_actions.change_priority(order, priority=priority, actor=ACTOR) for priority in wanted * 10])

    assert run_together(2, change) == [20, 20]


@pytest.mark.django_db
@pytest.mark.parametrize("act", [job_actions.schedule_jobs, job_actions.reset_to_pending])
def test_a_delay_beyond_a_jobs_expiry_is_refused_and_changes_none(act):
    state = JobState.QUEUED if act is job_actions.schedule_jobs else JobState.IN_PROGRESS
    job, lasting = (make_job(state=state, expires_at=timezone.now() + hours) for hours in (MINUTE * 60, MINUTE * 600))
    with pytest.raises(NeverRuns) as refused:
        act([job.pk, lasting.pk], delay=MINUTE * 61, actor=ACTOR)
    assert (refused.value.code, refused.value.details["ids"]) == ("would_expire", [str(job.pk)])
    assert set(Job.objects.values_list("status", "scheduled_at")) == {(state, None)}
    assert act([job.pk, lasting.pk], delay=MINUTE * 59, actor=ACTOR).unmoved == []


@pytest.mark.django_db
def test_a_bulk_delay_leaves_out_jobs_that_expire_before():
    job, lasting = (make_job(expires_at=timezone.now() + MINUTE * minutes) for minutes in (60, 600))
    moved = job_actions.carry_out_schedule([job.pk, lasting.pk], seconds=3660.0, actor=ACTOR, reason="")
    assert moved == {lasting.pk}
    assert Job.objects.get(pk=job.pk).scheduled_at is None
