"""Operators' actions over many rows, in chunks."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from jobs.errors import InvalidDelay, InvalidFilter, InvalidPace, UnknownBatch, UnknownBulkOperation
from jobs.models import BulkOperation, DeadLetter, Job, JobEvent
from jobs.services.operate import bulk, bulk_run
from jobs.services.operate.bulk_actions import ACTIONS
from jobs.services.operate.bulk_outcome import failed_again, requeue_outcome
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.submit.spec import InvalidJob
from jobs.states import JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.audit.models import AuditEntry
from queueops.core.values.reasons import ReasonRequired
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs, move_along
from tests.support.cases import every_case
from tests.support.processes import database_url, started, wait_for
from tests.support.racing import waiting_for

ACTOR = "user:7"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch) -> None:
    monkeypatch.setattr(bulk_run, "BULK_CHUNK", 10)


@pytest.fixture
def handed_out(monkeypatch) -> list[UUID]:
    """Ids that would go to the task queue; the tests carry the chunks out themselves."""
    ids: list[UUID] = []
    monkeypatch.setattr(bulk_run, "_hand_out", ids.append)
    return ids


def run_to_the_end(operation: BulkOperation) -> BulkOperation:
    while bulk_run.run_bulk_chunk(operation.pk):
        pass
    operation.refresh_from_db()
    return operation


@pytest.mark.django_db
def test_a_bulk_requeue_takes_every_open_dead_letter_of_the_filter_chunk_by_chunk():
    letters = make_dead_letters(25, fingerprint="a" * 32)
    other, resolved = make_dead_letter(fingerprint="b" * 32), make_dead_letter(fingerprint="a" * 32)
    requeue_dead_letters([resolved.pk], actor="user:1")
    operation = bulk.start_bulk_requeue({"fingerprint": "a" * 32}, actor=ACTOR, note="fixed")
    assert (operation.total, operation.done, operation.status) == (25, 0, "running")
    assert bulk_run.run_bulk_chunk(operation.pk)
    operation.refresh_from_db()
    assert (operation.done, operation.cursor) == (10, letters[9].pk)
    run_to_the_end(operation)
    assert (operation.done, operation.skipped, operation.status) == (25, 0, "done")
    assert operation.finished_at is not None
    assert list(DeadLetter.objects.open()) == [other]
    assert Job.objects.filter(origin__in=[letter.job_id for letter in letters]).count() == 25


@pytest.mark.django_db
@every_case(
    ("field", "value"),
    [("kind", "a.kind"), ("service", "elsewhere"), ("error_code", "forbidden"), ("project", "globex")],
    undone=True,
)
def test_a_filter_means_the_dead_letters_that_fit(field, value):
    wanted = make_dead_letter(**{field: value})
    make_dead_letter()
    given = {"project_id" if field == "project" else field: value}
    operation = run_to_the_end(bulk.start_bulk_discard(given, actor=ACTOR, reason="x"))
    assert (operation.total, operation.done) == (1, 1)
    wanted.refresh_from_db()
    assert wanted.resolution == "discarded"


@pytest.mark.django_db
def test_a_filter_may_name_times_a_batch_and_ids():
    batch = make_batch()
    inside, outside = make_dead_letter(batch=batch), make_dead_letter()
    old = make_dead_letter(created_at="2020-05-05T00:00:00Z")

    def total(**given: object) -> int:
        return bulk.start_bulk_discard(given, actor=ACTOR, reason="x").total

    assert total(batch_id=str(batch.pk)) == 1
    assert total(created_until="2020-06-01T00:00:00Z") == 1
    assert total(created_from="2020-06-01T00:00:00Z") == 2
    assert total(ids=[str(inside.pk), str(outside.pk), str(uuid4())]) == 2
    assert total(ids=[]) == 0
    assert total() == 3
    assert old.resolution is None


@pytest.mark.django_db
@pytest.mark.parametrize("given", [{"kinds": "x"}, {"batch_id": "no uuid"}, {"created_from": "2020-01-01"}])
def test_a_filter_that_is_not_understood_starts_nothing(given):
    with pytest.raises(InvalidFilter) as caught:
        bulk.start_bulk_requeue(given, actor=ACTOR)
    assert list(caught.value.fields) == list(given)
    assert not BulkOperation.objects.exists()


@pytest.mark.django_db
def test_dead_letters_of_the_requeued_jobs_are_not_requeued_again():
    letters = make_dead_letters(10)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    assert bulk_run.run_bulk_chunk(operation.pk)
    new = list(Job.objects.filter(origin__in=[letter.job_id for letter in letters]))
    move_jobs("reject", [Move(job.pk) for job in new])
    DeadLetter.objects.bulk_create(
        DeadLetter(
            job=job, project_id=job.project_id, kind=job.kind, service=job.service, payload=job.payload,
            error_code="x", error_class="x", error_message="x", remediation="x", attempts=[], retry_count=0,
            crash_count=0, fingerprint="f" * 32,
        )
        for job in new
    )  # fmt: skip
    run_to_the_end(operation)
    assert (operation.done, operation.skipped) == (10, 0)
    assert DeadLetter.objects.open().count() == 10


@pytest.mark.django_db
def test_rows_that_somebody_else_resolved_meanwhile_are_counted_as_skipped(monkeypatch):
    letters = make_dead_letters(3)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    action = ACTIONS[operation.action]

    def chosen_before_another_operator(*args):
        chunk = action.choose(*args)
        requeue_dead_letters([letters[1].pk], actor="user:1")
        return chunk

    monkeypatch.setitem(ACTIONS, operation.action, replace(action, choose=chosen_before_another_operator))
    run_to_the_end(operation)
    assert (operation.total, operation.done, operation.skipped) == (3, 2, 1)


@pytest.mark.django_db
def test_a_spread_requeues_little_by_little_and_lets_the_jobs_of_a_chunk_start_one_by_one():
    letters = make_dead_letters(40)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR, spread_seconds=200)  # one every 5 s: a row a chunk
    assert bulk_run.run_bulk_chunk(operation.pk)
    assert DeadLetter.objects.open().count() == 39
    assert 3 < bulk_run.seconds_until_due(operation.pk) <= 5
    faster = bulk.start_bulk_requeue({}, actor=ACTOR, spread_seconds=19.5)  # two a second: ten rows a chunk
    assert bulk_run.run_bulk_chunk(faster.pk)
    new = {job.origin_id: job.eligible_since for job in Job.objects.filter(origin__isnull=False)}
    starts = [new[letter.job_id] for letter in letters[1:11]]
    assert [(start - starts[0]).total_seconds() for start in starts] == [0.5 * i for i in range(10)]
    assert DeadLetter.objects.open().count() == 29


@pytest.mark.django_db
def test_a_late_chunk_does_not_slow_an_operation_and_missed_time_comes_in_no_burst():
    make_dead_letters(40)
    operation = bulk.start_bulk_discard({}, actor=ACTOR, reason="x", rows_per_minute=120)  # ten rows each 5 s

    def due_after(*, late_by: timedelta) -> float:
        BulkOperation.objects.update(next_at=Now() - late_by)
        bulk_run.run_bulk_chunk(operation.pk)
        return bulk_run.seconds_until_due(operation.pk)

    assert 2 < due_after(late_by=timedelta(seconds=2)) <= 3
    assert due_after(late_by=timedelta(hours=1)) < 1
    bulk_run.run_bulk_chunk(operation.pk)
    assert bulk_run.seconds_until_due(operation.pk) > 4  # the hour is not made up for


@pytest.mark.django_db
def test_a_pace_has_a_ceiling_and_a_floor():
    make_dead_letters(3)
    assert bulk.start_bulk_requeue({}, actor=ACTOR).rows_per_minute == bulk_run.MAX_ROWS_PER_MINUTE
    greedy = bulk.start_bulk_discard({}, actor=ACTOR, reason="x", rows_per_minute=1e9)
    assert greedy.rows_per_minute == bulk_run.MAX_ROWS_PER_MINUTE
    both = bulk.start_bulk_requeue({}, actor=ACTOR, spread_seconds=60, rows_per_minute=2)
    assert both.rows_per_minute == 2
    with pytest.raises(InvalidPace):
        bulk.start_bulk_requeue({}, actor=ACTOR, rows_per_minute=0)
    for percent in (100, -1):
        with pytest.raises(InvalidPace):
            bulk.start_bulk_requeue({}, actor=ACTOR, stop_at_failed_percent=percent)


@pytest.mark.django_db
def test_a_requeue_stops_when_too_many_of_its_jobs_fail_again():
    make_dead_letters(60)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR, stop_at_failed_percent=50)
    for _ in range(3):
        assert bulk_run.run_bulk_chunk(operation.pk)
    new = list(Job.objects.filter(origin__isnull=False).order_by("pk").ids())
    move_along("dispatch", new[:22])
    move_along("start", new[:22])
    move_along("complete", new[:11])
    move_along("fail", new[11:19])
    assert bulk_run.run_bulk_chunk(operation.pk)  # nineteen ended: too few to tell
    move_along("fail", new[19:22])
    assert bulk_run.run_bulk_chunk(operation.pk)  # eleven of 22 is not more than half
    move_along("dispatch", new[22:23])
    move_along("start", new[22:23])
    move_along("fail", new[22:23])
    assert not bulk_run.run_bulk_chunk(operation.pk)
    operation.refresh_from_db()
    assert (operation.status, operation.done) == ("failed", 50)
    assert "12 of the 23" in operation.error
    assert DeadLetter.objects.open().count() == 10
    outcome = requeue_outcome(operation.pk)
    assert (outcome.requeued, outcome.completed, outcome.failed, outcome.unfinished) == (50, 11, 12, 27)


@pytest.mark.django_db
def test_a_task_of_an_earlier_turn_does_nothing(handed_out):
    make_dead_letters(25)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    BulkOperation.objects.update(turn=2)
    assert not bulk_run.run_bulk_chunk(operation.pk, turn=1)
    assert DeadLetter.objects.open().count() == 25
    assert bulk_run.run_bulk_chunk(operation.pk, turn=2)
    assert DeadLetter.objects.open().count() == 15


@pytest.mark.django_db
def test_an_edited_payload_is_checked_against_every_kind_before_anything_starts():
    make_dead_letter()
    with pytest.raises(InvalidJob):
        bulk.start_bulk_requeue({}, actor=ACTOR, payload={"url": 7})
    with pytest.raises(InvalidDelay):
        bulk.start_bulk_requeue({}, actor=ACTOR, spread_seconds=-1)
    assert not BulkOperation.objects.exists()


@pytest.mark.django_db
def test_an_expected_error_in_a_chunk_ends_the_operation_and_says_why():
    make_dead_letters(12)
    good = {"method": "GET", "url": "http://127.0.0.1:9/edited"}
    operation = bulk.start_bulk_requeue({}, actor=ACTOR, payload=good)
    assert bulk_run.run_bulk_chunk(operation.pk)
    BulkOperation.objects.update(parameters={**operation.parameters, "payload": {"url": 7}})
    run_to_the_end(operation)
    assert (operation.status, operation.done) == ("failed", 10)
    assert "payload" in operation.error
    assert DeadLetter.objects.open().count() == 2


@pytest.mark.django_db
def test_a_cancelled_operation_keeps_what_was_done_and_does_no_more():
    make_dead_letters(25)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    bulk_run.run_bulk_chunk(operation.pk)
    cancelled = bulk_run.cancel_bulk(operation.pk, actor="user:8", reason="wrong filter")
    assert (cancelled.status, cancelled.done) == ("cancelled", 10)
    assert not bulk_run.run_bulk_chunk(operation.pk)
    assert DeadLetter.objects.open().count() == 15
    again = bulk_run.cancel_bulk(operation.pk, actor="user:9")
    assert again.finished_at == cancelled.finished_at


@pytest.mark.django_db
def test_only_the_oldest_so_many_are_requeued():
    letters = make_dead_letters(25)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR, most=12)
    assert operation.total == 12
    run_to_the_end(operation)
    assert (operation.done, operation.total, operation.status) == (12, 12, "done")
    assert [letter.pk for letter in DeadLetter.objects.open().order_by("pk")] == [one.pk for one in letters[12:]]


@pytest.mark.django_db
@pytest.mark.parametrize("most", [None, 22])
def test_what_a_stopped_operation_left_is_done_by_one_that_goes_on(most: int | None):
    letters = make_dead_letters(25)
    stopped = bulk.start_bulk_requeue({}, actor=ACTOR, most=most, rows_per_minute=6_000, stop_at_failed_percent=40)
    bulk_run.run_bulk_chunk(stopped.pk)
    assert bulk_run.go_on(stopped.pk, actor=ACTOR) is None, "it runs"
    bulk_run.cancel_bulk(stopped.pk, actor=ACTOR)
    later = make_dead_letter()
    going_on = bulk_run.go_on(stopped.pk, actor="user:8", reason="it was not that")
    assert going_on is not None
    wanted = most or 25
    assert (going_on.total, going_on.rows_per_minute, going_on.stop_at_failed_percent) == (wanted - 10, 6_000, 40)
    run_to_the_end(going_on)
    assert (going_on.done, going_on.actor, going_on.status) == (wanted - 10, "user:8", "done")
    left = {letter.pk for letter in letters[wanted:]} | {later.pk}
    assert set(DeadLetter.objects.open().values_list("pk", flat=True)) == left
    assert bulk_run.go_on(going_on.pk, actor=ACTOR) is None, "it is done"


@pytest.mark.django_db
def test_what_goes_on_leaves_the_rows_alone_that_were_gone_through_before():
    jobs = make_jobs(25)
    stopped = bulk.start_bulk_schedule({}, delay=timedelta(hours=1), actor=ACTOR)
    bulk_run.run_bulk_chunk(stopped.pk)
    bulk_run.cancel_bulk(stopped.pk, actor=ACTOR)
    going_on = bulk_run.go_on(stopped.pk, actor=ACTOR)
    assert going_on is not None
    run_to_the_end(going_on)
    assert (going_on.done, going_on.total) == (15, 15)
    assert JobEvent.objects.filter(event_type="scheduling").count() == len(jobs)


@pytest.mark.django_db
def test_those_that_failed_again_are_named():
    make_dead_letters(3)
    operation = run_to_the_end(bulk.start_bulk_requeue({}, actor=ACTOR))
    again = make_dead_letters(2)
    for letter, job in zip(again, Job.objects.filter(origin__isnull=False), strict=False):
        DeadLetter.objects.filter(pk=letter.pk).update(job=job)
    assert {letter.pk for letter in failed_again(operation.pk, most=9)} == {letter.pk for letter in again}
    assert len(failed_again(operation.pk, most=1)) == 1


@pytest.mark.django_db
def test_an_operation_is_audited_when_it_starts_and_when_it_ends():
    make_dead_letters(12, project="globex")
    operation = bulk.start_bulk_discard({"project_id": "globex"}, actor=ACTOR, reason="duplicates")
    run_to_the_end(operation)
    entries = AuditEntry.objects.order_by("id")
    assert list(entries.values_list("after__operation", "moved")) == [("start", 0), ("done", 12)]
    assert {(entry.actor, entry.action, entry.target, entry.reason, entry.project_id) for entry in entries} == {
        (ACTOR, "bulk_discard_dead_letters", f"bulk operation {operation.pk}", "duplicates", "globex")
    }


@pytest.mark.django_db
def test_cancelling_a_batch_ends_every_job_that_has_not_ended():
    batch = make_batch()
    make_jobs(12, batch=batch)
    make_jobs(2, batch=batch, state=JobState.IN_PROGRESS)
    done, other = make_job(batch=batch, state=JobState.COMPLETED), make_job()
    operation = run_to_the_end(bulk.cancel_batch(batch.pk, actor=ACTOR, reason="wrong data"))
    assert (operation.total, operation.done, operation.status) == (14, 14, "done")
    assert Job.objects.filter(batch=batch, status=JobState.CANCELLED).count() == 14
    assert Job.objects.get(pk=done.pk).status == JobState.COMPLETED
    assert Job.objects.get(pk=other.pk).status == JobState.QUEUED


@pytest.mark.django_db
def test_a_batch_takes_another_priority():
    batch = make_batch()
    make_jobs(12, batch=batch)
    make_jobs(3, batch=batch, priority=Priority.URGENT)
    operation = run_to_the_end(bulk.change_batch_priority(batch.pk, priority=Priority.URGENT, actor=ACTOR))
    assert (operation.total, operation.done, operation.skipped) == (15, 12, 3)
    assert set(Job.objects.values_list("priority", flat=True)) == {"urgent"}


@pytest.mark.django_db
def test_retrying_a_batch_requeues_its_own_dead_letters():
    batch = make_batch()
    make_dead_letters(12, batch=batch)
    other = make_dead_letter()
    operation = run_to_the_end(bulk.retry_failed(batch.pk, actor=ACTOR))
    assert (operation.total, operation.done) == (12, 12)
    assert list(DeadLetter.objects.open()) == [other]


@pytest.mark.django_db
def test_what_does_not_exist_is_said_to():
    with pytest.raises(UnknownBatch):
        bulk.cancel_batch(uuid4(), actor=ACTOR, reason="x")
    with pytest.raises(UnknownBatch):
        bulk.retry_failed(uuid4(), actor=ACTOR)
    with pytest.raises(UnknownBulkOperation):
        bulk_run.run_bulk_chunk(uuid4())
    with pytest.raises(UnknownBulkOperation):
        bulk_run.cancel_bulk(uuid4(), actor=ACTOR)


@pytest.mark.django_db
def test_ending_work_in_bulk_needs_a_reason():
    with pytest.raises(ReasonRequired):
        bulk.start_bulk_discard({}, actor=ACTOR, reason="")
    with pytest.raises(ReasonRequired):
        bulk.cancel_batch(make_batch().pk, actor=ACTOR, reason="")
    assert not BulkOperation.objects.exists()


@pytest.mark.django_db
def test_an_operation_is_handed_out_when_its_start_is_committed(handed_out, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        operation = bulk.start_bulk_requeue({}, actor=ACTOR)
        assert handed_out == []
    assert handed_out == [operation.pk]


@pytest.mark.django_db
def test_only_an_operation_of_which_nothing_was_heard_is_handed_out_again(handed_out):
    stalled, alive, ended = (bulk.start_bulk_requeue({}, actor=ACTOR) for _ in range(3))
    bulk_run.run_bulk_chunk(ended.pk)
    BulkOperation.objects.exclude(pk=alive.pk).update(updated_at=Now() - timedelta(hours=1))
    assert bulk_run.restart_stalled_operations() == [stalled.pk]
    assert handed_out == [stalled.pk]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("action", "parameters"),
    [
        ("requeue_dead_letters", {}),
        ("requeue_dead_letters", {"filter": None}),
        ("requeue_dead_letters", {"filter": {"unheard_of": 1}}),
        ("discard_dead_letters", []),
        ("cancel_jobs", {"filter": {"status": "no state"}}),
        ("schedule_jobs", {"filter": {}}),
    ],
)
def test_an_operation_that_cannot_be_understood_ends_as_failed_after_a_few_tries(handed_out, action, parameters):
    make_job()
    operation = BulkOperation.objects.create(action=action, parameters=parameters, actor=ACTOR, total=1)
    for tries in range(1, bulk_run.MAX_FAILURES_IN_A_ROW + 1):
        operation.refresh_from_db()
        assert (operation.status, operation.failures) == ("running", tries - 1)
        BulkOperation.objects.update(updated_at=Now() - timedelta(hours=1))
        assert bulk_run.restart_stalled_operations() == [operation.pk]
        assert not bulk_run.run_bulk_chunk(operation.pk)
    operation.refresh_from_db()
    assert operation.status == "failed"
    assert operation.error.startswith(f"Given up after {bulk_run.MAX_FAILURES_IN_A_ROW} tries: ")
    assert bulk_run.restart_stalled_operations() == []
    assert AuditEntry.objects.get(after__operation="failed").actor == ACTOR


@pytest.mark.django_db
def test_a_chunk_that_succeeds_forgets_the_failures_before_it(handed_out):
    make_dead_letters(25)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    BulkOperation.objects.update(failures=bulk_run.MAX_FAILURES_IN_A_ROW - 1)
    assert bulk_run.run_bulk_chunk(operation.pk)
    operation.refresh_from_db()
    assert (operation.failures, operation.done) == (0, 10)


@pytest.mark.django_db(transaction=True)
def test_workers_on_the_same_operation_act_on_every_row_once(handed_out):
    letters = make_dead_letters(60)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    start = threading.Barrier(4)

    def work() -> None:
        start.wait(timeout=10)
        while bulk_run.run_bulk_chunk(operation.pk):
            pass
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    operation.refresh_from_db()
    assert (operation.done, operation.skipped, operation.status) == (60, 0, "done")
    assert Job.objects.filter(origin__in=[letter.job_id for letter in letters]).count() == 60


WORKER = """
import django, sys
django.setup()
from jobs.services.operate import bulk_run
bulk_run.BULK_CHUNK = 10
while bulk_run.run_bulk_chunk(sys.argv[1]):
    pass
"""


@pytest.mark.django_db(transaction=True)
def test_an_operation_whose_worker_is_killed_in_a_chunk_goes_on_where_it_was(handed_out):
    letters = make_dead_letters(35)
    operation = bulk.start_bulk_requeue({}, actor=ACTOR)
    environ = {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "queueops.settings"}
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as blocker:
        # The second chunk cannot get past this row, so the worker dies with half of that chunk done.
        blocker.execute("SELECT FROM jobs_deadletter WHERE id = %s FOR UPDATE", [letters[15].pk])
        with started(sys.executable, "-c", WORKER, str(operation.pk), environ=environ) as worker:
            wait_for(lambda: waiting_for(blocker), what="the worker at the blocked row")
            worker.stop(signal.SIGKILL)
    operation.refresh_from_db()
    assert (operation.done, operation.cursor, operation.status) == (10, letters[9].pk, "running")
    assert DeadLetter.objects.open().count() == 25
    run_to_the_end(operation)
    assert (operation.done, operation.skipped, operation.status) == (35, 0, "done")
    assert Job.objects.filter(origin__in=[letter.job_id for letter in letters]).count() == 35
