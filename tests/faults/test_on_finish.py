"""Callbacks of batches while executors, which end the jobs and let the callbacks go, are killed."""

from __future__ import annotations

import itertools
import random
import time
from functools import partial

import pytest

from jobs.features.dependencies.dependants import DependantsDuty
from jobs.models import Batch, Dependency, Job, JobEvent
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.spec import parse_spec
from jobs.services.submit.submit import submit_batch
from jobs.states import WAITING, JobState
from tests.factories import make_project
from tests.faults.clusters import cluster, kill
from tests.faults.forks import forked
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, wait_until_drained
from tests.support.processes import wait_for

BATCHES, JOBS, KILLS = 12, 5, 1


@pytest.mark.usefixtures("transactional_db", "quick_retries")
def test_each_batch_calls_back_once_whoever_is_killed(ledger: Ledger):
    dice = random.Random(7)  # noqa: S311 - draws victims
    make_project(PROJECT)
    callback = parse_spec({"kind": "faults.told_of_batch"})
    work = {"kind": "faults.write", "payload": {"seconds": 0.2}}
    with cluster(ledger, executors=3, executor_slots=4) as running:
        for _ in range(BATCHES):
            submit_batch([work] * JOBS, project_id=PROJECT, actor="key:test", on_finish=callback)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.5, 1.0))  # the pace of the kills
            if victims := running.executors():
                kill(dice.choice(victims))
        wait_until_drained()
    assert not Dependency.objects.exists()
    callbacks = {job.pk: job for job in Job.objects.filter(kind="faults.told_of_batch")}
    assert len(callbacks) == BATCHES
    assert set(Batch.objects.values_list("on_finish_job", flat=True)) == callbacks.keys()
    for job in callbacks.values():
        assert job.status == JobState.COMPLETED
        assert job.result is not None
        assert job.result["counts"] == {**dict.fromkeys(JobState.values, 0), "completed": JOBS}
        released = JobEvent.objects.filter(job_id=job.pk, data__operation="waited")
        assert released.count() == 1


LINE = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}
LINES = 3  # of a batch


def submit_end_and_let_go(seed: int, batches: int) -> None:
    """Submit batches with callbacks, end jobs and let callbacks go, until there are so many batches."""
    chance, duty, callback = random.Random(seed), DependantsDuty(), parse_spec({**LINE, "tags": ["callback"]})  # noqa: S311
    open_jobs = Job.objects.filter(batch__isnull=False, status__in=sorted(WAITING)).order_by()
    while not are_stored(batches):
        submit_batch([LINE] * LINES, project_id=PROJECT, actor="key:test", on_finish=callback)
        # Whatever the others have submitted, too: some end a batch that another one is ending.
        found = list(open_jobs.values_list("pk", flat=True)[: 8 * LINES])
        cancel_jobs(chance.sample(found, min(len(found), LINES + 1)), actor="user:1", reason="x")
        if chance.random() < 0.5:
            duty.do()


def are_stored(batches: int) -> bool:
    return Batch.objects.count() >= batches


@pytest.mark.soak
@pytest.mark.usefixtures("transactional_db")
def test_of_eight_that_end_batches_and_let_callbacks_go_whoever_is_killed_each_goes_once():
    batches, kills = 10_000, 100
    dice, numbers = random.Random(7), itertools.count()  # noqa: S311 - draws victims
    make_project(PROJECT)
    workers = [forked(submit_end_and_let_go, next(numbers), batches) for _ in range(8)]
    for turn in range(1, kills + 1):
        wait_for(partial(are_stored, batches * turn // (kills + 1)), seconds=120, what=f"kill number {turn}")
        victim = dice.randrange(8)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = forked(submit_end_and_let_go, next(numbers), batches)
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    left = Job.objects.filter(batch__isnull=False, status__in=sorted(WAITING))
    while some := list(left.values_list("pk", flat=True)[:1000]):
        cancel_jobs(some, actor="user:1", reason="x")
    duty = DependantsDuty()
    while duty.do():
        pass
    assert not Dependency.objects.exists()
    callbacks = Job.objects.filter(batch=None)
    assert set(callbacks.values_list("pk", flat=True)) == set(Batch.objects.values_list("on_finish_job", flat=True))
    assert not callbacks.filter(held=True).exists()
    assert {job.ended_batch["counts"]["cancelled"] for job in callbacks if job.ended_batch} == {LINES}
    released = JobEvent.objects.filter(job_id__in=callbacks.values("pk"), data__operation="waited")
    assert released.count() == released.values("job_id").distinct().count() == callbacks.count() >= batches
