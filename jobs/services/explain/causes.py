"""The causes that open dead letters have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.fields.json import KeyTransform

from jobs.models import DeadLetter
from queueops.core.values.identifiers import time_of

MAX_CAUSES = 200


@dataclass(frozen=True, slots=True)
class Cause:
    """
    Attributes:
        count: Open letters with this cause.
        newest: The newest of these letters, without payload and attempts.
        first_at: When the oldest letter was made, that is, when its job failed for good.
        has: `traceback` and `log`, if the last attempt of the newest letter has them.
        projects: How many of the letters each project has, the most first.
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

    The counts come from the index of open dead letters alone. The newest letter of a cause describes it; all its
    letters are read for their projects.

    Args:
        narrowed: Columns of a letter, `project_id` or `batch_id`, and their values.
    """
    letters = DeadLetter.objects.open().filter(**narrowed)
    counted = (
        letters.order_by()
        .values_list("fingerprint")
        .annotate(open_ones=Count("pk"))
        .order_by("-open_ones", "fingerprint")[:most]
    )
    counts = dict(counted)
    whose: dict[str, dict[str, int]] = {}
    by_project = letters.order_by().filter(fingerprint__in=counts).values_list("fingerprint", "project_id")
    for fingerprint, project, count in by_project.annotate(open_ones=Count("pk")).order_by("-open_ones", "project_id"):
        whose.setdefault(fingerprint, {})[project] = count
    newest, oldest = _ends(letters, list(counts), "-pk"), _ends(letters, list(counts), "pk")
    samples = (
        DeadLetter.objects.defer("payload", "attempts")
        .annotate(
            traceback=KeyTransform("traceback", KeyTransform(-1, "attempts")),
            log=KeyTransform("log", KeyTransform(-1, "attempts")),
        )
        .in_bulk(list(newest.values()))
    )
    return [
        Cause(
            fingerprint=fingerprint,
            count=count,
            newest=sample,
            first_at=time_of(oldest[fingerprint]) if fingerprint in oldest else None,
            has=tuple(name for name in ("traceback", "log") if getattr(sample, name)),
            projects=whose.get(fingerprint, {}),
        )
        for fingerprint, count in counts.items()
        if (sample := samples.get(newest.get(fingerprint)))  # otherwise, the letters were resolved meanwhile
    ]


def _ends(letters: QuerySet[DeadLetter], fingerprints: list[str], order: str) -> dict[str, Any]:
    """Return the newest or oldest open letter of each fingerprint, by one statement with an index probe for each."""
    if not fingerprints:
        return {}
    first = [
        letters.filter(fingerprint=one).order_by(order).values_list("fingerprint", "pk")[:1] for one in fingerprints
    ]
    rows = first[0].union(*first[1:], all=True) if len(first) > 1 else first[0]
    return dict(rows)
