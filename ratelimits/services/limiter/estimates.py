"""Learning what calls cost beyond what is known before they are made, such as the tokens of an answer."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from cachetools import TTLCache, cached
from django.db import transaction
from django.db.models import F, Func, IntegerField
from django.db.models.functions import Now

from queueops.core.postgres.replica import from_primary
from ratelimits.algorithms.estimates import p90
from ratelimits.models import CostEstimate

MIN_SAMPLES = 10
MAX_SAMPLES = 200
CACHE_SECONDS = 5.0

# Kinds and models come from payloads: the cache must not grow with what producers make up.
_MAX_CACHED = 10_000

_lock = threading.Lock()
_cache: TTLCache[str, float | None] = TTLCache(_MAX_CACHED, CACHE_SECONDS)


def learned_unknown(kind: str, model: str | None) -> float | None:
    """
    Return the p90 of the unknown part of recent calls; None while there are fewer than MIN_SAMPLES.

    Read at most once in CACHE_SECONDS a process, kind and model.
    """
    return _read(_id(kind, model))


def measured_ratio(kind: str, model: str | None) -> float | None:
    """
    Return how many times what was taken for known the known part of a call really is: the median of recent calls, such
    as of a tokenizer that takes other tokens than the estimate; None while there are fewer than MIN_SAMPLES.
    """
    ratios = CostEstimate.objects.filter(id=_id(kind, model)).values_list("ratios", flat=True).first()
    return median(ratios) if ratios and len(ratios) >= MIN_SAMPLES else None


def record_actuals(
    samples: Sequence[tuple[str, str | None, float]], ratios: Sequence[tuple[str, str | None, float]] = ()
) -> None:
    """
    Add what calls really cost beyond what was known; each kind and model keeps its last MAX_SAMPLES.

    Opens a transaction if there is none. Locks the rows of these kinds and models, in id order, until it
    ends: call it with no other lock held or to come, and a few seconds' samples at a time.

    Args:
        samples: (kind, model, cost of the unknown part) of each call, oldest first. Negative costs, of calls
            that turned out cheaper than what was known, count as none.
        ratios: (kind, model, real part of what was known) of each call, oldest first; see `measured_ratio`.
    """
    fresh: dict[str, list[float]] = defaultdict(list)
    for kind, model, unknown in samples:
        fresh[_id(kind, model)].append(max(0.0, unknown))
    measured: dict[str, list[float]] = defaultdict(list)
    for kind, model, ratio in ratios:
        measured[_id(kind, model)].append(ratio)
    ids = sorted(fresh.keys() | measured.keys())
    with transaction.atomic():
        CostEstimate.objects.bulk_create([CostEstimate(id=key) for key in ids], ignore_conflicts=True)
        rows = list(CostEstimate.objects.filter(id__in=ids).select_for_update().order_by("id"))
        for row in rows:
            row.samples = [*row.samples, *fresh[row.id]][-MAX_SAMPLES:]
            row.p90 = p90(row.samples) if row.samples else 0.0
            row.ratios = [*row.ratios, *measured[row.id]][-MAX_SAMPLES:]
            row.updated_at = Now()
        CostEstimate.objects.bulk_update(rows, ["samples", "p90", "ratios", "updated_at"])


def forget() -> None:
    """Read again at the next call."""
    with _lock:
        _cache.clear()


def _id(kind: str, model: str | None) -> str:
    return f"{kind}|{model or ''}"


@cached(_cache, key=str, lock=_lock)
@from_primary
def _read(key: str) -> float | None:
    count = Func(F("samples"), function="jsonb_array_length", output_field=IntegerField())
    row = CostEstimate.objects.filter(id=key).values_list("p90", count).first()
    return None if row is None or row[1] < MIN_SAMPLES else float(row[0])
