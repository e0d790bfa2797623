"""Unique while pending, and debounce: what becomes of a job whose unique key a job that has not ended has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from jobs.models import Tag
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.core.errors import QueueOpsError
from queueops.core.sql import nullable, plain_array, run_sql

from .choose_lane import choose_lanes
from .payloads import payloads_to_store
from .prepare import PreparedJob
from .tags import store_tags, tags_of_jobs
from .ways import watch_ways

MOST_ROUNDS = 20  # each but the first because a job of the key ended or began between two statements


class UniqueKeyTaken(QueueOpsError):
    """A job that has not ended has this unique key, and is another kind's or another user's."""

    code = "unique_key_taken"
    status = 422
    detail_fields = ("unique_key",)


class KeyHolder(NamedTuple):
    """The job that has the key. `replaced`: it does the new work now."""

    id: UUID
    replaced: bool


@dataclass(slots=True)
class SettledKeys:
    """What became of jobs by their own ids: inserted after all, met, or refused."""

    added: set[UUID] = field(default_factory=set)
    met: dict[UUID, KeyHolder] = field(default_factory=dict)
    refused: list[tuple[PreparedJob, UniqueKeyTaken]] = field(default_factory=list)


def stored_key(job: PreparedJob) -> str | None:
    """What the index compares in a project: the key after its kind, or after nothing where all kinds share it."""
    spec = job.spec
    if spec.unique_key is None:
        return None
    return f"{job.handler.kind if spec.unique_in == 'kind' else ''}/{spec.unique_key}"


def lock_keys(project_id: str) -> None:
    """Let a project's batches with unique keys be stored one after another: keys in another order would deadlock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"queueops unique {project_id}"])


def settle_keys(
    jobs: Sequence[PreparedJob],
    *,
    project_id: str,
    actor: str,
    insert: Callable[[list[PreparedJob]], set[UUID]],
) -> SettledKeys:
    """
    Settle jobs that were not inserted because a job with their unique key has not ended, in the caller's transaction.

    Args:
        jobs: In the order of their submission: of several that replace one job, the last does.
        insert: Tries to insert some once more; returns the ids inserted.
    """
    done, left = SettledKeys(), list(jobs)
    for _ in range(MOST_ROUNDS):
        left = _meet(left, done, project_id=project_id, actor=actor)
        if not left:
            return done
        added = insert(left)
        done.added |= added
        left = [job for job in left if job.id not in added]
    done.refused += [(job, _taken(job)) for job in left]  # by a job that an end user cannot see
    return done


class _Holder(NamedTuple):
    """The job that has a key."""

    id: UUID
    kind: str
    user_id: UUID | None
    status: str
    has_begun: bool


def _meet(jobs: list[PreparedJob], done: SettledKeys, *, project_id: str, actor: str) -> list[PreparedJob]:
    """Return those that met nobody."""
    holders = _holders(jobs, project_id)
    left: list[PreparedJob] = []
    news: dict[UUID, list[PreparedJob]] = {}
    for job in jobs:
        holder = holders.get((bool(job.spec.debounce_seconds), stored_key(job)))
        if holder is None:
            left.append(job)
        elif holder.user_id != job.spec.user_id or (job.spec.replaces and holder.kind != job.handler.kind):
            done.refused.append((job, _taken(job)))
        elif job.spec.replaces and not holder.has_begun:
            news.setdefault(holder.id, []).append(job)
        else:
            done.met[job.id] = KeyHolder(holder.id, replaced=False)
    if news:
        parked = [holder.id for holder in holders.values() if holder.id in news and holder.status != JobState.QUEUED]
        move_jobs("release", [Move(one) for one in sorted(parked)], message="it has other work now")
        replaced = _replace({holder: ones[-1] for holder, ones in news.items()}, project_id, actor)
        for one, ones in news.items():
            if one in replaced:
                done.met |= {job.id: KeyHolder(one, replaced=True) for job in ones}
            else:  # it has begun, or ended, meanwhile
                left += ones
    return left


def _holders(jobs: Sequence[PreparedJob], project_id: str) -> dict[tuple[bool, str | None], _Holder]:
    keys = sorted({key for job in jobs if (key := stored_key(job))})
    rows = run_sql("jobs", "find_unique_jobs", {"project": project_id, "keys": keys})
    return {(debounced, key): _Holder(*rest) for debounced, key, *rest in rows}


def _replace(news: dict[UUID, PreparedJob], project_id: str, actor: str) -> set[UUID]:
    """Give waiting jobs other work; returns those that got it."""
    jobs = [replace(job, id=holder) for holder, job in sorted(news.items())]
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
    replaced = {row[0] for row in rows}
    moved = [job for job in jobs if job.id in replaced]
    watch_ways(moved, project_id)
    Tag.objects.filter(owner_id__in=replaced).delete()
    store_tags(project_id, tags_of_jobs(moved, project_id))
    return replaced


def _taken(job: PreparedJob) -> UniqueKeyTaken:
    key = job.spec.unique_key
    fault = "a job of another kind or user has it and has not ended"
    return UniqueKeyTaken(f"{key!r} is taken.", fields={"unique_key": [fault]}, unique_key=key)
