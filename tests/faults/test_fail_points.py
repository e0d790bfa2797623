"""R10: the process dies at a named point of a job's life; each point has one documented outcome."""

from itertools import product

import pytest

from jobs.models import DeadLetter, Job
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import crashes, submit_work, wait_until_drained

pytestmark = pytest.mark.proves("R10")

REPEATABLE = ("write", "write_in_thread")
ONCE = "write_once"
KINDS = (*REPEATABLE, ONCE)

# By point: how often an idempotent job's effect happens, and how often that of one that may not be repeated.
EFFECTS = {
    "after_claim": (1, 0),
    "before_effect": (1, 0),
    "after_effect": (2, 1),
    "before_ack": (2, 1),
    "after_ack": (1, 1),
}


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize(
    ("kinds", "points", "times"),
    [
        # Every point before and after each statement: tests/crash_points.
        pytest.param(("write", ONCE), ("after_effect",), 1, id="short"),
        pytest.param(KINDS, tuple(EFFECTS), 20, id="long", marks=pytest.mark.soak),
    ],
)
def test_a_process_killed_at_any_point_of_a_job_has_exactly_the_documented_outcome(
    *, kinds: tuple[str, ...], points: tuple[str, ...], times: int, ledger: Ledger, figures
):
    with cluster(ledger, executors=4, executor_slots=1, lease_seconds=2, renew_seconds=0.5) as running:
        before_the_end = product(sorted({*points} - {"after_ack"}), kinds)
        batches = [(point, kind, submit_work(times, kind, point=point)) for point, kind in before_the_end]
        wait_until_drained(seconds=60 + 10 * times)
        for kind in kinds * times if "after_ack" in points else ():
            # One at a time: the commit that ends a job may claim the next, which then dies with the process too.
            running.wait_until_ready()
            batches.append(("after_ack", kind, submit_work(1, kind, point="after_ack")))
            wait_until_drained()
        running.wait_until_ready()
    effects = ledger.by_job()
    for point, kind, batch in batches:
        repeatable, once = EFFECTS[point]
        lost_sight = kind == ONCE and point != "after_ack"
        for job in Job.objects.filter(batch=batch):
            where = f"{kind} at {point}"
            assert ledger.was_asked(f"{point}-{job.pk}"), f"{where}: nobody was killed"
            assert len(effects.get(job.pk, ())) == (once if kind == ONCE else repeatable), where
            assert job.status == (JobState.FAILED if lost_sight else JobState.COMPLETED), where
            assert job.crash_count == (0 if point == "after_ack" else 1), where
            assert job.retry_count == 0, f"{where}: a crash costs no attempt"
    letters = DeadLetter.objects.all()
    assert {letter.error_code for letter in letters} == {"outcome_unknown"}
    assert len(letters) == len({*points} - {"after_ack"}) * times
    figures(f"{Job.objects.count()} jobs, a kill each: {len(crashes())} charged, {len(letters)} outcomes unknown")
