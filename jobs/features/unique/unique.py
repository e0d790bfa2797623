"""Unique while pending, and debounce: settles new jobs whose unique key belongs to a job that has not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction

from jobs.features.fallback.ways import watch_ways
from jobs.models import Job, Tag
from jobs.services.submit.choose_lane import choose_lanes
from jobs.services.submit.documents.accept_document import in_chunks, size_of
from jobs.services.submit.payloads import payloads_to_store
from jobs.services.submit.prepare import PreparedJob
from jobs.services.submit.tags import store_tags, tags_of_jobs
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.core.errors import QueueOpsError
from queueops.core.sql import nullable, plain_array, run_sql

Insert = Callable[[list[PreparedJob]], set[UUID]]

MAX_ROUNDS = 20  # a further round follows if a job of the key ended or began between two statements


class UniqueKeyTaken(QueueOpsError):
    """A job that has not ended has this unique key, and is another kind's or another user's."""

    code = "unique_key_taken"
    status = 422
    detail_fields = ("unique_key",)


class KeyHolder(NamedTuple):
    """The job that has the key. `replaced`: it now does the new job's work."""

    id: UUID
    replaced: bool


@dataclass(slots=True)
class SettledKeys:
    """
    The results for jobs that were not inserted at once, by their own ids.

    `twins`: the stored jobs with their idempotency keys. `met`: the jobs with their unique keys. `replacing`: new jobs,
    by the waiting job that is to do their work.
    """

    twins: dict[UUID, UUID] = field(default_factory=dict)
    met: dict[UUID, KeyHolder] = field(default_factory=dict)
    replacing: dict[UUID, list[PreparedJob]] = field(default_factory=dict)
    refused: list[tuple[PreparedJob, QueueOpsError]] = field(default_factory=list)


def stored_key(job: PreparedJob) -> str | None:
    """Return the key as the index of a project compares it: after `<kind>/`, or after `/` if all kinds share it."""
    spec = job.spec
    if spec.unique_key is None:
        return None
    return f"{job.handler.kind if spec.unique_in == 'kind' else ''}/{spec.unique_key}"


def lock_keys(project_id: str) -> None:
    """Let one batch of a project store unique keys at a time: otherwise keys in different orders would deadlock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"queueops unique {project_id}"])


def settle_keys(jobs: Sequence[PreparedJob], done: SettledKeys, *, project_id: str, insert: Insert) -> None:
    """
    Settle jobs that were not inserted because a job with their unique key has not ended, in the caller's transaction.

    Jobs that replace that job's work are kept for `replace_work`. An insertion waits for the transaction that ends the
    job with its key, and a transaction that ends several jobs waits for rows. If a row were locked before the last
    insertion, the two would deadlock.

    Args:
        jobs: In the order of their submission.
        done: The results of the whole batch; this call adds to them.
        insert: Tries to insert jobs once more; returns the ids inserted.
    """
    left = list(jobs)
    for _ in range(MAX_ROUNDS):
        left = _meet(left, done, project_id)
        if not left:
            return
        for some in in_chunks(left, size_of):
            added = insert(some)
            left = [job for job in left if job.id not in added]
    _refuse(left, done)  # the end user cannot see the job that has the key


def replace_work(done: SettledKeys, *, project_id: str, actor: str, insert: Insert) -> None:
    """Give each waiting job the work of the last job that replaces its work, after all insertions of the batch."""
    for _ in range(MAX_ROUNDS):
        replacing, done.replacing = done.replacing, {}
        if not replacing:
            return
        if _replace_all(replacing, project_id, actor):
            done.met |= {job.id: KeyHolder(holder, replaced=True) for holder, ones in replacing.items() for job in ones}
            return
        jobs = [job for ones in replacing.values() for job in ones]
        settle_keys(jobs, done, project_id=project_id, insert=insert)
    _refuse([job for ones in done.replacing.values() for job in ones], done)


class _Holder(NamedTuple):
    """The job that has a key."""

    id: UUID
    kind: str
    user_id: UUID | None
    has_begun: bool


def _meet(jobs: Sequence[PreparedJob], done: SettledKeys, project_id: str) -> list[PreparedJob]:
    """Settle the jobs whose key another job has; return the others."""
    holders = _holders(jobs, project_id)
    nobody: list[PreparedJob] = []
    for job in jobs:
        holder = holders.get((bool(job.spec.debounce_seconds), stored_key(job)))
        if holder is None:
            nobody.append(job)
        elif holder.user_id != job.spec.user_id or (job.spec.replaces and holder.kind != job.handler.kind):
            _refuse([job], done)
        elif job.spec.replaces and not holder.has_begun:
            done.replacing.setdefault(holder.id, []).append(job)
        else:
            done.met[job.id] = KeyHolder(holder.id, replaced=False)
    return nobody


def _replace_all(replacing: Mapping[UUID, Sequence[PreparedJob]], project_id: str, actor: str) -> bool:
    """Replace the work of all; if one of the jobs has begun or ended meanwhile, change none, and return False."""
    jobs = [ones[-1]._replace(id=holder) for holder, ones in sorted(replacing.items())]
    with transaction.atomic():
        rows = Job.objects.filter(pk__in=replacing).order_by("pk").select_for_update().values_list("pk", "status")
        parked = [pk for pk, status in rows if status != JobState.QUEUED]
        move_jobs("release", [Move(one) for one in parked], message="it has other work now")
        if all(_replace(some, project_id, actor) for some in in_chunks(jobs, size_of)):
            return True
        transaction.set_rollback(True)
    return False


def _holders(jobs: Sequence[PreparedJob], project_id: str) -> dict[tuple[bool, str | None], _Holder]:
    keys = sorted({key for job in jobs if (key := stored_key(job))})
    rows = run_sql("jobs", "find_unique_jobs", {"project": project_id, "keys": keys})
    return {(debounced, key): _Holder(*rest) for debounced, key, *rest in rows}


def _replace(jobs: list[PreparedJob], project_id: str, actor: str) -> bool:
    """Give the waiting jobs with these ids other work; return whether each took it."""
    chosen = choose_lanes(jobs, project_id)
    rows = run_sql(
        "jobs",
        "replace_jobs",
        {
            "project": project_id,
            "actor": actor,
            "ids": plain_array([job.id for job in jobs]),
            "services": plain_array([job.service for job in jobs]),
            "models": nullable([job.details.model or job.spec.model for job in jobs]),
            "costs": plain_array([one.cost for one in chosen]),
            "known_costs": plain_array([job.details.known_cost for job in jobs]),
            "costs_by_unit": nullable([one.units for one in chosen]),
            "credentials": nullable([job.details.credential for job in jobs]),
            "lanes": nullable([one.lane for one in chosen]),
            "targets": [one.target for one in chosen],
            "paths": plain_array([one.path for one in chosen]),
            "coalesce_keys": nullable([one.coalesce_key for one in chosen]),
            "priorities": plain_array([job.spec.priority.value for job in jobs]),
            "payloads": f"[{','.join(payloads_to_store([job.payload for job in jobs], project_id))}]",
            "retry_policies": nullable([job.spec.retry_policy for job in jobs]),
            "scheduled_ats": nullable([job.spec.scheduled_at for job in jobs]),
            "delays": plain_array([job.spec.debounce_seconds or job.spec.delay_seconds for job in jobs]),
            "expires_ats": nullable([job.spec.expires_at for job in jobs]),
        },
    )
    if len(rows) < len(jobs):
        return False
    watch_ways(jobs, project_id)
    Tag.objects.filter(owner_id__in=[job.id for job in jobs]).delete()
    store_tags(project_id, tags_of_jobs(jobs, project_id))
    return True


def _refuse(jobs: Iterable[PreparedJob], done: SettledKeys) -> None:
    fault = "a job of another kind or user has it and has not ended"
    for job in jobs:
        key = job.spec.unique_key
        error = UniqueKeyTaken(f"{key!r} is taken.", fields={"unique_key": [fault]}, unique_key=key)
        done.refused.append((job, error))
