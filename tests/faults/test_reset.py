"""Jobs taken from an executor while it runs them, and claimed by the same one again."""

import pytest

from jobs.models import Job
from jobs.services.operate.job_actions import reset_to_pending
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import crashes, statuses, submit_work, wait_until_drained
from tests.support.processes import wait_for

COUNT = 10


@pytest.mark.usefixtures("transactional_db")
def test_a_running_job_that_is_reset_runs_again_in_the_same_executor(ledger: Ledger):
    with cluster(ledger, executors=1):
        for kind in ("wait_in_thread", "wait_and_tidy_up"):
            submit_work(COUNT, kind, gate="gate")
        for starts in (1, 2, 3):
            _wait_for_starts(ledger, starts * 2 * COUNT)
            if starts < 3:
                reset_to_pending(list(Job.objects.values_list("pk", flat=True)), actor="user:1", reason="again")
        ledger.open_gate("gate")
        wait_until_drained(seconds=60)
    assert statuses() == {JobState.COMPLETED: 2 * COUNT}
    assert set(Job.objects.values_list("retry_count", "crash_count")) == {(0, 0)}
    assert crashes() == []


def _wait_for_starts(ledger: Ledger, count: int) -> None:
    wait_for(lambda: len(ledger.entries("begin")) == count, what=f"start {count}")
