"""The causes that open dead letters have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Min, TextField
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast

from jobs.models import DeadLetter
from queueops.core.values.identifiers import time_of

MAX_CAUSES = 200
MAX_PROJECTS_OF_A_CAUSE = 11  # one more than pages show


@dataclass(frozen=True, slots=True)
class Cause:
    """
    Attributes:
        count: Open letters with this cause.
        newest: The newest of these letters, without payload and attempts.
        first_at: When the oldest letter was made, that is, when its job failed for good.
        has: `traceback` and `log`, if the last attempt of the newest letter has them.
        projects: How many of the letters each project has, the most first; at most MAX_PROJECTS_OF_A_CAUSE.
    """

    fingerprint: str
    count: int
    newest: DeadLetter
    first_at: datetime | None
    has: tuple[str, ...]
    projects: Mapping[str, int]


def causes_of(narrowed: Mapping[str, Any], *, most: int = MAX_CAUSES) -> list[Cause]:
    """
    The causes of open dead letters, the most frequent first.

    Indexes of open dead letters alone are read, and the newest letter of each cause, which describes it.

    Args:
        narrowed: Columns of a letter, `project_id` or `batch_id`, and their values.
    """
    letters = DeadLetter.objects.open().filter(**narrowed).order_by()
    as_text = Cast("pk", TextField())  # PostgreSQL before 18 has no min of ids
    counted = (
        letters.values_list("fingerprint")
        .annotate(open_ones=Count("pk"), oldest=Min(as_text), newest=Max(as_text))
        .order_by("-open_ones", "fingerprint")[:most]
    )
    found = {fingerprint: ends for fingerprint, *ends in counted}
    whose = {} if narrowed else _projects_of(list(found))
    samples = (
        DeadLetter.objects.defer("payload", "attempts")
        .annotate(
            traceback=KeyTransform("traceback", KeyTransform(-1, "attempts")),
            log=KeyTransform("log", KeyTransform(-1, "attempts")),
        )
        .in_bulk([newest for _, _, newest in found.values()])
    )
    return [
        Cause(
            fingerprint=fingerprint,
            count=count,
            newest=sample,
            first_at=time_of(UUID(oldest)),
            has=tuple(name for name in ("traceback", "log") if getattr(sample, name)),
            projects=whose.get(fingerprint) or {sample.project_id: count},
        )
        for fingerprint, (count, oldest, newest) in found.items()
        if (sample := samples.get(UUID(newest)))  # otherwise, the letters were resolved meanwhile
    ]


def _projects_of(fingerprints: list[str]) -> dict[str, dict[str, int]]:
    """Return how many open letters of each cause the projects have that have most of them, by one statement."""
    each = [
        DeadLetter.objects.open()
        .filter(fingerprint=one)
        .values_list("fingerprint", "project_id")
        .annotate(open_ones=Count("pk"))
        .order_by("-open_ones", "project_id")[:MAX_PROJECTS_OF_A_CAUSE]
        for one in fingerprints
    ]
    whose: dict[str, dict[str, int]] = {}
    for fingerprint, project, count in each[0].union(*each[1:], all=True) if len(each) > 1 else chain(*each):
        whose.setdefault(fingerprint, {})[project] = count
    return whose
