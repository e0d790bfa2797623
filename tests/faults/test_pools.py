"""Real clusters that serve pools."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.features.pools.pools import save_pool
from jobs.models import Executor, Job, JobEvent
from jobs.services.explain.waiting import explain_waiting
from jobs.states import JobState
from ratelimits.models import QuotaAlert
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import submit_work, wait_until_drained
from tests.support.processes import manage, wait_for

pytestmark = pytest.mark.usefixtures("transactional_db")

JOBS = 20


def test_clusters_of_pools_do_what_is_theirs_and_house_keeping_for_all(ledger: Ledger):
    save_pool("writes", kinds=["faults.write"], actor="user:1")
    with cluster(ledger, executors=1, pool="writes") as writes:
        submit_work(JOBS, "write")
        submit_work(JOBS, "write_once")
        reads = Job.objects.filter(kind="faults.write_once")
        wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == JOBS, what="the pool's jobs")
        # Its executors do the duties of all: they promote, and tell of what nobody serves.
        reads.update(scheduled_at=timezone.now())
        wait_for(lambda: not reads.exclude(scheduled_at=None).exists(), what="promotion of others' jobs")
        wait_for(
            lambda: QuotaAlert.objects.filter(message__contains="No pool names kind faults.write_once").exists(),
            what="the alert",
        )
        assert reads.filter(status=JobState.QUEUED, held=False, lane=None).count() == JOBS
        waiting = explain_waiting(reads[0])
        assert waiting is not None
        assert waiting.reasons[-1].code == "pool"
        save_pool("reads", kinds=["faults.write_once"], actor="user:1")
        with cluster(ledger, executors=1, pool="reads") as others:
            wait_until_drained()
            pools = dict(Executor.objects.values_list("pk", "pool"))
            assert {pools[one.pk] for one in writes.executors()} == {"writes"}
            assert {pools[one.pk] for one in others.executors()} == {"reads"}
            wait_for(lambda: not QuotaAlert.objects.filter(kind="unserved", resolved_at=None).exists(), what="its end")
    dispatched = JobEvent.objects.filter(to_status=JobState.DISPATCHED)
    by_executor = {executor for (executor,) in dispatched.values_list("data__executor")}
    assert len(by_executor) == 2
    assert Job.objects.filter(status=JobState.COMPLETED, retry_count=0, crash_count=0).count() == 2 * JOBS


def test_a_cluster_of_an_unknown_pool_does_not_start(ledger: Ledger):
    save_pool("llm", kinds=["x"], actor="user:1")
    for arguments, environ in ((("--pool", "lmm"), {}), ((), {"QUEUEOPS_POOL": "lmm"})):
        with manage("qcluster", *arguments, environ=environ) as process:
            process.wait_for_output(
                "QUEUEOPS_POOL (or --pool) must be the name of a pool; 'lmm' is none. There are: llm."
            )
            assert process.process.wait(120) == 1
    assert not Executor.objects.exists()
