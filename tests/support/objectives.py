"""Objectives, and jobs that attained or missed them long ago."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from django.db.models import F
from django.utils import timezone

from jobs.features.objectives.change import save_objective
from jobs.features.objectives.watch import begin_objectives
from jobs.models import Job, Objective
from tests.factories import make_jobs, move_along

MINUTE = 60
LONG_AGO = timedelta(days=20)


def an_objective(**figures: Any) -> Objective:
    """One that counts all jobs of this test, also those that are given earlier times."""
    given = {"name": f"objective {uuid4()}", "aim": "start", "percent": Decimal(95), "within_seconds": 5 * MINUTE}
    made = save_objective(None, {**given, **figures}, actor="user:1")
    assert begin_objectives() == 1
    Objective.objects.filter(pk=made.pk).update(counts_from=F("created_at") - LONG_AGO)
    made.refresh_from_db()
    return made


def began(ids: list[UUID], *, seconds_ago: float) -> None:
    """Move the clock of some jobs: they were submitted so long ago."""
    moment = timezone.now() - timedelta(seconds=seconds_ago)
    Job.objects.filter(pk__in=ids).update(created_at=moment, eligible_since=moment)


def jobs_that(*, began_ago: float, count: int = 1, start: bool = False, **fields: Any) -> list[UUID]:
    ids = [job.pk for job in make_jobs(count, **fields)]
    began(ids, seconds_ago=began_ago)
    if start:
        move_along("dispatch", ids)
        move_along("start", ids)
    return ids
