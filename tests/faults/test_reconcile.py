"""A database that was put back to an earlier moment learns from the outcome log what had run since."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from tests.faults.clusters import cluster, kill
from tests.faults.ledger import Ledger
from tests.faults.records import counted, submit, submit_work, wait_until_drained
from tests.support.earlier import Clock
from tests.support.processes import wait_for

pytestmark = pytest.mark.usefixtures("transactional_db", "quick_retries")


def said(*arguments: object, **options: object) -> str:
    out = StringIO()
    call_command("reconcile", *map(str, arguments), stdout=out, **options)
    return out.getvalue()


def of_kind(kind: str) -> set[UUID]:
    return set(Job.objects.filter(kind=f"faults.{kind}").values_list("pk", flat=True))


@pytest.mark.proves("P5")
def test_what_had_run_since_the_restored_moment_does_not_run_again(clock: Clock, ledger: Ledger, tmp_path: Path):
    log = tmp_path / "outcomes"
    batch = submit({"kind": f"faults.{kind}", "payload": {}} for kind in ("write", "write_once") for _ in range(20))
    failing = submit_work(3, "wait", gate="open", ending="fail")
    submit_work(2, "wait", gate="never")
    submit_work(2, "wait_once", gate="never")
    later = submit([{"kind": "faults.write", "payload": {}, "delay_seconds": 3600}])
    clock.keep_moment()
    ledger.open_gate("open")

    with cluster(ledger, executors=2, outcome_log=log) as running:
        wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == 40, what="what is to complete")
        wait_for(lambda: Job.objects.filter(status=JobState.FAILED).count() == 3, what="what is to fail")
        wait_for(lambda: len(ledger.entries("begin")) == 7, what="the beginning of what waits")
        submit_work(1, "write")
        wait_for(lambda: len(ledger.entries()) == 41, what="what was submitted later")
        wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == 41, what="its end")
        for executor in running.executors():
            kill(executor)  # what waits has begun, and nobody tells its end
        results = dict(Job.objects.filter(batch=batch).values_list("pk", "result"))
    effects = {job: len(entries) for job, entries in ledger.by_job().items()}

    clock.put_back()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.QUEUED}
    with pytest.raises(CommandError, match="Not everything is paused"):
        said(log, apply=True, yes=True)
    pause_scope("global", "", actor="user:1")
    rows = list(Job.objects.order_by("pk").values())
    shown = said(log)
    for line in (
        "40  completed, and waits here",
        "3  failed for good, and waits here",
        "2  begun, end unknown, may not be repeated",
        "2  begun, end unknown, may be repeated",
        "1  not in this database",
        "Nothing was changed. --apply does it.",
    ):
        assert line in shown
    assert list(Job.objects.order_by("pk").values()) == rows
    assert "40 completed, 5 became dead letters" in said(log, apply=True, yes=True)
    assert dict(Job.objects.filter(batch=batch).values_list("pk", "result")) == results
    again = said(log, apply=True, yes=True)
    assert "completed, and waits here" not in again
    assert AuditEntry.objects.filter(action="reconcile").count() == 1
    event = JobEvent.objects.filter(to_status=JobState.COMPLETED).order_by("id")[0]
    assert event.data is not None
    assert (event.from_status, event.data["actor"]) == (JobState.QUEUED, "system:reconcile")
    letters = dict(DeadLetter.objects.values_list("job_id", "error_code"))
    assert letters == dict.fromkeys(Job.objects.filter(batch=failing).values_list("pk", flat=True), "http_400") | (
        dict.fromkeys(of_kind("wait_once"), "outcome_unknown")
    )
    call_command("replay", stdout=StringIO())

    ledger.open_gate("never")
    with cluster(ledger, executors=2, outcome_log=log):
        resume_scope("global", "", actor="user:1")
        Job.objects.filter(batch=later).update(scheduled_at=None)
        wait_until_drained()
    now = {job: len(entries) for job, entries in ledger.by_job().items()}
    assert now == effects | dict.fromkeys(Job.objects.filter(batch=later).values_list("pk", flat=True), 1)
    assert {entry.job for entry in ledger.entries("end")} - of_kind("wait") == set()
    assert Job.objects.filter(kind="faults.wait", payload__gate="never", status=JobState.COMPLETED).count() == 2
    assert counted() == {"completed": 43, "failed": 5}


def test_a_call_that_ends_while_the_database_is_away_is_told_by_the_log(clock: Clock, ledger: Ledger, tmp_path: Path):
    """Claimed before the moment, ended after it: the row runs, and its workers could not write its end."""
    log = tmp_path / "outcomes"
    submit_work(3, "wait_once", gate="g")
    with cluster(ledger, executors=1, outcome_log=log):
        wait_for(lambda: len(ledger.entries("begin")) == 3, what="the beginning of the calls")
        pause_scope("global", "", actor="user:1")
        clock.cut_off()
        ledger.open_gate("g")
        wait_for(lambda: ended(log) == 3, what="the ends in the log")
    clock.let_in()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.IN_PROGRESS}
    wait_for(lambda: "3  completed, and waits here" in said(log), what="the end of the leases")
    assert "3 completed" in said(log, apply=True, yes=True)
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
    assert Job.objects.filter(result__pid__gt=0).count() == 3
    assert counted() == {"completed": 3}


def ended(log: Path) -> int:
    lines = [json.loads(line) for path in log.glob("*.ndjson") for line in path.read_text().splitlines()]
    return sum(line["event"] == "ended" for line in lines)
