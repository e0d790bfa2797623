"""Learns the part of calls' costs that is unknown before the call, such as the tokens of an answer."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

from cachetools import TTLCache, cached
from django.db import transaction
from django.db.models import F, Func, IntegerField

from queueops.core.clock import Now
from queueops.core.postgres.replica import from_primary
from ratelimits.algorithms.estimates import p10, p90
from ratelimits.costs import CACHED_TOKENS, INPUT_TOKENS, Amounts
from ratelimits.models import CostEstimate

LEARNED = ("samples", "p90", "ratios", "outputs", "output_p90", "cached_shares", "cached_p10", "updated_at")
MIN_SAMPLES = 10
MAX_SAMPLES = 200
CACHE_SECONDS = 5.0

# Kinds and models come from payloads: the cache must not grow with names that producers make up.
_MAX_CACHED = 10_000


class Alike(NamedTuple):
    """
    The names shared by calls that are expected to cost alike.

    Nothing is learned from other projects; otherwise long answers there would raise this project's estimates, and so
    reveal the length of those answers.

    Attributes:
        project: The project that owns the calls; the provider may count them against another.
    """

    project: str
    service: str
    kind: str
    model: str | None


Sample = tuple[Alike, float]
"""One observation of a call."""

_lock = threading.Lock()
_cache: TTLCache[Any, float | None] = TTLCache(_MAX_CACHED, CACHE_SECONDS)


def learned_unknown(alike: Alike) -> float | None:
    """
    Return the p90 of the unknown part of recent calls; None while there are fewer than MIN_SAMPLES.

    A process reads this value at most once in CACHE_SECONDS for calls alike.
    """
    return _read(_id(alike), "samples", "p90")


def learned_output(alike: Alike) -> float | None:
    """Return the p90 of the output tokens of recent calls, as `learned_unknown` does. For limits that count output."""
    return _read(_id(alike), "outputs", "output_p90")


def with_cached(amounts: Amounts, alike: Alike) -> Amounts:
    """
    Add to a call's amounts the part of its input that a cache should have, if the call does not state it itself.

    That part is the p10 of recent calls, as `learned_unknown` is the p90. A limit that does not count cached input
    reserves the rest. A cache that has lapsed does no harm: it outlives such a limit's window, so by then the window is
    empty.
    """
    entered = amounts.get(INPUT_TOKENS)
    if not entered or CACHED_TOKENS in amounts:
        return amounts
    share = _read(_id(alike), "cached_shares", "cached_p10")
    return {**amounts, CACHED_TOKENS: math.floor(share * entered)} if share else amounts


def measured_ratio(alike: Alike) -> float | None:
    """
    Return the real size of the known part of a call, divided by its estimate: the median of recent calls.

    The ratio differs from 1 where, for example, a tokenizer counts other tokens than the estimate. None while there are
    fewer than MIN_SAMPLES.
    """
    ratios = CostEstimate.objects.filter(id=_id(alike)).values_list("ratios", flat=True).first()
    return median(ratios) if ratios and len(ratios) >= MIN_SAMPLES else None


@dataclass(frozen=True, slots=True)
class Typical:
    """
    The means of recent calls that are alike; None: fewer than MIN_SAMPLES are known.

    Attributes:
        unknown: The cost beyond what was known.
        ratio: The real size of the known part, divided by its estimate.
        output: Their output tokens.
        cached: The part of their input that came from a cache.
    """

    unknown: float | None = None
    ratio: float | None = None
    output: float | None = None
    cached: float | None = None


def typical_calls(wanted: Collection[Alike]) -> dict[Alike, Typical]:
    """Return what such calls typically cost. For forecasts; limits go by the p90 instead."""
    rows = CostEstimate.objects.in_bulk({_id(alike) for alike in wanted})
    found = {}
    for alike in wanted:
        row = rows.get(_id(alike)) or CostEstimate()
        found[alike] = Typical(*map(_mean, (row.samples, row.ratios, row.outputs, row.cached_shares)))
    return found


def record_actuals(
    samples: Sequence[Sample],
    ratios: Sequence[Sample] = (),
    outputs: Sequence[Sample] = (),
    cached_shares: Sequence[Sample] = (),
) -> None:
    """
    Add what calls really cost beyond what was known. The last MAX_SAMPLES are kept for calls alike.

    Opens a transaction if there is none. Locks the rows of these calls, in id order, until the transaction ends. The
    transaction must take no other lock before or after. Call this with the samples of a few seconds at a time.

    Args:
        samples: (alike, cost of the unknown part) of each call, oldest first. A negative cost, of a call
            that turned out cheaper than what was known, counts as 0.
        ratios: (alike, real size of the known part divided by its estimate) of each call, oldest first; see
            `measured_ratio`.
        outputs: (alike, output tokens) of each call, oldest first; see `learned_output`.
        cached_shares: (alike, part of the input that came from a cache) of each call, oldest first; see
            `with_cached`.
    """
    fresh: dict[str, list[float]] = defaultdict(list)
    for alike, unknown in samples:
        fresh[_id(alike)].append(max(0.0, unknown))
    measured: dict[str, list[float]] = defaultdict(list)
    for alike, ratio in ratios:
        measured[_id(alike)].append(ratio)
    answered: dict[str, list[float]] = defaultdict(list)
    for alike, output in outputs:
        answered[_id(alike)].append(output)
    from_cache: dict[str, list[float]] = defaultdict(list)
    for alike, share in cached_shares:
        from_cache[_id(alike)].append(share)
    ids = sorted(fresh.keys() | measured.keys() | answered.keys() | from_cache.keys())
    with transaction.atomic():
        CostEstimate.objects.bulk_create([CostEstimate(id=key) for key in ids], ignore_conflicts=True)
        rows = list(CostEstimate.objects.filter(id__in=ids).select_for_update().order_by("id"))
        for row in rows:
            row.samples = [*row.samples, *fresh[row.id]][-MAX_SAMPLES:]
            row.p90 = p90(row.samples) if row.samples else 0.0
            row.ratios = [*row.ratios, *measured[row.id]][-MAX_SAMPLES:]
            row.outputs = [*row.outputs, *answered[row.id]][-MAX_SAMPLES:]
            row.output_p90 = p90(row.outputs) if row.outputs else 0.0
            row.cached_shares = [*row.cached_shares, *from_cache[row.id]][-MAX_SAMPLES:]
            row.cached_p10 = p10(row.cached_shares) if row.cached_shares else 0.0
            row.updated_at = Now()
        CostEstimate.objects.bulk_update(rows, LEARNED)


def forget() -> None:
    """Clear the cache: the next call reads the database."""
    with _lock:
        _cache.clear()


def _mean(samples: Sequence[float]) -> float | None:
    return fmean(samples) if len(samples) >= MIN_SAMPLES else None


def _id(alike: Alike) -> str:
    return f"{alike.project}|{alike.service}|{alike.kind}|{alike.model or ''}"


@cached(_cache, lock=_lock)
@from_primary
def _read(key: str, samples: str, p90_of_them: str) -> float | None:
    count = Func(F(samples), function="jsonb_array_length", output_field=IntegerField())
    row = CostEstimate.objects.filter(id=key).values_list(p90_of_them, count).first()
    return None if row is None or row[1] < MIN_SAMPLES else float(row[0])
