"""Objectives for the dashboard and the metrics: the worst first."""

from __future__ import annotations

from typing import Any

from dashboards.services.shared.cache import CachedRead
from dashboards.services.shared.wire import link
from jobs.features.objectives.objectives import AN_HOUR, ObjectiveStanding, span_words, standing_objectives, words_of
from jobs.models import Objective

OBJECTIVES_KEPT_SECONDS = 10.0
MAX_OBJECTIVES_SHOWN = 8

kept_objectives = CachedRead(standing_objectives, seconds=OBJECTIVES_KEPT_SECONDS)
_count = CachedRead(Objective.objects.count, seconds=OBJECTIVES_KEPT_SECONDS)


def objective_rows() -> tuple[list[dict[str, Any]], int]:
    """
    Return at most MAX_OBJECTIVES_SHOWN objectives, sorted by how little of their budget is left, and how many are left
    out.
    """
    standings = sorted(kept_objectives.get(), key=lambda one: 1 if one.budget_left is None else one.budget_left)
    rows = [_row(one) for one in standings[:MAX_OBJECTIVES_SHOWN]]
    return rows, max(0, _count.get() - len(rows))


def _row(one: ObjectiveStanding) -> dict[str, Any]:
    share, left = one.whole.share, one.budget_left
    return {
        "id": one.objective.pk,
        "name": one.objective.name,
        "words": words_of(one.objective),
        "window": span_words(one.objective.window_days * 86_400),
        "target_percent": float(one.objective.percent),
        "attained_percent": None if share is None else round(100 * share, 2),
        "jobs": one.whole.due,
        "missed": one.whole.missed,
        "budget_left_percent": None if left is None else round(100 * left, 1),
        "burn": round(one.burn(AN_HOUR), 2),
        "is_broken": one.is_broken,
        "href": link("jobs_objective", one.objective.pk),
    }
