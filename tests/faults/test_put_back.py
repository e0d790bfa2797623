"""
P3, P5, R20: the database is put back to an earlier moment under what runs.

Nothing runs again before somebody says so, and sockets see the log that there is.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from jobs.features.watches.paused import watch_paused
from jobs.models import Epoch, Executor, Job, PauseSwitch
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.restore_detector import UNCERTAIN, RestoreDetector
from jobs.services.operate.epochs import PUT_BACK_REASON, declare_restored, ensure_epoch
from jobs.services.operate.pauses import resume_scope
from jobs.services.upkeep.executors import take_duty
from jobs.services.upkeep.retention import ARCHIVING, is_archived
from jobs.states import RUNNING
from queueops.audit.models import AuditEntry
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.tenancy.models import ProducerKey
from ratelimits.models import QuotaAlert
from tests.dashboards.live.conftest import web_process
from tests.factories import make_job, make_jobs, make_project
from tests.faults.clusters import cluster, kill
from tests.faults.ledger import Ledger
from tests.faults.records import statuses, submit_work, wait_until_drained
from tests.support.embedded import copy_files
from tests.support.event_log import log_event, writer
from tests.support.live import Watcher, live_client
from tests.support.own_server import bring_back
from tests.support.processes import wait_for

COUNT = 100
SLOTS = 10


@contextmanager
def _stopped(server: EmbeddedServer) -> Iterator[Path]:
    """Stopped for the block; its files, and where they may be kept."""
    server.stop("immediate")
    yield server.cluster
    bring_back(server)


def _keep(server: EmbeddedServer) -> Path:
    """A copy of the server's files as of now."""
    kept = server.cluster.with_name("kept")
    with _stopped(server) as files:
        copy_files(files, kept)
    return kept


def _put_back(server: EmbeddedServer, kept: Path) -> None:
    with _stopped(server) as files:
        shutil.rmtree(files)
        copy_files(kept, files)


@pytest.mark.proves("P5")
def test_what_ran_since_runs_again_only_after_somebody_has_resumed_it(server: EmbeddedServer, ledger: Ledger, figures):
    submit_work(2 * SLOTS, "wait", gate="both")
    submit_work(COUNT, "write", seconds=0.05)
    kept = _keep(server)
    before = str(Epoch.objects.get())
    with cluster(ledger, executor_slots=SLOTS) as running:
        # Both executors have claimed: who has claimed nothing knows but roughly what is lacking.
        wait_for(lambda: len(ledger.entries("begin")) == 2 * SLOTS, what="work in every slot")
        ledger.open_gate("both")
        wait_until_drained()
        assert len(ledger.by_job()) == COUNT
        _put_back(server, kept)
        wait_for(PauseSwitch.objects.filter(scope="global", reason=PUT_BACK_REASON).exists, what="the pause")
        running.wait_until_ready()
        assert str(Epoch.objects.get()) != before
        assert statuses() == {"queued": COUNT + 2 * SLOTS}, "jobs of the past were run again"
        assert {len(entries) for entries in ledger.by_job().values()} == {1}
        watch_paused()
        assert PUT_BACK_REASON in QuotaAlert.objects.get(kind="forgotten").message
        resume_scope("global", "", actor="op")
        wait_until_drained()
        assert {len(entries) for entries in ledger.by_job().values()} == {2}
        assert AuditEntry.objects.get(action="begin_epoch").actor.startswith("executor:")
    figures(f"{COUNT} jobs had run since; 0 calls before somebody resumed")


@pytest.mark.proves("P3", "R16")
@pytest.mark.parametrize(
    "more", [pytest.param(0, id="behind"), pytest.param(60, id="overtaken", marks=pytest.mark.soak)]
)
def test_p3_sockets_of_a_running_web_get_a_snapshot_and_then_every_event(more: int, server: EmbeddedServer):
    """P3. `overtaken`: others have written more than was lost before the relay is back."""
    _, key = ProducerKey.issue(make_project("acme"), name="producer")
    job = make_job()
    _log(job, 20)
    kept = _keep(server)
    with web_process() as (address, web), live_client(address) as client:
        watchers = [client.watch(path, key=key) for path in (f"jobs/{job.pk}", "me", f"jobs/{job.pk}")]
        for watcher in watchers:
            watcher.first("snapshot")
        lost = _log(job, 50)
        for watcher in watchers:
            watcher.wait_for_events(lost)
        before = watchers[0].epoch
        os.kill(web.pid, signal.SIGSTOP)
        try:
            _put_back(server, kept)
            _log(job, more)
        finally:
            os.kill(web.pid, signal.SIGCONT)
        for watcher in watchers:
            wait_for(partial(_has_snapshots, watcher, 2), seconds=60, what="a snapshot")
            assert watcher.of_type("snapshot")[-1]["epoch"] != before
        seen = [len(watcher.events) for watcher in watchers]
        new = _log(job, 30)
        for watcher, count in zip(watchers, seen, strict=True):
            wait_for(partial(_has_events, watcher, new, after=count), what="new events")
            assert watcher.close_code is None
        assert new & lost or more, "they have ids that were given before"
        back = client.watch(f"jobs/{job.pk}", key=key)
        back.first("snapshot")
        back.send({"resume": max(lost), "epoch": before})
        wait_for(partial(_has_snapshots, back, 2), what="a snapshot in answer to a cursor of the lost time")
        assert web.runs
    assert PauseSwitch.objects.get(scope="global").reason == PUT_BACK_REASON


def _has_snapshots(watcher: Watcher, count: int) -> bool:
    return len(watcher.of_type("snapshot")) >= count


def _has_events(watcher: Watcher, ids: set[int], *, after: int) -> bool:
    return ids <= {event["id"] for event in watcher.events[after:]}


def _log(job: Job, count: int) -> set[int]:
    with writer() as one:
        ids = {log_event(one, job) for _ in range(count)}
        one.commit()
    return ids


@pytest.mark.proves("R20", "P5")
def test_r20_a_restored_clone_with_workers_on_calls_nobody_before_somebody_resumes_it(
    server: EmbeddedServer, ledger: Ledger, figures
):
    """R20: executors that were never there before, which remember nothing."""
    submit_work(10, "wait", gate="held")
    with cluster(ledger, executor_slots=4) as dying:
        wait_for(lambda: len(ledger.entries("begin")) >= 4, what="calls under way")
        kept = _keep(server)
        for executor in dying.executors():
            kill(executor)
    submit_work(20, "write")
    _put_back(server, kept)
    begun = len(ledger.entries("begin"))
    told = StringIO()
    call_command("restored", "--yes", stdout=told)
    assert "faults.wait" in told.getvalue()
    assert "manage.py resume --over 10m" in told.getvalue()
    ledger.open_gate("held")
    with cluster(ledger) as running:
        wait_for(lambda: not Job.objects.filter(status__in=RUNNING).exists(), what="the rescue of what was running")
        living = [executor.pk for executor in running.executors()]
        wait_for(lambda: not Executor.objects.exclude(pk__in=living).exists(), what="rows of the dead forgotten")
        assert set(Job.objects.values_list("crash_count", flat=True)) == {0}, "the host went, and no job is to blame"
        assert (len(ledger.entries("begin")), ledger.entries("effect")) == (begun, [])
        resume_scope("global", "", actor="op")
        wait_until_drained()
    figures(f"{begun} calls before, 0 between the restore and the resume")


def test_restored_says_what_it_would_do_asks_and_takes_no_wrong_input(transactional_db: None):
    make_jobs(3)
    [claimed, *_] = claim_jobs(uuid4(), wanted=1, lease_seconds=600, turns=ClassTurns())
    before = str(Epoch.objects.get())
    assert take_duty(ARCHIVING, holder=uuid4(), term_seconds=0)

    def run(*options: str) -> str:
        said = StringIO()
        call_command("restored", *options, stdout=said)
        return said.getvalue()

    assert "1 calls were under way" in run("--dry-run", "--yes")
    with pytest.raises(CommandError, match="Nothing was changed"):
        run()
    assert (str(Epoch.objects.get()), _is_paused()) == (before, False)
    assert "Done: everything is paused" in run("--yes", "--reason", "the disk of db1\0 died")
    assert str(Epoch.objects.get()) != before
    assert PauseSwitch.objects.get().reason == "the disk of db1 died"
    assert not Job.objects.filter(lease_expires_at__gt=Now()).exists()
    assert is_archived(), "what was not archived would be deleted"
    assert AuditEntry.objects.filter(action="begin_epoch", after__under_way=1).count() == 1
    resume_scope("global", "", actor="op")
    [again] = claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns())
    assert again.token > claimed.token + 1_000_000, "a call of the lost time could prove a claim of this one"
    Epoch.objects.all().delete()
    with pytest.raises(CommandError, match="migrate first"):
        run("--yes")
    ensure_epoch()


@pytest.fixture
def witness(transactional_db: None) -> RestoreDetector:
    make_jobs(3)
    claimed = claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns())
    assert len(claimed) == 2
    witness = RestoreDetector(uuid4())
    witness.note(claimed)
    witness.refuse_the_past()
    return witness


def _is_paused() -> bool:
    return PauseSwitch.objects.filter(scope="global").exists()


def test_a_database_that_has_all_claims_is_left_alone(witness: RestoreDetector):
    claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns())
    Job.objects.filter(pk=Job.objects.values("pk")[:1]).delete()  # as retention does
    witness.refuse_the_past()
    RestoreDetector(uuid4()).refuse_the_past()
    assert not _is_paused()


def test_a_claim_that_the_database_lacks_pauses_it_once_whoever_notices(witness: RestoreDetector):
    other = RestoreDetector(uuid4())
    other.refuse_the_past()
    Job.objects.filter(fencing_token__gt=0).update(fencing_token=0)
    before = Epoch.objects.get()
    witness.refuse_the_past()
    assert _is_paused()
    epoch = Epoch.objects.get()
    assert epoch.began_at > before.began_at
    resume_scope("global", "", actor="op")
    witness.refuse_the_past()
    other.refuse_the_past()
    assert not _is_paused(), "what was resumed is paused again"
    assert Epoch.objects.get() == epoch


def test_a_claim_whose_job_the_database_lacks_is_missed_by_its_token(witness: RestoreDetector):
    """The job came after the moment to which the database was put back: there is no row to compare."""
    [claimed] = claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns())
    witness.note([claimed])
    Job.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('jobs_fencing_token', %s)", [claimed.token - 1])
    witness.refuse_the_past()
    assert _is_paused()


def test_what_somebody_has_looked_at_since_is_left_alone(witness: RestoreDetector):
    Job.objects.filter(fencing_token__gt=0).update(fencing_token=0)
    epoch = declare_restored(actor="op").epoch
    resume_scope("global", "", actor="op")
    witness.refuse_the_past()
    assert not _is_paused()
    assert str(Epoch.objects.get()) == epoch


def test_a_database_of_an_epoch_before_is_paused_although_no_claim_is_missed(witness: RestoreDetector):
    Epoch.objects.update(began_at=F("began_at") - timedelta(days=1), value="before")
    witness.refuse_the_past()
    assert _is_paused()


def test_an_executor_that_has_claimed_nothing_knows_how_far_the_others_had_come(witness: RestoreDetector, monkeypatch):
    idle = RestoreDetector(uuid4())
    make_jobs(1)
    monkeypatch.setattr(
        "jobs.services.claim.restore_detector.UNCERTAIN", -UNCERTAIN
    )  # as if so many more had been claimed
    idle.refuse_the_past()
    idle.refuse_the_past()
    assert _is_paused()
