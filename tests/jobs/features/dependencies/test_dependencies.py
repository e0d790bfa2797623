"""Jobs and batches that wait for others: what lets them go, what becomes of them otherwise, and races of all of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from jobs.executor.duties import Duties
from jobs.features.dependencies import dependants
from jobs.features.dependencies.dependants import DependantsDuty
from jobs.features.dependencies.dependencies import UnknownDependency
from jobs.models import Batch, Dependency, Job, JobEvent, new_id
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate import pauses
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.spec import InvalidJob, parse_spec
from jobs.services.submit.submit import BatchRejected, submit_batch, submit_job
from jobs.services.upkeep import upkeep
from jobs.states import JobState
from queueops.core.notify import Channel, notify
from queueops.core.sql import run_sql
from queueops.tenancy.models import Project, ProjectMove
from tests.factories import KIND, make_batch, make_dead_letter, make_job, make_jobs, make_project, move_along
from tests.support.cases import every_case
from tests.support.racing import about_to_commit, run_together, stay_until_waited_for

pytestmark = pytest.mark.django_db

ACME = "acme"
PAYLOAD = {"method": "GET", "url": "http://127.0.0.1:9/"}


def line(**fields: Any) -> dict[str, Any]:
    return {"kind": KIND, "payload": PAYLOAD, **fields}


def submit(*after: UUID, **fields: Any) -> Job:
    make_project()
    spec = parse_spec(line(after=[str(one) for one in after], **fields))
    return Job.objects.get(pk=submit_job(spec, project_id=ACME, actor="key:test").id)


def turn() -> int:
    return DependantsDuty().do()


def state(job: Job) -> str:
    job.refresh_from_db()
    return f"{job.status}{' held' if job.held and job.finished_at is None else ''}"


def complete(*jobs: Job) -> None:
    for edge in ("dispatch", "start", "complete"):
        move_along(edge, [job.pk for job in jobs])


def end(state_wanted: JobState, job: Job) -> None:
    if state_wanted == JobState.CANCELLED:
        cancel_jobs([job.pk], actor="user:1", reason="not wanted")
    else:
        for edge in ("dispatch", "start", "fail"):
            move_along(edge, [job.pk])


@pytest.mark.django_db(transaction=True)  # now() moves between its steps
def test_a_job_waits_for_all_it_names_and_then_begins_to_wait_for_its_turn():
    first, second = make_jobs(2)
    job = submit(first.pk, second.pk)
    assert (state(job), turn()) == ("queued held", 0)
    complete(first)
    assert (turn(), state(job)) == (0, "queued held")
    complete(second)
    assert (turn(), state(job)) == (1, "queued")
    assert not Dependency.objects.exists()
    assert job.eligible_since > second.created_at + timedelta(microseconds=1)
    [submitted, freed] = JobEvent.objects.filter(job_id=job.pk).order_by("id")
    assert submitted.data is not None
    assert submitted.data["waits_for"] == {"after": [str(first.pk), str(second.pk)], "on_failure": "cancel"}
    assert freed.data == {"operation": "waited", "scheduled_at": None}
    assert job.eligible_since == freed.created_at


def test_what_has_ended_before_is_waited_for_no_longer_than_the_next_look():
    job = submit(make_job(state=JobState.COMPLETED).pk)
    assert (turn(), state(job)) == (1, "queued")


def test_a_waiting_job_is_in_no_index_that_claims_read():
    submit(make_job().pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobs_job WHERE status = 'queued' AND scheduled_at IS NULL AND NOT held")
        assert cursor.fetchone() == (1,)


@pytest.mark.parametrize("move", [ProjectMove.MOVING, ProjectMove.MOVED], ids=str)
@pytest.mark.parametrize(("ending", "becomes"), [("complete", "queued"), ("fail", "cancelled")])
def test_of_a_project_on_its_way_nothing_is_let_go_and_nothing_is_cancelled(move, ending, becomes):
    """The copy has its jobs as they waited, and they go on there."""
    first = make_job()
    job = submit(first.pk)
    for edge in ("dispatch", "start", ending):
        move_along(edge, [first.pk])
    Project.objects.update(move=move)
    assert (turn(), state(job), Dependency.objects.count()) == (0, "queued held", 1)
    Project.objects.update(move=ProjectMove.NONE)
    assert (turn(), state(job), Dependency.objects.count()) == (1, becomes, 0)


@pytest.mark.parametrize("ending", [JobState.FAILED, JobState.CANCELLED])
@pytest.mark.parametrize(
    ("on_failure", "becomes"), [("cancel", "cancelled"), ("run", "queued"), ("hold", "queued held")]
)
def test_a_job_says_what_becomes_of_it_when_one_does_not_succeed(ending, on_failure, becomes):
    first = make_job()
    job = submit(first.pk, on_failure=on_failure)
    end(ending, first)
    turn()
    assert state(job) == becomes
    assert Dependency.objects.exists() == (on_failure == "hold")


def test_one_that_failed_cancels_although_another_still_runs_and_runs_only_when_all_have_ended():
    bad, slow = make_jobs(2)
    hasty, patient = submit(bad.pk, slow.pk), submit(bad.pk, slow.pk, on_failure="run")
    end(JobState.FAILED, bad)
    turn()
    assert (state(hasty), state(patient)) == ("cancelled", "queued held")
    assert str(bad.pk) in JobEvent.objects.filter(job_id=hasty.pk).latest("id").message
    complete(slow)
    turn()
    assert state(patient) == "queued"


def test_a_chain_is_cancelled_to_its_end():
    first = make_job()
    second = submit(first.pk)
    third = submit(second.pk)
    end(JobState.FAILED, first)
    turn()
    turn()
    assert (state(second), state(third)) == ("cancelled", "cancelled")


def test_what_is_held_goes_on_when_a_requeue_succeeds_and_not_before():
    letter = make_dead_letter()
    job = submit(letter.job_id, on_failure="hold")
    assert (turn(), state(job)) == (0, "queued held")
    requeue_dead_letters([letter.pk], actor="user:1")
    again = Job.objects.get(origin_id=letter.job_id)
    assert (turn(), state(job)) == (0, "queued held")
    complete(again)
    assert (turn(), state(job)) == (1, "queued")


def test_a_requeue_that_is_under_way_is_waited_for_whatever_the_policy():
    letter = make_dead_letter()
    requeue_dead_letters([letter.pk], actor="user:1")
    job = submit(letter.job_id)
    assert (turn(), state(job)) == (0, "queued held")


def test_a_batch_is_waited_for_until_its_last_job_has_ended_and_its_requeues_count():
    batch = make_batch()
    good = make_job(batch=batch)
    letter = make_dead_letter(batch=batch)
    careful, bold = submit(batch.pk, on_failure="hold"), submit(batch.pk, on_failure="run")
    assert turn() == 0
    complete(good)
    turn()
    assert (state(careful), state(bold)) == ("queued held", "queued")
    requeue_dead_letters([letter.pk], actor="user:1")
    assert turn() == 0
    complete(Job.objects.get(origin_id=letter.job_id))
    turn()
    assert state(careful) == "queued"


def a_waiting_batch(*after: UUID, count: int = 3, **options: Any) -> list[Job]:
    make_project()
    receipt = submit_batch([line() for _ in range(count)], project_id=ACME, actor="key:test", after=after, **options)
    return list(Job.objects.filter(batch_id=receipt.id).order_by("pk"))


def test_a_batch_waits_as_a_whole_and_its_own_jobs_may_wait_besides():
    first, second = make_jobs(2)
    jobs = a_waiting_batch(first.pk)
    receipt = submit_batch([line(), line(after=[str(second.pk)])], project_id=ACME, actor="key:test", after=[first.pk])
    plain, besides = Job.objects.filter(batch_id=receipt.id).order_by("pk")
    assert {state(job) for job in [*jobs, plain, besides]} == {"queued held"}
    complete(first)
    turn()
    assert {state(job) for job in [*jobs, plain]} == {"queued"}
    assert state(besides) == "queued held"
    complete(second)
    turn()
    assert state(besides) == "queued"


def test_a_batch_is_cancelled_when_what_it_waits_for_fails():
    first = make_job()
    jobs = a_waiting_batch(first.pk)
    end(JobState.CANCELLED, first)
    turn()
    assert {state(job) for job in jobs} == {"cancelled"}
    assert not Dependency.objects.exists()


def test_what_its_producer_cancels_or_lets_expire_waits_for_nothing_any_more():
    first = make_job()
    cancelled, expired = submit(first.pk), submit(first.pk, expires_at=timezone.now() + timedelta(days=1))
    batch = a_waiting_batch(first.pk)
    cancel_jobs([cancelled.pk, *(job.pk for job in batch)], actor="key:test", reason="changed")
    Job.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    upkeep.expire_waiting()
    assert state(expired) == "failed"
    turn()
    assert not Dependency.objects.exists()


def test_a_pause_and_a_wait_hold_each_for_itself():
    first = make_job(kind="other.kind")
    job = submit(first.pk)
    pauses.pause_scope("kind", KIND, actor="user:1")
    complete(first)
    turn()
    assert state(job) == "queued held"
    pauses.resume_scope("kind", KIND, actor="user:1")
    assert state(job) == "queued"
    other, batch = submit(make_job().pk), a_waiting_batch(make_job().pk)
    pauses.pause_scope("kind", KIND, actor="user:1")
    pauses.resume_scope("kind", KIND, actor="user:1")
    pauses.settle_holds()
    assert {state(one) for one in [other, *batch]} == {"queued held"}


def test_its_own_time_counts_besides():
    first = make_job()
    job = submit(first.pk, delay_seconds=3600)
    complete(first)
    turn()
    assert state(job) == "queued"
    assert job.scheduled_at == job.eligible_since > timezone.now()


def test_a_requeue_in_a_batch_that_waits_waits_with_it():
    first = make_job()
    [job] = a_waiting_batch(first.pk, count=1)
    assert job.batch is not None
    make_job(batch=job.batch)
    assert set(Job.objects.filter(batch=job.batch).values_list("held", flat=True)) == {True}


@pytest.mark.parametrize("on_failure", ["cancel", "run", "hold"])
def test_a_job_that_waits_keeps_what_it_waits_for_from_retention_and_strands_on_nothing_that_is_gone(on_failure):
    batch = make_batch()
    old = make_job(state=JobState.COMPLETED)
    within = make_job(state=JobState.COMPLETED, batch=batch)
    past = timezone.now() - timedelta(days=400)
    Job.objects.filter(pk__in=[old.pk, within.pk]).update(finished_at=past)
    Batch.objects.filter(pk=batch.pk).update(finished_at=past)
    job = submit(old.pk, batch.pk, make_job().pk, on_failure=on_failure)
    before = {"before": timezone.now() - timedelta(days=1), "most": 100}
    assert run_sql("jobs", "delete_finished_jobs", before) == []
    assert run_sql("jobs", "delete_ended_batches", before) == []
    Job.objects.filter(pk__in=[old.pk, within.pk]).delete()  # as by hand
    Dependency.objects.exclude(on_id=old.pk).delete()
    turn()
    assert state(job) == {"cancel": "cancelled", "run": "queued", "hold": "queued held"}[on_failure]


@pytest.mark.parametrize("name", ["job_id", "batch_id"])
def test_retention_keeps_the_requeue_whose_success_counts(name):
    letter = make_dead_letter(batch=make_batch())
    requeue_dead_letters([letter.pk], actor="user:1")
    again = Job.objects.get(origin_id=letter.job_id)
    last = make_job(origin_id=again.pk)
    for one, edge in ((again, "fail"), (last, "complete")):
        move_along("dispatch", [one.pk])
        move_along("start", [one.pk])
        move_along(edge, [one.pk])
    Job.objects.filter(finished_at__isnull=False).update(finished_at=timezone.now() - timedelta(days=400))
    job = submit(getattr(letter, name), make_job().pk)
    before = {"before": timezone.now() - timedelta(days=1)}
    assert run_sql("jobs", "delete_finished_jobs", before | {"most": 100}) == []
    assert run_sql("jobs", "find_deletable_job", before) == []
    turn()
    assert state(job) == "queued held"
    Dependency.objects.all().delete()
    assert run_sql("jobs", "delete_finished_jobs", before | {"most": 100}) == [(last.pk,)]


def test_what_a_job_waits_for_is_explained():
    first, batch = make_job(), make_batch()
    make_job(batch=batch)
    job = submit(first.pk, batch.pk, on_failure="hold")
    end(JobState.FAILED, first)
    told = explain_waiting(job)
    assert told is not None
    assert [reason.code for reason in told.reasons][:2] == ["after", "after"]
    assert told.text == f"job {first.pk} did not succeed: it waits until a requeue of that one succeeds"
    assert told.reasons[1].text == f"batch {batch.pk} has to end first"
    assert told.forecast is None


@every_case(
    "fields",
    [
        {"after": [str(uuid4())]},
        {"after": ["no id"]},
        {"after": [str(new_id()) for _ in range(101)]},
        {"after": [], "on_failure": "explode"},
    ],
    undone=True,
)
def test_what_cannot_be_waited_for_is_refused_and_nothing_is_stored(fields):
    make_project()
    with pytest.raises((UnknownDependency, InvalidJob)) as refused:
        submit_job(parse_spec(line(**fields)), project_id=ACME, actor="key:test")
    assert set(refused.value.fields) & {"after", "after.0", "on_failure"}
    assert not Job.objects.exists()
    assert not Dependency.objects.exists()


def test_another_projects_and_another_users_jobs_are_as_unknown_as_those_of_nobody():
    foreign = make_job(project="globex")
    user, other = uuid4(), uuid4()
    of_other = make_job(user_id=other)
    for one, only_user in ((foreign.pk, None), (of_other.pk, user), (new_id(), None)):
        spec = parse_spec(line(after=[str(one)]))
        with pytest.raises(UnknownDependency) as refused:
            submit_job(spec, project_id=ACME, actor="key:test", only_user=only_user)
        assert refused.value.fields == {"after": [f"no job or batch {one}"]}


def test_a_bad_line_is_told_by_its_number_and_the_others_are_accepted_where_that_was_asked_for():
    first = make_job()
    lines = [line(after=[str(first.pk)]), line(after=[str(new_id())]), line()]
    with pytest.raises(BatchRejected) as refused:
        submit_batch(lines, project_id=ACME, actor="key:test")
    assert [(error["line"], error["code"]) for error in refused.value.details["errors"]] == [(2, "unknown_dependency")]
    assert not Dependency.objects.exists()
    receipt = submit_batch(lines, project_id=ACME, actor="key:test", partial=True)
    assert (receipt.accepted, receipt.error_count) == (2, 1)
    assert Dependency.objects.count() == 1


@pytest.mark.parametrize("between", [0, 2])
def test_who_waits_for_a_line_whose_key_is_anothers_is_told_by_its_number(between, monkeypatch):
    monkeypatch.setattr("jobs.services.submit.documents.accept_document.JOBS_OF_AN_INSERT", 2)
    user = uuid4()
    make_job(user_id=uuid4(), idempotency_key="theirs")
    lines = [line(idempotency_key="theirs"), *[line()] * between, line(after=["theirs"]), line()]
    told = [(1, "idempotency_key_reused"), (2 + between, "unknown_dependency")]
    with pytest.raises(BatchRejected) as refused:
        submit_batch(lines, project_id=ACME, actor="key:test", only_user=user)
    assert refused.value.details["errors"][0]["code"] == "idempotency_key_reused"
    receipt = submit_batch(lines, project_id=ACME, actor="key:test", only_user=user, partial=True)
    assert [(error.line, error.code) for error in receipt.errors] == told
    assert (receipt.accepted, Dependency.objects.count()) == (between + 1, 0)


def test_more_jobs_than_one_look_takes_are_all_come_to(monkeypatch):
    monkeypatch.setattr("jobs.features.dependencies.dependants.DEPENDANTS_AT_ONCE", 2)
    monkeypatch.setattr("jobs.features.dependencies.dependants.DEPENDANTS_A_TURN", 4)
    slow, quick = make_jobs(2)
    for _ in range(5):
        submit(slow.pk)
    last = submit(quick.pk)
    complete(quick)
    duty = DependantsDuty()
    assert [duty.do(), duty.do(), duty.do()] == [0, 1, 0]
    assert state(last) == "queued"


def test_an_executors_house_keeping_lets_go_what_has_waited():
    job = submit(make_job(state=JobState.COMPLETED).pk)
    Duties(uuid4(), sweep_seconds=60, silent_seconds=30, stuck_seconds=60).do(time.monotonic())
    assert state(job) == "queued"


def released(ids: Sequence[UUID]) -> dict[UUID, int]:
    events = JobEvent.objects.filter(job_id__in=ids, data__operation="waited").values_list("job_id", flat=True)
    counts = dict.fromkeys(ids, 0)
    for job_id in events:
        counts[job_id] += 1
    return counts


def race(fan_ins: int, *, workers: int = 8, wide: int = 3, seed: int = 0) -> list[UUID]:
    """Workers end the jobs waited for, submit those that wait for them, and look whose waiting is over, all at once."""
    firsts = [job.pk for job in make_jobs(fan_ins)]
    parts: list[list[UUID]] = [[] for _ in range(workers)]

    def work(number: int) -> None:
        chance, duty = random.Random(seed + number), DependantsDuty()  # noqa: S311 (which order, not a secret)
        ends = firsts[number::workers]
        for start in range(0, len(ends), 5):
            mine = ends[start : start + 5]
            lines = [line(after=sorted({str(one), *map(str, chance.sample(firsts, wide - 1))})) for one in mine]
            steps = [lambda mine=mine: complete(*Job.objects.filter(pk__in=mine))]
            steps.append(
                lambda lines=lines: parts[number].append(submit_batch(lines, project_id=ACME, actor="key:test").id)
            )
            chance.shuffle(steps)
            for step in steps:
                step()
            if chance.random() < 0.3:
                duty.do()

    run_together(workers, work)
    return list(Job.objects.filter(batch_id__in=[one for part in parts for one in part]).values_list("pk", flat=True))


def assert_none_is_stranded_or_released_twice(waited: Sequence[UUID]) -> None:
    duty = DependantsDuty()
    while duty.do():
        pass
    assert not Dependency.objects.exists()
    assert not Job.objects.filter(pk__in=waited, held=True).exists()
    assert set(released(waited).values()) == {1}


@pytest.mark.django_db(transaction=True)
def test_none_is_stranded_or_released_twice_by_eight_that_end_submit_and_release_at_once():
    waited = race(160)
    assert len(waited) == 160
    assert_none_is_stranded_or_released_twice(waited)


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_none_of_ten_thousand_is_stranded_or_released_twice():
    waited = race(10_000)
    assert len(waited) == 10_000
    assert_none_is_stranded_or_released_twice(waited)


@pytest.mark.django_db(transaction=True)
def test_two_that_look_at_once_release_the_jobs_of_a_batch_once():
    first = make_job()
    jobs = a_waiting_batch(first.pk, count=200)
    complete(first)
    run_together(4, lambda _: DependantsDuty().do())
    assert_none_is_stranded_or_released_twice([job.pk for job in jobs])


@pytest.mark.django_db(transaction=True)
def test_what_is_being_cancelled_as_its_wait_ends_is_not_let_go():
    first = make_job()
    job = submit(first.pk)
    complete(first)
    with about_to_commit(lambda: cancel_jobs([job.pk], actor="user:1", reason="not wanted")):
        turn()
    assert (state(job), released([job.pk])) == ("cancelled", {job.pk: 0})


def held_by_a_pause_and_waiting_no_longer() -> Job:
    """Nothing in its row shows, when it is let go, that it was."""
    first = make_job(kind="other.kind")
    job = submit(first.pk)
    pauses.pause_scope("kind", KIND, actor="user:1")
    complete(first)
    return job


@pytest.mark.django_db(transaction=True)
def test_of_two_that_let_a_job_go_at_once_the_second_waits_and_does_nothing(monkeypatch):
    job = held_by_a_pause_and_waiting_no_longer()
    let_go, calls = threading.Event(), iter(range(10))

    def stay(channel: Channel) -> None:
        if next(calls) == 0:
            let_go.set()
            stay_until_waited_for()
        notify(channel)

    monkeypatch.setattr(dependants, "notify", stay)

    def one_of_two(number: int) -> int:
        assert number == 0 or let_go.wait(60)
        return turn()

    assert run_together(2, one_of_two) == [1, 1]
    assert (released([job.pk]), Dependency.objects.count()) == ({job.pk: 1}, 0)


def test_who_is_cut_off_before_a_job_is_known_to_wait_no_longer_has_not_let_it_go():
    job = held_by_a_pause_and_waiting_no_longer()

    def cut_off(execute: Any, statement: str, *given: Any) -> Any:
        if statement.startswith('DELETE FROM "jobs_dependency"'):
            raise OperationalError("the connection is gone")
        return execute(statement, *given)

    with connection.execute_wrapper(cut_off), pytest.raises(OperationalError):
        turn()
    assert (released([job.pk]), Dependency.objects.count()) == ({job.pk: 0}, 1)
    turn()
    assert (released([job.pk]), Dependency.objects.count()) == ({job.pk: 1}, 0)


def test_what_is_cut_off_in_the_middle_of_a_batch_goes_on(monkeypatch):
    monkeypatch.setattr("jobs.features.dependencies.dependants.RELEASED_IN_ONE", 2)
    first = make_job()
    jobs = a_waiting_batch(first.pk, count=5)
    complete(first)
    calls = iter(range(10))

    def cut_off(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise RuntimeError("the process died")
        return run_sql(*arguments)

    monkeypatch.setattr("jobs.features.dependencies.dependants.run_sql", cut_off)
    turn()
    assert Job.objects.filter(held=True).count() == 3
    turn()
    assert_none_is_stranded_or_released_twice([job.pk for job in jobs])
