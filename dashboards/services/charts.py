"""The data of charts and sparklines: the points of the job flow as columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from dashboards.services.shared.cache import CachedRead
from jobs.features.flow.bins import ANSWERS, NAMED_4XX
from jobs.features.flow.flow import FlowPoint, FlowRates, rates, series
from jobs.states import RUNNING, UNFINISHED, WAITING

SPAN_WORDS = {"15m": "15 min", "1h": "1 h", "24h": "24 h"}
SPANS = {"15m": timedelta(minutes=15), "1h": timedelta(hours=1), "24h": timedelta(hours=24)}
SPARK_SPAN = "15m"
SPARK_POINTS = 45
CHARTS_KEPT_SECONDS = 5.0  # each sample covers ten seconds

Column = list[float | None]


def charts(span: str) -> dict[str, Any]:
    """
    Return the columns of the five charts over one of SPANS, the oldest first; `at` in seconds since 1970.

    Counts are per second, whatever a point's length; null where nothing is known. The newest point, which is not
    complete yet, is left out: its counts would look like a fall.
    """
    return _charts[span].get()


def sparks() -> dict[str, Column]:
    """Return the columns of the tiles' sparklines, of the last 15 minutes, by the tile's id."""
    return _sparks.get()


def rates_now() -> FlowRates:
    return _rates.get()


def _read_charts(span: str) -> dict[str, Any]:
    points = series(SPANS[span])[:-1]
    return {
        "span": span,
        "seconds": points[0].seconds if points else 0,
        "at": [point.at.timestamp() for point in points],
        "outcomes": {
            name: _per_second(points, [getattr(point, name) for point in points])
            for name in ("completed", "retried", "deferred", "failed", "cancelled")
        },
        "backlog": {state.value: _backlog(points, state.value) for state in sorted(UNFINISHED)},
        "latency": {
            "p50": _column(points, lambda point: point.latency_p50_ms),
            "p95": _column(points, lambda point: point.latency_p95_ms),
        },
        "answers": {name: _per_second(points, counts) for name, counts in _answers(points).items()},
        "sizes": {
            "p50": _column(points, lambda point: point.size_p50_bytes),
            "p95": _column(points, lambda point: point.size_p95_bytes),
        },
    }


def _read_sparks() -> dict[str, Column]:
    points = series(SPANS[SPARK_SPAN])[:-1]
    columns = {
        **{state.value: _backlog(points, state.value) for state in WAITING},
        "running": _backlog(points, *RUNNING),
        "dead_letters": _backlog(points, "dead_letters"),
        "throughput": _column(points, lambda point: point.completed / point.seconds),
        "error_rate": _column(points, _error_percent),
        "too_many_requests": _column(points, lambda point: float(point.answers["429"])),
        "pickup": _column(points, lambda point: point.delay_p95_ms),
    }
    return {name: _thinned(column) for name, column in columns.items()}


def _error_percent(point: FlowPoint) -> float | None:
    failed = point.failed + point.retried
    ended = failed + point.completed
    return 100 * failed / ended if ended else None


def _backlog(points: Sequence[FlowPoint], *states: str) -> Column:
    return _column(
        points,
        lambda point: None if point.backlog is None else float(sum(point.backlog[state] for state in states)),
    )


def _answers(points: Sequence[FlowPoint]) -> dict[str, list[int]]:
    """Return the answers by class. Refusals other than 429 are one class: a chart of ten classes would say less."""
    classes = {name: (name, *NAMED_4XX) if name == "4xx" else (name,) for name in ANSWERS if name not in NAMED_4XX}
    return {shown: [sum(point.answers[name] for name in names) for point in points] for shown, names in classes.items()}


def _per_second(points: Sequence[FlowPoint], counts: Sequence[int]) -> Column:
    return [round(count / point.seconds, 3) for point, count in zip(points, counts, strict=True)]


def _column(points: Sequence[FlowPoint], value_of: Callable[[FlowPoint], float | None]) -> Column:
    return [None if value is None else round(value, 3) for value in map(value_of, points)]


def _thinned(column: Column) -> Column:
    """Return at most SPARK_POINTS: the highest of each group, so that a peak is not lost."""
    size = max(1, -(-len(column) // SPARK_POINTS))
    groups = [
        [value for value in column[start : start + size] if value is not None] for start in range(0, len(column), size)
    ]
    return [max(group) if group else None for group in groups]


_charts = {span: CachedRead(partial(_read_charts, span), seconds=CHARTS_KEPT_SECONDS) for span in SPANS}
_sparks = CachedRead(_read_sparks, seconds=CHARTS_KEPT_SECONDS)
_rates = CachedRead(rates, seconds=1.0)
