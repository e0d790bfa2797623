"""Requeueing and discarding dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import count, groupby
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from pydantic import ValidationError

from jobs.errors import InvalidDelay
from jobs.features.dependencies.dependencies import Named
from jobs.features.dependencies.takes import Take, read_takes, validate_with_stand_ins, with_ids
from jobs.handlers.registry import Handler, UnknownKind, find_handler
from jobs.models import Batch, DeadLetter, Resolution, Tag, WebhookDelivery, new_id
from jobs.services.submit.choose_delivery import BadDeadline, ChosenWay
from jobs.services.submit.prepare import Details, PreparedJob, Rules, describe, prepare_job, way_of
from jobs.services.submit.results import BulkResult, RequeueResult, distinct_ids
from jobs.services.submit.spec import MAX_DELAY_SECONDS, InvalidJob, JobSpec
from jobs.services.submit.submit import insert_prepared
from jobs.states import Priority
from queueops.audit import trail
from queueops.core.notify import Channel, notify
from queueops.core.sealing import SealedAway, open_json
from queueops.core.sql import run_sql
from queueops.core.values.reasons import clean_reason, required_reason
from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.moves import refuse_moved

SLICE = 100  # dead letters in memory at once, as a payload may have megabytes


@dataclass(frozen=True, slots=True)
class RequeueOptions:
    """
    How the new jobs differ from the old ones.

    Attributes:
        payload: Replaces each old payload; the cost is then estimated anew. None: the old payload and cost.
        priority: Replaces each old priority; None: the old priority.
        note: Kept with the dead letters.
    """

    payload: dict[str, Any] | None = None
    priority: Priority | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Letter:
    """A row of lock_dead_letters.sql."""

    id: UUID
    job_id: UUID
    project_id: str
    batch_id: UUID | None
    kind: str
    service: str
    payload: str
    priority: str
    cost: int
    user_id: UUID | None
    model: str | None
    retry_policy: str | None
    effect_key: str
    complete_by: datetime | None
    via: str | None
    ended_batch: str | None
    takes: str | None

    @property
    def untaken(self) -> list[tuple[UUID, Take]]:
        """The values that the payload has yet to take from results, each with the id of the job that has the result."""
        told = json.loads(self.takes) if self.takes else {"taken": True}
        return [] if "taken" in told else read_takes(told)


@transaction.atomic
def requeue_dead_letters(
    ids: Iterable[UUID],
    *,
    actor: str,
    payload: dict[str, Any] | None = None,
    priority: Priority | None = None,
    spread_seconds: float = 0.0,
    note: str = "",
) -> RequeueResult:
    """
    Make a new job of each open dead letter, and wake the executors.

    The new job has the old one's effect key, so that a handler that sends the key or is idempotent doubles no effect.
    It names the old job as its origin and belongs to the same batch. It begins afresh: no retries or crashes counted,
    no expiry, no idempotency key. It keeps the deadline. If the old job went by a provider's batch and the deadline
    leaves time, the new job does so, too. Otherwise it goes live, and its timeline says why.

    The old job stays failed, but the counts of its batch and project drop it from `failed` in the same transaction: a
    requeued item counts once, as its latest job. A batch that had ended is open again.

    If the old job had yet to take values from other jobs' results, the new job waits for those jobs and takes them.

    Args:
        ids: At most MAX_BULK_JOBS distinct dead letters.
        payload, priority, note: See RequeueOptions.
        spread_seconds: The i-th of n new jobs starts i * spread_seconds / n after its requeue.

    Raises:
        TooManyJobs, InvalidDelay, InvalidJob, PayloadTooLarge, CredentialNotAllowed: Nothing was requeued.
        ProjectMoved, ProjectMoving: A project of these dead letters has moved, or is moving. Nothing was requeued.
    """
    letters = distinct_ids(ids)
    for project, move, address in _away().filter(deadletter__in=letters).distinct():
        refuse_moved(project, move, address)
    gap = checked_spread(spread_seconds) / max(1, len(letters))
    options = RequeueOptions(payload, priority, clean_reason(note))
    moved = carry_out_requeue(letters, options, actor=actor, gap_seconds=gap)
    if letters:
        trail.record(
            actor=actor,
            action="requeue_dead_letters",
            target=trail.target_of("dead letter", letters),
            after={"priority": priority, "edited": payload is not None, "spread_seconds": spread_seconds},
            moved=len(moved),
            reason=options.note,
            project_id=_projects_of(list(moved)),
        )
    return RequeueResult(moved, [letter for letter in letters if letter not in moved])


@transaction.atomic
def discard_dead_letters(ids: Iterable[UUID], *, actor: str, reason: str) -> BulkResult:
    """
    Close open dead letters without running them again. Their jobs stay failed.

    Raises:
        TooManyJobs, ReasonRequired: Nothing was discarded.
    """
    letters = distinct_ids(ids)
    reason = required_reason(reason)
    moved = carry_out_discard(letters, actor=actor, reason=reason)
    if letters:
        trail.record(
            actor=actor,
            action="discard_dead_letters",
            target=trail.target_of("dead letter", letters),
            moved=len(moved),
            reason=reason,
            project_id=_projects_of(list(moved)),
        )
    return BulkResult.of(letters, moved)


def carry_out_requeue(
    ids: Sequence[UUID],
    options: RequeueOptions,
    *,
    actor: str,
    gap_seconds: float = 0.0,
    operation_id: UUID | None = None,
) -> dict[UUID, UUID]:
    """
    `requeue_dead_letters` in the caller's transaction, without its audit entry.

    Dead letters of projects that move, or have moved, are left alone.

    Args:
        gap_seconds: The i-th dead letter by id starts i gaps later.
        operation_id: The bulk operation, if the dead letters are a chunk of one.

    Returns:
        The new job of each requeued dead letter.
    """
    moved: dict[UUID, UUID] = {}
    ordered = sorted(ids)
    rules_of = cache(Rules)
    away = {project for project, _, _ in _away()}
    for start in range(0, len(ordered), SLICE):
        places = dict(zip(ordered[start : start + SLICE], count(start), strict=False))
        letters = [_Letter(*row) for row in run_sql("jobs", "lock_dead_letters", {"ids": list(places)})]
        tags = Tag.objects.of([letter.job_id for letter in letters])
        prepared = {
            letter: job
            for letter in letters
            if letter.project_id not in away
            and (
                job := _prepare(
                    letter,
                    options,
                    rules_of,
                    delay_seconds=places[letter.id] * gap_seconds,
                    tags=tags.get(letter.job_id, ()),
                )
            )
        }
        resolved = _resolve(
            {letter.id: job.id for letter, job in prepared.items()},
            Resolution.REQUEUED,
            actor=actor,
            note=options.note,
            operation_id=operation_id,
        )
        _insert({letter: job for letter, job in prepared.items() if letter.id in resolved}, actor=actor)
        moved |= {letter.id: job.id for letter, job in prepared.items() if letter.id in resolved}
    if moved:
        notify(Channel.READY)
    return moved


def carry_out_discard(ids: Sequence[UUID], *, actor: str, reason: str, operation_id: UUID | None = None) -> set[UUID]:
    """`discard_dead_letters` in the caller's transaction, without its audit entry; returns the ids moved."""
    return _resolve(dict.fromkeys(ids), Resolution.DISCARDED, actor=actor, note=reason, operation_id=operation_id)


def checked_spread(spread_seconds: float) -> float:
    """
    Return the spread if jobs can be scheduled that far.

    Raises:
        InvalidDelay
    """
    if not 0 <= spread_seconds <= MAX_DELAY_SECONDS:
        raise InvalidDelay(
            f"The spread is between 0 and {MAX_DELAY_SECONDS:,} seconds.",
            fields={"spread_seconds": ["out of range"]},
            given_seconds=spread_seconds,
            limit_seconds=MAX_DELAY_SECONDS,
        )
    return spread_seconds


def _prepare(
    letter: _Letter,
    options: RequeueOptions,
    rules_of: Callable[[str], Rules],
    *,
    delay_seconds: float,
    tags: Sequence[str],
) -> PreparedJob | None:
    """Prepare the new job. None: no handler carries out its kind, so it could only fail again."""
    try:
        handler = find_handler(letter.kind)
    except UnknownKind:
        return None
    spec = JobSpec(
        kind=handler.kind,
        payload=with_ids(options.payload or {}, {take.job: job for job, take in letter.untaken}),
        priority=options.priority or Priority(letter.priority),
        user_id=letter.user_id,
        model=letter.model,
        retry_policy=letter.retry_policy,
        after=tuple(dict.fromkeys(job for job, _ in letter.untaken)),
    )
    origin: dict[str, Any] = {
        "effect_key": letter.effect_key,
        "origin": letter.job_id,
        "delay_seconds": delay_seconds or None,
        "kept_tags": tuple(tags),
        "ended_batch": letter.ended_batch,
    }
    if options.payload is not None:
        # Check an edited payload: it may name a credential that the project may not use.
        rules = rules_of(letter.project_id)
        prepared = prepare_job(spec, rules=rules, **origin)
        payload = _validated(handler, prepared.payload, prepared.takes)
        return _keeps_way(prepared, letter, payload, rules_of)
    takes = tuple(take for _, take in letter.untaken)
    try:
        payload = _validated(handler, open_json(letter.payload), takes)
        details, _ = describe(handler, payload, spec)
    except (ValidationError, InvalidJob, SealedAway):
        # The handler has changed since: the new job fails again, and its error says how.
        payload, details = None, Details(model=letter.model)
    prepared = PreparedJob(
        id=new_id(),
        handler=handler,
        spec=spec,
        payload=letter.payload,
        service=letter.service,
        cost=letter.cost,
        details=details,
        takes=takes,
        **origin,
    )
    return prepared if payload is None else _keeps_way(prepared, letter, payload, rules_of)


def _validated(handler: Handler, payload: str, takes: Sequence[Take]) -> Any:
    return (
        validate_with_stand_ins(handler, json.loads(payload), takes) if takes else handler.schema.validate_json(payload)
    )


def _keeps_way(prepared: PreparedJob, letter: _Letter, payload: Any, rules_of: Callable[[str], Rules]) -> PreparedJob:
    """Give the job the old job's deadline and, if time allows, its delivery; a note says if the delivery changes."""
    if letter.complete_by is None:
        return prepared
    live = ChosenWay(complete_by=letter.complete_by, has_form=prepared.way.has_form)
    if letter.via is None:
        return prepared._replace(way=live)
    spec = prepared.spec.model_copy(update={"complete_by": letter.complete_by, "via": "auto"})
    try:
        way = way_of(
            prepared.handler,
            payload,
            spec,
            prepared.details,
            rules=rules_of(letter.project_id),
            delay_seconds=prepared.delay_seconds,
        )
    except BadDeadline:
        return prepared._replace(way=live, note="it goes live: its deadline is over")
    if way.via is None:
        why = "its deadline leaves no time for a batch" if way.has_form else "it cannot go by batch as it is"
        return prepared._replace(way=live, note=f"it goes live: {why}")
    return prepared._replace(way=way)


def _resolve(
    new_jobs: dict[UUID, UUID] | dict[UUID, None],
    resolution: Resolution,
    *,
    actor: str,
    note: str,
    operation_id: UUID | None,
) -> set[UUID]:
    parameters = {
        "ids": list(new_jobs),
        "new_jobs": list(new_jobs.values()),
        "resolution": resolution.value,
        "actor": actor,
        "note": note,
        "operation": operation_id,
    }
    return {row[0] for row in run_sql("jobs", "resolve_dead_letters", parameters)}


def _insert(prepared: dict[_Letter, PreparedJob], *, actor: str) -> None:
    # Lock the batches until the commit: upkeep must not close a batch before it can see the counts of the new jobs.
    wanted = {letter.batch_id for letter in prepared if letter.batch_id}
    batches = {batch.pk: batch for batch in Batch.objects.select_for_update().filter(pk__in=wanted).order_by("pk")}
    for (project_id, batch_id), jobs in _by_batch(prepared):
        batch = batches.get(batch_id) if batch_id else None
        named = Named(project_id)
        named.read({one for job in jobs for one in job.spec.after})
        own = [letter for letter in prepared if letter.project_id == project_id]
        named.know({take.job: job for letter in own for job, take in letter.untaken})
        insert_prepared(jobs, project_id=project_id, actor=actor, batch=batch, named=named)
    _carry_on_messages({letter.job_id: job.id for letter, job in prepared.items()})
    for note in {job.note for job in prepared.values() if job.note}:
        ids = [job.id for job in prepared.values() if job.note == note]
        run_sql("jobs", "log_deferrals", {"ids": ids, "data": ["{}" for _ in ids], "message": note})
    # Upkeep waits for the locks taken above. It either closed a batch earlier, or will see the new jobs.
    Batch.objects.filter(pk__in=batches, finished_at__isnull=False).update(finished_at=None)


def _carry_on_messages(new_jobs: dict[UUID, UUID]) -> None:
    """Let a webhook message refer to its latest job, which sends the message and whose state the message shows."""
    rows = list(WebhookDelivery.objects.filter(job_id__in=new_jobs))
    for row in rows:
        row.job_id, row.is_open = new_jobs[row.job_id], row.event == WebhookDelivery.Event.JOBS
    WebhookDelivery.objects.bulk_update(rows, ["job", "is_open"])


def _by_batch(
    prepared: dict[_Letter, PreparedJob],
) -> Iterator[tuple[tuple[str, UUID | None], list[PreparedJob]]]:
    def place(letter: _Letter) -> tuple[str, str]:
        return letter.project_id, str(letter.batch_id)

    for _, group in groupby(sorted(prepared, key=place), key=place):
        letters = list(group)
        yield (letters[0].project_id, letters[0].batch_id), [prepared[letter] for letter in letters]


def _away() -> QuerySet[Project, tuple[str, str, str]]:
    """Return the projects that move or have moved, as arguments of `refuse_moved`."""
    return Project.objects.exclude(move=ProjectMove.NONE).order_by().values_list("pk", "move", "moved_to")


def _projects_of(ids: list[UUID]) -> list[str]:
    return list(DeadLetter.objects.filter(pk__in=ids).order_by().values_list("project_id", flat=True).distinct())
