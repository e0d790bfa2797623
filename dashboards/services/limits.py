"""Limits in use, for the dashboard: how full they are, which jobs wait for them, and which limits hold jobs back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from dashboards.services.shared.wire import iso, link
from jobs.services.explain.queues import Queue, clears_at, queue_of, queues_behind
from jobs.services.upkeep.health import HeldBack
from queueops.core.clock import database_now
from ratelimits.limiter.view.gauges import CounterGauge, gauge_of
from ratelimits.limits.catalogue import Rule, rules
from ratelimits.limits.validation import NOUNS
from ratelimits.models import Counter, Limit

MAX_LIMITS_READ = 200  # the limits that are read, oldest first
MAX_GAUGES_SHOWN = 16
COUNTERS_OF_A_LIMIT = 20  # the counters of a limit that changed last
SHOWN_OF_A_LIMIT = 3
MAX_LANES_SHOWN = 3

Candidate = tuple[Rule, CounterGauge, Queue, datetime | None]


def limits_now() -> tuple[list[dict[str, Any]], list[HeldBack]]:
    """
    Return the gauges to show, and the work that limits hold back. Gauges that hold work back come first, then the
    fullest; limits in shadow mode come last.

    It needs a few statements, however many limits there are.
    """
    known = rules()[:MAX_LIMITS_READ]
    if not known:
        return [], []
    behind = queues_behind(known)
    now = database_now()
    candidates = [
        (rule, gauge, queue, clears_at(queue, gauge))
        for rule, found in _gauges(known, now)
        for gauge in _first(found, behind[rule.id])
        for queue in [queue_of(gauge, behind[rule.id])]
    ]
    last = _frees_last(candidates)
    shown: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    held: list[HeldBack] = []
    for rule, gauge, queue, clears in candidates:
        binds = gauge.counter_id in last
        if binds:
            held.append(HeldBack(rule.id, rule.name, gauge.key, queue.waiting, queue.count, clears))
        place = (not binds, gauge.holds_nothing, *_order(gauge, behind[rule.id]))
        shown.append((place, _row(gauge, queue, clears, binds=binds)))
    shown.sort(key=lambda pair: pair[0])
    return [row for _, row in shown[:MAX_GAUGES_SHOWN]], held


def _first(gauges: Sequence[CounterGauge], queues: Mapping[str, Queue]) -> list[CounterGauge]:
    return sorted(gauges, key=lambda one: _order(one, queues))[:SHOWN_OF_A_LIMIT]


def _frees_last(candidates: Sequence[Candidate]) -> set[str]:
    """
    Return the counters that hold work back: for each waiting lane, the last counter to have room for all of its jobs.

    A lane behind several full limits starts when the last of them has room. The other full limits do not hold it back.
    """
    last: dict[str, tuple[float, str]] = {}
    for _, gauge, queue, clears in candidates:
        if queue.waiting and queue.units > gauge.available:
            frees = (clears.timestamp() if clears else math.inf, gauge.counter_id)
            for lane in queue.lanes:
                last[lane.name] = max(frees, last.get(lane.name, frees))
    return {counter for _, counter in last.values()}


def _gauges(known: tuple[Rule, ...], now: float) -> list[tuple[Rule, list[CounterGauge]]]:
    place = Window(RowNumber(), partition_by=F("limit_id"), order_by=[F("updated_at").desc(), F("pk")])
    rows = Counter.objects.filter(limit_id__in=[rule.id for rule in known])
    newest = rows.annotate(place=place).filter(place__lte=COUNTERS_OF_A_LIMIT)
    by_limit: dict[int, list[Counter]] = {}
    for counter in newest:
        by_limit.setdefault(counter.limit_id, []).append(counter)
    return [(rule, [gauge_of(one, rule, now) for one in by_limit[rule.id]]) for rule in known if rule.id in by_limit]


def _order(gauge: CounterGauge, queues: Mapping[str, Queue]) -> tuple[Any, ...]:
    return (-queue_of(gauge, queues).waiting, -gauge.percent, gauge.limit, gauge.key)


def _row(gauge: CounterGauge, queue: Queue, clears: datetime | None, *, binds: bool) -> dict[str, Any]:
    return {
        "id": gauge.counter_id,
        "limit_id": gauge.limit_id,
        "limit": gauge.limit,
        "service": gauge.service,
        "key": gauge.key,
        "unit": NOUNS[gauge.unit],
        "used": round(gauge.used, 1),
        "capacity": round(gauge.capacity, 3),
        "percent": round(gauge.percent, 1),
        "notice_percent": gauge.notice_percent,
        "warning_percent": gauge.warning_percent,
        "per_second": None if gauge.per_second is None else round(gauge.per_second, 3),
        "factor": round(gauge.pressure, 3),
        "share": round(gauge.share, 3),
        "cooled_until": iso(gauge.blocked_until),
        "cooled_because": gauge.blocked_reason,
        "next_free_at": iso(gauge.next_free_at),
        "shadow": gauge.shadow,
        "would_have_held": gauge.shadow_denials if gauge.shadow else None,
        "binds": binds,
        "paced": binds and gauge.opened.is_streamed(crowded=queue.units > gauge.capacity),
        "waiting": queue.waiting,
        "waiting_words": queue.count,
        "clears_at": iso(clears),
        "lanes": [
            {"project": lane.project, "user": lane.user, "waiting": lane.waiting, "more": lane.more}
            for lane in queue.lanes[:MAX_LANES_SHOWN]
        ],
        "href": link("ratelimits_counter", gauge.counter_id),
        "tune_href": link("ratelimits_limit", gauge.limit_id),
    }


def limits_made() -> bool:
    """Whether any limit exists, used or not: the text of an empty block depends on it."""
    return Limit.objects.exists()
