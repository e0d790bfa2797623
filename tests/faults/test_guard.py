"""20,000 wrong payloads before executors of a thousand slots: the batch stops itself, and a canary decides the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from pydantic import BaseModel

from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Batch, DeadLetter, Job
from jobs.services.operate import bulk
from jobs.services.operate.bulk_outcome import Canary
from jobs.services.operate.bulk_run import run_bulk_chunk
from jobs.services.operate.pauses import resume_batch
from jobs.services.submit.submit import submit_batch
from tests.factories import make_project

pytestmark = [pytest.mark.soak, pytest.mark.django_db(transaction=True)]
JOBS = 20_000


class Wrong(BaseModel):
    nr: int = 0


@handler(kind="test.wrong_payload", service="wrong", payload=Wrong, idempotent=True)
async def wrong_payload(job: RunningJob[Wrong]) -> Done:
    raise ProviderError(404, "There is no such sheet.", code="no_such_sheet", outcome="answered")


@pytest.fixture
def executors() -> Iterator[None]:
    options = ExecutorSettings(
        slots=1000, lease_seconds=60, renew_seconds=15, sweep_seconds=15, poll_seconds=0.2, drain_grace_seconds=5,
        listen=True,
    )  # fmt: skip
    running = [ExecutorPump(options, cluster_pid=os.getpid()) for _ in range(3)]
    for one in running:
        one.start()
    yield
    for one in running:
        one.stop()


def wait_for(is_so: Callable[[], bool], *, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_at_most_three_hundred_are_burnt_and_a_canary_of_twenty_decides_the_other_19_980(executors):
    make_project("acme", guard_percent=20)
    lines = ({"kind": "test.wrong_payload", "payload": {"nr": nr}} for nr in range(JOBS))
    batch = Batch.objects.filter(pk=submit_batch(lines, project_id="acme", actor="key:test").id)
    jobs = Job.objects.filter(batch__in=batch)
    wait_for(lambda: batch.get().guard_state == "stopped" and not jobs.filter(status="in_progress").exists())
    assert jobs.filter(status="failed").count() <= 300
    resume_batch(batch.get().pk, actor="user:1")
    wait_for(lambda: DeadLetter.objects.open().count() == JOBS)
    operation = bulk.start_bulk_requeue({"batch_id": str(batch.get().pk)}, actor="user:1", canary=Canary(20))
    wait_for(lambda: not run_bulk_chunk(operation.pk))
    operation.refresh_from_db()
    assert (operation.status, operation.done, operation.canary_state) == ("failed", 20, "failed")
    assert DeadLetter.objects.filter(resolution=None).count() == JOBS  # 19,980, and the twenty that failed again
