"""
R18: a base backup and archived write-ahead log, as docs/how-to/point-in-time-recovery.md has them.

They are restored after the loss of the server and its disk while work went on.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from django.db import Error, connection

from jobs.models import Batch, Epoch, Job, PauseSwitch
from jobs.services.operate.epochs import PUT_BACK_REASON
from jobs.services.operate.pauses import resume_scope
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.embedded.host import system_user
from queueops.core.postgres.archiver import archiver_standing
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import submit_work, wait_until_drained
from tests.support.awake import AwakeClock, awake
from tests.support.embedded import copy_files
from tests.support.own_server import bring_back
from tests.support.processes import wait_for

RPO_SECONDS = 10.0
ARCHIVE_TIMEOUT = 5  # seconds; as the page has it, and less in the short form, which would end before
RTO_SECONDS_PER_GIGABYTE = 60.0
GIGABYTE = 1e9
DRAWN_AHEAD = 32  # of a sequence, by each record of the log


@pytest.mark.proves("R18", "R20")
@pytest.mark.parametrize(
    "seconds", [pytest.param(6.0, id="short"), pytest.param(60.0, id="long", marks=pytest.mark.soak)]
)
def test_r18_what_was_accepted_ten_seconds_before_the_loss_is_there_and_nothing_runs_again_unasked(
    seconds: float, server: EmbeddedServer, ledger: Ledger, figures
):
    """R18, R20, P5: RPO at most 10 s, RTO at most 60 s a GB, 0 calls before somebody resumes."""
    archive, base = _directory(server, "archive"), _directory(server, "base")
    _archive(server, archive, timeout=2 if seconds < ARCHIVE_TIMEOUT * 2 else ARCHIVE_TIMEOUT)
    server._run(
        "pg_basebackup", "-h", str(server.socket_dir), "-U", "postgres", "-D", str(base), "-c", "fast", "--no-sync"
    )
    with cluster(ledger) as running, awake() as clock:
        producer = _Producer(clock)
        producer.start()
        producer.join(seconds)
        producer.note_claims_beyond_the_archive()
        lost_at = clock.now()
        _lose(server)
        producer.stopping.set()
        producer.join()
        begun = clock.now()
        size = _put_files_back(server, base, archive)
        # Not before: what was claimed before the loss may call after it.
        calls = {job: len(entries) for job, entries in ledger.by_job().items()}
        _recover(server)
        restored_seconds = clock.now() - begun
        wait_for(PauseSwitch.objects.filter(scope="global", reason=PUT_BACK_REASON).exists, what="the pause")
        running.wait_until_ready()
        there = set(Batch.objects.values_list("pk", flat=True))
        lost = [at for batch, at in producer.accepted if batch not in there]
        rpo = max((lost_at - at for at in lost), default=0.0)
        assert {job: len(entries) for job, entries in ledger.by_job().items()} == calls, "a call before the resume"
        unfinished = set(Job.objects.exclude(status="completed").values_list("pk", flat=True))
        resume_scope("global", "", actor="op")
        wait_until_drained()
        twice = {job for job, entries in ledger.by_job().items() if len(entries) > 1}
        assert twice <= unfinished, "a job that the backup has as completed ran again"
        assert Epoch.objects.count() == 1
    figures(
        f"{len(producer.accepted)} accepted, {len(lost)} lost, the oldest {rpo:.1f} s before the loss; "
        f"{size / GIGABYTE:.2f} GB restored in {restored_seconds:.1f} s; 0 calls before the resume, {len(twice)} again"
    )
    assert len(producer.accepted) > seconds
    assert rpo <= RPO_SECONDS
    assert restored_seconds <= RTO_SECONDS_PER_GIGABYTE * max(1.0, size / GIGABYTE)


class _Producer(threading.Thread):
    """Submits job after job, and notes each that was accepted."""

    def __init__(self, clock: AwakeClock) -> None:
        super().__init__(daemon=True)
        self._clock = clock
        self.accepted: list[tuple[UUID, float]] = []
        self.stopping = threading.Event()
        self._settings = dict(connection.settings_dict)

    def note_claims_beyond_the_archive(self) -> None:
        """
        The archive's disk is away, and work goes on: more claims are lost than the log draws tokens ahead (32).

        Those of fewer jobs that are lost with them nobody would miss.
        """
        with connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET archive_command = 'false'")
            cursor.execute("SELECT pg_reload_conf()")
            cursor.execute("SELECT pg_switch_wal()")
        reached = _token()
        wait_for(lambda: _token() > reached + 3 * DRAWN_AHEAD, what="claims that are lost")
        wait_for(lambda: archiver_standing().is_failing, what="the archiver's failure")

    def run(self) -> None:
        connection.settings_dict.update(self._settings)
        with suppress(Error):  # the loss
            while not self.stopping.is_set():
                self.accepted.append((submit_work(1, "write"), self._clock.now()))
        connection.close()


def _token() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM jobs_fencing_token")
        return int(cursor.fetchone()[0])


def _directory(server: EmbeddedServer, name: str) -> Path:
    path = server.data_dir / name
    path.mkdir(mode=0o700)
    if owner := system_user():
        shutil.chown(path, owner)
    return path


def _archive(server: EmbeddedServer, archive: Path, *, timeout: int) -> None:
    """As the page has it."""
    settings: dict[str, Any] = {
        "archive_mode": "on",
        "archive_command": f"test ! -f {archive}/%f && cp %p {archive}/%f.part && mv {archive}/%f.part {archive}/%f",
        "archive_timeout": f"{timeout}s",
    }
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    server.stop()
    bring_back(server)


def _lose(server: EmbeddedServer) -> None:
    """Kill every process of the server, and delete its files."""
    postmaster = psutil.Process(int((server.cluster / "postmaster.pid").read_text().split()[0]))
    every = [postmaster, *postmaster.children(recursive=True)]
    for process in every:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(every, timeout=10)
    shutil.rmtree(server.cluster)


def _put_files_back(server: EmbeddedServer, base: Path, archive: Path) -> int:
    """As the page has it, to recover to the end of the archive; how many bytes that are."""
    copy_files(base, server.cluster)
    with (server.cluster / "postgresql.auto.conf").open("a") as conf:
        conf.write(f"restore_command = 'cp {archive}/%f %p'\n")
    (server.cluster / "recovery.signal").touch()
    return sum(path.stat().st_size for path in (*base.rglob("*"), *archive.iterdir()) if path.is_file())


def _recover(server: EmbeddedServer) -> None:
    bring_back(server)
    wait_for(_takes_writes, seconds=120, what="the end of the recovery")


def _takes_writes() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT NOT pg_is_in_recovery()")
            return bool(cursor.fetchone()[0])
    except Error:
        connection.close()
        return False
