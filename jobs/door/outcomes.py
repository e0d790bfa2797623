"""Outcomes of a door's jobs: the provider's own answers, or why there is no answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import UUID

from django.db.models import QuerySet

from jobs.features.results.read import among_few, whole_result
from jobs.features.results.reference import stored_in
from jobs.models import DeadLetter, Job
from jobs.services.explain.batch_results import FIRST, choose_results
from jobs.services.explain.batch_table import MAX_TABLE_BYTES, TableTooLarge
from jobs.states import TERMINAL, JobState
from queueops.core.values.lines import on_one_line
from queueops.core.web.asking import ensure_wanted

from .models import DoorBatch

JOBS_AT_ONCE = 500
RESULTS_AT_ONCE = 20  # results in memory; a single one may have megabytes


@dataclass(frozen=True, slots=True)
class DoorOutcome:
    """
    How a job ended.

    Attributes:
        custom_id: The producer's name for it.
        body: The provider's whole answer; None: there is no answer.
        code, message: Why there is no answer.
        status: The HTTP status of the provider's answer; None: no answer reached us.
    """

    job: UUID
    custom_id: str
    state: str
    body: Any = None
    code: str = ""
    message: str = ""
    status: int | None = None

    @property
    def is_answered(self) -> bool:
        return self.state == JobState.COMPLETED


def outcome_of(job: Job, custom_id: str = "") -> DoorOutcome:
    """
    Return the outcome of an ended job.

    Raises:
        ResultMissing, StoreError: The result is in the result store, and cannot be read.
    """
    if job.status == JobState.COMPLETED:
        with among_few() if stored_in(job.result) else nullcontext():
            result = whole_result(job)
        body = result.get("body") if isinstance(result, dict) else None
        return DoorOutcome(job.pk, custom_id, job.status, body=body, status=HTTPStatus.OK.value)
    status = DeadLetter.objects.filter(job_id=job.pk).values_list("http_status", flat=True).first()
    return _without_answer(job, custom_id, status)


def _without_answer(job: Job, custom_id: str, status: int | None) -> DoorOutcome:
    said = "cancelled" if job.status == JobState.CANCELLED else "failed"
    return DoorOutcome(
        job.pk,
        custom_id,
        job.status,
        code=job.last_error_code or said,
        message=job.last_error_message or f"The request was {said}.",
        status=status,
    )


def outcomes_of(batch: DoorBatch, *, answered: bool | None) -> Iterator[DoorOutcome]:
    """
    Yield the outcomes of a batch's ended requests in the order of its lines. A requeued request comes at the place of
    its last job.

    Args:
        answered: Whether to yield the requests with an answer or those without; None: all.

    Raises:
        ClientLeft, OutOfTime
        ResultMissing, StoreError
    """
    after: UUID | None = FIRST if batch.batch_id is not None else None
    while after is not None and batch.batch_id is not None:
        ensure_wanted()
        chosen = choose_results(batch.batch_id, after=after, size=JOBS_AT_ONCE)
        rows = Job.objects.filter(pk__in=chosen.job_ids, project_id=batch.project_id, status__in=TERMINAL)
        if answered is not None:
            rows = rows.filter(status=JobState.COMPLETED) if answered else rows.exclude(status=JobState.COMPLETED)
        rows = (rows if answered is not False else rows.defer("result")).defer("payload").order_by("pk")
        keys = _keys_of(rows)
        letters = dict(DeadLetter.objects.filter(job_id__in=list(keys)).values_list("job_id", "http_status"))
        # Leave out jobs that ended after `keys` was read: their keys and dead letters are not known here.
        for job in rows.filter(pk__in=list(keys)).iterator(chunk_size=RESULTS_AT_ONCE):
            ensure_wanted()
            custom_id = (keys.get(job.pk) or "").removeprefix(batch.key_prefix)
            if job.status == JobState.COMPLETED:
                yield outcome_of(job, custom_id)
            else:
                yield _without_answer(job, custom_id, letters.get(job.pk))
        after = chosen.next_after


def _keys_of(jobs: QuerySet[Job]) -> Mapping[UUID, str | None]:
    """Return the idempotency keys of jobs; a requeued job has the key of its first job."""
    named = list(jobs.values_list("pk", "idempotency_key", "origin_id"))
    found = {pk: key for pk, key, _ in named}
    open_ends = {pk: origin for pk, key, origin in named if key is None and origin is not None}
    while open_ends:
        asked = Job.objects.filter(pk__in=set(open_ends.values()))
        rows = {pk: (key, origin) for pk, key, origin in asked.values_list("pk", "idempotency_key", "origin_id")}
        following = {}
        for pk, at in open_ends.items():
            key, origin = rows.get(at, (None, None))
            found[pk] = key
            if key is None and origin is not None:
                following[pk] = origin
        open_ends = following
    return found


@dataclass(frozen=True, slots=True)
class WrittenLines:
    """`file` is ready to be read, and no other process sees it."""

    file: IO[bytes]
    lines: int


def write_lines(outcomes: Iterable[DoorOutcome], line_of: Callable[[DoorOutcome], dict[str, Any]]) -> WrittenLines:
    """
    Write a line for each outcome into a temporary file.

    Raises:
        TableTooLarge
        As `outcomes_of`.
    """
    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile())
        count = 0
        for outcome in outcomes:
            text = json.dumps(line_of(outcome), ensure_ascii=False, separators=(",", ":"))
            file.write(on_one_line(text).encode() + b"\n")
            count += 1
            if file.tell() > MAX_TABLE_BYTES:
                raise TableTooLarge(
                    "The answers are too many for one file; read them by pages: GET /api/v1/batches/{id}/results/.",
                    limit_bytes=MAX_TABLE_BYTES,
                )
        file.seek(0)
        stack.pop_all()
        return WrittenLines(file, count)
