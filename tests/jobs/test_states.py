"""The state machine: the table, the function that applies it, and the database's guard agree."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from jobs.models import Job, JobEvent
from jobs.models.guard import guard_sql
from jobs.services.explain.snapshots import project_counts
from jobs.states import LEGAL_MOVES, RUNNING, TERMINAL, TRANSITIONS, WAITING, JobState
from jobs.transitions import Lease, Move, move_jobs
from tests.factories import make_job
from tests.support.cases import every_case

S = JobState

SPECIFIED: dict[JobState, set[JobState]] = {
    S.QUEUED: {S.RATE_LIMITED, S.DISPATCHED, S.RETRIED},
    S.RATE_LIMITED: {S.QUEUED, S.DISPATCHED, S.RETRIED},
    S.DISPATCHED: {S.IN_PROGRESS, S.RETRIED, S.FAILED},
    S.IN_PROGRESS: {S.RETRIED, S.COMPLETED, S.FAILED},
    S.RETRIED: {S.QUEUED, S.RATE_LIMITED, S.DISPATCHED},
    S.COMPLETED: set(),
    S.FAILED: set(),
    S.CANCELLED: set(),
}

# These give a lease: tests/jobs/test_claim.py.
MOVABLE = sorted(TRANSITIONS.keys() - {"claim", "dispatch"})


def move_of(edge: str, job: Job, *, token: int | None = None) -> Move:
    delay = 60.0 if TRANSITIONS[edge].target == S.RETRIED else None
    return Move(job.pk, token=job.fencing_token if token is None else token, delay_seconds=delay)


def test_the_table_is_the_specifications():
    specified = {(source, target) for source, targets in SPECIFIED.items() for target in targets}
    ours = {(source, S.FAILED) for source in WAITING} | {(source, S.CANCELLED) for source in WAITING | RUNNING}
    through_dispatched = {(source, S.IN_PROGRESS) for source in WAITING}  # in one version of the row
    reconciled = {(source, S.COMPLETED) for source in WAITING}  # it was done before a restore to an earlier moment
    assert specified | ours | through_dispatched | reconciled == LEGAL_MOVES
    assert set(JobState) == WAITING | RUNNING | TERMINAL


@pytest.mark.django_db
@every_case(("state", "edge"), [(state, edge) for state in JobState for edge in MOVABLE], undone=True)
def test_a_job_moves_only_along_an_edge_of_the_table(edge, state):
    transition = TRANSITIONS[edge]
    job = make_job(state=state)
    logged = JobEvent.objects.filter(job_id=job.pk).count()
    moved = move_jobs(edge, [move_of(edge, job)], message="why")
    after = Job.objects.get(pk=job.pk)
    events = list(JobEvent.objects.filter(job_id=job.pk).order_by("id"))[logged:]
    if state not in transition.sources:
        assert (moved, events) == (set(), [])
        assert (after.status, after.updated_at) == (state, job.updated_at)
        return
    assert moved == {job.pk}
    assert after.status == transition.target
    assert [(event.event_type, event.from_status, event.to_status, event.message) for event in events] == [
        ("state_change", state, transition.target, "why")
    ]
    assert after.retry_count - job.retry_count == int(transition.consumes_attempt)
    assert after.crash_count - job.crash_count == int(transition.counts_crash)
    assert after.deferral_count - job.deferral_count == int(transition.counts_deferral)


@pytest.mark.django_db
@every_case("edge", MOVABLE, undone=True)
def test_only_the_owner_of_the_lease_takes_an_edge_that_needs_it(edge):
    transition = TRANSITIONS[edge]
    for state in transition.sources:
        job = make_job(state=state)
        moved = move_jobs(edge, [move_of(edge, job, token=job.fencing_token + 1)])
        assert moved == (set() if transition.needs_lease else {job.pk})
        without_token = Move(job.pk, delay_seconds=60.0)
        if transition.needs_lease:
            assert move_jobs(edge, [without_token]) == set()


@pytest.mark.django_db
@every_case("state", JobState, undone=True)
def test_a_claim_is_one_move_that_the_log_tells_in_two_steps(state):
    job, executor = make_job(state=state), uuid4()
    logged = JobEvent.objects.filter(job_id=job.pk).count()
    token = job.fencing_token + 7
    moved = move_jobs("claim", [Move(job.pk, token=token, data='{"fencing_token": 7}')], lease=Lease(executor, 30))
    after = Job.objects.get(pk=job.pk)
    events = list(JobEvent.objects.filter(job_id=job.pk).order_by("id"))[logged:]
    if state not in WAITING:
        assert (moved, events, after.updated_at) == (set(), [], job.updated_at)
        return
    assert moved == {job.pk}
    assert [(event.from_status, event.to_status, event.data) for event in events] == [
        (state, "dispatched", {"fencing_token": 7}),
        ("dispatched", "in_progress", None),
    ]
    assert (after.status, after.executor, after.fencing_token) == ("in_progress", executor, token)
    assert after.started_at == after.first_attempt_at == after.updated_at == events[0].created_at
    assert after.started_at is not None
    assert after.lease_expires_at == after.started_at + timedelta(seconds=30)
    assert +Counter(project_counts("acme")) == {S.IN_PROGRESS: 1}


def test_every_end_that_an_executor_reports_needs_its_lease():
    assert {edge for edge, transition in TRANSITIONS.items() if transition.needs_lease} == {
        "start", "complete", "retry", "hand_back", "fail",
    }  # fmt: skip


@pytest.mark.django_db
@every_case(("source", "target"), [(source, target) for source in JobState for target in JobState], undone=True)
def test_the_database_refuses_every_move_that_is_not_in_the_table(source, target):
    job = make_job(state=source)
    update = """
        UPDATE jobs_job SET status = %(target)s,
               lease_expires_at = CASE WHEN %(target)s IN ('dispatched', 'in_progress') THEN now() END,
               finished_at = CASE WHEN %(target)s IN ('completed', 'failed', 'cancelled') THEN now() END,
               scheduled_at = CASE WHEN %(target)s = 'retried' THEN now() END
         WHERE id = %(id)s
    """

    def write() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(update, {"target": target.value, "id": job.pk})

    if source == target or (source, target) in LEGAL_MOVES:
        write()
        assert Job.objects.get(pk=job.pk).status == target
    else:
        with pytest.raises(IntegrityError, match="illegal transition") as caught:
            write()
        assert isinstance(caught.value.__cause__, psycopg.errors.CheckViolation)
        assert caught.value.__cause__.diag.constraint_name == "jobs_job_legal_transition"
        assert Job.objects.get(pk=job.pk).status == source


@pytest.mark.django_db
@every_case("state", sorted(set(JobState) - {S.QUEUED}), undone=True)
def test_the_database_takes_no_job_that_does_not_begin_queued(state):
    job = make_job()
    job.pk = None
    job.status = state
    with pytest.raises(IntegrityError, match=r"\(new\) to"), transaction.atomic():
        job.save(force_insert=True)


@pytest.mark.django_db
def test_the_installed_guard_is_the_tables():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger"
            " WHERE tgrelid = 'jobs_job'::regclass AND NOT tgisinternal"
        )
        installed = {name: (enabled, definition) for name, enabled, definition in cursor.fetchall()}
    texts = {"jobs_job_forgets_text", "jobs_job_payload_text"}  # of rows that the release before writes
    assert set(installed) - texts == set(re.findall(r"TRIGGER (\w+) BEFORE", guard_sql()))
    assert {enabled for enabled, _ in installed.values()} == {"O"}
    definition = installed["jobs_job_legal_transition"][1]
    words = re.findall(r"'(\w+)'", definition)
    pairs = set(zip(words[::2], words[1::2], strict=True))
    assert pairs == {(source.value, target.value) for source, target in LEGAL_MOVES}
    assert pairs == set(re.findall(r"\('(\w+)', '(\w+)'\)", guard_sql()))


@pytest.mark.django_db
@every_case(
    ("name", "columns"),
    [
        ("jobs_job_lease_while_running", "lease_expires_at = now()"),
        ("jobs_job_finished_when_terminal", "finished_at = now()"),
        ("jobs_job_retried_has_a_time", "status = 'retried', scheduled_at = NULL"),
        ("jobs_job_progress_percent", "progress = 101"),
    ],
    undone=True,
)
def test_a_row_can_not_contradict_its_state(name, columns):
    job = make_job()
    with pytest.raises(IntegrityError, match=name), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobs_job SET {columns} WHERE id = %s", [job.pk])  # noqa: S608 (our own text)


@pytest.mark.proves("S15")
@pytest.mark.django_db
def test_the_log_is_append_only():
    make_job()
    with pytest.raises(Exception, match="append-only"), transaction.atomic():
        JobEvent.objects.update(message="rewritten")
