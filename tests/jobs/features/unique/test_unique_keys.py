"""Unique while pending, and debounce: one job of a key at a time, whoever submits, ends and claims meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from jobs.features.recovery.event_fold import fold
from jobs.features.unique import unique
from jobs.features.unique.unique import UniqueKeyTaken
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Batch, Dependency, Job, JobEvent, Tag
from jobs.services.explain.snapshots import project_counts
from jobs.services.operate import pauses
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.documents import accept_document
from jobs.services.submit.spec import InvalidJob, parse_spec
from jobs.services.submit.submit import BatchReceipt, BatchRejected, SubmittedJob, submit_batch, submit_job
from jobs.services.upkeep.batches import finish_batches
from jobs.states import TERMINAL, UNFINISHED, WAITING, JobState
from queueops.core.errors import IdempotencyKeyReused
from ratelimits.limits import catalogue
from tests.factories import KIND, WAYS, make_dead_letter, make_job, make_project, move_along
from tests.support.cases import every_case
from tests.support.plans import assert_bounded, explain_file
from tests.support.processes import database_url, wait_for
from tests.support.racing import about_to_commit, run_together

pytestmark = pytest.mark.django_db

ACME = "acme"


@handler(kind="test.unique", service="test", payload=dict[str, str], calls_out=False)
def other_kind(job: RunningJob[dict[str, str]]) -> Done:
    """Be another kind than http.request."""
    return Done()


def line(number: int = 0, key: str | None = "orders", **fields: Any) -> dict[str, Any]:
    payload = {"method": "GET", "url": f"http://127.0.0.1:9/{number}"}
    return {"kind": KIND, "payload": payload, "unique_key": key, **fields}


def submit(
    number: int = 0, key: str | None = "orders", *, only_user: UUID | None = None, **fields: Any
) -> SubmittedJob:
    make_project()
    return submit_job(parse_spec(line(number, key, **fields)), project_id=ACME, actor="key:test", only_user=only_user)


def submit_many(lines: Iterable[dict[str, Any]], **options: Any) -> BatchReceipt:
    make_project()
    return submit_batch(lines, project_id=ACME, actor="key:test", **options)


def number_of(job_id: UUID) -> int:
    return int(Job.objects.get(pk=job_id).payload["url"].rpartition("/")[2])


def counted() -> dict[str, int]:
    return {state: count for state, count in project_counts(ACME).items() if count}


@every_case("state", sorted(UNFINISHED), undone=True)
def test_while_a_job_of_the_key_has_not_ended_a_second_submission_is_answered_with_it(state):
    first = submit()
    for edge in WAYS[state]:
        move_along(edge, [first.id])
    assert submit(1) == SubmittedJob(first.id, created=False, outcome="pending")
    assert number_of(first.id) == 0
    assert Job.objects.count() == 1


@every_case("state", sorted(TERMINAL), undone=True)
def test_once_it_has_ended_the_key_is_free(state):
    first = submit()
    for edge in WAYS[state]:
        move_along(edge, [first.id])
    second = submit(1)
    assert (second.created, second.outcome, second.id != first.id) == (True, "created", True)


def test_a_key_is_of_its_kind_unless_it_is_said_to_be_of_the_project():
    other: dict[str, Any] = {"kind": "test.unique", "payload": {}}
    assert submit().created
    assert submit(**other).created
    assert submit(unique_in="project").created
    assert not submit(unique_in="project", **other).created
    make_project("globex")
    assert submit_job(parse_spec(line()), project_id="globex", actor="key:test").created


def test_what_waits_is_replaced_where_that_was_asked_for_and_keeps_its_place():
    first = submit(tags=["old"], priority="low")
    before = Job.objects.get(pk=first.id)
    second = submit(1, if_pending="replace", tags=["new"], priority="urgent", cost=7, delay_seconds=60)
    assert second == SubmittedJob(first.id, created=False, outcome="replaced")
    job = Job.objects.get(pk=first.id)
    assert (number_of(job.pk), job.priority, job.cost, job.status) == (1, "urgent", 7, "queued")
    assert (job.created_at, job.effect_key) == (before.created_at, before.effect_key)
    assert job.scheduled_at == job.eligible_since > before.eligible_since
    assert list(Tag.objects.values_list("name", flat=True)) == ["new"]
    event = JobEvent.objects.filter(job_id=job.pk).latest("id")
    assert event.data is not None
    assert (event.data["operation"], event.data["actor"]) == ("replace", "key:test")
    assert fold(JobEvent.objects.filter(job_id=job.pk).order_by("id")).scheduled_at == job.scheduled_at
    third = submit(2, if_pending="replace")
    job.refresh_from_db()
    assert job.scheduled_at is None
    assert (third.outcome, number_of(job.pk)) == ("replaced", 2)
    assert counted() == {"queued": 1}


@every_case("state", [JobState.RATE_LIMITED, JobState.RETRIED], undone=True)
def test_what_is_put_back_before_it_ever_ran_is_replaced_and_queued(state):
    first = submit()
    for edge in WAYS[state]:
        move_along(edge, [first.id])
    assert submit(1, if_pending="replace").outcome == "replaced"
    assert Job.objects.get(pk=first.id).status == "queued"
    assert counted() == {"queued": 1}


def along(*edges: str) -> Callable[[UUID], object]:
    def move(job_id: UUID) -> None:
        for edge in edges:
            move_along(edge, [job_id])

    return move


BEGUN: dict[str, Callable[[UUID], object]] = {
    "dispatched": along("dispatch"),
    "started": along("dispatch", "start"),
    "retried": along("dispatch", "start", "retry"),
    "put back": along("dispatch", "hand_back", "release"),
    "begun before it was moved here": lambda job_id: Job.objects.filter(pk=job_id).update(first_attempt_at=Now()),
    "for a batch of its provider": lambda job_id: Job.objects.filter(pk=job_id).update(via="batch"),
}


@every_case("begun", BEGUN, undone=True)
def test_what_has_begun_is_not_replaced(begun):
    first = submit()
    BEGUN[begun](first.id)
    assert submit(1, if_pending="replace") == SubmittedJob(first.id, created=False, outcome="pending")
    assert number_of(first.id) == 0


@pytest.fixture
def after_the_look(monkeypatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen, once, on another connection, when a submission has looked who has its key."""

    def happens(what: Callable[[], object]) -> None:
        look, coming = unique._holders, [what]

        def look_and_let_it_happen(*arguments: Any) -> Any:
            found = look(*arguments)
            if coming:
                run_together(1, lambda _: coming.pop()())
            return found

        monkeypatch.setattr(unique, "_holders", look_and_let_it_happen)

    return happens


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("begun", BEGUN)
def test_what_begins_after_the_look_and_before_the_replacement_keeps_its_work(after_the_look, begun):
    first = submit()
    after_the_look(lambda: BEGUN[begun](first.id))
    assert submit(1, if_pending="replace") == SubmittedJob(first.id, created=False, outcome="pending")
    assert number_of(first.id) == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fields", [{}, {"if_pending": "replace"}, {"debounce_seconds": 60}])
def test_what_ends_after_the_look_leaves_its_key_to_the_submission(after_the_look, fields):
    first = submit(**fields)
    after_the_look(lambda: cancel_jobs([first.id], actor="user:1", reason="x"))
    told = submit(1, **fields)
    if fields:
        assert (told.outcome, number_of(told.id), told.id != first.id) == ("created", 1, True)
    else:
        assert told == SubmittedJob(first.id, created=False, outcome="pending"), "as of the look"


@pytest.mark.django_db(transaction=True)
def test_a_claim_that_is_about_to_commit_is_waited_for_and_its_job_keeps_its_work(after_the_look):
    first = submit()
    with ExitStack() as claim:
        after_the_look(lambda: claim.enter_context(about_to_commit(lambda: move_along("dispatch", [first.id]))))
        told = submit(1, if_pending="replace")
    assert told == SubmittedJob(first.id, created=False, outcome="pending")
    assert number_of(first.id) == 0


def test_a_job_that_a_pause_holds_is_let_go_by_a_payload_that_the_pause_does_not_cover_and_the_reverse():
    pauses.pause_scope("service", "http:127.0.0.1", actor="user:1")
    first = submit()
    assert Job.objects.get(pk=first.id).held
    free: dict[str, Any] = {"payload": {"method": "GET", "url": "https://api.example.org/1"}}
    submit(if_pending="replace", **free)
    assert not Job.objects.get(pk=first.id).held
    submit(if_pending="replace")
    assert Job.objects.get(pk=first.id).held


def test_what_waits_for_others_still_waits_with_its_new_work():
    earlier = make_job()
    first = submit(after=[str(earlier.pk)])
    submit(1, if_pending="replace")
    assert (Job.objects.get(pk=first.id).held, number_of(first.id), Dependency.objects.count()) == (True, 1, 1)


def test_what_waits_with_its_batch_still_waits_with_its_new_work():
    submit_many([line()], after=[make_job().pk])
    assert submit(1, if_pending="replace").outcome == "replaced"
    assert Job.objects.get(unique_key=f"{KIND}/orders").held


def test_another_users_and_another_kinds_job_is_in_the_way():
    ada, bob = uuid4(), uuid4()
    submit(user_id=str(ada))
    for user in (bob, None):
        with pytest.raises(UniqueKeyTaken) as refused:
            submit(user_id=user and str(user))
        assert set(refused.value.fields) == {"unique_key"}
    with pytest.raises(UniqueKeyTaken):
        submit(only_user=bob)
    assert submit(only_user=ada).outcome == "pending"
    assert Job.objects.count() == 1


def test_both_keys_each_say_what_they_mean():
    first = submit(idempotency_key="i")
    assert submit(idempotency_key="i").outcome == "duplicate"
    with pytest.raises(IdempotencyKeyReused):
        submit(1, idempotency_key="i")
    assert submit(1, idempotency_key="j").outcome == "pending"
    cancel_jobs([first.id], actor="user:1", reason="x")
    assert submit(idempotency_key="i").outcome == "duplicate"
    assert submit(1, idempotency_key="j").created


def test_a_requeue_leaves_the_key_to_others():
    letter = make_dead_letter(unique_key="orders")
    second = submit()
    requeue_dead_letters([letter.pk], actor="user:1")
    assert Job.objects.get(origin_id=letter.job_id).unique_key is None
    assert submit().id == second.id


def test_a_batch_counts_what_met_its_key_and_of_one_key_the_first_is_made():
    first = submit()
    receipt = submit_many([line(1), line(2, "a"), line(3, "a"), line(4, None), line(5, None)])
    assert (receipt.accepted, receipt.pending, receipt.replaced, receipt.duplicates) == (3, 2, 0, 0)
    assert number_of(first.id) == 0
    assert number_of(Job.objects.get(unique_key=f"{KIND}/a").pk) == 2
    assert Batch.objects.get(pk=receipt.id).total == 3


def test_in_a_batch_the_last_of_those_that_replace_is_what_is_done():
    first = submit()
    lines = [line(number, key, if_pending="replace") for number in range(1, 6) for key in ("orders", "new")]
    receipt = submit_many(lines)
    assert (receipt.accepted, receipt.pending, receipt.replaced) == (1, 9, 9)
    assert number_of(first.id) == 5
    assert number_of(Job.objects.get(unique_key=f"{KIND}/new").pk) == 5
    assert Job.objects.get(pk=first.id).batch_id is None


def test_a_batch_of_nothing_but_pending_jobs_is_accepted_and_has_ended():
    submit()
    receipt = submit_many([line(1)])
    finish_batches()
    assert receipt.accepted == 0
    assert Batch.objects.get(pk=receipt.id).finished_at is not None


def test_a_line_whose_key_is_anothers_is_told_by_its_number():
    submit(user_id=str(uuid4()))
    with pytest.raises(BatchRejected) as refused:
        submit_many([line(1, "free"), line(2)])
    assert [(error["line"], error["code"]) for error in refused.value.details["errors"]] == [(2, "unique_key_taken")]
    assert submit_many([line(1, "free"), line(2)], partial=True).accepted == 1


def test_a_newer_submission_puts_off_what_is_debounced_and_gives_it_its_payload():
    first = submit(debounce_seconds=60)
    job = Job.objects.get(pk=first.id)
    assert job.scheduled_at is not None
    assert job.scheduled_at - job.created_at == timedelta(seconds=60)
    assert job.debounce_until == job.created_at + timedelta(seconds=600)
    Job.objects.filter(pk=first.id).update(scheduled_at=F("scheduled_at") - timedelta(seconds=1))  # it was a second ago
    job.refresh_from_db()
    assert submit(1, debounce_seconds=60) == SubmittedJob(first.id, created=False, outcome="replaced")
    later = Job.objects.get(pk=first.id)
    assert later.scheduled_at is not None
    assert (later.scheduled_at > job.scheduled_at, number_of(first.id)) == (True, 1)
    assert later.debounce_until == job.debounce_until


def test_it_is_put_off_to_its_longest_wait_at_most_and_begins_then_with_the_newest_payload():
    first = submit(debounce_seconds=60, debounce_most_seconds=90)
    job = Job.objects.get(pk=first.id)
    assert submit(1, debounce_seconds=80, debounce_most_seconds=5000).outcome == "replaced"
    later = Job.objects.get(pk=first.id)
    assert later.scheduled_at is not None
    assert later.scheduled_at < job.created_at + timedelta(seconds=90)
    submit(2, debounce_seconds=3600, debounce_most_seconds=5000)
    assert Job.objects.get(pk=first.id).scheduled_at == job.debounce_until == job.created_at + timedelta(seconds=90)
    Job.objects.filter(pk=first.id).update(debounce_until=job.created_at)
    submit(3, debounce_seconds=60)
    assert (Job.objects.get(pk=first.id).scheduled_at, number_of(first.id)) == (None, 3)


@every_case("edges", [("dispatch", "start"), ("dispatch", "start", "retry")], undone=True)
def test_a_debounced_job_that_has_begun_is_not_touched_and_a_new_one_begins(edges):
    first = submit(debounce_seconds=60)
    for edge in edges:
        move_along(edge, [first.id])
    second = submit(1, debounce_seconds=60)
    assert (second.created, number_of(first.id), number_of(second.id)) == (True, 0, 1)
    if edges[-1] == "retry":
        move_along("release", [first.id])  # both wait now, and neither is in the way of the other
    assert submit(2, debounce_seconds=60).id == second.id


@every_case(
    ("fields", "place"),
    [
        ({"unique_key": ""}, "unique_key"),
        ({"unique_key": "x" * 201}, "unique_key"),
        ({"unique_key": "a\0b"}, "unique_key"),
        ({"unique_in": "world"}, "unique_in"),
        ({"if_pending": "explode"}, "if_pending"),
        ({"debounce_seconds": 0}, "debounce_seconds"),
        ({"debounce_seconds": 1e12}, "debounce_seconds"),
        ({"debounce_seconds": 60, "debounce_most_seconds": 30}, "short"),
        ({"debounce_seconds": 60, "delay_seconds": 5}, "no other time"),
        ({"debounce_most_seconds": 60}, "goes with"),
        ({"unique_key": None, "debounce_seconds": 60}, "go by unique_key"),
        ({"unique_key": None, "if_pending": "replace"}, "go by unique_key"),
        ({"unique_key": None, "unique_in": "project"}, "go by unique_key"),
        ({"if_pending": "replace", "after": [str(uuid4())]}, "takes its place"),
        ({"debounce_seconds": 60, "via": "live"}, "takes its place"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(fields, place):
    with pytest.raises(InvalidJob) as refused:
        parse_spec({**line(), **fields})
    told = f"{refused.value.fields} {refused.value.message}"
    assert place in told or (place == "short" and "at least" in told)


def test_a_submission_pays_no_statement_for_keys_it_does_not_use_nor_for_one_that_is_free(monkeypatch):
    monkeypatch.setattr(catalogue, "LIMITS_KEPT_SECONDS", 3600.0)  # or one of the two may have to read the limits
    catalogue.forget()
    submit(key=None)
    statements = []
    for key in (None, "free"):
        with CaptureQueriesContext(connection) as asked:
            submit(1, key)
        statements.append([one["sql"].split()[0] for one in asked])
    assert statements[0] == statements[1]
    with CaptureQueriesContext(connection) as asked:
        submit_many([line(1, None)])
    assert not any("advisory" in one["sql"] for one in asked)


def test_the_job_of_a_key_is_found_by_its_index():
    submit_many([line(number, f"k{number}") for number in range(400)])
    ended = submit_many([line(number, f"e{number}", debounce_seconds=60) for number in range(400)])
    cancel_jobs(Job.objects.filter(batch_id=ended.id).values_list("pk", flat=True), actor="user:1", reason="x")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_job")
    plan = explain_file("jobs", "find_unique_jobs", project=ACME, keys=[f"{KIND}/k1", f"{KIND}/e2"])
    assert_bounded(plan, rows=20, blocks=40)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fields", [{}, {"if_pending": "replace"}, {"debounce_seconds": 60}])
def test_of_many_that_submit_one_key_at_once_exactly_one_makes_the_job(fields):
    make_project()
    for turn in range(5):

        def one_more(number: int, key: str = f"k{turn}") -> SubmittedJob:
            return submit(number, key, **fields)

        told = run_together(12, one_more)
        assert len({one.id for one in told}) == 1
        assert [one.created for one in told].count(True) == 1
        assert Job.objects.filter(unique_key=f"{KIND}/k{turn}").count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_batches_with_the_same_keys_in_another_order_one_waits_for_the_other(monkeypatch):
    monkeypatch.setattr(accept_document, "JOBS_OF_AN_INSERT", 1)
    make_project()
    inserted = threading.Event()

    def first() -> Iterator[dict[str, Any]]:
        yield line(1, "a")
        yield line(1, None)
        inserted.set()  # this one is asked for when those before it but one are inserted
        with psycopg.connect(database_url(), autocommit=True) as looking:
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            wait_for(lambda: looking.execute(waiting).rowcount, seconds=20, what="that the other one waits")
        yield line(1, "b")

    def second() -> Iterator[dict[str, Any]]:
        assert inserted.wait(60)
        yield from (line(2, "b"), line(2, None), line(2, "a"))

    receipts = run_together(2, lambda number: submit_many([first, second][number]()))
    assert [(one.accepted, one.pending) for one in receipts] == [(3, 0), (1, 2)]


GATE = """
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.idempotency_key LIKE 'gate%' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON jobs_job FOR EACH ROW EXECUTE FUNCTION wait_at_gate()"""


@pytest.mark.django_db(transaction=True)
def test_of_two_batches_with_the_same_idempotency_keys_in_another_order_one_waits_for_the_other():
    make_project()
    orders = [["a", "gate", "z"], ["z", "gate", "a"]]

    def post(number: int) -> BatchReceipt:
        return submit_many(line(1, None, idempotency_key=key) for key in orders[number])

    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(database_url(), autocommit=True) as gate, ThreadPoolExecutor(1) as beside:
        gate.execute(GATE)
        try:
            gate.execute("SELECT pg_advisory_lock(1)")
            told = beside.submit(run_together, 2, post)
            wait_for(lambda: gate.execute(waiting).rowcount == 2, seconds=20, what="that both wait")
            gate.execute("SELECT pg_advisory_unlock(1)")
            receipts = sorted((one.accepted, one.duplicates) for one in told.result(60))
        finally:
            gate.execute("SELECT pg_advisory_unlock_all()")
            gate.execute("DROP TRIGGER gate ON jobs_job; DROP FUNCTION wait_at_gate")
    assert receipts == [(0, 3), (3, 0)]


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_replaces_one_job_and_waits_for_the_end_of_another_waits_for_nobody_who_waits_for_it(monkeypatch):
    monkeypatch.setattr(accept_document, "JOBS_OF_AN_INSERT", 1)
    ended, replaced = submit(1, "ended").id, submit(2, "replaced").id

    def lines(cancelling: ThreadPoolExecutor) -> Iterator[dict[str, Any]]:
        yield line(3, "replaced", if_pending="replace")
        yield line(3, None)
        # It has ended the one, and waits for the other if the batch has locked it, when the batch comes to the one.
        told.append(cancelling.submit(cancel))
        with psycopg.connect(database_url(), autocommit=True) as looking:
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            wait_for(
                lambda: told[0].done() or looking.execute(waiting).rowcount,
                seconds=20,
                what="that it waits or has ended",
            )
        yield line(3, "ended")

    def cancel() -> list[UUID]:
        try:
            return cancel_jobs([ended, replaced], actor="user:1", reason="x").moved
        finally:
            connection.close()

    told: list[Future[list[UUID]]] = []
    with ThreadPoolExecutor(1) as cancelling:
        receipt = submit_many(lines(cancelling))
        assert told[0].result(60) == [ended, replaced]
    assert (receipt.accepted, receipt.pending, receipt.replaced) == (3, 0, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("edge", "told"), [("cancel", (1, 1, 1)), ("dispatch", (0, 2, 1))])
def test_where_one_of_two_ends_or_begins_before_it_is_locked_the_other_is_replaced_once(edge, told, monkeypatch):
    kept, lost = submit(1, "kept").id, submit(1, "lost").id
    replace_all = unique._replace_all

    def replace_after(*arguments: Any) -> bool:
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as beside:
            beside.submit(change).result(60)
        return replace_all(*arguments)

    def change() -> None:
        try:
            move_along(edge, [lost])
        finally:
            connection.close()

    monkeypatch.setattr(unique, "_replace_all", replace_after)
    receipt = submit_many([line(2, "kept", if_pending="replace"), line(2, "lost", if_pending="replace")])
    assert (receipt.accepted, receipt.pending, receipt.replaced) == told
    assert (number_of(kept), number_of(lost)) == (2, 1)
    assert JobEvent.objects.filter(job_id=kept, data__operation="replace").count() == 1


@pytest.mark.django_db(transaction=True)
def test_there_is_never_a_second_one_while_others_submit_end_and_begin_them():
    make_project()

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 (which order, not a secret)
        for step in range(25):
            key = f"k{chance.randrange(3)}"
            fields: dict[str, Any] = chance.choice([{}, {"if_pending": "replace"}, {"debounce_seconds": 0.001}])
            if chance.random() < 0.2:
                submit_many([line(step, f"k{one}", **fields) for one in chance.sample(range(3), 3)])
            else:
                submit(step, key, **fields)
            if chance.random() < 0.6:
                waiting = list(Job.objects.filter(status__in=sorted(WAITING)).values_list("pk", flat=True)[:2])
                cancel_jobs(waiting, actor="user:1", reason="x")
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM (SELECT FROM jobs_job WHERE finished_at IS NULL"
                    " GROUP BY unique_key, debounce_until IS NULL HAVING count(*) > 1) AS twice"
                )
                assert cursor.fetchone() == (0,)

    run_together(8, work)
    left = Job.objects.filter(status__in=sorted(UNFINISHED)).count()
    assert sum(counted().get(state, 0) for state in UNFINISHED) == left
