"""Reads the archive back: shows a job, or restores jobs in the state in which they ended."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from tempfile import TemporaryFile
from typing import IO, Any, LiteralString
from uuid import UUID

from django.db import transaction
from psycopg import sql

from jobs.models import Batch, RestoredJob
from jobs.models.guard import RESTORING
from jobs.services.upkeep.partitions import make_restored_part
from queueops.audit import trail
from queueops.core.sql import hot_cursor
from queueops.core.stores.store import Store
from queueops.tenancy.models import Project

from .archive import Say, on_archive_duty
from .day_files import ArchivedPart, ArchiveError, DayFiles
from .insert_documents import insert_documents
from .results import bring_back, stored_of, verify_result

# The most jobs in a chunk, which is one transaction, or events in one statement. A restore reads the archived event
# files again for each chunk, so larger chunks cost less.
RESTORED_AT_ONCE = 2000
RESTORED_CHARACTERS = 16_000_000  # a chunk ends with the line that exceeds this
CONFLICTS_SHOWN = 5


class ArchiveConflict(ArchiveError):
    """The database has other rows of the same ids or idempotency keys."""

    code = "archive_conflict"
    status = 409


class NotArchived(ArchiveError):
    """The archive lacks the wanted jobs, or the database lacks their project."""

    code = "not_archived"
    status = 404


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """
    Attributes:
        there: Jobs that the database has already, equal to the archived ones.
    """

    jobs: int
    events: int
    batches: int
    there: int


@dataclass(frozen=True, slots=True)
class ArchivedJob:
    """An archived job with its dead letter, tags and events; rows are JSON documents with the tables' columns."""

    job: dict[str, Any]
    dead_letter: dict[str, Any] | None
    tags: list[str]
    events: list[dict[str, Any]]


def verify_archive(store: Store, *, project_id: str = "", say: Say) -> tuple[int, int]:
    """Read every file and compare its checksum; return how many files and rows. Raises ArchiveError."""
    files = rows = 0
    for day in DayFiles.every(store, project_id=project_id):
        for part in day.parts:
            day.verify(part)
            files, rows = files + 1, rows + part.rows
            for stored in filter(None, map(stored_of, day.lines(part) if part.sort == "jobs" else ())):
                files += verify_result(day, stored)
        say(f"{day.project_id} {day.day}: {len(day.parts)} files")
    return files, rows


def find_archived_job(store: Store, job_id: UUID) -> ArchivedJob:
    """
    Read one job back, without the database.

    Raises:
        NotArchived: No file has the job.
    """
    for files, part in _parts_with(store, "jobs", {str(job_id)}):
        for line in files.lines(part):
            if str(job_id) in line and (found := json.loads(line))["job"]["id"] == str(job_id):
                job = found["job"]
                events = [json.loads(one) for one in _event_lines(store, files.project_id, {str(job_id)}, _span(found))]
                tags = [tag["name"] for tag in found["tags"]]
                return ArchivedJob(job, found["dead_letter"], tags, sorted(events, key=lambda event: event["id"]))
    raise NotArchived(f"No file of the archive has a job {job_id}.")


def restore_jobs(
    store: Store,
    *,
    project_id: str,
    day: date | None = None,
    job_ids: Collection[UUID] = (),
    keep_days: int,
    actor: str,
    say: Say,
    dry_run: bool = False,
) -> RestoredRows:
    """
    Restore archived jobs of a project in the state in which they ended, with events, dead letters, tags and batches.

    The jobs stay for `keep_days`; the archive keeps them too. All files are checked before anything is written. A
    repeated call restores jobs that an earlier one did not reach.

    Args:
        day: Jobs that ended on that day (UTC); None: the jobs of `job_ids`.

    Raises:
        ArchiveConflict: The database has a different job of the same id or idempotency key; nothing was written.
        ArchiveError: A file is damaged; nothing was written.
        NotArchived: The archive lacks one of the jobs, or there is no such project.
    """
    if not Project.objects.filter(pk=project_id).exists():
        raise NotArchived(f"There is no project {project_id}; make it first: its archived rows need one.")
    wanted = {str(one) for one in job_ids}
    with on_archive_duty() as duty:
        found, there = _check(store, project_id, day, wanted)
        done = {"jobs": 0, "events": 0, "batches": 0}
        if dry_run:
            return RestoredRows(len(found) - there, 0, 0, there)
        until = datetime.now(UTC) + timedelta(days=keep_days)
        for files, lines in _chosen(store, project_id, day, wanted):
            for chunk in _chunks(lines):
                duty.keep()
                for name, count in _restore_chunk(store, files, chunk, until).items():
                    done[name] += count
                say(f"{done['jobs']:,} of {len(found) - there:,} jobs restored ...")
        trail.record(
            actor=actor,
            action="unarchive_jobs",
            target=f"jobs of {project_id}",
            after={**done, "day": day, "kept_until": until},
            moved=done["jobs"],
            project_id=project_id,
        )
    return RestoredRows(**done, there=there)


def _check(store: Store, project_id: str, day: date | None, wanted: set[str]) -> tuple[set[str], int]:
    """The ids that can be restored, and how many of these jobs the database has already. Reads each file to its end."""
    found: set[str] = set()
    there = 0
    conflicts: list[str] = []
    for _, lines in _chosen(store, project_id, day, wanted):
        for chunk in _chunks(lines):
            found |= {json.loads(line)["job"]["id"] for line in chunk}
            # Do not compare the origin and the retry policy: a restored job lacks them if their rows were deleted.
            for job_id, same in _ask(
                "WITH given AS (SELECT line::jsonb -> 'job' AS given_job FROM unnest(%s::text[]) AS line)"
                " SELECT job.id::text, job.id::text = given_job ->> 'id'"
                "        AND to_jsonb(job) @> (given_job - 'origin_id' - 'retry_policy_id')"
                "   FROM given JOIN jobs_job AS job ON job.id = (given_job ->> 'id')::uuid"
                "     OR (job.project_id = given_job ->> 'project_id'"
                "         AND job.idempotency_key = given_job ->> 'idempotency_key')",
                [chunk],
            ):
                there += same
                conflicts += [] if same else [job_id]
    if conflicts:
        raise ArchiveConflict(
            f"{len(conflicts):,} jobs are in the database and differ from the archived ones of the same id or "
            f"idempotency key; nothing was restored. Among them: {', '.join(conflicts[:CONFLICTS_SHOWN])}."
        )
    if missing := wanted - found:
        raise NotArchived(f"The archive has no job {min(missing)} of {project_id} ({len(missing)} are missing).")
    if not found:
        raise NotArchived(f"The archive has no jobs of {project_id} that ended on {day}.")
    return found, there


def _chosen(
    store: Store, project_id: str, day: date | None, wanted: set[str]
) -> Iterator[tuple[DayFiles, Iterator[str]]]:
    """Yield a day's last part first: a requeue is archived before the job that it repeats, and restored after it."""
    if day is not None:
        files = DayFiles(store, project_id, day)
        parts = [(files, part) for part in reversed(files.of("jobs"))]
    else:
        parts = list(_parts_with(store, "jobs", wanted, project_id=project_id))
    for files, part in parts:
        lines = files.lines(part)
        yield files, lines if day is not None else (one for one in lines if json.loads(one)["job"]["id"] in wanted)


def _parts_with(
    store: Store, sort: str, ids: set[str], *, project_id: str = ""
) -> Iterator[tuple[DayFiles, ArchivedPart]]:
    """Yield the parts that may have rows of these ids: an id lies between a part's first and last key."""
    for files in DayFiles.every(store, project_id=project_id):
        for part in reversed(files.of(sort)):
            if any(part.first <= one <= part.last for one in ids):
                yield files, part


def _restore_chunk(store: Store, files: DayFiles, lines: Sequence[str], until: datetime) -> dict[str, int]:
    # Few jobs may have any number of events: in memory they could be more than the process may have.
    with TemporaryFile() as spool:
        return _restore_with_events(spool, store, files, lines, until=until)


def _restore_with_events(
    spool: IO[bytes], store: Store, files: DayFiles, lines: Sequence[str], *, until: datetime
) -> dict[str, int]:
    jobs = [json.loads(line)["job"] for line in lines]
    ids = {job["id"] for job in jobs}
    spans = [_span(json.loads(line)) for line in lines]
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    days: set[date] = set()
    newest = 0
    for line in _event_lines(store, files.project_id, ids, (first, last)):
        event = json.loads(line)
        days.add(_day_of(event["created_at"]))
        newest = max(newest, event["id"])
        spool.write(line.encode())
    spool.seek(0)
    kept = [
        RestoredJob(
            job_id=job["id"], project_id=files.project_id, first_day=span[0], last_day=span[1], kept_until=until
        )
        for job, span in zip(jobs, spans, strict=True)
    ]
    # Commit these rows before the parts are made: retention drops parts that no row covers. Their events
    # would go to the default part, stay there for ever, and keep the day from getting a part again.
    RestoredJob.objects.bulk_create(kept, update_conflicts=True, unique_fields=["job_id"], update_fields=["kept_until"])
    for day in sorted(days):
        make_restored_part(day)
    batches = {job["batch_id"] for job in jobs if job["batch_id"]}
    batches -= {str(pk) for pk in Batch.objects.filter(pk__in=batches).values_list("pk", flat=True)}
    batch_lines = [
        line
        for place, part in _parts_with(store, "batches", batches, project_id=files.project_id)
        for line in place.lines(part)
        if json.loads(line)["batch"]["id"] in batches
    ]
    with transaction.atomic(), hot_cursor() as cursor:
        cursor.execute("SELECT set_config(%s, 'on', true)", [RESTORING])
        bring_back(files, lines)
        done = {"batches": insert_documents("jobs_batch", batch_lines, "$.batch")}
        insert_documents("jobs_jobcount", batch_lines, "$.counts[*]")
        insert_documents("jobs_tag", batch_lines, "$.tags[*]")
        done["jobs"] = insert_documents(
            "jobs_job", lines, "$.job", instead={"origin_id": sql.SQL("NULL"), "retry_policy_id": POLICY}
        )
        insert_documents("jobs_deadletter", lines, "$.dead_letter ? (@ != null)", instead={"requeued_as_id": REQUEUED})
        insert_documents("jobs_tag", lines, "$.tags[*]")
        cursor.execute(
            "UPDATE jobs_job AS job SET origin_id = origin.id"
            "  FROM unnest(%s::text[]) AS line JOIN jobs_job AS origin"
            "    ON origin.id = (line::jsonb #>> '{job,origin_id}')::uuid"
            " WHERE job.id = (line::jsonb #>> '{job,id}')::uuid",
            [list(lines)],
        )
        # Events of another installation, or from before a restore of this database, may have ids above the sequence.
        # Advance the sequence: otherwise ids that were never drawn here would look as if this database were restored.
        cursor.execute(
            "SELECT setval('jobs_jobevent_id', %s) FROM jobs_jobevent_id WHERE last_value < %s", [newest, newest]
        )
        done["events"] = sum(
            insert_documents("jobs_jobevent", part, "$", instead={"xid": sql.SQL("pg_current_xact_id()")})
            for part in _chunks(map(bytes.decode, spool))
        )
        cursor.execute("SELECT set_config(%s, '', true)", [RESTORING])
    return done


# These columns name rows that may have been deleted. The columns then become null.
POLICY = sql.SQL("(SELECT name FROM jobs_retrypolicy WHERE name = record.retry_policy_id)")
REQUEUED = sql.SQL("(SELECT id FROM jobs_job WHERE id = record.requeued_as_id)")


def _event_lines(store: Store, project_id: str, ids: set[str], days: tuple[date, date]) -> Iterator[str]:
    first, last = days
    low, high = min(ids), max(ids)
    for files in DayFiles.every(store, project_id=project_id, since=first):
        if files.day > last:
            return
        for part in files.of("events"):
            if part.first[:36] <= high and part.last[:36] >= low:
                yield from (line for line in files.lines(part) if json.loads(line)["job_id"] in ids)


def _span(found: dict[str, Any]) -> tuple[date, date]:
    """Return the days of a job's first and last events: its creation, and its end or its dead letter's resolution."""
    job, letter = found["job"], found["dead_letter"] or {}
    return _day_of(job["created_at"]), _day_of(max(job["finished_at"], letter.get("resolved_at") or ""))


def _day_of(moment: str) -> date:
    return datetime.fromisoformat(moment).astimezone(UTC).date()


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if len(chunk) == RESTORED_AT_ONCE or size > RESTORED_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _ask(statement: LiteralString, parameters: Sequence[Any]) -> list[Any]:
    with hot_cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
