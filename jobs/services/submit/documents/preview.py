"""The jobs that would be made of a batch's lines, for checks before anything is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import pydantic_core

from jobs.features.dependencies.dependencies import Named
from jobs.models import Job
from jobs.services.submit.prepare import PreparedJob
from jobs.services.submit.submit import find_twins, reused_key, without_unknown
from queueops.core.values.written import say_the_same

from .accept_document import Line, LineChecker


class GoodJob(NamedTuple):
    """`is_duplicate`: the line makes no job, as an older job or earlier line has its idempotency key and work."""

    line: int
    job: PreparedJob
    is_duplicate: bool


def good_jobs(checker: LineChecker, lines: Iterable[Line], project_id: str) -> Iterator[list[GoodJob]]:
    """
    Check lines as their submission would, chunk by chunk, without storing anything.

    The checker keeps the errors of the bad lines.

    Raises:
        TooManyJobs, UnreadableFile
    """
    keys: dict[str, _Work] = {}
    named = Named(project_id, only_user=checker.rules.only_user)
    for chunk in checker.with_files(checker.chunks(lines)):
        numbers = {job.id: line for line, job in chunk}
        jobs = without_unknown(chunk, named, checker)
        known = _known_before(jobs, project_id)
        good = []
        for job in jobs:
            line = numbers[job.id]
            key, work = job.spec.idempotency_key, _Work(job.handler.kind, job.spec.user_id, job.payload)
            before = keys.get(key) if key else None
            if job.id in known.reused or (before is not None and not before.equals(work)):
                checker.refuse(line, reused_key(job))
                continue
            if key:
                keys[key] = work
            good.append(GoodJob(line, job, is_duplicate=job.id in known.twins or before is not None))
        yield good


class _Work(NamedTuple):
    """The work that an idempotency key stands for."""

    kind: str
    user_id: UUID | None
    payload: str

    def equals(self, other: _Work) -> bool:
        if (self.kind, self.user_id) != (other.kind, other.user_id):
            return False
        if self.payload == other.payload:
            return True
        return say_the_same(pydantic_core.from_json(self.payload), pydantic_core.from_json(other.payload))


@dataclass(frozen=True, slots=True)
class _Known:
    """Jobs whose idempotency key the project has used: `twins` for the same work, `reused` for other work."""

    twins: frozenset[UUID]
    reused: frozenset[UUID]


def _known_before(jobs: list[PreparedJob], project_id: str) -> _Known:
    keys = {job.spec.idempotency_key for job in jobs} - {None}
    if not keys:
        return _Known(frozenset(), frozenset())
    used = set(
        Job.objects.of_project(project_id).filter(idempotency_key__in=keys).values_list("idempotency_key", flat=True)
    )
    twins, reused = find_twins([job for job in jobs if job.spec.idempotency_key in used], project_id)
    return _Known(frozenset(twins), frozenset(job.id for job in reused))
