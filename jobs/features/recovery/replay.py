"""Compares rows of jobs with their log, column by column, and rewrites rows from the log."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from jobs.features.recovery.event_fold import FoldedJob, fold
from jobs.models import Job
from jobs.services.upkeep.partitions import EVENTS
from jobs.states import RUNNING, EventType
from queueops.audit import trail
from queueops.core.sql import run_sql, run_sql_as
from queueops.core.values.identifiers import first_id_at

COMPARED_AT_ONCE = 2000  # jobs, whose events are in memory together
REPAIRED_AT_ONCE = 500  # jobs that one transaction locks
CLOCKS_DIFFER = timedelta(days=1)  # the most by which the clocks that date ids and events differ from the database's
COLUMNS = tuple(column.name for column in fields(FoldedJob))
ACTOR = "system:replay"
# Without one snapshot, rows that change meanwhile would seem to differ from their log.
ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
OPEN_GUARD = "SELECT set_config('queueops.repair', 'on', true)"  # see jobs/models/guard.py


class Happened(NamedTuple):
    """A row of read_histories.sql."""

    job_id: UUID
    event_type: str
    from_status: str | None
    to_status: str | None
    progress_percent: int | None
    created_at: datetime
    message: str
    facts: str | None

    @property
    def data(self) -> Any:
        return None if self.facts is None else json.loads(self.facts)


@dataclass(frozen=True, slots=True)
class RowDifference:
    """`columns`: by name, what the row has and what its log says."""

    job_id: UUID
    project: str
    columns: dict[str, tuple[Any, Any]]
    folded: FoldedJob
    is_running: bool  # by its row or by its log: an executor may write the row


@dataclass(slots=True)
class ReplayedChunk:
    """
    The outcome of comparing a chunk of jobs.

    Attributes:
        judged: Jobs whose whole log is there.
        dropped: Jobs older than the log: retention took the beginning of their log.
        headless: Jobs whose log lacks its beginning although retention cannot have taken it.
    """

    judged: int = 0
    dropped: int = 0
    headless: list[UUID] = field(default_factory=list)
    differences: list[RowDifference] = field(default_factory=list)


def choose_jobs(
    *,
    batch: UUID | None = None,
    project: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[Job]:
    """Choose the jobs of a batch or a project, or those made in a span of time; without arguments, all jobs."""
    chosen = Job.objects.exclude(effect_key__startswith="erased:")  # their log was erased, with their user
    if batch is not None:
        chosen = chosen.filter(batch=batch)
    if project is not None:
        chosen = chosen.filter(project=project)
    if since is not None:
        chosen = chosen.filter(created_at__gte=since, pk__gte=first_id_at(since, moved_by=-CLOCKS_DIFFER))
    if until is not None:
        chosen = chosen.filter(created_at__lt=until, pk__lt=first_id_at(until, moved_by=CLOCKS_DIFFER))
    return chosen


def compare(chosen: QuerySet[Job]) -> Iterator[ReplayedChunk]:
    """
    Compare rows with their logs, a chunk at a time, each as of one moment; jobs may run meanwhile. Changes nothing.

    Not to be called inside a transaction.
    """
    log_begins = _log_begins()
    last = UUID(int=0)
    while True:
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            cursor.execute(ONE_MOMENT)
            rows = _rows(chosen.filter(pk__gt=last), COMPARED_AT_ONCE)
            compared = _compare(rows, log_begins)
        yield compared
        if len(rows) < COMPARED_AT_ONCE:
            return
        last = rows[-1][0]


def repair(ids: Collection[UUID]) -> Iterator[int]:
    """
    Write these rows as their logs say, each chunk in a transaction of its own, with an audit entry.

    A row stays as it is if its job runs, by the row or by the log, or if row and log agree by now. An audit event tells
    what each column was. The counts of jobs stay: they follow the log already.

    Yields:
        After each chunk, how many rows were written.
    """
    log_begins = _log_begins()
    wanted = sorted(ids)
    for start in range(0, len(wanted), REPAIRED_AT_ONCE):
        yield _repair(wanted[start : start + REPAIRED_AT_ONCE], log_begins)


@transaction.atomic(durable=True)
def _repair(ids: Sequence[UUID], log_begins: datetime) -> int:
    # Lock the rows before the log is read: each event is written under this lock, so none can be added meanwhile.
    list(Job.objects.filter(pk__in=ids).order_by("pk").select_for_update().values_list("pk"))
    compared = _compare(_rows(Job.objects.filter(pk__in=ids), len(ids)), log_begins)
    rows = [
        {"id": one.job_id, **asdict(one.folded), "differences": one.columns}
        for one in compared.differences
        if not one.is_running
    ]
    if not rows:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(OPEN_GUARD)
    text = json.dumps(rows, default=str)  # `str` keeps a time's microseconds
    written = len(run_sql("jobs", "repair_jobs", {"rows": text, "actor": ACTOR}))
    trail.record(actor=ACTOR, action="repair_jobs", target=f"{written} jobs", moved=written)
    return written


def _rows(chosen: QuerySet[Job], most: int) -> list[tuple[Any, ...]]:
    return list(chosen.order_by("pk").values_list("pk", "project_id", *COLUMNS)[:most])


def _compare(rows: Sequence[tuple[Any, ...]], log_begins: datetime) -> ReplayedChunk:
    compared = ReplayedChunk()
    if not rows:
        return compared
    oldest = min(FoldedJob(*row[2:]).created_at or log_begins for row in rows)
    parameters = {
        "ids": [row[0] for row in rows],
        "projects": sorted({row[1] for row in rows}),
        "since": oldest - CLOCKS_DIFFER,
    }
    happened = run_sql_as(Happened, "jobs", "read_histories", parameters)
    histories = {job_id: list(events) for job_id, events in groupby(happened, key=attrgetter("job_id"))}
    for job_id, project, *values in rows:
        row, events = FoldedJob(*values), histories.get(job_id, [])
        if not events or events[0].event_type != EventType.STATE_CHANGE or events[0].from_status is not None:
            if row.created_at is not None and row.created_at < log_begins:
                compared.dropped += 1
            else:
                compared.headless.append(job_id)
            continue
        compared.judged += 1
        folded = fold(events)
        if folded != row:
            columns = {
                name: (is_so, should_be)
                for name in COLUMNS
                if (is_so := getattr(row, name)) != (should_be := getattr(folded, name))
            }
            is_running = bool({row.status, folded.status} & RUNNING)
            compared.differences.append(RowDifference(job_id, project, columns, folded, is_running))
    return compared


def _log_begins() -> datetime:
    """When the kept log begins: earlier events were dropped with their day."""
    names = EVENTS.before(timezone.now().date() + timedelta(days=365))
    first = names[0].rpartition("_")[2] if names else "00010101"
    return datetime.strptime(f"{first} +0000", f"{EVENTS.shape} %z").astimezone(UTC)
