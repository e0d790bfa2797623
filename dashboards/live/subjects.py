"""The subjects of sockets: who may open one, the data that it shows, and the events that a socket missed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from dashboards.services.me import me_snapshot
from dashboards.services.ops import ops_snapshot
from jobs.api.serializers.batches import batch_detail_answer
from jobs.api.serializers.jobs import job_answer
from jobs.models import Batch, Job, JobEvent
from jobs.services.explain.event_log import Cursor
from jobs.services.explain.snapshots import batch_snapshot, job_snapshot
from jobs.tracebacks import without_diagnostics
from queueops.core.sealing import left_sealed, opened_if
from queueops.core.values.masking import masked

from .events import OPS, Event, Group, user_group
from .messages import CloseCode, dumped
from .relay import LOOK_BACK
from .viewer import Viewer

MAX_MISSED = 400  # events sent again; a client that missed more gets a snapshot
# How many ids back the log is searched for a subject without an index. A process's first cursor may be LOOK_BACK behind
# the newest id: with fewer ids than that, nobody could resume from it.
MAX_MISSED_IDS = 2 * LOOK_BACK
OPS_EVENTS_PER_SECOND = 50
EVENTS_PER_SECOND = 200
UNCHANGED_SECONDS = 10.0


class Refused(Exception):
    """The socket is closed with this code."""

    def __init__(self, refusal: CloseCode, detail: str) -> None:
        self.refusal = refusal
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class LiveSubject:
    """
    The subject of one or more sockets.

    Attributes:
        key: Sockets with the same key are shown the same data.
        group: The sockets get the events of this group.
        load: Reads the data, as JSON text, given the cursor; None: the subject was deleted. Called by `read`.
        log: The events of the group.
        reading: Returns the context in which `load` and the log are read.
        events_per_second: The most that are sent; others are left out and counted. None: all are sent.
        is_masked: Events come without content and with secrets masked.
        hides_secrets: Events come with their content, and with secrets masked.
        is_indexed: Whether an index finds the group's events, however old they are.
        every_seconds: How often the data is read again although no event came.
    """

    key: tuple[str, ...]
    group: Group
    load: Callable[[Cursor], str | None]
    log: QuerySet[JobEvent]
    reading: Callable[[], AbstractContextManager[None]]
    events_per_second: int | None = None
    is_masked: bool = False
    hides_secrets: bool = False
    is_indexed: bool = False
    every_seconds: float = UNCHANGED_SECONDS

    @property
    def is_sampled(self) -> bool:
        return self.events_per_second is not None

    def read(self, cursor: Cursor) -> str | None:
        """Return the data as JSON text; None: the subject was deleted. Call it in a thread."""
        with self.reading():
            return self.load(cursor)

    def missed(self, cursor: int) -> list[Event] | None:
        """Return the events after a cursor, oldest first; None: too many, or an old cursor. Call it in a thread."""
        newest = JobEvent.objects.order_by("-id").values_list("id", flat=True).first() or 0
        if cursor > newest or (newest - cursor > MAX_MISSED_IDS and not self.is_indexed):
            return None  # the cursor is too old, or of another database
        with self.reading(), left_sealed():
            rows = self.log.filter(id__gt=cursor).order_by("id")[: MAX_MISSED + 1]
            events = [_event(row) for row in rows]
        return events if len(events) <= MAX_MISSED else None


def open_job(viewer: Viewer, pk: UUID) -> LiveSubject:
    """
    Raises:
        Refused: There is no such job, or it is another project's or user's: the answer does not tell which.
    """
    with viewer.reading():
        if not Job.objects.filter(pk=pk, **_of(viewer)).exists():
            raise Refused(CloseCode.NOT_FOUND, "There is no such job.")
    hides = not viewer.sees_secrets
    return LiveSubject(
        key=("job", str(pk), "masked" if hides else ""),
        group=("job", str(pk)),
        load=partial(_job, pk, hides_secrets=hides),
        hides_secrets=hides,
        log=JobEvent.objects.filter(job_id=pk),
        reading=viewer.reading,
        is_indexed=True,
    )


def open_batch(viewer: Viewer, pk: UUID) -> LiveSubject:
    """
    Raises:
        Refused: As for a job.
    """
    with viewer.reading():
        if not Batch.objects.filter(pk=pk, **_of(viewer)).exists():
            raise Refused(CloseCode.NOT_FOUND, "There is no such batch.")
    hides = not viewer.sees_secrets
    return LiveSubject(
        key=("batch", str(pk), "masked" if hides else ""),
        group=("batch", str(pk)),
        load=partial(_batch, pk),
        hides_secrets=hides,
        log=JobEvent.objects.filter(batch_id=pk),
        reading=viewer.reading,
        events_per_second=EVENTS_PER_SECOND,
    )


def open_me(viewer: Viewer) -> LiveSubject:
    """
    Raises:
        Refused: A member of staff has named no project.
    """
    if viewer.project_id is None:
        raise Refused(CloseCode.FORBIDDEN, "Name the project: ?project=...")
    log = JobEvent.objects.filter(project_id=viewer.project_id)
    group: Group = ("project", viewer.project_id)
    if viewer.user_id is not None:
        log = log.filter(user_id=viewer.user_id)
        group = user_group(viewer.project_id, viewer.user_id)
    return LiveSubject(
        key=("me", viewer.identity, *group),
        group=group,
        load=lambda _: dumped(me_snapshot(viewer)),
        log=log,
        reading=viewer.reading,
        events_per_second=EVENTS_PER_SECOND,
        is_masked=True,
    )


def open_ops(viewer: Viewer) -> LiveSubject:
    """
    Raises:
        Refused: The viewer is no operator.
    """
    if not viewer.is_staff:
        raise Refused(CloseCode.FORBIDDEN, "This is for operators.")
    return LiveSubject(
        key=("ops",),
        group=OPS,
        load=lambda _: dumped(ops_snapshot()),
        log=JobEvent.objects.all(),
        reading=viewer.reading,
        events_per_second=OPS_EVENTS_PER_SECOND,
        is_masked=True,
        every_seconds=1.0,
    )


def _of(viewer: Viewer) -> dict[str, Any]:
    """Return the conditions that keep out the rows of other projects and users."""
    scope: dict[str, Any] = {}
    if viewer.project_id is not None or not viewer.is_staff:
        scope["project_id"] = viewer.project_id
    if viewer.user_id is not None:
        scope["user_id"] = viewer.user_id
    return scope


def _job(pk: UUID, cursor: Cursor, *, hides_secrets: bool = True) -> str | None:
    with opened_if(lambda: not hides_secrets):
        job = Job.objects.filter(pk=pk).first()
        if job is None:
            return None
        answer = job_answer(job_snapshot(job), cursor=cursor)
    return dumped(masked(answer) if hides_secrets else answer)


def _batch(pk: UUID, cursor: Cursor) -> str | None:
    batch = Batch.objects.filter(pk=pk).first()
    return dumped(batch_detail_answer(batch_snapshot(batch), cursor=cursor)) if batch else None


def _event(row: JobEvent) -> Event:
    return Event(
        id=row.id,
        job=str(row.job_id),
        project=row.project_id,
        user=str(row.user_id) if row.user_id else None,
        batch=str(row.batch_id) if row.batch_id else None,
        event_type=row.event_type,
        from_status=row.from_status,
        to_status=row.to_status,
        message=row.message,
        percent=row.progress_percent,
        at=row.created_at,
        service=row.service,
        data=None if row.data is None else json.dumps(without_diagnostics(row.data)),
    )
