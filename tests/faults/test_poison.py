"""R6: jobs that bring down their process are found and buried; nobody else is harmed."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from dashboards.metrics.samples import Value, read_samples
from jobs.features.recovery.event_fold import fold
from jobs.models import DeadLetter, Job, JobEvent
from jobs.states import JobState
from ratelimits.models import QuotaAlert
from tests.factories import make_jobs
from tests.faults.clusters import cluster, is_running
from tests.faults.ledger import Ledger
from tests.faults.records import statuses, submit_work, wait_until_drained
from tests.support.processes import wait_for

ENOUGH_TO_COMPARE = 10_000  # fewer are done in less time than one lease
# Each of a line after those before it are buried: a death is charged to every job that the process carried, and who is
# carried along twice, by one that is quicker, is tried alone then, and kills but once itself.
POISON = (("exit", "memory_bomb"), ("segfault",), ("spin",))
KINDS = [f"faults.{kind}" for kinds in POISON for kind in kinds]
SHORT_LEASE = {"lease_seconds": 2, "renew_seconds": 0.4, "sweep_seconds": 0.2}

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R6")]


@pytest.mark.parametrize(
    ("innocents", "copies"),
    [pytest.param(200, 1, id="short"), pytest.param(20_000, 3, id="long", marks=pytest.mark.soak)],
)
def test_poison_is_buried_after_three_crashes_and_harms_no_other_job(innocents, copies, ledger: Ledger, figures):
    with (
        ThreadPoolExecutor(1) as threads,
        cluster(ledger, executors=3, executor_slots=20, faults_stuck_seconds=1, **SHORT_LEASE) as running,
    ):
        calm = _seconds_for(innocents)
        _submit(POISON[0], copies)
        burying = threads.submit(_bury, copies)
        poisoned = _seconds_for(innocents)
        burying.result()
        wait_until_drained(seconds=60 + 60 * copies)
        running.wait_until_ready()
        assert running.process.runs
        assert "does not answer" in running.output, "the blocked process was not named in the log"
    told = QuotaAlert.objects.filter(kind="worker_died", severity="critical")
    assert {"faults.exit", "faults.segfault"} <= set(told.values_list("subject", flat=True))
    assert all("whose handler was at work" in alert.message for alert in told if alert.subject == "faults.exit")
    letters = {(letter.kind, letter.error_code) for letter in DeadLetter.objects.all()}
    assert letters == {(kind, "poison") for kind in KINDS}
    assert set(DeadLetter.objects.values_list("crash_count", flat=True)) == {3}
    assert all(1 <= len(starts) <= 3 for starts in ledger.by_job("begin").values())
    assert not Job.objects.filter(service="faults").exclude(status=JobState.COMPLETED).exists()
    hit = Job.objects.filter(service="faults", crash_count__gt=0).count()
    figures(
        f"{copies * len(KINDS)} poison jobs buried after 3 crashes each; {2 * innocents:,} innocents completed, "
        f"{hit} of them hit by another's crash, in {calm:.1f} s without poison and {poisoned:.1f} s with it"
    )
    if innocents >= ENOUGH_TO_COMPARE:
        assert calm / poisoned >= 0.8


def _submit(kinds: Iterable[str], copies: int) -> None:
    for kind in kinds:
        submit_work(copies, kind)


def _bury(copies: int) -> None:
    """Wait until the first line of POISON is buried, then submit the next, and so on; for a thread."""
    try:
        for place, kinds in enumerate(POISON):
            if place:
                _submit(kinds, copies)
            buried = copies * sum(map(len, POISON[: place + 1]))
            all_are = DeadLetter.objects.order_by("pk")[buried - 1 : buried].exists
            wait_for(all_are, seconds=60 + 60 * copies, what=f"the burial of {kinds}")
    finally:
        connection.close()


def _seconds_for(innocents: int) -> float:
    """How long so many harmless jobs take."""
    begun = time.monotonic()
    batch = submit_work(innocents, "write", seconds=0.05)
    unfinished = Job.objects.filter(batch=batch).exclude(status=JobState.COMPLETED)
    wait_for(lambda: not unfinished.exists(), seconds=60 + innocents / 50, what="the end of the innocents")
    return time.monotonic() - begun


def test_an_executor_that_is_stuck_is_killed_from_outside_and_its_jobs_go_on_elsewhere(ledger: Ledger):
    with cluster(ledger, executors=2, faults_stuck_seconds=1, loop_budget_seconds=0.5, **SHORT_LEASE) as running:
        submit_work(20, "wait", gate="gate")
        wait_for(lambda: len(ledger.entries("begin")) == 20, what="the start of the neighbours")
        submit_work(1, "spin", gate="once")
        running.process.wait_for_output("does not answer")
        ledger.open_gate("gate")
        wait_until_drained()
        [spinner] = Job.objects.filter(kind="faults.spin")
        [stuck, heir] = [entry.pid for entry in ledger.by_job("begin")[spinner.pk]]
        assert f"killing its process {stuck}" in running.output
        assert f"job {spinner.pk} (faults.spin, project faults) has held the loop" in running.output
        assert JobEvent.objects.filter(job_id=spinner.pk, data__quarantine=True).exists(), "it did not run alone next"
        assert not is_running(stuck)
        assert is_running(heir)
    assert statuses() == {JobState.COMPLETED: 21}


def test_an_executor_whose_handler_ignores_its_time_limit_renews_itself_and_harms_no_other_job(ledger: Ledger):
    with cluster(ledger, executors=1, faults_overrun_seconds=0.5, drain_grace_seconds=10, **SHORT_LEASE) as running:
        [before] = running.general()
        submit_work(5, "wait", gate="gate")
        submit_work(1, "spin_in_thread")
        running.process.wait_for_output("it renews itself")
        assert is_running(before.pid), "it did not let its other jobs end"
        ledger.open_gate("gate")
        wait_until_drained()
        wait_for(lambda: not is_running(before.pid), what="the end of the process with the lost thread")
        running.wait_until_ready()
        submit_work(1, "write")
        wait_until_drained()
    assert DeadLetter.objects.get().error_code == "timeout"
    assert Job.objects.filter(status=JobState.COMPLETED, crash_count=0, retry_count=0).count() == 6


@pytest.mark.usefixtures("quick_retries")
def test_a_job_that_holds_its_loop_is_named_and_runs_alone_from_then_on_and_no_other_tenant_waits(ledger: Ledger):
    with cluster(ledger, executor_slots=20, loop_budget_seconds=0.3, faults_stuck_seconds=600) as running:
        submit_work(1, "hold", gate="gate", ending="retry")
        holder = Job.objects.get()
        told = JobEvent.objects.filter(job_id=holder.pk, event_type="error", data__operation="loop_held")
        wait_for(told.exists, what="the word of the loop that is held")
        others = make_jobs(50, project="globex", kind="faults.write", service="faults", payload="{}")
        waiting = Job.objects.unfinished().filter(pk__in=[job.pk for job in others])
        wait_for(lambda: not waiting.exists(), seconds=60, what="the end of another tenant's jobs")
        alerts = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.STUCK_EXECUTOR, resolved_at=None)
        wait_for(alerts.exists, seconds=60, what="the alert")
        assert f"job {holder.pk} (faults.hold, project faults)" in alerts.get().message
        assert f"job {holder.pk} (faults.hold, project faults) has held the loop of its worker" in running.output
        assert "hold (" in running.output, "the log does not say where"
        [entry] = ledger.entries("begin")
        counted = {
            sample.labels[1]: sample.value
            for sample in read_samples()
            if isinstance(sample, Value) and sample.metric == "executor_loops_held"
        }
        assert counted.pop(str(entry.pid)) == 1
        assert set(counted.values()) == {0}
        ledger.open_gate("gate")
        wait_for(lambda: not Job.objects.unfinished().exists(), seconds=60, what="the end of the job that held it")
    claims = JobEvent.objects.filter(job_id=holder.pk, to_status=JobState.DISPATCHED).order_by("id")
    assert len(claims) > 1
    assert ["quarantine" in (claim.data or {}) for claim in claims] == [False] + [True] * (len(claims) - 1)
    assert DeadLetter.objects.get().error_code == "http_408"
    holder.refresh_from_db()
    assert fold(JobEvent.objects.filter(job_id=holder.pk).order_by("id")).crash_count == holder.crash_count == 2
    assert Job.objects.filter(pk__in=[job.pk for job in others], status=JobState.COMPLETED).count() == len(others)
