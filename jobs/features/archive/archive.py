"""
Moves ended jobs, batches and days of the log into the archive when retention would delete them.

Rows are deleted only after the file that holds them was written to the disk, read back and compared. If a call is cut
off, the next call goes on where it stopped: rows that a file already holds are not written again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import groupby, islice
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder

from jobs.features.results.garbage_collect import objects_of
from jobs.models import DutyLease
from jobs.services.upkeep.executors import take_duty
from jobs.services.upkeep.partitions import EVENTS, drop_part
from jobs.services.upkeep.retention import ARCHIVING, keep_timelines, timelines_are_kept
from queueops.audit import trail
from queueops.core.clock import database_now
from queueops.core.sql import run_sql
from queueops.core.stores.store import Store, StoreError

from .day_files import ArchiveError, DayFiles
from .results import forget_copied, with_results

JOBS_OF_A_PART = 20_000
EVENTS_OF_A_PART = 200_000
READ_ROWS = 100  # whole rows in memory at once: a payload may have megabytes
DELETED_ROWS = 1000  # rows deleted in one transaction
TIMELINES_AT_ONCE = 1000
MAX_LEFT = 10  # projects with a fault: after so many the store itself is at fault, and archiving stops
TERM_SECONDS = 3600.0  # longer than it takes to write a part, or to copy one large result

Say = Callable[[str], object]


class ArchiveBusy(ArchiveError):
    """Another process works on the archive, which is free once that work is done, or an hour after the process died."""

    code = "archive_busy"
    status = 409


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """
    Counts of what went into the archive.

    Attributes:
        left_days: Days of the log that stay for now, because a reader has them open or a dead letter needs them.
    """

    jobs: int = 0
    batches: int = 0
    events: int = 0
    files: int = 0
    left_days: int = 0


class ArchiveDuty:
    """The right to work on the archive; one process has it at a time."""

    def __init__(self) -> None:
        self._holder = uuid.uuid4()

    def keep(self) -> None:
        """Take the duty, or renew its term. Raises ArchiveBusy."""
        if not take_duty(ARCHIVING, holder=self._holder, term_seconds=TERM_SECONDS):
            raise ArchiveBusy

    def end(self) -> None:
        """End the term but keep the row: the row says that there is an archive; see `is_archived`."""
        take_duty(ARCHIVING, holder=self._holder, term_seconds=-1)


@contextmanager
def on_archive_duty() -> Iterator[ArchiveDuty]:
    duty = ArchiveDuty()
    duty.keep()
    try:
        yield duty
    finally:
        duty.end()


@dataclass(frozen=True, slots=True)
class _Sort:
    """
    Jobs or batches, which are archived by id: their names in the archive, their retention setting and their statements.
    """

    name: str
    noun: str
    days_setting: str
    choosing: str
    reading: str
    deleting: str

    def choose(self, before: datetime, most: int, *, without: Collection[str] = ()) -> list[tuple[UUID, str, date]]:
        return run_sql("jobs", self.choosing, {"before": before, "most": most, "without": list(without)})

    def read(self, project_id: str, ids: Sequence[UUID]) -> Iterator[tuple[str, str]]:
        for start in range(0, len(ids), READ_ROWS):
            chunk = list(ids[start : start + READ_ROWS])
            yield from run_sql("jobs", self.reading, {"project": project_id, "ids": chunk})

    def delete(self, project_id: str, ids: Sequence[UUID]) -> int:
        deleted = 0
        for start in range(0, len(ids), DELETED_ROWS):
            chunk = list(ids[start : start + DELETED_ROWS])
            deleted += len(run_sql("jobs", self.deleting, {"project": project_id, "ids": chunk}))
        return deleted


SORTS = (
    _Sort("jobs", "job", "retention_days", "choose_ended_jobs", "read_whole_jobs", "delete_archived_jobs"),
    _Sort(
        *("batches", "batch", "batch_retention_days"),
        *("choose_ended_batches", "read_whole_batches", "delete_archived_batches"),
    ),
)


def archive(
    store: Store, *, say: Say, actor: str, days: int | None = None, part_rows: int = JOBS_OF_A_PART
) -> ArchivedRows:
    """
    Archive whole days (UTC) that are past their retention, and delete what is archived.

    Args:
        days: The retention of jobs and the log, instead of QUEUEOPS_RETENTION_DAYS.
        part_rows: The most jobs or batches in one file.

    Raises:
        ArchiveBusy: Another process works on the archive.
        ArchiveError: A file cannot be written or read back; the rows of its project stay. Others were archived.
    """
    done = {"jobs": 0, "batches": 0, "events": 0, "files": 0, "left_days": 0}
    left = _Left(say)
    with on_archive_duty() as duty:
        for sort in SORTS:
            before = archived_before(sort.days_setting, days)
            while chosen := sort.choose(before, part_rows, without=left.projects):
                deleted, failures = 0, left.failures
                for (project_id, day), rows in groupby(sorted(chosen, key=_place), key=lambda row: row[1:]):
                    duty.keep()
                    with left.if_it_fails(project_id):
                        files, ids = DayFiles(store, project_id, day), [row[0] for row in rows]
                        new = _write(sort, files, ids, keep=duty.keep)
                        done["files"] += bool(new)
                        objects = objects_of(project_id, ids) if sort.name == "jobs" else []
                        deleted += sort.delete(project_id, ids)
                        forget_copied(project_id, ids, objects)
                        done[sort.name] += new
                say(f"{done[sort.name]:,} {sort.name} archived ...")
                # Stop if no row was deleted, because other rows need them all now: they would be chosen again for ever.
                if not deleted and left.failures == failures:
                    break
        for name in EVENTS.before(archived_before("retention_days", days).date()):
            duty.keep()
            _archive_day_of_log(store, name, done, left)
    found = ArchivedRows(**done)
    if found.files or found.jobs:
        trail.record(
            actor=actor,
            action="archive",
            target=f"archive {store}",
            after=done,
            moved=found.jobs,
        )
    left.ensure_none()
    return found


class _Left:
    """
    Projects that stay as they are because a file of theirs fails. Other projects are archived beside them.

    Attributes:
        projects: Each with its last fault.
        failures: How often any has failed.
    """

    def __init__(self, say: Say) -> None:
        self.projects: dict[str, str] = {}
        self.failures = 0
        self.say = say

    @contextmanager
    def if_it_fails(self, project_id: str) -> Iterator[None]:
        try:
            yield
        except ArchiveBusy:
            raise
        except (ArchiveError, StoreError, OSError) as error:
            self.projects[project_id] = str(error)
            self.failures += 1
            if len(self.projects) >= MAX_LEFT:  # the store itself is at fault
                raise
            self.say(f"{project_id} stays: {error}")

    def ensure_none(self) -> None:
        if self.projects:
            raise ArchiveError("; ".join(f"{project} stays: {why}" for project, why in self.projects.items()))


def _write(sort: _Sort, files: DayFiles, ids: list[UUID], *, keep: Callable[[], None]) -> int:
    """Write the given rows that the archive lacks; return how many were written."""
    new = _not_written(files, sort, ids)
    if new:
        again = partial(_read_again, sort, files.project_id)
        rows = with_results(files, sort.read(files.project_id, new), keep=keep, again=again)
        part = files.add(sort.name, rows, schema=_schema())
        if part.rows != len(new):
            raise ArchiveError(f"{len(new) - part.rows} {sort.name} went away while they were archived.")
    return len(new)


def count_archivable(days: int | None = None, *, most: int = 1_000_000) -> dict[str, int]:
    """Count what `archive` would take now, up to `most` of each sort; the log is counted in days."""
    found = {sort.name: len(sort.choose(archived_before(sort.days_setting, days), most)) for sort in SORTS}
    return found | {"days of the log": len(EVENTS.before(archived_before("retention_days", days).date()))}


def stop_archiving(*, actor: str) -> None:
    """Let house-keeping delete old rows again without an archive, unless QUEUEOPS_ARCHIVE_DIR is set."""
    with transaction.atomic():
        DutyLease.objects.filter(duty=ARCHIVING).delete()
        trail.record(actor=actor, action="stop_archiving", target="archive")


def archived_before(setting: str, days: int | None) -> datetime:
    """The end of the newest day that is past its retention."""
    kept = getattr(settings.QUEUEOPS, setting) if days is None or setting != "retention_days" else days
    today = datetime.fromtimestamp(database_now(), UTC).date()
    return datetime.combine(today - timedelta(days=kept), time(), UTC)


def _place(row: tuple[UUID, str, date]) -> tuple[str, date, UUID]:
    return row[1], row[2], row[0]


def _not_written(files: DayFiles, sort: _Sort, ids: list[UUID]) -> list[UUID]:
    """Return the ids that the last part lacks. A call that was cut off may have written it and not deleted its rows."""
    wanted = {str(one) for one in ids}
    for part in files.of(sort.name)[-1:]:
        if part.first <= max(wanted) and part.last >= min(wanted):
            wanted -= {json.loads(line)[sort.noun]["id"] for line in files.lines(part)}
    return [one for one in ids if str(one) in wanted]


def _read_again(sort: _Sort, project_id: str, key: str) -> str | None:
    return next((text for _, text in sort.read(project_id, [UUID(key)])), None)


def _archive_day_of_log(store: Store, name: str, done: dict[str, int], left: _Left) -> None:
    day = EVENTS.day_of(name)
    ends = datetime.combine(day + timedelta(days=1), time(), UTC)
    while keep_timelines(ends, TIMELINES_AT_ONCE):
        pass
    if not timelines_are_kept(ends):
        done["left_days"] += 1
        return
    before = left.failures
    for project_id, count in _ask(f"SELECT project_id, count(*) FROM {name} GROUP BY 1 ORDER BY 1"):  # noqa: S608 - from the catalogue
        with left.if_it_fails(project_id):
            _write_events(DayFiles(store, project_id, day), name, count, done=done, say=left.say)
    done["left_days"] += left.failures > before or not drop_part(name)


def _write_events(files: DayFiles, name: str, count: int, *, done: dict[str, int], say: Say) -> None:
    """Write the project's events of one day that the archive lacks. `count`: how many events the day has in the log."""
    written = files.of("events")
    # Skip parts that are empty because their users were erased: they have no last key to go on from, and all events
    # would be written again.
    reached = next((part.last for part in reversed(written) if part.rows), "")
    rows = _read_events(name, files.project_id, after=reached)
    missing = count - sum(part.rows for part in written)
    while missing > 0 and (part := files.add("events", islice(rows, EVENTS_OF_A_PART), schema=_schema())).rows:
        missing -= part.rows
        done["events"] += part.rows
        done["files"] += 1
        say(f"{done['events']:,} events archived ...")
    if missing > 0:  # below 0 if a user was erased: rows were deleted after they were written
        raise ArchiveError(f"{name} has other events of {files.project_id} than the archive of {files.day}; it stays.")
    for part in written:
        files.verify(part)


def _read_events(part: str, project_id: str, *, after: str) -> Iterator[tuple[str, str]]:
    """
    Yield a day's events after a key, ordered by job and id. They are read in steps, so that no transaction stays open
    for long.
    """
    job_id, _, number = after.partition("/")
    position: list[Any] = [job_id or str(UUID(int=0)), int(number or 0)]
    statement = (
        f"SELECT job_id::text, id, to_jsonb(event)::text FROM {part} AS event"  # noqa: S608 - from the catalogue
        " WHERE project_id = %s AND (job_id, id) > (%s::uuid, %s) ORDER BY job_id, id LIMIT 1000"
    )
    while rows := _ask(statement, [project_id, *position]):
        for job, event, text in rows:
            yield f"{job}/{event}", text
        position = [rows[-1][0], rows[-1][1]]


def _ask(statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def _schema() -> str:
    applied = MigrationRecorder.Migration.objects.filter(app="jobs").order_by("-pk").values_list("name", flat=True)
    return f"jobs.{applied.first()}"
