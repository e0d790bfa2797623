"""
The flow of jobs through the queue, summed up from its log: for charts, tiles and Prometheus.

The housekeeping executor reads a part of the log as soon as nothing can be added to that part any more. The sums are a
few seconds late, and each event is counted exactly once. Reading a day's chart then takes some hundred rows, however
many jobs there are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.utils import timezone

from jobs.features.flow.bins import ANSWERS, DURATION_MS, SIZE_BYTES, percentile
from jobs.features.objectives.objectives import KEEP_FINE, count_objectives, forget_old_reckonings
from jobs.features.webhooks.tell import most_hearers, note_ended_jobs
from jobs.models import BACKLOG, SINCE_EVER, DecisionTotal, FlowCursor, FlowSample
from queueops.core.clock import Now
from queueops.core.sql import run_sql

FINE_SECONDS = 10
COARSE_SECONDS = 300
KEEP_COARSE = timedelta(hours=48)
MAX_POINTS = 180
MAX_SERVICES_NAMED = 200  # services counted by name; all others count as one
MAX_MODELS_NAMED = 1_000  # models of all services counted by name; calls of other models count without a model
MAX_LETTERS = 100_000
EVENTS_AT_ONCE = 100_000
SETTLE_SECONDS = 0.5
COUNTING_SECONDS = 1.0  # after this time no further part is begun
EVENT_LOG, TALLY_LOG = "events", "tallies"
FINEST_SPAN = timedelta(hours=1)
LATE_SECONDS = 5  # the sums lag behind the log by less than this, unless a transaction stays open
SEQUENCES = {EVENT_LOG: "jobs_jobevent_id", TALLY_LOG: "ratelimits_calltally_id_seq"}


# In the order in which jobs/features/flow/sql/read_flow.sql gives them.
COLUMNS = (
    "submitted", "completed", "failed", "retried", "deferred", "cancelled", "crashed", "leases_lost", "answers",
    "sizes", "size_bytes", "latencies", "latency_ms", "delays", "delay_ms", "backlog",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FlowPoint:
    """
    The events of a time that begins at `at` and lasts `seconds`.

    Attributes:
        failed: Jobs that failed for good. `retried`: attempts that failed and are repeated.
        answers: Providers' answers by class (2xx, 3xx, 400, 401, 403, 404, 429, 5xx, none); 4xx counts all other 4xx.
        latency_*: How long handlers took; delay_*: how long jobs were ready before a claim, if no limit put them back.
        size_*: The sizes of providers' answers, decompressed.
        backlog: Jobs by state, and open dead letters, at the point's end; None: it was not sampled.
    """

    at: datetime
    seconds: int
    submitted: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    deferred: int = 0
    cancelled: int = 0
    crashed: int = 0
    leases_lost: int = 0
    answers: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(ANSWERS, 0))
    sizes: Sequence[int] = ()
    size_bytes: int = 0
    latencies: Sequence[int] = ()
    latency_ms: float = 0.0
    delays: Sequence[int] = ()
    delay_ms: float = 0.0
    backlog: Mapping[str, int] | None = None

    @property
    def latency_p50_ms(self) -> float | None:
        return percentile(self.latencies, DURATION_MS, 0.5)

    @property
    def latency_p95_ms(self) -> float | None:
        return percentile(self.latencies, DURATION_MS, 0.95)

    @property
    def delay_p95_ms(self) -> float | None:
        return percentile(self.delays, DURATION_MS, 0.95)

    @property
    def size_p50_bytes(self) -> float | None:
        return percentile(self.sizes, SIZE_BYTES, 0.5)

    @property
    def size_p95_bytes(self) -> float | None:
        return percentile(self.sizes, SIZE_BYTES, 0.95)


@dataclass(frozen=True, slots=True)
class FlowRates:
    """
    The queue's present rates.

    Attributes:
        throughput: Jobs completed a second.
        submitted: Jobs a second.
        error_rate: Share of the attempts that failed, 0 to 1; None: no attempt ended.
        too_many_requests: 429s of providers in the last hour.
        pickup_p95_ms, latency_p95_ms: None where nothing was picked up or ended.
        upto: About the time up to which the log is summed up.
    """

    throughput: float
    submitted: float
    error_rate: float | None
    too_many_requests: int
    pickup_p95_ms: float | None
    latency_p95_ms: float | None
    upto: datetime


@dataclass(frozen=True, slots=True)
class FlowTotals:
    """
    Counts since the first event; they only grow.

    Attributes:
        services: The counts of each service; its backlog is None.
        decisions: How often the limiter made each decision.
    """

    services: Mapping[str, FlowPoint]
    decisions: Sequence[DecisionTotal]


def sum_up(*, settle_seconds: float = SETTLE_SECONDS, most: int = EVENTS_AT_ONCE) -> bool:
    """
    Count the next bounded part of the log that nothing can be added to; sums and cursor change in one transaction.

    Call it about each second. When several callers call it at once, one counts and the others do nothing.

    Args:
        settle_seconds: `settle` in jobs/features/flow/sql/advance_flow.sql.

    Returns:
        Whether all events up to the mark are counted; False: call again, or another caller counts.
    """
    is_through = _count_events(settle_seconds, most)
    return _count(TALLY_LOG, "count_grants", settle_seconds=settle_seconds, most=most).is_through and is_through


def _count_events(settle_seconds: float, most: int) -> bool:
    """
    Count events; the more webhooks one project has, the shorter the parts: each ended job is noted for each webhook.

    A part is one transaction, and its executor renews no lease during it. With fifty webhooks, 100,000 events in one
    part would take minutes. The executor would be killed for its silence, and the next one would begin the part again.
    """
    parts = max(1, most_hearers())
    until = time.monotonic() + COUNTING_SECONDS
    for _ in range(parts):
        part = _count(EVENT_LOG, "count_flow", settle_seconds=settle_seconds, most=max(1, most // parts))
        if part.is_through or not part.events or time.monotonic() > until:
            return part.is_through
    return part.is_through


class _Part(NamedTuple):
    """A part of a log: how many ids it had, and whether it was the last."""

    events: int
    is_through: bool


def sample_backlog() -> None:
    """Note the backlog by state; a span keeps its last sample."""
    run_sql("jobs", "sample_backlog", {"most_letters": MAX_LETTERS})


def forget_old_samples() -> int:
    """Delete spans that no chart shows any more. Returns how many rows."""
    fine, _ = FlowSample.objects.filter(span_seconds=FINE_SECONDS, at__lt=Now() - KEEP_FINE).delete()
    coarse, _ = FlowSample.objects.filter(span_seconds=COARSE_SECONDS, at__lt=Now() - KEEP_COARSE).delete()
    return fine + coarse + forget_old_reckonings()


def series(span: timedelta, *, service: str | None = None) -> list[FlowPoint]:
    """
    Return the flow of the last `span` as points of equal length without a gap, the oldest first; at most MAX_POINTS.

    In a span of up to an hour, a point lasts ten seconds or a multiple; in one of up to 48 hours, it lasts five minutes
    or a multiple.

    Args:
        service: Count this service alone.
    """
    base = FINE_SECONDS if span <= FINEST_SPAN else COARSE_SECONDS
    length = round(span.total_seconds())
    step = base * max(1, -(-length // (base * MAX_POINTS)))
    end = (_seconds_now() // step + 1) * step
    begin = end - max(1, length // step) * step
    found = {point.at: point for point in _read(base, step, begin, end, service=service)}
    return [found.get(at) or FlowPoint(at, step) for at in map(_moment, range(begin, end, step))]


def rates(seconds: int = 60) -> FlowRates:
    """Return the rates over the last `seconds` (10 to 3600) that are summed up."""
    end = (_seconds_now() - LATE_SECONDS) // FINE_SECONDS * FINE_SECONDS
    [latest] = _read(FINE_SECONDS, seconds, end - seconds, end, origin=end) or [FlowPoint(_moment(end), seconds)]
    hour = _read(FINE_SECONDS, 3600, end - 3600, end, origin=end)
    failed = latest.failed + latest.retried
    ended = failed + latest.completed
    return FlowRates(
        throughput=latest.completed / seconds,
        submitted=latest.submitted / seconds,
        error_rate=failed / ended if ended else None,
        too_many_requests=hour[0].answers["429"] if hour else 0,
        pickup_p95_ms=latest.delay_p95_ms,
        latency_p95_ms=latest.latency_p95_ms,
        upto=_moment(end),
    )


def totals() -> FlowTotals:
    """Return the counts since the first event, which never fall; at most MAX_SERVICES_NAMED services."""
    rows = FlowSample.objects.filter(span_seconds=SINCE_EVER).order_by("service")
    return FlowTotals(
        services={row.service: _point(row.at, SINCE_EVER, [getattr(row, name) for name in COLUMNS]) for row in rows},
        decisions=list(DecisionTotal.objects.order_by("decision", "service", "call_type", "model", "limit_name")),
    )


@transaction.atomic
def _count(log: str, statement: str, *, settle_seconds: float, most: int) -> _Part:
    parameters = {"log": log, "sequence": SEQUENCES[log], "most": most, "settle": settle_seconds}
    found = run_sql("jobs", "advance_flow", parameters)
    if not found:
        if not FlowCursor.objects.filter(pk=log).exists():
            _begin(log)
        return _Part(0, is_through=False)
    [(after, upto, is_through)] = found
    if upto > after:
        part = {"after": after, "upto": upto, "most_services": MAX_SERVICES_NAMED}
        if log == EVENT_LOG:
            part |= {"duration_ms": list(DURATION_MS), "size_bytes": list(SIZE_BYTES)}
        else:
            part |= {"most_models": MAX_MODELS_NAMED}
        run_sql("jobs", statement, part)
        if log == EVENT_LOG:
            count_objectives(after, upto)
            note_ended_jobs(after, upto)
    return _Part(upto - after, is_through=is_through)


def _begin(log: str) -> None:
    """Begin to count here: events that were logged before the first sum stay uncounted."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(pg_sequence_last_value(%s::regclass), 0)", [SEQUENCES[log]])
        [drawn] = cursor.fetchone()
    FlowCursor.objects.bulk_create([FlowCursor(log=log, counted=drawn, mark=drawn)], ignore_conflicts=True)


def _read(
    base: int, step: int, begin: int, end: int, *, service: str | None = None, origin: int = 0
) -> list[FlowPoint]:
    """Return the points that have samples. `origin`: a moment at which some point begins."""
    parameters = {
        "span_seconds": base,
        "step_seconds": step,
        "since": _moment(begin),
        "before": _moment(end),
        "origin": _moment(origin),
        "service": service,
    }
    return [_point(at, step, figures) for at, *figures in run_sql("jobs", "read_flow", parameters)]


def _point(at: datetime, seconds: int, figures: Sequence[Any]) -> FlowPoint:
    values = dict(zip(COLUMNS, figures, strict=True))
    counts = zip_longest(ANSWERS, values["answers"] or ())
    values["answers"] = {name: count or 0 for name, count in counts}
    for name in ("sizes", "latencies", "delays"):
        values[name] = [count or 0 for count in values[name]]
    if values["backlog"] is not None:
        values["backlog"] = {
            **dict.fromkeys(BACKLOG, 0),
            **dict(zip(BACKLOG, json.loads(values["backlog"]), strict=False)),
        }
    return FlowPoint(at, seconds, **values)


def _seconds_now() -> int:
    return int(timezone.now().timestamp())


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
