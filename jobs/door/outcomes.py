"""How a door's jobs ended: the provider's own answers, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import UUID

from jobs.models import DeadLetter, Job
from jobs.services.explain.batch_results import FIRST, choose_results
from jobs.services.results.read import among_few, whole_result
from jobs.services.results.reference import stored_in
from jobs.states import TERMINAL, JobState
from queueops.core.web.asking import ensure_wanted

from .models import DoorBatch

JOBS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class DoorOutcome:
    """
    How a job ended.

    Attributes:
        custom_id: What its producer calls it.
        body: The provider's whole answer; None: there is none.
        code, message: Why there is none.
        status: What the provider answered, as an HTTP status; None: nothing that came to us.
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
    How an ended job ended.

    Raises:
        ResultMissing, StoreError: Of a result in the result store.
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
    The ended requests of a batch in the order of its lines; one that was tried again later comes at its last place.

    Args:
        answered: Those with an answer, or those without; None: all.

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
        jobs = list((rows if answered is not False else rows.defer("result")).defer("payload").order_by("pk"))
        keys = _keys_of(jobs)
        letters = dict(
            DeadLetter.objects.filter(job_id__in=[job.pk for job in jobs]).values_list("job_id", "http_status")
        )
        for job in jobs:
            custom_id = (keys.get(job.pk) or "").removeprefix(batch.key_prefix)
            if job.status == JobState.COMPLETED:
                yield outcome_of(job, custom_id)
            else:
                yield _without_answer(job, custom_id, letters.get(job.pk))
        after = chosen.next_after


def _keys_of(jobs: Iterable[Job]) -> Mapping[UUID, str | None]:
    """The idempotency keys of jobs; of one that was tried again, that of the first."""
    found = {job.pk: job.idempotency_key for job in jobs}
    open_ends = {job.pk: job.origin_id for job in jobs if job.idempotency_key is None and job.origin_id is not None}
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


def write_lines(outcomes: Iterable[DoorOutcome], line_of: Callable[[DoorOutcome], dict[str, Any]]) -> IO[bytes]:
    """Write a line for each to a file that nobody else sees, ready to be read. Raises as `outcomes_of`."""
    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile())
        for outcome in outcomes:
            file.write(json.dumps(line_of(outcome), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        file.seek(0)
        stack.pop_all()
        return file
