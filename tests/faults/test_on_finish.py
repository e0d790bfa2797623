"""Callbacks of batches while executors, which end the jobs and let the callbacks go, are killed."""

from __future__ import annotations

import random
import time

import pytest

from jobs.models import Batch, Dependency, Job, JobEvent
from jobs.services.submit.prepare import parse_spec
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from tests.factories import make_project
from tests.faults.clusters import cluster, kill
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, wait_until_drained

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
