"""A kind of jobs that leave together, and submitting them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from jobs.handlers import registry
from jobs.handlers.registry import Coalesce, Done, RunningJob, handler
from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from tests.factories import make_project

KIND = "test.merge"
ALONE = "test.alone"
SERVICE = "svc"
EXECUTOR = UUID(int=9)
MOST = 3
MAX_BYTES = 400


class Piece(BaseModel):
    sheet: str = "a"
    option: str = ""
    n: int = 0
    text: str = ""


def declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register KIND, whose jobs leave together by sheet and option, and ALONE, whose jobs do not."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(
        kind=KIND,
        service=SERVICE,
        payload=Piece,
        idempotent=True,
        coalesce=Coalesce(key=lambda p: f"{p.sheet}|{p.option}", max_items=MOST, max_bytes=MAX_BYTES),
    )
    async def merge(jobs: Sequence[RunningJob[Piece]]) -> Sequence[Done | Exception]:
        return [Done({"n": job.payload.n, "of": len(jobs)}) for job in jobs]

    @handler(kind=ALONE, service=SERVICE, payload=Piece, idempotent=True)
    async def alone(job: RunningJob[Piece]) -> Done:
        return Done(job.payload.n)


def submit(*, kind: str = KIND, project: str = "acme", spec: dict[str, Any] | None = None, **payload: Any) -> Job:
    make_project(project)
    made = submit_job(JobSpec(kind=kind, payload=payload, **(spec or {})), project_id=project, actor="key:test")
    return Job.objects.get(pk=made.id)


def claim(wanted: int = 10) -> list[ClaimedJob]:
    """One claim by an executor that knows nothing yet."""
    return claim_jobs(EXECUTOR, wanted=wanted, lease_seconds=30, turns=ClassTurns(0.0), gate=LaneGate())


def groups(claimed: list[ClaimedJob]) -> list[list[UUID]]:
    """The ids that leave together, call by call."""
    calls: dict[UUID | None, list[UUID]] = {}
    for job in claimed:
        calls.setdefault(job.group or job.id, []).append(job.id)
    return list(calls.values())
