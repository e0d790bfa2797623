"""Taking work in: one job, or a batch of up to 100,000."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

import pydantic_core
from django.conf import settings
from django.db import transaction
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from jobs.handlers.registry import Handler, find_handler
from jobs.models import Batch, Job, RetryPolicy, new_id
from jobs.states import Priority
from queueops.core.errors import QueueOpsError
from queueops.core.notify import Channel, notify
from queueops.core.sql import run_sql

CHUNK = 2000  # rows of one INSERT: enough to amortise the round trip, little enough to stay in memory
MAX_LISTED_ERRORS = 1000
MAX_DELAY_SECONDS = 366 * 24 * 3600

# PostgreSQL's jsonb holds any Unicode text but NUL. An even number of backslashes before it is literal text.
NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
NO_NUL = r"^[^\x00]*$"


class InvalidJob(QueueOpsError):
    """The job is not valid."""

    code = "invalid_job"
    status = 422


class PayloadTooLarge(QueueOpsError):
    """The payload is too large."""

    code = "payload_too_large"
    status = 413
    detail_fields = ("given_bytes", "limit_bytes")


class TooManyJobs(QueueOpsError):
    """Too many jobs at once."""

    code = "too_many_jobs"
    status = 413
    detail_fields = ("given", "limit")


class QueueFull(QueueOpsError):
    """The project has too much unfinished work."""

    code = "queue_full"
    status = 429
    detail_fields = ("unfinished", "limit", "retry_after")


class EmptyBatch(QueueOpsError):
    """A batch needs at least one job."""

    code = "empty_batch"
    status = 422


class IdempotencyKeyReused(QueueOpsError):
    """The idempotency key was used for other work."""

    code = "idempotency_key_reused"
    status = 422
    detail_fields = ("idempotency_key",)


class JobSpec(BaseModel):
    """What a producer asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str = Field(description="Which handler carries it out.", max_length=100)
    payload: dict[str, Any] = Field(default_factory=dict, description="Validated against the handler's schema.")
    priority: Priority = Priority.NORMAL
    user_id: UUID | None = Field(default=None, description="The end user on whose behalf the call is made.")
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)] | None = Field(
        default=None, description="Unique in the project: a second job with it is not created."
    )
    scheduled_at: AwareDatetime | None = Field(default=None, description="Not before this time.")
    delay_seconds: float | None = Field(
        default=None, ge=0, le=MAX_DELAY_SECONDS, description="Not before this many seconds from now."
    )
    expires_at: AwareDatetime | None = Field(default=None, description="Fails if it still waits at this time.")
    retry_policy: str | None = Field(default=None, description="Instead of the handler's own.", max_length=40)
    cost: int | None = Field(default=None, ge=0, le=2_000_000_000, description="Estimated units or tokens.")
    model: str | None = Field(
        default=None, max_length=100, pattern=NO_NUL, description="The service's model, where it has several."
    )

    @model_validator(mode="after")
    def one_time(self) -> JobSpec:
        if self.scheduled_at is not None and self.delay_seconds is not None:
            raise ValueError("give scheduled_at or delay_seconds, not both")
        return self


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A validated job, ready to insert."""

    id: UUID
    handler: Handler
    spec: JobSpec
    payload: str
    service: str
    cost: int
    effect_key: str = ""
    origin: UUID | None = None
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    id: UUID
    created: bool  # False: a job with this idempotency key and the same work exists already


@dataclass(frozen=True, slots=True)
class LineError:
    """Why one job of a batch was not accepted. `line` counts from 1."""

    line: int
    code: str
    message: str
    fields: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class SubmittedBatch:
    id: UUID
    accepted: int
    duplicates: int
    error_count: int
    errors: list[LineError] = field(default_factory=list)


class BatchRejected(QueueOpsError):
    """Jobs of the batch are not valid, so none was accepted."""

    code = "batch_rejected"
    status = 422
    detail_fields = ("error_count", "errors")


def submit_job(spec: JobSpec, *, project_id: str, actor: str) -> SubmittedJob:
    """
    Store one job durably and wake an executor.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge, QueueFull, IdempotencyKeyReused: Nothing was stored.
    """
    prepared = prepare_job(spec)
    with transaction.atomic():
        _refuse_when_full(project_id, 1)
        if insert_prepared([prepared], project_id=project_id, actor=actor):
            notify(Channel.READY)
            return SubmittedJob(prepared.id, created=True)
        twins, reused = _twins([prepared], project_id)
        if reused:
            raise _reused(prepared)
        return SubmittedJob(twins[prepared.id], created=False)


def submit_batch(
    lines: Iterable[bytes | str | Mapping[str, Any]],
    *,
    project_id: str,
    actor: str,
    name: str = "",
    partial: bool = False,
    start_interval_seconds: float = 0.0,
) -> SubmittedBatch:
    """
    Store many jobs in one transaction and wake the executors.

    Args:
        lines: One JobSpec each: JSON text or already parsed. Read once, chunk by chunk; blank text is skipped.
        partial: Accept the valid lines and report the others; otherwise one bad line rejects all.
        start_interval_seconds: Start the jobs this far apart; 0: as soon as limits allow.

    Raises:
        BatchRejected: A line is bad (partial: every line is). Nothing was stored.
        TooManyJobs, QueueFull, EmptyBatch: Nothing was stored.
    """
    intake = _Intake(start_interval_seconds)
    with transaction.atomic():
        room = _refuse_when_full(project_id, 0)
        batch = Batch.objects.create(project_id=project_id, name=name, submitted_by=actor)
        accepted = duplicates = 0
        for prepared in intake.chunks(lines):
            if intake.error_count and not partial:
                continue  # only counts the errors from here on
            if accepted + len(prepared) > room:
                _refuse_when_full(project_id, accepted + len(prepared))
            numbers = {job.id: line for line, job in prepared}
            jobs = [job for _, job in prepared]
            added = insert_prepared(jobs, project_id=project_id, actor=actor, batch=batch)
            accepted += len(added)
            missing = [job for job in jobs if job.id not in added]
            if missing:
                twins, reused = _twins(missing, project_id)
                duplicates += len(twins)
                for job in reused:
                    intake.refuse(numbers[job.id], _reused(job))
        if not intake.seen:
            raise EmptyBatch
        if intake.error_count and (not partial or not accepted + duplicates):
            raise BatchRejected(
                f"{intake.error_count} of {intake.seen} jobs are not valid; none was accepted.",
                error_count=intake.error_count,
                errors=[_as_dict(error) for error in intake.errors],
            )
        Batch.objects.filter(pk=batch.pk).update(total=accepted)
        notify(Channel.READY)
    return SubmittedBatch(batch.pk, accepted, duplicates, intake.error_count, intake.errors)


def prepare_job(spec: JobSpec, **extra: Any) -> PreparedJob:
    """
    Validate one job against its handler's schema.

    Args:
        extra: Fields of PreparedJob: `effect_key`, `origin`, `delay_seconds`.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge
    """
    handler = find_handler(spec.kind)
    try:
        text = pydantic_core.to_json(spec.payload, inf_nan_mode="constants")
        payload = handler.schema.validate_json(text)
    except ValidationError as error:
        raise InvalidJob(
            f"The payload does not fit {spec.kind!r}.", fields=_field_errors(error, prefix="payload")
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidJob("The payload cannot be stored as JSON.", fields={"payload": [str(error)]}) from None
    limit = settings.QUEUEOPS.max_job_mb * 1024 * 1024
    if len(text) > limit:
        raise PayloadTooLarge(
            f"The payload has {len(text):,} bytes; at most {limit:,} fit. Put large content elsewhere and send a "
            "reference, or split the job.",
            given_bytes=len(text),
            limit_bytes=limit,
        )
    if NUL_ESCAPE.search(text):
        raise InvalidJob("The payload holds a NUL character.", fields={"payload": ["\\u0000 cannot be stored"]})
    if spec.retry_policy is not None and spec.retry_policy not in _policy_names():
        raise InvalidJob("Unknown retry policy.", fields={"retry_policy": [f"{spec.retry_policy!r} does not exist"]})
    cost = handler.estimated_cost(payload) if spec.cost is None else spec.cost
    return PreparedJob(new_id(), handler, spec, text.decode(), handler.service_of(payload), cost, **extra)


def insert_prepared(jobs: list[PreparedJob], *, project_id: str, actor: str, batch: Batch | None = None) -> set[UUID]:
    """Insert in the caller's transaction; returns the ids inserted. A missing one met its idempotency key."""
    rows = run_sql(
        "jobs",
        "insert_jobs",
        {
            "project": project_id,
            "batch": batch.pk if batch else None,
            "held": batch.paused if batch else False,
            "submitted_by": actor,
            "ids": [job.id for job in jobs],
            "kinds": [job.handler.kind for job in jobs],
            "services": [job.service for job in jobs],
            "models": [job.spec.model for job in jobs],
            "call_types": [job.handler.call_type.value for job in jobs],
            "costs": [job.cost for job in jobs],
            "priorities": [job.spec.priority.value for job in jobs],
            "payloads": [job.payload for job in jobs],
            "user_ids": [job.spec.user_id for job in jobs],
            "idempotency_keys": [job.spec.idempotency_key for job in jobs],
            "effect_keys": [job.effect_key or str(job.id) for job in jobs],
            "retry_policies": [job.spec.retry_policy for job in jobs],
            "scheduled_ats": [job.spec.scheduled_at for job in jobs],
            "delays": [job.spec.delay_seconds if job.delay_seconds is None else job.delay_seconds for job in jobs],
            "expires_ats": [job.spec.expires_at for job in jobs],
            "origins": [job.origin for job in jobs],
        },
    )
    return {row[0] for row in rows}


class _Intake:
    """Validates the lines of a batch and keeps their errors."""

    def __init__(self, start_interval_seconds: float) -> None:
        self.start_interval_seconds = start_interval_seconds
        self.seen = 0
        self.error_count = 0
        self.errors: list[LineError] = []

    def chunks(self, lines: Iterable[bytes | str | Mapping[str, Any]]) -> Iterator[list[tuple[int, PreparedJob]]]:
        numbered = ((number, line) for number, line in enumerate(lines, 1) if not _is_blank(line))
        while chunk := list(islice(numbered, CHUNK)):
            self.seen += len(chunk)
            limit = settings.QUEUEOPS.max_batch_jobs
            if self.seen > limit:
                raise TooManyJobs(f"A batch takes at most {limit:,} jobs; split it.", given=self.seen, limit=limit)
            yield [(number, job) for number, line in chunk if (job := self._prepare(number, line))]

    def _prepare(self, number: int, line: bytes | str | Mapping[str, Any]) -> PreparedJob | None:
        try:
            spec = parse_spec(line)
            delay = None
            if self.start_interval_seconds and spec.scheduled_at is None:
                delay = (spec.delay_seconds or 0.0) + (number - 1) * self.start_interval_seconds
            return prepare_job(spec, delay_seconds=delay)
        except QueueOpsError as error:
            self.refuse(number, error)
            return None

    def refuse(self, number: int, error: QueueOpsError) -> None:
        self.error_count += 1
        if len(self.errors) < MAX_LISTED_ERRORS:
            self.errors.append(LineError(number, error.code, error.message, error.fields))


def parse_spec(line: bytes | str | Mapping[str, Any]) -> JobSpec:
    """
    Read one job from JSON text or parsed JSON.

    Raises:
        InvalidJob: With the path of each bad field.
    """
    try:
        if isinstance(line, Mapping):
            return JobSpec.model_validate(line)
        return JobSpec.model_validate_json(line)
    except ValidationError as error:
        fields = _field_errors(error)
        if list(fields) == [""]:
            raise InvalidJob(f"Not a JSON object: {fields[''][0]}") from None
        raise InvalidJob("The job is not valid.", fields=fields) from None


def _field_errors(error: ValidationError, prefix: str = "") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        path = ".".join([prefix, *map(str, item["loc"])] if prefix else map(str, item["loc"]))
        found.setdefault(path, []).append(item["msg"])
    return found


def _is_blank(line: bytes | str | Mapping[str, Any]) -> bool:
    return isinstance(line, (bytes, str)) and not line.strip()


def _as_dict(error: LineError) -> dict[str, Any]:
    return {"line": error.line, "code": error.code, "message": error.message, "fields": dict(error.fields)}


def _policy_names() -> set[str]:
    return set(RetryPolicy.objects.values_list("name", flat=True))


def _reused(job: PreparedJob) -> IdempotencyKeyReused:
    key = job.spec.idempotency_key
    return IdempotencyKeyReused(f"{key!r} was used for another kind or payload.", idempotency_key=key)


def _twins(jobs: list[PreparedJob], project_id: str) -> tuple[dict[UUID, UUID], list[PreparedJob]]:
    """The existing job of each given one's idempotency key; and those whose key stands for other work."""
    keys = [job.spec.idempotency_key for job in jobs]
    existing = {
        row["idempotency_key"]: row
        for row in Job.objects.of_project(project_id)
        .filter(idempotency_key__in=keys)
        .values("id", "idempotency_key", "kind", "payload")
    }
    twins: dict[UUID, UUID] = {}
    reused: list[PreparedJob] = []
    for job in jobs:
        twin = existing[job.spec.idempotency_key]
        if twin["kind"] == job.handler.kind and twin["payload"] == pydantic_core.from_json(job.payload):
            twins[job.id] = twin["id"]
        else:
            reused.append(job)
    return twins, reused


def _refuse_when_full(project_id: str, coming: int) -> int:
    """Return the room left in the project's queue; raise QueueFull when `coming` jobs do not fit."""
    limit, unfinished = map(int, run_sql("jobs", "read_room", {"project": project_id})[0])
    if unfinished + coming > limit:
        raise QueueFull(
            f"{unfinished:,} jobs of the project are unfinished and {limit:,} are allowed. Try again later.",
            unfinished=unfinished,
            limit=limit,
            retry_after=30,
        )
    return limit - unfinished
