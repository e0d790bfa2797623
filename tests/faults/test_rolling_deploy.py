"""A release is rolled out: workers that do not know a kind, or a payload, leave it to those that do."""

from __future__ import annotations

import pytest

from jobs.models import DeadLetter, Job, JobEvent, PauseSwitch
from jobs.states import JobState
from ratelimits.models import QuotaAlert
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import submit, submit_work, wait_until_drained
from tests.support.processes import wait_for

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("P12")]

JOBS = 20


def dispatches() -> int:
    return JobEvent.objects.filter(to_status=JobState.DISPATCHED).count()


def test_jobs_of_a_kind_that_no_worker_knows_wait_unharmed_for_one_that_does(ledger: Ledger):
    with cluster(ledger, executors=1, extra_apps=""):
        submit_work(JOBS, "write")
        wait_for(lambda: Job.objects.filter(held=True).count() == JOBS, what="all jobs out of the claims' way")
        wait_for(lambda: QuotaAlert.objects.filter(kind="unserved", resolved_at=None).exists(), what="the alert")
        assert "No worker knows kind faults.write" in QuotaAlert.objects.get(kind="unserved").message
        submit_work(JOBS, "write")
        assert Job.objects.filter(held=True).count() == 2 * JOBS
        assert (dispatches(), DeadLetter.objects.count()) == (0, 0)
        with cluster(ledger, executors=1):
            wait_until_drained()
            assert not PauseSwitch.objects.exists()
            submit_work(JOBS, "write")
            wait_until_drained()
            wait_for(lambda: not QuotaAlert.objects.filter(kind="unserved", resolved_at=None).exists(), what="its end")
    assert dispatches() == 3 * JOBS
    assert Job.objects.filter(status=JobState.COMPLETED, retry_count=0, crash_count=0).count() == 3 * JOBS


def test_payloads_of_a_later_release_wait_for_a_worker_of_it(ledger: Ledger):
    with cluster(ledger, executors=1, faults_release="old"):
        submit({"kind": "faults.versioned", "payload": payload} for payload in [{}, {"later": "x"}] * 3)
        misfits = Job.objects.filter(payload__has_key="later")
        wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == 3, what="the end of those that fit")
        wait_for(lambda: misfits.filter(held=True).count() == 3, what="the others out of the claims' way")
        assert set(misfits.values_list("retry_count", "last_error_code")) == {(0, "invalid_payload")}
        with cluster(ledger, executors=1):
            wait_until_drained()
    assert set(Job.objects.values_list("status", "retry_count")) == {(JobState.COMPLETED, 0)}
    assert not DeadLetter.objects.exists()
