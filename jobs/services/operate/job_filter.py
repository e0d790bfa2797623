"""Finds the jobs that an operator means, on tables of any size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from pydantic import ValidationError, field_validator

from jobs.errors import InvalidFilter
from jobs.models import WHOLE_PROJECT, Job, JobCount, ServiceBreaker
from jobs.querysets import JobQuerySet
from jobs.states import TERMINAL, WAITING, JobState, Priority
from queueops.core.errors import fields_of
from queueops.core.values.identifiers import first_id_at
from queueops.core.values.moments import Moment
from queueops.core.values.narrowing import Narrowing, SearchedText
from queueops.core.values.tags import Tags, split_tags

from .scheduled_jobs import scheduled, scheduled_of

WINDOW = 50_000  # rows by id that are searched together: bounds what a chunk or a count reads at once
MAX_WINDOWS_OF_A_CHUNK = 10  # windows that are searched for one chunk
MAX_JOBS_MATCHED = 100_000
COUNT_SECONDS = 0.4  # after which a preview says "at least"

# The time in an id is by a web process's clock, created_at by the database's: they may differ by this much.
CLOCK_SLACK = timedelta(hours=1)

UNFINISHED = frozenset(JobState) - TERMINAL


def held_by_outage() -> Q:
    """The jobs that wait for an outage to end."""
    out = ServiceBreaker.objects.exclude(opened_at=None)
    same = out.filter(service=OuterRef("service"), target=OuterRef("target"), project_id=OuterRef("project_id"))
    return Q(Exists(same), status=JobState.RATE_LIMITED)


class JobFilter(Narrowing):
    """Jobs that fit everything given; with nothing given, all of them."""

    project_id: SearchedText | None = None
    batch_id: UUID | None = None
    user_id: UUID | None = None
    service: SearchedText | None = None
    kind: SearchedText | None = None
    state: JobState | None = None
    by_outage: bool | None = None  # for rate_limited jobs: whether they wait for an outage to end
    scheduled: bool | None = None  # for queued jobs: whether they wait for their time
    priority: Priority | None = None
    tags: Tags | None = None
    created_from: Moment | None = None
    created_until: Moment | None = None

    @field_validator("tags", mode="before")
    @classmethod
    def split(cls, given: Any) -> Any:
        return split_tags(given) if isinstance(given, str) else given

    def jobs(self, states: frozenset[JobState]) -> JobQuerySet:
        """The fitting jobs that are in one of the states."""
        own = {"created_from", "created_until", "state", "by_outage", "scheduled", "tags"}
        given = self.model_dump(exclude_none=True, exclude=own)
        wanted = states if self.state is None else states & {self.state}
        jobs = Job.objects.filter(**given, status__in=sorted(wanted)).tagged(self.tags or ())
        if self.by_outage is not None:
            jobs = jobs.filter(held_by_outage()) if self.by_outage else jobs.exclude(held_by_outage())
        if self.scheduled is not None:
            jobs = jobs.filter(scheduled()) if self.scheduled else jobs.exclude(scheduled())
        if self.created_from is not None:
            jobs = jobs.filter(created_at__gte=self.created_from)
        if self.created_until is not None:
            jobs = jobs.filter(created_at__lte=self.created_until)
        return jobs

    def bounds(self) -> dict[str, UUID]:
        """The ids between which all fitting jobs lie."""
        found = {}
        if self.created_from is not None:
            found["pk__gte"] = first_id_at(self.created_from, moved_by=-CLOCK_SLACK)
        if self.created_until is not None:
            found["pk__lte"] = first_id_at(self.created_until, moved_by=CLOCK_SLACK)
        return found


@dataclass(frozen=True, slots=True)
class Chunk:
    """
    Attributes:
        cursor: The last row looked at; None: no row was.
        is_last: No fitting row lies beyond.
    """

    ids: list[UUID]
    cursor: UUID | None
    is_last: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """`is_least`: there may be more."""

    count: int
    is_least: bool


def parse_job_filter(given: JobFilter | Mapping[str, Any]) -> JobFilter:
    """
    Read a filter from parsed JSON.

    Raises:
        InvalidFilter: With the path of each bad field.
    """
    if isinstance(given, JobFilter):
        return given
    try:
        return JobFilter.model_validate(given)
    except ValidationError as error:
        raise InvalidFilter(fields=fields_of(error)) from None


def choose_jobs(wanted: JobFilter, states: frozenset[JobState], *, after: UUID | None, most: int) -> Chunk:
    """
    Choose the next jobs by id, at most `most`. If MAX_WINDOWS_OF_A_CHUNK windows have no fitting job, the chunk is
    empty, although more jobs may follow.

    A batch's jobs are found by its index; others in windows over the primary key.
    """
    jobs = wanted.jobs(states)
    if wanted.batch_id is not None:
        if after is not None:
            jobs = jobs.filter(pk__gt=after)
        # If rows are ordered by the bare key, the planner may walk the key's index past all rows of other batches.
        ids = list(jobs.order_by(Coalesce("pk", "pk")).values_list("pk", flat=True)[:most])
        return Chunk(ids, ids[-1] if ids else None, is_last=len(ids) < most)
    for _ in range(MAX_WINDOWS_OF_A_CHUNK):
        end = _window_end(wanted, after)
        within = jobs.filter(**wanted.bounds())
        if after is not None:
            within = within.filter(pk__gt=after)
        if end is not None:
            within = within.filter(pk__lte=end)
        ids = list(within.order_by("pk").values_list("pk", flat=True)[:most])
        if len(ids) == most:
            return Chunk(ids, ids[-1], is_last=False)
        if end is None or ids:
            return Chunk(ids, end or (ids[-1] if ids else None), is_last=end is None)
        after = end
    return Chunk([], after, is_last=False)


def count_jobs(wanted: JobFilter, states: frozenset[JobState]) -> Counted:
    """
    Count jobs without reading the whole of a big table; `states` must be states of jobs that have not ended.

    If only project, batch and state narrow, the kept counts answer. Otherwise windows are counted, the newest first.
    Counting ends at COUNT_SECONDS, at MAX_JOBS_MATCHED, or once as many jobs were found as there are in those states.
    """
    kept = _kept_count(wanted, states)
    if not kept or wanted.model_fields_set <= {"project_id", "batch_id", "state"}:
        return Counted(kept, is_least=False)
    if wanted.model_fields_set <= {"project_id", "batch_id", "state", "scheduled"} and wanted.state == JobState.QUEUED:
        part = scheduled_of(project_id=wanted.project_id, batch_id=wanted.batch_id)
        if wanted.scheduled:
            return Counted(part.jobs, is_least=part.more)
        if not part.more:
            return Counted(max(0, kept - part.jobs), is_least=False)
    jobs = wanted.jobs(states).filter(**wanted.bounds()).order_by()
    if wanted.batch_id is not None:
        return Counted(jobs.count(), is_least=False)
    until = time.monotonic() + COUNT_SECONDS
    count, before = 0, None
    while count < kept:
        rows = _rows_of(wanted) if before is None else _rows_of(wanted).filter(pk__lt=before)
        end = list(rows.order_by("-pk").values_list("pk", flat=True)[WINDOW - 1 : WINDOW])
        within = jobs if before is None else jobs.filter(pk__lt=before)
        count += (within.filter(pk__gte=end[0]) if end else within).count()
        if not end:
            break
        if count >= MAX_JOBS_MATCHED or time.monotonic() > until:
            return Counted(count, is_least=count < kept)
        before = end[0]
    return Counted(count, is_least=False)


def _kept_count(wanted: JobFilter, states: frozenset[JobState]) -> int:
    counters = JobCount.objects.filter(batch_id=wanted.batch_id or WHOLE_PROJECT)
    if wanted.project_id is not None:
        counters = counters.filter(project_id=wanted.project_id)
    chosen = states if wanted.state is None else states & {wanted.state}
    sums = counters.aggregate(**{f"sum_{state}": Sum(state.value, default=0) for state in chosen})
    return sum(sums.values())


def _rows_of(wanted: JobFilter) -> QuerySet[Any]:
    """Return the rows that are divided into windows, narrowed only by columns that an index (..., id) serves."""
    rows: QuerySet[Any] = Job.objects.filter(**wanted.bounds())
    if wanted.user_id is not None:
        return rows.filter(user_id=wanted.user_id)
    return rows if wanted.project_id is None else rows.filter(project_id=wanted.project_id)


def _window_end(wanted: JobFilter, after: UUID | None) -> UUID | None:
    """The id of the window's last row; None: fewer than WINDOW rows are left."""
    rows = _rows_of(wanted) if after is None else _rows_of(wanted).filter(pk__gt=after)
    end = list(rows.order_by("pk").values_list("pk", flat=True)[WINDOW - 1 : WINDOW])
    return end[0] if end else None


STATES_OF: dict[str, frozenset[JobState]] = {
    "cancel_jobs": UNFINISHED,
    "schedule_jobs": WAITING,
    "change_priority": WAITING,
}
