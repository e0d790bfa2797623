"""Submits one job, or a batch of up to 100,000 jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from uuid import UUID

import pydantic_core
from django.db import transaction

from jobs.features.batch_guards.begin import BatchTrial
from jobs.features.dependencies.dependencies import Named, UnknownDependency, Waits, batch_waits, told_of, waits_as_json
from jobs.features.dependencies.takes import as_submitted, note_takes
from jobs.features.fallback.ways import watch_ways
from jobs.features.unique.unique import Insert, SettledKeys, lock_keys, replace_work, settle_keys, stored_key
from jobs.models import Batch, Job, OnFailure
from jobs.services.submit.documents.accept_document import JOBS_OF_AN_INSERT, Line, LineChecker, LineError, in_chunks
from queueops.core.errors import IdempotencyKeyReused, QueueOpsError
from queueops.core.notify import Channel, notify
from queueops.core.sql import nullable, plain_array, run_sql
from queueops.core.telemetry import tracing
from queueops.core.values.written import say_the_same
from queueops.tenancy.moves import refuse_moved
from queueops.tenancy.secrets.encryption import CannotRead, note_encrypted
from queueops.tenancy.secrets.written_json import WrittenBytes
from queueops.tenancy.user_labels import label_users

from .choose_lane import choose_lanes
from .on_finish import prepare_callback
from .payloads import payloads_to_store
from .prepare import PreparedJob, Rules, prepare_job
from .spec import JobSpec
from .tags import store_tags, tags_of_jobs

MAX_KNOWN_LISTED = 1_000
MAX_KNOWN_BATCHES = 20

T = TypeVar("T")


class QueueFull(QueueOpsError):
    """The project has too much unfinished work."""

    code = "queue_full"
    status = 429
    detail_fields = ("unfinished", "limit", "retry_after")


class EmptyBatch(QueueOpsError):
    """A batch needs at least one job."""

    code = "empty_batch"
    status = 422


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """
    Attributes:
        id: The new job's id, or an older job's: see `created`.
        created: False if no job was made. `id` is then the older job with the same idempotency key and work, or with
            the same unique key.
    """

    id: UUID
    created: bool
    outcome: Literal["created", "duplicate", "pending", "replaced"] = "created"


@dataclass(frozen=True, slots=True)
class KnownLine:
    """A line of a batch that made no job: the older `job` has its key. `batch`: that job's batch; None: it has none."""

    line: int
    outcome: Literal["duplicate", "pending", "replaced"]
    job: UUID
    batch: UUID | None


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """
    Attributes:
        known: The first MAX_KNOWN_LISTED lines that made no job, because a job already has their key.
        known_batches: The first MAX_KNOWN_BATCHES other batches that contain such older jobs.
    """

    id: UUID
    accepted: int
    duplicates: int
    pending: int  # lines whose unique key belongs to a job that has not ended
    replaced: int  # the pending lines whose work that job has taken over
    error_count: int
    errors: list[LineError]
    known: list[KnownLine]
    known_batches: list[UUID]


class BatchRejected(QueueOpsError):
    """Jobs of the batch are not valid, so none was accepted."""

    code = "batch_rejected"
    status = 422
    detail_fields = ("error_count", "errors")


def submit_job(spec: JobSpec, *, project_id: str, actor: str, only_user: UUID | None = None) -> SubmittedJob:
    """
    Store one job durably and wake an executor.

    Args:
        only_user: The end user who submits the job and owns it.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge, ForeignUser, BadDeadline, NoBatchForm, QueueFull,
        UnknownDependency, IdempotencyKeyReused, UniqueKeyTaken: Nothing was stored.
    """
    about = {"messaging.destination.name": spec.kind, "queueops.project": project_id}
    with tracing.submitting(f"submit {spec.kind}", about) as span:
        submitted = _submit_one(spec, project_id, actor, only_user)
        span.note(messaging__message__id=str(submitted.id))
    return submitted


def _submit_one(spec: JobSpec, project_id: str, actor: str, only_user: UUID | None) -> SubmittedJob:
    prepared = prepare_job(spec, rules=Rules(project_id, only_user=only_user))
    with transaction.atomic():
        refuse_when_full(project_id, 1)
        named = Named(project_id, only_user=only_user)
        named.read(spec.after)
        named.check(spec.after)

        def insert(some: list[PreparedJob]) -> set[UUID]:
            return insert_prepared(some, project_id=project_id, actor=actor, named=named)

        settled = SettledKeys()
        _store([prepared], settled, project_id=project_id, insert=insert)
        replace_work(settled, project_id=project_id, actor=actor, insert=insert)
        for _, error in settled.refused:
            raise error
        if prepared.id in settled.twins:
            return SubmittedJob(settled.twins[prepared.id], created=False, outcome="duplicate")
        label_users(project_id, _labels([prepared]))
        notify(Channel.READY)
        if met := settled.met.get(prepared.id):
            return SubmittedJob(met.id, created=False, outcome="replaced" if met.replaced else "pending")
        return SubmittedJob(prepared.id, created=True)


def submit_batch(
    lines: Iterable[Line],
    *,
    project_id: str,
    actor: str,
    only_user: UUID | None = None,
    name: str = "",
    tags: Sequence[str] = (),
    partial: bool = False,
    start_interval_seconds: float = 0.0,
    first_line: int = 1,
    after: Sequence[UUID | str] = (),
    on_failure: OnFailure = OnFailure.CANCEL,
    on_finish: JobSpec | None = None,
    guard_first: int | None = None,
    guard_percent: int | None = None,
) -> BatchReceipt:
    """
    Store many jobs in one transaction and wake the executors.

    Args:
        lines: One JobSpec each, as JSON text or already parsed. Read once, chunk by chunk; blank text is skipped.
        only_user: The end user who submits the batch and owns it and its jobs.
        first_line: The number of the first line, if it is not 1.
        tags: The tags of the batch alone; its jobs have their own.
        partial: Accept the valid lines and report the others; otherwise one bad line rejects all.
        start_interval_seconds: Start the jobs this far apart; 0: as soon as limits allow.
        after, on_failure: The dependencies of the whole batch, as in a JobSpec; its jobs may have others besides.
        on_finish: The job to carry out when the whole batch has ended, failed jobs included; `prepare_callback` says
            which of its fields are refused.
        guard_first, guard_percent: The batch pauses itself when `guard_percent` of its first `guard_first` jobs have
            failed for good with one code; 0 percent: never. None: the project's setting, for batches above a size.

    Raises:
        BatchRejected: A line is bad (partial: every line is). Nothing was stored.
        TooManyJobs, QueueFull, EmptyBatch, UnknownDependency: Nothing was stored.
    """
    checker = LineChecker(
        project_id, only_user=only_user, start_interval_seconds=start_interval_seconds, first_line=first_line
    )
    batch = Batch(project_id=project_id, user_id=only_user, name=name, submitted_by=actor)
    callbacks = [prepare_callback(on_finish, batch, rules=checker.rules)] if on_finish else []
    with tracing.submitting("submit batch", {"queueops.project": project_id}) as span, transaction.atomic():
        room = refuse_when_full(project_id, len(callbacks)) - len(callbacks)
        named = Named(project_id, only_user=only_user)
        named.read(after)
        named.check(after)
        waits = named.waits(after, on_failure)
        batch.after = waits_as_json(waits)
        batch.on_finish_job = callbacks[0].id if callbacks else None
        batch.save(force_insert=True)
        store_tags(project_id, {batch.pk: tags})
        named.store({batch.pk: waits}, of_batch=True)
        trial = BatchTrial(project_id, first=guard_first, percent=guard_percent)
        intake = _Intake(batch, checker, named, trial, actor=actor, room=room, callbacks=len(callbacks))
        for prepared in checker.with_files(_one_ahead(checker.chunks(lines))):
            if partial or not checker.error_count:  # otherwise, the loop only counts the other errors
                for turn in _in_turns(prepared):
                    intake.take(turn)
        settled = intake.settle()
        if not checker.seen:
            raise EmptyBatch
        if checker.error_count and (not partial or not intake.accepted + len(settled.twins) + len(settled.met)):
            raise BatchRejected(
                f"{checker.error_count} of {checker.seen} jobs are not valid; none was accepted.",
                error_count=checker.error_count,
                errors=[error.as_dict() for error in checker.errors],
            )
        known, known_batches = intake.known()
        trial.settle(batch, accepted=intake.accepted)
        batch.total, batch.known_batches = intake.accepted, known_batches
        batch.save(update_fields=["total", "known_batches", "guard", "guard_state", "trial_until"])
        if callbacks:
            named.read([batch.pk])
            insert_prepared(callbacks, project_id=project_id, actor=actor, named=named)
        label_users(project_id, intake.labels | _labels(callbacks))
        notify(Channel.READY)
        span.note(queueops__batch=str(batch.pk), messaging__batch__message_count=intake.accepted)
    return BatchReceipt(
        id=batch.pk,
        accepted=intake.accepted,
        duplicates=len(settled.twins),
        pending=len(settled.met),
        replaced=sum(met.replaced for met in settled.met.values()),
        error_count=checker.error_count,
        errors=checker.errors,
        known=known,
        known_batches=known_batches,
    )


@dataclass(slots=True)
class _Intake:
    """
    Stores the jobs of a batch, chunk by chunk in the caller's transaction.

    Attributes:
        room: How many jobs the queue has room for, besides the `callbacks`.
    """

    batch: Batch
    checker: LineChecker
    named: Named
    trial: BatchTrial
    actor: str
    room: int
    callbacks: int
    accepted: int = 0
    labels: dict[UUID, str] = field(default_factory=dict)
    _settled: SettledKeys = field(default_factory=SettledKeys)
    _lines: dict[UUID, int] = field(default_factory=dict)  # line numbers of the jobs that were not inserted at once
    _keys_locked: bool = False

    def take(self, prepared: list[tuple[int, PreparedJob]]) -> None:
        """
        Store a turn of a chunk, see `_in_turns`.

        Raises:
            QueueFull
        """
        project_id = self.batch.project_id
        jobs = without_unknown(prepared, self.named, self.checker)
        self.trial.see(jobs, seen=self.accepted)
        if not self._keys_locked and any(job.spec.unique_key for job in jobs):
            lock_keys(project_id)
            self._keys_locked = True
        added = _store(jobs, self._settled, project_id=project_id, insert=self._insert)
        if len(added) < len(prepared):
            self._lines |= {job.id: line for line, job in prepared if job.id not in added}
        self._tell_refused()
        self.labels |= _labels(jobs)

    def settle(self) -> SettledKeys:
        """Settle the jobs that were not inserted, after the last chunk, and return the results."""
        replace_work(self._settled, project_id=self.batch.project_id, actor=self.actor, insert=self._insert)
        self._tell_refused()
        return self._settled

    def known(self) -> tuple[list[KnownLine], list[UUID]]:
        """Return the lines that made no job, with the jobs that have their keys, and the batches of these jobs."""
        found: dict[UUID, tuple[UUID, Literal["duplicate", "pending", "replaced"]]] = {
            job: (twin, "duplicate") for job, twin in self._settled.twins.items()
        }
        for job, met in self._settled.met.items():
            found[job] = met.id, "replaced" if met.replaced else "pending"
        ids = list(dict.fromkeys(job for job, _ in found.values()))
        of: dict[UUID, UUID | None] = {}
        for begin in range(0, len(ids), JOBS_OF_AN_INSERT):
            of |= dict(Job.objects.filter(pk__in=ids[begin : begin + JOBS_OF_AN_INSERT]).values_list("pk", "batch_id"))
        listed = sorted((self._lines[job], outcome, other) for job, (other, outcome) in found.items())
        lines = [KnownLine(line, outcome, other, of.get(other)) for line, outcome, other in listed[:MAX_KNOWN_LISTED]]
        batches = dict.fromkeys(of.get(other) for _, _, other in listed)
        others = [batch for batch in batches if batch is not None and batch != self.batch.pk]
        return lines, others[:MAX_KNOWN_BATCHES]

    def _insert(self, jobs: list[PreparedJob]) -> set[UUID]:
        project_id = self.batch.project_id
        if self.accepted + len(jobs) > self.room:
            refuse_when_full(project_id, self.accepted + len(jobs) + self.callbacks)
        go, wait = self.trial.divide(jobs)
        added = self._add(go)
        while wait and not self.trial.is_full:  # lines that made no job gave up their places among the first
            go, wait = self.trial.divide(wait)
            added |= self._add(go)
        if wait:
            held = self._add(wait, held=True)
            self.trial.hold(held)
            added |= held
        self.accepted += len(added)
        return added

    def _add(self, jobs: list[PreparedJob], *, held: bool = False) -> set[UUID]:
        given: dict[str, Any] = {"project_id": self.batch.project_id, "batch": self.batch, "named": self.named}
        added = insert_prepared(jobs, actor=self.actor, held=held, **given)
        if not held:
            self.trial.count(jobs, added)
        return added

    def _tell_refused(self) -> None:
        for job, error in self._settled.refused:
            self.checker.refuse(self._lines[job.id], error)
            if job.spec.idempotency_key:  # otherwise, a later line would wait for a job that the batch does not have
                self.named.expect_no_more(job.spec.idempotency_key)
        self._settled.refused.clear()


def _store(jobs: list[PreparedJob], settled: SettledKeys, *, project_id: str, insert: Insert) -> set[UUID]:
    """Insert jobs, or find the jobs with their keys; return the ids inserted. Without keys, one statement is enough."""
    added = insert(jobs)
    if len(added) < len(jobs):
        missing = [job for job in jobs if job.id not in added]
        twins, reused = find_twins([job for job in missing if job.spec.idempotency_key], project_id)
        settled.twins |= twins
        settled.refused += [(job, reused_key(job)) for job in reused]
        known = twins.keys() | {job.id for job in reused}
        settle_keys([job for job in missing if job.id not in known], settled, project_id=project_id, insert=insert)
    return added


def insert_prepared(
    jobs: list[PreparedJob],
    *,
    project_id: str,
    actor: str,
    batch: Batch | None = None,
    named: Named | None = None,
    held: bool = False,
) -> set[UUID]:
    """
    Insert jobs in the caller's transaction; return the ids inserted.

    An id is missing if an older job has the idempotency key or the unique key of its job.

    Args:
        named: The dependencies of the jobs, already checked. None: the jobs have none.
        held: Hold the jobs for a reason outside them, such as the trial of their batch.
    """
    chosen = choose_lanes(jobs, project_id)
    waits = batch_waits(batch.pk) if batch else None
    rows = run_sql(
        "jobs",
        "insert_jobs",
        {
            "project": project_id,
            "batch": batch.pk if batch else None,
            "held": held or (batch.paused if batch else False),
            "submitted_by": actor,
            "ids": plain_array([job.id for job in jobs]),
            "kinds": _one_for_all([job.handler.kind for job in jobs]),
            "services": _one_for_all([job.service for job in jobs]),
            "models": nullable([job.details.model or job.spec.model for job in jobs]),
            "call_types": _one_for_all([job.handler.call_type.value for job in jobs]),
            "costs": _one_for_all([one.cost for one in chosen]),
            "known_costs": plain_array([job.details.known_cost for job in jobs]),
            "costs_by_unit": nullable([one.units for one in chosen]),
            "credentials": nullable([job.details.credential for job in jobs]),
            "lanes": nullable([one.lane for one in chosen]),
            "targets": _one_for_all([one.target for one in chosen]),
            "paths": _one_for_all([one.path for one in chosen]),
            "coalesce_keys": nullable([one.coalesce_key for one in chosen]),
            "priorities": _one_for_all([job.spec.priority.value for job in jobs]),
            "payloads": f"[{','.join(payloads_to_store([job.payload for job in jobs], project_id))}]",
            "user_ids": plain_array([job.spec.user_id for job in jobs]),
            "idempotency_keys": nullable([job.spec.idempotency_key for job in jobs]),
            "effect_keys": nullable([job.effect_key or None for job in jobs]),
            "retry_policies": nullable([job.spec.retry_policy for job in jobs]),
            "scheduled_ats": nullable([job.way.live_at or job.spec.scheduled_at for job in jobs]),
            "complete_bys": nullable([job.way.complete_by for job in jobs]),
            "vias": nullable([job.way.via for job in jobs]),
            "ended_batches": nullable([job.ended_batch for job in jobs]),
            "unique_keys": nullable([stored_key(job) for job in jobs]),
            "debounces": nullable([job.spec.longest_debounce for job in jobs]),
            "waits": nullable([told_of(_waits(job, named)) if named and job.spec.after else waits for job in jobs]),
            "delays": plain_array([_delay(job) for job in jobs]),
            "expires_ats": nullable([job.spec.expires_at for job in jobs]),
            "origins": plain_array([job.origin for job in jobs]),
            "traceparents": tracing.carried(len(jobs)),
        },
    )
    missing = {row[0] for row in rows}
    added = [job for job in jobs if job.id not in missing] if missing else jobs
    watch_ways([job for job in added if job.details.watched is not None], project_id)
    store_tags(project_id, tags_of_jobs(added, project_id))
    if named is not None:
        named.store({job.id: _waits(job, named) for job in added if job.spec.after})
        note_takes({job.id: (job.spec, job.takes) for job in added if job.takes}, project_id, named.id_of)
    return {job.id for job in added}


def _waits(job: PreparedJob, named: Named) -> Waits:
    return named.waits(job.spec.after, job.spec.on_failure)


def _in_turns(prepared: list[tuple[int, PreparedJob]]) -> list[list[tuple[int, PreparedJob]]]:
    """Divide a chunk so that jobs are inserted after the earlier lines that they name in `after` by idempotency key."""
    if not any(isinstance(one, str) for _, job in prepared for one in job.spec.after):
        return [prepared]
    turns: list[list[tuple[int, PreparedJob]]] = []
    turn_of: dict[UUID | str, int] = {}
    for line, job in prepared:
        turn = max((turn_of[one] + 1 for one in job.spec.after if one in turn_of), default=0)
        if job.spec.idempotency_key:
            turn_of.setdefault(job.spec.idempotency_key, turn)
        if turn == len(turns):
            turns.append([])
        turns[turn].append((line, job))
    return turns


def without_unknown(prepared: list[tuple[int, PreparedJob]], named: Named, checker: LineChecker) -> list[PreparedJob]:
    """Return the jobs whose dependencies exist; the checker keeps an error for each of the others."""
    if not any(job.spec.after or job.spec.idempotency_key for _, job in prepared):
        return [job for _, job in prepared]
    named.read({one for _, job in prepared for one in job.spec.after})
    good = []
    for line, job in prepared:
        try:
            named.check(job.spec.after)
            good.append(job)
            if job.spec.idempotency_key and not job.spec.unique_key:
                named.expect(job.spec.idempotency_key)
        except UnknownDependency as error:
            checker.refuse(line, error)
    return good


def _labels(jobs: Iterable[PreparedJob]) -> dict[UUID, str]:
    return {job.spec.user_id: job.spec.user_label for job in jobs if job.spec.user_id and job.spec.user_label}


def _one_for_all(values: list[Any]) -> list[Any]:
    return values[:1] if len(set(values)) == 1 else values


def _delay(job: PreparedJob) -> float | None:
    given = job.spec.delay_seconds if job.delay_seconds is None else job.delay_seconds
    return job.spec.debounce_seconds or given


def _one_ahead(chunks: Iterator[T]) -> Iterator[T]:
    """Make each chunk in another thread while the one before it is being inserted."""
    with ThreadPoolExecutor(1, thread_name_prefix="prepare") as maker:
        here = copy_context()  # so that the other thread's statements are confined like this thread's
        coming = maker.submit(lambda: here.run(next, chunks, None))
        while (chunk := coming.result()) is not None:
            coming = maker.submit(lambda: here.run(next, chunks, None))
            yield chunk


def reused_key(job: PreparedJob) -> IdempotencyKeyReused:
    key = job.spec.idempotency_key
    return IdempotencyKeyReused(f"{key!r} was used for another kind, payload or user.", idempotency_key=key)


def find_twins(jobs: list[PreparedJob], project_id: str) -> tuple[dict[UUID, UUID], list[PreparedJob]]:
    """Return, for each given job, the older job with its idempotency key and work; and the jobs whose key is reused."""
    keys = [job.spec.idempotency_key for job in jobs]
    rows = Job.objects.of_project(project_id).filter(idempotency_key__in=keys)
    existing = {row["idempotency_key"]: row for row in rows.values("id", "idempotency_key", "kind", "user_id")}
    alike = [
        (job, twin["id"])
        for job in jobs
        if (twin := existing.get(job.spec.idempotency_key))
        and (twin["user_id"], twin["kind"]) == (job.spec.user_id, job.handler.kind)
    ]
    same = _of_the_same_payload(alike)
    twins: dict[UUID, UUID] = {}
    reused: list[PreparedJob] = []
    for job in jobs:
        twin = existing.get(job.spec.idempotency_key)  # None also if an end user's role cannot see the row
        if twin is not None and job.id in same:
            twins[job.id] = twin["id"]
        elif twin is not None or not job.spec.unique_key:  # otherwise, an older job has its unique key
            reused.append(job)
    return twins, reused


def _of_the_same_payload(alike: list[tuple[PreparedJob, UUID]]) -> set[UUID]:
    """
    Return the jobs whose payload equals their stored job's; read at once only as many payloads as memory holds.

    Raises:
        CannotRead: A stored payload is encrypted, and the caller may not read it, or its key is not set here.
    """
    stored = Job.objects.filter(pk__in={pk for _, pk in alike}).order_by("pk")
    same: set[UUID] = set()
    for some in in_chunks(stored.values_list("pk", WrittenBytes("payload")), lambda row: row[1]):
        rows = stored.filter(pk__in=[pk for pk, _ in some]).values_list("pk", "payload", "takes")
        payloads = {pk: as_submitted(payload, takes) for pk, payload, takes in rows}
        if any(isinstance(payload, str) for payload in payloads.values()):  # a text stands in for what is encrypted
            raise CannotRead(
                "A job with this idempotency_key is there, and its payload is encrypted: it cannot be compared."
            )
        same |= {
            job.id
            for job, pk in alike
            if pk in payloads and say_the_same(payloads[pk], pydantic_core.from_json(job.payload))
        }
    return same


def refuse_when_full(project_id: str, coming: int) -> int:
    """
    Return the room left in the project's queue.

    Raises:
        QueueFull: `coming` jobs do not fit.
        ProjectMoving, ProjectMoved: The project is moving or has moved. Call this in the transaction that inserts, or
            a move's copy could miss the new jobs.
    """
    [(most, counted, move, moved_to, encrypted)] = run_sql("jobs", "read_room", {"project": project_id})
    note_encrypted(project_id, is_on=encrypted)
    limit, unfinished = int(most), int(counted)
    if move:
        refuse_moved(project_id, move, moved_to)
    if unfinished + coming > limit:
        raise QueueFull(
            f"{unfinished:,} jobs of the project are unfinished and {limit:,} are allowed. Try again later.",
            unfinished=unfinished,
            limit=limit,
            retry_after=30,
        )
    return limit - unfinished
