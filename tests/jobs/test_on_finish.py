"""The callback of a batch: let go once, when all of the batch has ended, and told what became of it."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web

from jobs.features.dependencies import dependants
from jobs.features.dependencies.dependants import DependantsDuty
from jobs.handlers.registry import Done, EndedBatch, RunningJob, UnknownKind, handler
from jobs.models import Batch, DeadLetter, Dependency, Job, JobEvent, OnFailure
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.on_finish import NOT_OF_A_CALLBACK
from jobs.services.submit.spec import InvalidJob, JobSpec, parse_spec
from jobs.services.submit.submit import QueueFull, submit_batch
from jobs.services.upkeep.batches import finish_batches
from jobs.states import JobState
from jobs.testing import arun_handler, drain
from queueops.core.errors import ForeignUser
from queueops.core.sql import run_sql_as
from queueops.tenancy.models import Project
from tests.factories import KIND, make_dead_letter, make_job, make_project, move_along
from tests.support.cases import every_case
from tests.support.http_server import serving
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db

ACME = "acme"
PAYLOAD = {"method": "GET", "url": "http://127.0.0.1:9/"}
LINE = {"kind": KIND, "payload": PAYLOAD}
CALLBACK = {"kind": "test.callback", "payload": {"sheet": "A"}}
NOTHING = dict.fromkeys(JobState.values, 0)


@handler(kind="test.callback", service="test", payload=dict[str, str], idempotent=True, calls_out=False)
def callback(job: RunningJob[dict[str, str]]) -> Done:
    """Keep what it is told."""
    return Done({"payload": job.payload, "told": job.ended_batch and job.ended_batch.as_dict()})


def submit(*, count: int = 3, on_finish: dict[str, Any] = CALLBACK, **options: Any) -> Batch:
    make_project()
    lines = options.pop("lines", [LINE] * count)
    spec = parse_spec(on_finish)
    receipt = submit_batch(lines, project_id=ACME, actor="key:test", on_finish=spec, **options)
    return Batch.objects.get(pk=receipt.id)


def callback_of(batch: Batch) -> Job:
    assert batch.on_finish_job is not None
    return Job.objects.get(pk=batch.on_finish_job)


def jobs_of(batch: Batch) -> list[Job]:
    return list(Job.objects.filter(batch=batch).order_by("pk"))


def end(job: Job, *edges: str) -> None:
    for edge in ("dispatch", "start", *edges):
        move_along(edge, [job.pk])


def turn() -> int:
    return DependantsDuty().do()


def test_a_callback_waits_until_all_of_its_batch_has_ended_and_is_told_what_became_of_it():
    batch = submit(name="import")
    first, second, third = jobs_of(batch)
    told = callback_of(batch)
    assert (told.held, told.batch_id, told.ended_batch) == (True, None, {"batch": str(batch.pk), "name": "import"})
    end(first, "complete")
    end(second, "fail")
    assert (turn(), callback_of(batch).held) == (0, True)
    cancel_jobs([third.pk], actor="user:1", reason="not wanted")
    assert (turn(), callback_of(batch).held) == (1, False)
    counts = {**NOTHING, "completed": 1, "failed": 1, "cancelled": 1}
    assert callback_of(batch).ended_batch == {"batch": str(batch.pk), "name": "import", "counts": counts}
    assert batch.total == 3
    drain()
    told = callback_of(batch)
    expected = {"batch": str(batch.pk), "name": "import", "verdict": "succeeded_with_failures", "counts": counts}
    assert (told.status, told.result) == ("completed", {"payload": {"sheet": "A"}, "told": expected})


def test_a_batch_of_which_jobs_are_requeued_later_calls_back_no_second_time():
    batch = submit(count=1)
    [job] = jobs_of(batch)
    end(job, "fail")
    letter = DeadLetter.objects.get(pk=make_dead_letter(batch=batch).pk)
    finish_batches()
    turn()
    requeue_dead_letters([letter.pk], actor="user:1")
    assert Batch.objects.get(pk=batch.pk).finished_at is None
    [again] = Job.objects.filter(origin_id=letter.job_id)
    end(again, "complete")
    finish_batches()
    turn()
    assert Job.objects.filter(kind="test.callback").count() == 1
    assert JobEvent.objects.filter(job_id=callback_of(batch).pk, data__operation="waited").count() == 1


def test_a_requeue_just_after_the_end_was_seen_has_the_callback_wait_for_it():
    """Or the failed job would be queued in the counts, which then name no failure, and nobody calls again."""
    batch, whole = submit(count=1), submit(count=1)
    letter = make_dead_letter(batch=batch)
    for job in jobs_of(batch) + jobs_of(whole):
        if job.pk != letter.job_id:
            end(job, "complete")
    seen = run_sql_as(dependants.Verdict, "jobs", "choose_dependants", {"after": dependants.NO_ID, "most": 10})
    assert {one.verdict for one in seen} == {"go"}
    requeue_dead_letters([letter.pk], actor="user:1")
    dependants._end_waiting(seen)
    assert (callback_of(batch).held, callback_of(whole).held) == (True, False)
    assert (turn(), callback_of(batch).held) == (0, True)
    end(Job.objects.get(origin_id=letter.job_id), "complete")
    assert (turn(), turn(), callback_of(batch).held) == (1, 0, False)
    assert callback_of(batch).ended_batch == {
        "batch": str(batch.pk),
        "name": "",
        "counts": {**NOTHING, "completed": 2},
    }


def test_a_callback_that_is_told_to_go_on_all_the_same_does_not_wait_for_its_open_batch():
    batch = submit(count=1)
    dependants.go_on([callback_of(batch).pk], of_batch=False, actor="user:1")
    assert (turn(), callback_of(batch).held) == (1, False)
    told = callback_of(batch).ended_batch
    assert told is not None
    assert told["counts"]["queued"] == 1


def test_a_requeue_of_the_callback_knows_its_batch_still():
    batch = submit(count=1)
    end(jobs_of(batch)[0], "complete")
    turn()
    failed = callback_of(batch)
    end(failed, "fail")
    letter = DeadLetter.objects.create(
        job=failed,
        project_id=ACME,
        kind=failed.kind,
        service=failed.service,
        payload=failed.payload,
        error_code="x",
        error_class="x",
        error_message="x",
        attempts=[],
        retry_count=0,
        crash_count=0,
        fingerprint="f" * 32,
    )
    requeue_dead_letters([letter.pk], actor="user:1")
    again = Job.objects.get(origin_id=failed.pk)
    assert (again.held, again.ended_batch) == (False, failed.ended_batch)
    assert again.ended_batch is not None
    assert again.ended_batch["counts"]["completed"] == 1


def test_a_batch_of_nothing_but_duplicates_has_ended_at_once():
    make_project()
    line = {**LINE, "idempotency_key": "one"}
    submit_batch([line], project_id=ACME, actor="key:test")
    batch = submit(lines=[line])
    assert (turn(), callback_of(batch).held) == (1, False)
    assert callback_of(batch).ended_batch == {"batch": str(batch.pk), "name": "", "counts": NOTHING}


def test_a_batch_that_is_refused_leaves_no_callback():
    make_project()
    with pytest.raises(Exception, match="none was accepted"):
        submit(lines=[{"kind": "nobody.does"}])
    assert not Job.objects.exists()
    assert not Dependency.objects.exists()


@every_case(
    ("on_finish", "place", "raised"),
    [
        ({"kind": "nobody.does"}, "on_finish.kind", UnknownKind),
        ({"kind": KIND, "payload": {"method": "GET"}}, "on_finish.payload.url", InvalidJob),
        ({**CALLBACK, "retry_policy": "none such"}, "on_finish.retry_policy", InvalidJob),
        ({"kind": "queueops.webhook", "payload": {"delivery_id": str(uuid4())}}, "on_finish.kind", InvalidJob),
        *(
            ({**CALLBACK, name: value}, f"on_finish.{name}", InvalidJob)
            for name, value in {
                "scheduled_at": "2030-01-01T00:00:00Z",
                "expires_at": "2030-01-01T00:00:00Z",
                "complete_by": "2030-01-01T00:00:00Z",
                "delay_seconds": 5,
                "idempotency_key": "k",
                "after": [str(uuid4())],
                "on_failure": "run",
            }.items()
        ),
    ],
    undone=True,
)
def test_what_can_be_no_callback_is_refused_at_its_field_and_nothing_is_stored(on_finish, place, raised):
    with pytest.raises(raised) as refused:
        submit(on_finish=on_finish)
    assert place in refused.value.fields
    assert not Batch.objects.exists()
    assert not Job.objects.exists()


def test_a_callback_takes_every_field_of_a_job_that_is_not_refused():
    left = set(JobSpec.model_fields) - set(NOT_OF_A_CALLBACK)
    given = {
        "kind": "test.callback",
        "payload": {"sheet": "A"},
        "priority": "urgent",
        "user_id": str(uuid4()),
        "user_label": "Ada",
        "via": "live",
        "retry_policy": None,
        "cost": 3,
        "model": "m",
        "tags": ["done"],
    }
    assert set(given) == left
    job = callback_of(submit(on_finish=given))
    assert (job.priority, str(job.user_id), job.cost, job.model) == ("urgent", given["user_id"], 3, "m")


def test_an_end_users_callback_is_theirs_and_nobody_elses():
    user = uuid4()
    assert callback_of(submit(only_user=user)).user_id == user
    with pytest.raises(ForeignUser) as refused:
        submit(only_user=user, on_finish={**CALLBACK, "user_id": str(uuid4())})
    assert set(refused.value.fields) == {"on_finish.user_id"}


def test_the_callback_counts_towards_what_may_wait():
    make_project()
    Project.objects.filter(pk=ACME).update(max_waiting_jobs=3)
    with pytest.raises(QueueFull):
        submit(count=3)
    submit(count=2)


def test_an_http_callback_without_a_body_posts_what_became_of_the_batch():
    ended = EndedBatch(uuid4(), "import", {**NOTHING, "completed": 3})
    bodies: list[bytes] = []

    async def keep(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response()

    async def call() -> None:
        async with serving(keep) as url:
            for body in ({}, {"json": {"mine": 1}}):
                await arun_handler(KIND, {"method": "POST", "url": url, **body}, ended_batch=ended)
            await arun_handler(KIND, {"method": "POST", "url": url})
            await arun_handler(KIND, {"method": "DELETE", "url": url}, ended_batch=ended)

    asyncio.run(call())
    assert json.loads(bodies[0]) == ended.as_dict()
    assert json.loads(bodies[1]) == {"mine": 1}
    assert bodies[2:] == [b"", b""]


def race(batches: int, *, workers: int = 8, seed: int = 0) -> list[UUID]:
    """Workers submit batches, end each other's jobs and look whose waiting is over, all at once."""
    make_project()
    parts: list[list[UUID]] = [[] for _ in range(workers)]
    spec = parse_spec(CALLBACK)

    def work(number: int) -> None:
        chance, duty = random.Random(seed + number), DependantsDuty()  # noqa: S311 (which order, not a secret)
        for _ in range(batches // workers):
            receipt = submit_batch([LINE] * 3, project_id=ACME, actor="key:test", on_finish=spec)
            parts[number].append(receipt.id)
            jobs = list(Job.objects.filter(batch_id=receipt.id).values_list("pk", flat=True))
            chance.shuffle(jobs)
            for job in jobs:
                cancel_jobs([job], actor="user:1", reason="x")
                if chance.random() < 0.5:
                    duty.do()

    run_together(workers, work)
    return [one for part in parts for one in part]


def assert_each_called_back_once(batches: list[UUID]) -> None:
    while turn():
        pass
    assert not Dependency.objects.exists()
    callbacks = Job.objects.filter(kind="test.callback")
    assert set(callbacks.values_list("pk", flat=True)) == set(Batch.objects.values_list("on_finish_job", flat=True))
    assert not callbacks.filter(held=True).exists()
    assert {job.ended_batch["counts"]["cancelled"] for job in callbacks if job.ended_batch} == {3}
    events = JobEvent.objects.filter(job_id__in=callbacks.values("pk"), data__operation="waited")
    assert events.count() == len(batches) == callbacks.count()


@pytest.mark.django_db(transaction=True)
def test_each_of_many_batches_calls_back_once_with_eight_that_submit_end_and_look_at_once():
    batches = race(64)
    assert len(batches) == 64
    assert_each_called_back_once(batches)


def test_a_job_that_waits_for_others_is_no_callback():
    first = make_job(state=JobState.COMPLETED)
    spec = parse_spec({**LINE, "after": [str(first.pk)]})
    assert spec.on_failure == OnFailure.CANCEL
    submit_batch([spec.model_dump(mode="json")], project_id=ACME, actor="key:test")
    turn()
    assert set(Job.objects.values_list("ended_batch", flat=True)) == {None}
