"""What is archived is whole before it is deleted, and comes back as it was."""

from __future__ import annotations

import gc
import gzip
import json
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest
from django.core.management import CommandError
from django.db import connection
from django.utils import timezone

from jobs.features.archive import archive as archiving
from jobs.features.archive import unarchive
from jobs.features.archive.archive import ArchiveBusy, archive, stop_archiving
from jobs.features.archive.day_files import ArchiveError, DayFiles
from jobs.features.archive.retention import RESTORED_JOBS
from jobs.features.archive.unarchive import find_archived_job, restore_jobs
from jobs.models import Batch, DutyLease, Job, JobCount, JobEvent, RestoredJob
from jobs.services.operate.dead_letters import discard_dead_letters
from jobs.services.upkeep.executors import take_duty
from jobs.services.upkeep.partitions import EVENTS, restored_parts
from jobs.services.upkeep.retention import ARCHIVING, apply_retention, is_archived
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core.stores.directory import DirectoryStore
from queueops.site.diagnosis.upkeep import examine_retention
from tests.factories import make_batch, make_dead_letter, make_job
from tests.support.archiving import THEN, age, day, parts, said, state
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db


def archived(root: Path, *options: str) -> str:
    return said("archive", "--to", str(root), *options)


def unarchived(root: Path, *options: str) -> str:
    return said("unarchive", "--from", str(root), *options)


def test_what_is_archived_comes_back_as_it_was(old_work: list[Job], tmp_path: Path):
    before = state()
    lasting = make_job(state=JobState.COMPLETED)
    assert "Would archive 6 jobs, 0 batches, 1 days of the log." in said("archive", "--dry-run")
    assert f"{tmp_path}: 6 jobs, 0 batches and " in archived(tmp_path)
    assert list(Job.objects.all()) == [lasting]
    assert not JobEvent.objects.exclude(job_id=lasting.pk).exists()
    assert EVENTS.before(timezone.now().date() - timedelta(days=30)) == []
    assert "are what was written" in unarchived(tmp_path, "--verify")
    lasting_rows = {"id": lasting.pk}

    for project in ("acme", "globex"):
        unarchived(tmp_path, "--project", project, "--day", day())
    JobEvent.objects.filter(job_id=lasting.pk).delete()
    Job.objects.filter(pk=lasting_rows["id"]).delete()
    assert state() == before
    assert AuditEntry.objects.filter(action="unarchive_jobs", moved=4, project_id="acme").exists()


def test_restoring_again_changes_nothing_and_retention_lets_them_stay_until_their_time_is_over(
    old_work: list[Job], tmp_path: Path
):
    archived(tmp_path)
    options = ["--project", "acme", "--day", day()]
    assert "Would restore 4 jobs; 0 are there" in unarchived(tmp_path, *options, "--dry-run")
    assert not Job.objects.exists()
    assert "4 jobs, " in unarchived(tmp_path, *options)
    restored = state()
    assert "0 jobs, 0 events and 0 batches restored, for 30 days; 4 jobs were there" in unarchived(tmp_path, *options)
    stop_archiving(actor="user:1")
    apply_retention(seconds=60, share=1.0)
    assert state() == restored
    RestoredJob.objects.update(kept_until=timezone.now())
    apply_retention(seconds=60, share=1.0)
    assert not Job.objects.exists()
    assert not JobEvent.objects.exists()
    assert restored_parts() == []
    files, rows = DirectoryStore(tmp_path), 0
    for one in DayFiles.every(files, project_id="acme"):
        rows += sum(part.rows for part in one.of("jobs"))
    assert rows == 4  # what was restored is not archived twice


def test_retention_amid_a_restore_leaves_the_parts_of_its_events(old_work: list[Job], tmp_path: Path):
    archived(tmp_path)

    class Slow(DirectoryStore):
        """As one that is read for so long that house-keeping comes by at each file."""

        def read(self, name: str) -> IO[bytes]:
            RESTORED_JOBS.forget(timezone.now(), 100)
            return super().read(name)

    wanted: dict[str, Any] = {"project_id": "acme", "day": date.fromisoformat(day()), "keep_days": 30}
    restored = restore_jobs(Slow(tmp_path), **wanted, actor="user:1", say=len)
    assert restored.events == JobEvent.objects.filter(project_id="acme").count() > 0
    RestoredJob.objects.update(kept_until=timezone.now())
    RESTORED_JOBS.forget(timezone.now(), 100)
    assert not JobEvent.objects.filter(project_id="acme").exists()


def test_a_restored_job_goes_when_its_time_is_over_although_its_requeue_came_back_too(old_work, tmp_path: Path):
    Job.objects.filter(pk=old_work[1].pk).update(origin_id=old_work[0].pk)
    archived(tmp_path)
    unarchived(tmp_path, "--project", "acme", "--day", day())
    assert Job.objects.filter(origin_id=old_work[0].pk).exists()
    RestoredJob.objects.update(kept_until=timezone.now())
    RESTORED_JOBS.forget(timezone.now(), 100)
    assert not Job.objects.exists()


def test_one_job_is_shown_and_restored_with_what_was_logged_of_it(old_work: list[Job], tmp_path: Path):
    job = old_work[1]
    logged = list(JobEvent.objects.filter(job_id=job.pk).order_by("pk").values_list("pk", flat=True))
    archived(tmp_path)
    shown = unarchived(tmp_path, "--show", str(job.pk))
    assert "zoë" in shown
    assert "hush" not in shown
    assert "in_progress > completed" in shown
    assert [event["id"] for event in find_archived_job(DirectoryStore(tmp_path), job.pk).events] == logged
    with connection.cursor() as cursor:
        # As in a database of another installation; yet behind what is committed, or the relay of another test's web
        # process would take this one for put back, and pause the work of the tests to come.
        cursor.execute("SELECT setval('jobs_jobevent_id', %s)", [logged[0] - 1])
    unarchived(tmp_path, "--project", "acme", "--job", str(job.pk))
    assert Job.objects.get() == job
    assert list(JobEvent.objects.order_by("pk").values_list("pk", flat=True)) == logged
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM jobs_jobevent_id")
        assert cursor.fetchone()[0] >= logged[-1], "the log would seem to have been put back"


def test_a_restore_holds_a_part_of_the_events_in_memory_at_a_time(old_work: list[Job], tmp_path: Path, monkeypatch):
    monkeypatch.setattr(unarchive, "RESTORED_CHARACTERS", 100_000)
    events, size = 2000, 2000
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, message, created_at)"
            " SELECT job_id, project_id, 'progress', repeat(md5(one::text), %s), created_at"
            "   FROM (SELECT * FROM jobs_jobevent WHERE job_id = %s LIMIT 1) AS event, generate_series(1, %s) AS one",
            [size // 32, old_work[0].pk, events],
        )
    logged = JobEvent.objects.filter(job_id=old_work[0].pk).count()
    archived(tmp_path)
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own, as the command runs with: the driver leaves statements in cycles
    tracemalloc.start()
    try:
        unarchived(tmp_path, "--project", "acme", "--job", str(old_work[0].pk))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)
    assert JobEvent.objects.filter(job_id=old_work[0].pk).count() == logged > events
    assert most < events * size / 2


def test_a_batch_is_archived_when_its_jobs_are_gone_and_comes_back_with_one_of_them(
    old_work: list[Job], tmp_path: Path
):
    batch = Batch.objects.get()
    JobCount.objects.filter(batch_id=batch.pk).delete()
    JobCount.objects.create(project_id="acme", batch_id=batch.pk, shard=0, completed=3)
    Batch.objects.update(finished_at=timezone.now() - timedelta(days=100), created_at=timezone.now() - 3 * THEN)
    archived(tmp_path)
    assert not Batch.objects.exists()
    unarchived(tmp_path, "--project", "acme", "--job", str(old_work[0].pk))
    assert Job.objects.get().batch == Batch.objects.get(name="monthly")
    assert JobCount.objects.get(batch_id=batch.pk).completed == 3


def test_once_there_is_an_archive_retention_deletes_nothing_that_is_not_in_it(old_work: list[Job], tmp_path: Path):
    make_batch(finished_at=timezone.now() - timedelta(days=100))
    archived(tmp_path, "--older-than", "50")  # nothing yet; a host without the setting must know all the same
    before, log = state(), parts(EVENTS)
    archived_batches = Batch.objects.count()
    apply_retention(seconds=60, share=1.0)
    assert (state(), parts(EVENTS), Batch.objects.count()) == (before, log, archived_batches)
    assert "manage.py archive" in examine_retention().advice
    stop_archiving(actor="user:1")
    apply_retention(seconds=60, share=1.0)
    assert not Job.objects.exists()


@pytest.mark.parametrize("ending", [".gz", "manifest.json"])
def test_a_file_that_reads_back_otherwise_deletes_nothing(
    old_work: list[Job], tmp_path: Path, monkeypatch, ending: str
):
    """As a disk that loses what it was given does."""
    before, opened = state(), DirectoryStore.read

    def rotten(store: DirectoryStore, name: str) -> Any:
        path = store.root / name
        if name.endswith(ending) and ending == "manifest.json":
            if path.exists():
                path.write_text('{"format": 1, "parts": []}')
        elif name.endswith(ending):
            lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
            path.write_bytes(gzip.compress(b"".join(lines[1:])))
        return opened(store, name)

    monkeypatch.setattr(DirectoryStore, "read", rotten)
    with pytest.raises(CommandError, match="is not what was written"):
        archived(tmp_path)
    assert state() == before


def test_a_project_whose_files_fail_keeps_no_other_from_the_archive(old_work: list[Job], tmp_path: Path):
    class Damaged(DirectoryStore):
        def write(self, name: str) -> Any:
            if name.startswith("acme/"):
                raise OSError(5, "Input/output error")
            return super().write(name)

    with pytest.raises(ArchiveError, match=r"acme stays: .*Input/output error"):
        archive(Damaged(tmp_path), say=len, actor="user:1")
    assert set(Job.objects.values_list("project_id", flat=True)) == {"acme"}
    assert AuditEntry.objects.get(action="archive").moved == 2
    assert EVENTS.before(timezone.now().date() - timedelta(days=30)) != []
    archived(tmp_path)
    assert not Job.objects.exists()
    assert EVENTS.before(timezone.now().date() - timedelta(days=30)) == []
    assert "are what was written" in unarchived(tmp_path, "--verify")


@pytest.mark.parametrize("point", ["delete", "log"])
def test_what_was_cut_off_goes_on_and_writes_no_row_twice(old_work: list[Job], tmp_path: Path, monkeypatch, point: str):
    with monkeypatch.context() as cut:
        if point == "delete":
            cut.setattr(archiving._Sort, "delete", lambda *_: 1 / 0)
        else:
            cut.setattr(archiving, "drop_part", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            archive(DirectoryStore(tmp_path), say=len, actor="user:1", part_rows=2)
    archived(tmp_path)
    assert not Job.objects.exists()
    ids, events = [], []
    for files in DayFiles.every(DirectoryStore(tmp_path)):
        for part in files.of("jobs"):
            ids += [json.loads(line)["job"]["id"] for line in files.lines(part)]
        for part in files.of("events"):
            events += [json.loads(line)["id"] for line in files.lines(part)]
    assert sorted(ids) == sorted(str(job.pk) for job in old_work)
    assert len(events) == len(set(events))


def test_a_log_that_was_cut_off_goes_on_behind_a_file_that_an_erasure_emptied(
    old_work: list[Job], tmp_path: Path, monkeypatch
):
    JobEvent.objects.exclude(project_id="acme").delete()
    events = list(JobEvent.objects.order_by("job_id", "pk").values_list("pk", flat=True))
    [name] = EVENTS.before(timezone.now().date() - timedelta(days=30))
    monkeypatch.setattr(archiving, "EVENTS_OF_A_PART", 3)
    done = {"events": 0, "files": 0, "left_days": 0}

    def cut(words: str) -> None:
        assert "6 events" not in words

    with pytest.raises(AssertionError):
        archiving._archive_day_of_log(DirectoryStore(tmp_path), name, done, archiving._Left(cut))
    files = DayFiles(DirectoryStore(tmp_path), "acme", EVENTS.day_of(name))
    files.rewrite(files.of("events")[1], [])
    JobEvent.objects.filter(pk__in=events[3:6]).delete()
    archiving._archive_day_of_log(DirectoryStore(tmp_path), name, done, archiving._Left(len))
    files = DayFiles(DirectoryStore(tmp_path), "acme", EVENTS.day_of(name))
    lines = [line for part in files.of("events") for line in files.lines(part)]
    assert [json.loads(line)["id"] for line in lines] == [*events[:3], *events[6:]]


def test_a_job_that_an_open_dead_letter_needs_stays(tmp_path: Path):
    letter = make_dead_letter()
    age()
    assert "0 jobs" in archived(tmp_path)
    discard_dead_letters([letter.pk], actor="user:1", reason="late")
    assert "1 jobs" in archived(tmp_path)


def test_other_rows_of_the_same_ids_are_refused_and_nothing_is_restored(old_work: list[Job], tmp_path: Path):
    archived(tmp_path)
    unarchived(tmp_path, "--project", "acme", "--job", str(old_work[0].pk))
    Job.objects.update(payload={"another": 1})
    with pytest.raises(CommandError, match="1 jobs are in the database and differ"):
        unarchived(tmp_path, "--project", "acme", "--day", day())
    assert Job.objects.count() == 1


def test_a_damaged_file_restores_nothing(old_work: list[Job], tmp_path: Path):
    archived(tmp_path)
    [path] = tmp_path.glob("acme/*/jobs-0001.ndjson.gz")
    lines = gzip.decompress(path.read_bytes()).replace(b"figure", b"Figure")
    path.write_bytes(gzip.compress(lines))
    with pytest.raises(CommandError, match="checksum differs"):
        unarchived(tmp_path, "--project", "acme", "--day", day())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CommandError, match="cannot be read"):
        unarchived(tmp_path, "--project", "acme", "--day", day())
    path.unlink()
    with pytest.raises(CommandError, match="cannot be read"):
        unarchived(tmp_path, "--verify")
    assert not Job.objects.exists()


def test_one_works_on_the_archive_at_a_time(tmp_path: Path):
    assert take_duty(ARCHIVING, holder=uuid4(), term_seconds=60)
    with pytest.raises(ArchiveBusy):
        archive(DirectoryStore(tmp_path), say=len, actor="user:1")
    DutyLease.objects.update(expires_at=datetime(2000, 1, 1, tzinfo=UTC))
    archive(DirectoryStore(tmp_path), say=len, actor="user:1")


@every_case(
    ("words", "message"),
    [
        (["archive"], "Say where to"),
        (["archive", "--older-than", "0"], "1 to 36,500"),
        (["archive", "--older-than", "99999999999"], "1 to 36,500"),
        (["archive", "--to", "s3:///prefix"], "names no bucket. Write s3://bucket/prefix."),
        (["unarchive", "--from", ".", "--project", "acme", "--day", "2026-01-01", "--keep", "9999999"], "1 to 36,500"),
        (["archive", "--to", "/dev/null/archive"], "must be a directory that can be written"),
        (["unarchive", "--project", "acme"], "Say where the archive is"),
        (["unarchive", "--from", "/nowhere", "--project", "acme"], "it is no directory"),
        (["unarchive", "--from", "."], "either --day or --job"),
        (["unarchive", "--from", ".", "--project", "nobody", "--day", "2026-01-01"], "There is no project nobody"),
        (["unarchive", "--from", ".", "--show", str(uuid4())], "No file of the archive has a job"),
    ],
    undone=True,
)
def test_what_cannot_be_done_is_said_in_a_sentence(words: list[str], message: str):
    with pytest.raises(CommandError, match=message):
        said(*words)
    assert not is_archived()


def test_a_manifest_that_is_none_is_refused(old_work: list[Job], tmp_path: Path):
    archived(tmp_path)
    [path] = tmp_path.glob("acme/*/manifest.json")
    path.write_text("{}")
    with pytest.raises(ArchiveError, match="is damaged"):
        list(DayFiles.every(DirectoryStore(tmp_path), project_id="acme"))


def test_a_directory_leaves_out_no_file_that_it_may_not_look_at(tmp_path: Path):
    (tmp_path / "there.json").touch()
    (tmp_path / "elsewhere.json").symlink_to("x" * 300)
    with pytest.raises(OSError, match="too long"):
        list(DirectoryStore(tmp_path).names(".json"))
