"""Submissions: single jobs, and streams of jobs that are kept in a file until the server accepts them."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypedDict
from uuid import UUID

from queueops_client.errors import InvalidRequest, TooManyJobs

MAX_BATCH_JOBS = 100_000  # the server's limit for one batch
MEMORY_BYTES = 1_000_000  # a longer stream goes to a temporary file
BLOCK_BYTES = 262_144
OTHERS_TURN_JOBS = 500  # read in one go before other tasks have their turn

OnFailure: TypeAlias = Literal["cancel", "run", "hold"]


class JobOptions(TypedDict, total=False):
    """
    The options of a job besides its kind and payload.

    Attributes:
        idempotency_key: A key of the work itself: a second job with it is never created, in any batch.
        user_id: The end user on whose behalf the call is made.
        unique_key: No second job with this key is created while a first one with it has not ended. The first one has
            the same kind, or, with `unique_in="project"`, any kind. `if_pending`: `keep` that job as it is, or
            `replace` its work if it has not begun.
        debounce_seconds: Begin once nothing was submitted with the unique_key for so long. Each submission replaces the
            waiting job and puts it off, to at most `debounce_most_seconds` after the first.
        scheduled_at: The time before which the job does not begin; or give `delay_seconds`, counted from now.
        expires_at: The time at which the job fails if it still waits.
        complete_by: When the result is wanted: with time enough, it goes by a batch of its provider, at half the price.
        via: `live`, `batch`, or `auto`: by batch where the deadline allows it.
        retry_policy, cost, model: Used instead of the handler's own.
        tags: Words to find the job by, in the admin and in `jobs(tags=...)`: at most 20.
        user_label: What operators call the user of `user_id`.
        after: Ids of jobs and batches, and idempotency keys of jobs, that must end first; at most 100. The payload may
            take values from their results: `{"$from": {"job": one of these, "path": "data.total"}}`.
        on_failure: If one of `after` does not succeed: `cancel` this job, `run` it all the same, or `hold` it until the
            failed one is requeued and succeeds.
    """

    priority: Literal["urgent", "normal", "low"] | None
    user_id: UUID | str | None
    idempotency_key: str | None
    unique_key: str | None
    unique_in: Literal["kind", "project"] | None
    if_pending: Literal["keep", "replace"] | None
    debounce_seconds: float | None
    debounce_most_seconds: float | None
    scheduled_at: datetime | str | None
    delay_seconds: float | None
    expires_at: datetime | str | None
    complete_by: datetime | str | None
    via: Literal["auto", "live", "batch"] | None
    retry_policy: str | None
    cost: int | None
    model: str | None
    tags: Sequence[str] | None
    user_label: str | None
    after: Sequence[UUID | str] | None
    on_failure: OnFailure | None


class ScheduleOptions(TypedDict, total=False):
    """
    The options of a schedule besides its name, cron text and jobs.

    Attributes:
        time_zone: The time zone of the cron text, such as Europe/Berlin; UTC if it is left out.
        missed: For late fires: `once` makes one for all, `all` makes the newest `most_missed`, `skip` makes none.
        jitter_seconds: Each fire is delayed by less than so many seconds.
        ends_at: The schedule does not fire later; None: it has no end.
        reason: For the audit trail.
    """

    time_zone: str
    missed: Literal["skip", "once", "all"]
    most_missed: int
    jitter_seconds: int
    ends_at: datetime | str | None
    reason: str


class ScheduleChanges(ScheduleOptions, total=False):
    """Changes to a schedule; fields that are left out stay as they are."""

    name: str
    cron: str
    jobs: Iterable[JobSpec | Mapping[str, Any]]


class EndedJobs(TypedDict, total=False):
    """
    A webhook is told of the ended jobs that fit all given fields; of every job if none is given.

    Attributes:
        kinds: The job's kind is one of these.
        tags: The job has all of these.
        any_tag: The job has at least one of these.
        outcomes: The job ended in one of these ways; `failed` is for good.
    """

    kinds: Sequence[str]
    tags: Sequence[str]
    any_tag: Sequence[str]
    outcomes: Sequence[Literal["completed", "failed", "cancelled"]]
    user_id: UUID | str | None
    batch_id: UUID | str | None


class WebhookOptions(TypedDict, total=False):
    """
    The options of a webhook besides its address.

    Attributes:
        enabled: False: the webhook gets no messages.
        batches: Whether it is told that batches ended; true if left out.
        jobs: Which ended jobs it is told of; `{}`: every job; None: no job.
        most_jobs: The most ended jobs in one message, 1 to 200.
        reason: For the audit trail.
    """

    enabled: bool
    batches: bool
    jobs: EndedJobs | None
    most_jobs: int
    reason: str


class WebhookChanges(WebhookOptions, total=False):
    """Changes to a webhook; fields that are left out stay as they are. A filter replaces the whole filter."""

    url: str


class WindowOptions(TypedDict, total=False):
    """
    The options of a maintenance window: `begins_at` and `ends_at`, or `weekdays`, `since` and `until`.

    Attributes:
        begins_at, ends_at: Once: when the window opens and closes; None, in a change: it has no such time any more.
        weekdays: Weekly: the days on which it begins; 0 is Monday.
        since, until: Weekly: what the clock shows, such as 22:00, when it begins and when it next ends.
        time_zone: Weekly: the time zone of that clock, such as Europe/Berlin; UTC if it is left out.
        reason: Shown wherever work waits for it.
    """

    begins_at: datetime | str | None
    ends_at: datetime | str | None
    weekdays: Sequence[int]
    since: str | None
    until: str | None
    time_zone: str
    reason: str


class AllowanceOptions(TypedDict, total=False):
    """
    The options of an allowance besides its quota.

    Attributes:
        unit: `requests` or `tokens`.
        policy: `strict` or `record_overage`.
        time_zone: The time zone in which a month begins, at midnight.
        reservation_seconds: How long a reservation may stay unconfirmed before it is given back.
        reason: Kept in the audit trail.
    """

    unit: str
    policy: str
    time_zone: str
    reservation_seconds: int
    reason: str


class AllowanceChanges(AllowanceOptions, total=False):
    """Changes to an allowance; fields that are left out stay as they are."""

    quota: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job to be submitted; JobOptions says what the fields mean."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    priority: Literal["urgent", "normal", "low"] | None = None
    user_id: UUID | str | None = None
    idempotency_key: str | None = None
    unique_key: str | None = None
    unique_in: Literal["kind", "project"] | None = None
    if_pending: Literal["keep", "replace"] | None = None
    debounce_seconds: float | None = None
    debounce_most_seconds: float | None = None
    scheduled_at: datetime | str | None = None
    delay_seconds: float | None = None
    expires_at: datetime | str | None = None
    complete_by: datetime | str | None = None
    via: Literal["auto", "live", "batch"] | None = None
    retry_policy: str | None = None
    cost: int | None = None
    model: str | None = None
    tags: Sequence[str] | None = None
    user_label: str | None = None
    after: Sequence[UUID | str] | None = None
    on_failure: OnFailure | None = None

    def as_dict(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


AnyJob: TypeAlias = JobSpec | Mapping[str, Any]
Jobs: TypeAlias = Iterable[AnyJob]
AsyncJobs: TypeAlias = Jobs | AsyncIterable[AnyJob]


def encoded(job: AnyJob) -> bytes:
    """
    Return a job as JSON on one line; times must have an offset, or the server would guess it.

    Raises:
        InvalidRequest: It is no job, or has a value that JSON cannot hold.
    """
    given = job.as_dict() if isinstance(job, JobSpec) else job
    if not isinstance(given, Mapping):
        raise _invalid(f"A job is a JobSpec or a mapping, not {type(job).__name__}.")
    return _as_json(given, "job")


def encoded_window(figures: Mapping[str, Any]) -> bytes:
    """
    Return a maintenance window, or changes of one, as JSON; its times as `encoded` has them.

    Raises:
        InvalidRequest: It has a value that JSON cannot hold.
    """
    return _as_json(figures, "window")


def encoded_allowance(figures: Mapping[str, Any]) -> bytes:
    """
    Return an allowance, or changes of one, as JSON.

    Raises:
        InvalidRequest: It has a value that JSON cannot hold.
    """
    return _as_json(figures, "allowance")


def encoded_schedule(figures: Mapping[str, Any]) -> bytes:
    """
    Return a schedule, or changes of one, as JSON; its jobs and times as `encoded` has them.

    Raises:
        InvalidRequest: It has a value that JSON cannot hold.
    """
    jobs = figures.get("jobs")
    return _as_json(figures if jobs is None else {**figures, "jobs": list(jobs)}, "schedule")


def encoded_webhook(figures: Mapping[str, Any]) -> bytes:
    """
    Return a webhook, or changes of one, as JSON.

    Raises:
        InvalidRequest: It has a value that JSON cannot hold.
    """
    return _as_json(figures, "webhook")


def _as_json(given: Mapping[str, Any], what: str) -> bytes:
    try:
        return json.dumps(dict(given), default=_plain, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"The {what} cannot be written as JSON: {error}.", what) from error


class Spool:
    """
    Jobs as lines in a temporary file.

    A request that is repeated because its answer was lost must be the same to the byte, and a generator cannot be
    read twice. The file also keeps a slow or failing generator out of the server's transaction: nothing is sent before
    the last job is known.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 (closed by close)
        self.count = 0
        self.size_bytes = 0

    def add(self, job: AnyJob) -> None:
        """
        Raises:
            TooManyJobs: There are MAX_BATCH_JOBS already.
            InvalidRequest: The job is not valid; the message has its number, from 1.
        """
        if self.count >= MAX_BATCH_JOBS:
            raise TooManyJobs(
                "too_many_jobs",
                f"A batch takes at most {MAX_BATCH_JOBS:,} jobs; nothing was sent. Submit several batches.",
                status=413,
                details={"limit": MAX_BATCH_JOBS},
            )
        try:
            line = encoded(job)
        except InvalidRequest as error:
            raise _invalid(f"Job {self.count + 1}: {error.message}") from error
        self._file.write(line + b"\n")
        self.count += 1
        self.size_bytes += len(line) + 1

    def fill(self, jobs: Jobs) -> None:
        """Add all jobs, as `add` does."""
        for job in jobs:
            self.add(job)

    async def fill_async(self, jobs: AsyncJobs) -> None:
        """Add all jobs as `add` does, and let other tasks have their turn."""
        if isinstance(jobs, AsyncIterable):
            async for job in jobs:
                self.add(job)
            return
        for number, job in enumerate(jobs):
            self.add(job)
            if number % OTHERS_TURN_JOBS == 0:
                await asyncio.sleep(0)

    def blocks(self) -> Iterator[bytes]:
        """Yield the lines in blocks; each call begins at the first line."""
        self._file.seek(0)
        while block := self._file.read(BLOCK_BYTES):
            yield block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, JobSpec):
        return value.as_dict()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _invalid(message: str, what: str = "job") -> InvalidRequest:
    return InvalidRequest(f"invalid_{what}", message, status=422)
