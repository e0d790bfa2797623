"""Callbacks of batches while executors, which end the jobs and let the callbacks go, are killed."""

from __future__ import annotations

import itertools
import random
import signal
import sys
import time
from contextlib import ExitStack
from functools import partial

import pytest

from jobs.models import Batch, Dependency, Job, JobEvent
from jobs.services.operate.dependants import DependantsDuty
from jobs.services.operate.operate import cancel_jobs
from jobs.services.submit.spec import parse_spec
from jobs.services.submit.submit import submit_batch
from jobs.states import WAITING, JobState
from tests.factories import make_project
from tests.faults import finishers
from tests.faults.clusters import cluster, kill
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, wait_until_drained
from tests.support.processes import RunningProcess, database_url, started, wait_for

BATCHES, JOBS, KILLS = 40, 5, 4


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


def are_stored(batches: int) -> bool:
    return Batch.objects.count() >= batches


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize(
    ("batches", "kills"),
    [pytest.param(160, 8, id="short"), pytest.param(10_000, 100, id="long", marks=pytest.mark.soak)],
)
def test_of_eight_that_end_batches_and_let_callbacks_go_whoever_is_killed_each_goes_once(*, batches: int, kills: int):
    dice, numbers = random.Random(7), itertools.count()  # noqa: S311 - draws victims
    make_project(finishers.PROJECT)
    with ExitStack() as stack:

        def begin() -> RunningProcess:
            command = (sys.executable, "-m", "tests.faults.finishers", str(next(numbers)), str(batches))
            environ = {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "queueops.settings"}
            return stack.enter_context(started(*command, environ=environ))

        workers = [begin() for _ in range(8)]
        for turn in range(1, kills + 1):
            wait_for(partial(are_stored, batches * turn // (kills + 1)), seconds=120, what=f"kill number {turn}")
            victim = dice.randrange(8)
            workers[victim].stop(signal.SIGKILL)
            workers[victim] = begin()
        for worker in workers:
            assert worker.process.wait(120) == 0, worker.output
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
    assert {job.ended_batch["counts"]["cancelled"] for job in callbacks if job.ended_batch} == {finishers.JOBS}
    released = JobEvent.objects.filter(job_id__in=callbacks.values("pk"), data__operation="waited")
    assert released.count() == released.values("job_id").distinct().count() == callbacks.count() >= batches
