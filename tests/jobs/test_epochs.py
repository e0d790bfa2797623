"""What a database that was put back to an earlier moment lets go of, and what it keeps."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from jobs.models import BatchSearch, DutyLease, Epoch, Executor, Job, PauseSwitch
from jobs.services.explain import event_log
from jobs.services.explain.event_log import log_cursor
from jobs.services.operate.epochs import AGED_SECONDS, declare_put_back, declare_restored
from jobs.services.operate.pauses import pause_scope
from jobs.services.upkeep.executors import take_duty
from jobs.services.upkeep.retention import ARCHIVING
from jobs.states import JobState
from queueops.core.sql import run_sql
from tests.factories import make_job, make_jobs, make_provider_batch
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def executor(heartbeat_at: datetime) -> UUID:
    made = Executor.objects.create(
        pid=Executor.objects.count() + 1, process_started_at=0.0, cluster_pid=1, slots=9, role="general"
    )
    Executor.objects.update_or_create(pk=made.pk, defaults={"heartbeat_at": heartbeat_at})
    return made.pk


def running_for(executor_id: UUID) -> Job:
    job = make_job(state=JobState.IN_PROGRESS)
    Job.objects.filter(pk=job.pk).update(executor=executor_id, lease_expires_at=Now() + DAY)
    return job


@pytest.mark.parametrize("every", [False, True])
def test_leases_and_duties_of_who_is_gone_end_and_who_lives_keeps_them(every: bool):
    holders = {
        "alive": executor(timezone.now()),
        "silent": executor(timezone.now() - DAY),
        "lost": uuid4(),  # its row did not come back
        "batch": make_provider_batch(state="created").pk,
    }
    for name, holder in holders.items():
        running_for(holder)
        take_duty(name, holder=holder, term_seconds=600)
    take_duty(ARCHIVING, holder=holders["silent"], term_seconds=600)
    done = declare_restored(actor="user:1", every=every)
    kept = {"batch"} if every else {"alive", "batch"}
    leased = Job.objects.filter(lease_expires_at__gt=Now()).values_list("executor", flat=True)
    assert set(leased) == {holders[name] for name in kept}
    duties = set(DutyLease.objects.values_list("duty", flat=True))
    assert duties == ({ARCHIVING} if every else {ARCHIVING, "alive"})
    assert (done.executors, done.leases, done.alive) == ((2, 3, 0) if every else (1, 2, 1))
    aged = Now() - timedelta(seconds=AGED_SECONDS)
    assert Executor.objects.filter(heartbeat_at__lte=aged).count() == done.executors, "upkeep rescues nobody's jobs"


def test_who_was_last_heard_of_before_the_server_started_or_long_ago_does_not_live():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        [started] = cursor.fetchone()
    # Not later: in a run of its own the test may begin within a second of the start.
    before, after = executor(started - timedelta(seconds=1)), executor(started + timedelta(microseconds=1))
    long_ago = Now() - timedelta(days=19)
    for silent, gone in ((10 * 86_400, {before}), (0, {before, after})):
        run_sql("jobs", "forget_executors", {"every": False, "silent": silent, "aged": 20 * 86_400})
        assert set(Executor.objects.filter(heartbeat_at__lt=long_ago).values_list("pk", flat=True)) == gone


def test_of_two_who_notice_the_same_loss_one_begins_an_epoch():
    began_at = Epoch.objects.get().began_at
    assert declare_put_back(since=began_at, actor="executor:1")
    epoch = Epoch.objects.get()
    PauseSwitch.objects.all().delete()
    assert not declare_put_back(since=began_at, actor="executor:2")
    assert not PauseSwitch.objects.exists(), "what somebody has resumed is paused again"
    assert (Epoch.objects.get(), str(Epoch.objects.get())) == (epoch, epoch.value)


def test_an_epoch_begins_after_the_one_before_although_the_clock_was_set_back():
    Epoch.objects.update(began_at=F("began_at") + DAY)
    before = Epoch.objects.get().began_at
    declare_restored(actor="user:1")
    assert Epoch.objects.get().began_at > before


def test_the_pause_that_there_was_tells_of_the_restore_afterwards():
    pause_scope("global", "", actor="user:1", reason="lunch")
    declare_restored(actor="user:2", reason="the disk died")
    switch = PauseSwitch.objects.get()
    assert (switch.reason, switch.paused_by) == ("the disk died", "user:2")


def test_an_epoch_that_somebody_deleted_begins_anew():
    Epoch.objects.all().delete()
    assert declare_put_back(since=timezone.now() + DAY, actor="executor:1")
    assert PauseSwitch.objects.filter(scope="global").exists()


def test_each_restore_has_the_providers_searched_anew():
    make_provider_batch()
    for _ in range(2):
        declare_restored(actor="user:1")
        [search] = BatchSearch.objects.all()
        assert search.made_before == Epoch.objects.get().began_at


@pytest.fixture
def settled(transactional_db, monkeypatch) -> int:
    """How far this process knows the log to be complete, before anything goes wrong."""
    monkeypatch.setattr(event_log, "_of_this_process", event_log.Horizon())
    monkeypatch.setattr(event_log, "MARK_SECONDS", 0.0)
    make_jobs(3)
    return wait_for(lambda: log_cursor().id, what="a cursor")


def test_a_cursor_of_an_epoch_before_is_forgotten(settled: int):
    epoch = declare_restored(actor="user:1").epoch
    assert log_cursor() == (0, epoch)
    make_job()
    wait_for(lambda: log_cursor().id >= settled, what="a cursor of the new epoch")


def test_a_cursor_beyond_a_log_that_went_back_is_forgotten_before_anybody_says_so(settled: int):
    """Or a caller would wait for events after it, and miss those that are written below it meanwhile."""
    event_log._of_this_process.settled = before = settled + 1_000_000
    assert log_cursor() == (0, Epoch.objects.get().value)
    make_job()
    assert settled <= wait_for(lambda: log_cursor().id, what="a cursor of what is there now") < before


def test_a_cursor_goes_on_where_the_database_has_no_epoch_yet_and_is_forgotten_once_it_has(settled: int, monkeypatch):
    Epoch.objects.all().delete()
    assert log_cursor() == (0, "")
    wait_for(lambda: log_cursor().id >= settled, what="a cursor without an epoch")
    monkeypatch.setattr(event_log, "MARK_SECONDS", 60.0)  # from here on nothing is marked anew
    assert log_cursor().id >= settled
    Epoch.objects.create(value="e" * 16, began_at=timezone.now())
    assert log_cursor() == (0, "e" * 16)


def test_a_cursor_is_not_forgotten_where_another_reader_settles_later_events_meanwhile(settled: int, monkeypatch):
    class Between:
        """The lock; before it is taken the second time, another reader settles an event that was just written."""

        taken = 0

        def __enter__(self) -> None:
            self.taken += 1
            if self.taken == 2:
                monkeypatch.setattr(event_log, "_lock", threading.Lock())
                make_job()
                wait_for(lambda: log_cursor().id > settled, what="a later cursor")

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(event_log, "_lock", Between())
    assert log_cursor().id > settled
