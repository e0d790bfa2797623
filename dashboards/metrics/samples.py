"""The exported samples, read from the database in bounded reads: every web process exports the same."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, get_args

from django.conf import settings
from django.db.models import Count, Min, Q, Sum
from django.utils import timezone

from dashboards.services.objectives import kept_objectives
from dashboards.services.shared.cache import CachedRead
from dashboards.services.spend import kept_spend
from jobs.features.flow import flow
from jobs.features.flow.bins import DURATION_MS, SIZE_BYTES
from jobs.features.objectives.objectives import span_words
from jobs.features.pools.figures import pool_depths
from jobs.features.watches.watch_runs import running_here
from jobs.models import (
    SINCE_EVER,
    WHOLE_PROJECT,
    Executor,
    FlowCursor,
    FlowSample,
    JobCount,
    ResultStoreTotals,
    ServiceBreaker,
)
from jobs.services.claim.ready import oldest_of_busiest
from jobs.services.explain.depths import waiting_depths
from jobs.services.operate.scheduled_jobs import count_scheduled
from jobs.services.upkeep.health import Health, health_of, open_letters
from jobs.states import JobState
from queueops.audit import stream
from queueops.core.postgres.horizon import most_dead_rows, oldest_transaction
from queueops.core.postgres.replica import off_primary, replica_standing
from ratelimits.limiter.view.gauges import CounterGauge, gauges
from ratelimits.limits.ramps import ramp_now
from ratelimits.models import QuotaAlert
from ratelimits.money.amounts import MICRO
from ratelimits.usage.totals import usage_totals

MAX_COUNTERS_SAMPLED = 100  # counters of one limit
FULL_PERCENT = 100
TOTALS_SECONDS = 60.0  # between two reads of allowances, which sum up every user's current month
TABLES_WITH_DEAD_ROWS = 5
OTHER = "other"  # services beyond those that the flow counts by name


kept_totals = CachedRead(usage_totals, seconds=TOTALS_SECONDS)


class Value(NamedTuple):
    """One sample of a counter or a gauge; `labels`: in the catalogue's order."""

    metric: str
    labels: tuple[str, ...]
    value: float


class Histogram(NamedTuple):
    """
    One histogram.

    Attributes:
        bounds: Upper bounds of the bins, in the metric's unit.
        counts: How many values are in each bin, not cumulated; the last bin has the values above the last bound.
        total: The sum of the measured values.
    """

    metric: str
    labels: tuple[str, ...]
    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


Sample = Value | Histogram


def read_samples() -> list[Sample]:
    """Return all samples that come from the database; process.py has the samples of this process alone."""
    return [
        *_flow(),  # not from a replica, which may lag: Prometheus takes a counter that falls for a restarted one
        *off_primary(lambda: [*_depths(), *_allowances(), *_pools()]),
        *_outages(),
        *_limits(),
        *_alerts(),
        *_spend(),
        *_objectives(),
        *_executors(),
        *_results(),
        *_database(),
        *_replica(),
    ]


def _flow() -> Iterator[Sample]:
    totals = flow.totals()
    seconds = [bound / 1000 for bound in DURATION_MS]
    for service, total in totals.services.items():
        of = (service,)
        yield Value("jobs_submitted", of, total.submitted)
        for outcome in ("completed", "failed", "cancelled"):
            yield Value("jobs_ended", (service, outcome), getattr(total, outcome))
        yield Value("attempts_failed", of, total.retried)
        yield Value("jobs_deferred", of, total.deferred)
        yield Value("jobs_crashed", of, total.crashed)
        yield Value("leases_lost", of, total.leases_lost)
        for answer, count in total.answers.items():
            yield Value("provider_answers", (service, answer), count)
        yield Histogram("provider_answer_bytes", of, SIZE_BYTES, total.sizes, total.size_bytes)
        yield Histogram("handler_seconds", of, seconds, total.latencies, total.latency_ms / 1000)
        yield Histogram("pickup_seconds", of, seconds, total.delays, total.delay_ms / 1000)
    decisions = Tally[tuple[str, str, str, str]]()
    for row in totals.decisions:  # each row is of one model: sum up over all models
        decisions[row.decision, row.service, row.call_type, row.limit_name] += row.calls
    for labels, calls in decisions.items():
        yield Value("limiter_decisions", labels, calls)
    cursor = FlowCursor.objects.filter(pk=flow.EVENT_LOG).first()
    if cursor is not None:
        is_behind = cursor.counted < cursor.mark
        yield Value("flow_lag_seconds", (), _age(cursor.marked_at) if is_behind else 0.0)


def _depths() -> Iterator[Sample]:
    totals = JobCount.objects.filter(batch_id=WHOLE_PROJECT)
    sums = totals.aggregate(**{state: Sum(state, default=0) for state in JobState.values})
    for state in JobState.values:
        yield Value("jobs", (state,), sums[state])
    yield Value("jobs_scheduled", (), count_scheduled().jobs)
    for depth in waiting_depths():
        yield Value("jobs_waiting", (depth.service, depth.state, depth.priority), depth.jobs)
    queued = dict(totals.values_list("project_id").annotate(jobs=Sum("queued")).filter(jobs__gt=0))
    oldest = oldest_of_busiest(queued)
    yield Value("oldest_ready_seconds", (), _age(oldest) if oldest else 0.0)
    began = running_here().aggregate(first=Min("started_at"))["first"]
    yield Value("longest_run_seconds", (), _age(began) if began else 0.0)
    yield Value("dead_letters_open", (), open_letters().count)


def _outages() -> Iterator[Sample]:
    is_open = Q(opened_at__isnull=False)
    known = ServiceBreaker.objects.values_list("service").order_by()
    sums = known.annotate(breakers=Count("pk", filter=is_open), held=Sum("holds", filter=is_open, default=0))
    # A service may be a host that a producer named: each dead host of a long list would be a series of its own.
    named = set(FlowSample.objects.filter(span_seconds=SINCE_EVER).values_list("service", flat=True))
    by_name: dict[str, list[tuple[int, int]]] = {}
    for service, breakers, held in sums:
        by_name.setdefault(service if service in named else OTHER, []).append((breakers, held))
    for name, counts in by_name.items():
        breakers, held = map(sum, zip(*counts, strict=True))
        yield Value("breakers_open", (name,), breakers)
        yield Value("jobs_held_by_outage", (name,), held)


def _limits() -> Iterator[Sample]:
    ramp = ramp_now()
    yield Value("ramp_share_ratio", (), ramp.share if ramp else 1)
    by_limit: dict[tuple[str, str], list[CounterGauge]] = {}
    for gauge in gauges(most=MAX_COUNTERS_SAMPLED):
        by_limit.setdefault((gauge.service, gauge.limit), []).append(gauge)
    for of, counters in by_limit.items():
        yield Value("limit_usage_ratio", of, max(one.percent for one in counters) / 100)
        yield Value("limit_counters", of, len(counters))
        yield Value("limit_counters_full", of, sum(one.percent >= FULL_PERCENT for one in counters))
        yield Value("limit_counters_cooling", of, sum(one.blocked_until is not None for one in counters))
        yield Value("limit_pressure_ratio", of, min(one.pressure for one in counters))
        yield Value("limit_shadow_denials", of, sum(one.shadow_denials for one in counters))


def _alerts() -> Iterator[Sample]:
    exceeded = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.EXCEEDED, limit__isnull=False, resolved_at=None)
    for service, limit, count in exceeded.values_list("limit__service", "limit__name").annotate(Count("pk")).order_by():
        yield Value("quota_exceeded", (service, limit), count)
    unresolved = QuotaAlert.objects.filter(resolved_at=None)
    counted = unresolved.values_list("kind", "severity").annotate(Count("pk")).order_by()
    found = {(kind, severity): count for kind, severity, count in counted}
    for kind in QuotaAlert.Kind.values:
        for severity in QuotaAlert.Severity.values:
            yield Value("alerts_open", (kind, severity), found.get((kind, severity), 0))


def _allowances() -> Iterator[Sample]:
    for project, totals in kept_totals.get().items():
        of = (project,)
        for level, users in totals.users.items():
            yield Value("allowance_users", (project, str(level)), users)
        yield Value("allowance_used_ratio", of, totals.used / totals.quota if totals.quota else 0.0)
        yield Value("allowance_reserved", of, totals.reserved)
        yield Value("allowance_overage", of, totals.overage)
        yield Value("allowance_refusals", of, totals.refused)
        yield Value("allowance_expired", of, totals.expired)


def _spend() -> Iterator[Sample]:
    for project, provider, spent in kept_spend.get():
        yield Value("spend_today_money", (project, provider), spent.money / MICRO)
        yield Value("spend_today_unpriced", (project, provider), spent.unpriced)


def _objectives() -> Iterator[Sample]:
    for standing in kept_objectives.get():
        objective, left = standing.objective, standing.budget_left
        of = (objective.name, objective.project_id or "")
        yield Value("objective_target_ratio", of, float(objective.percent) / 100)
        if standing.whole.share is not None and left is not None:
            yield Value("objective_attained_ratio", of, standing.whole.share)
            yield Value("objective_budget_left_ratio", of, left)
        for seconds in standing.recent:
            yield Value("objective_burn_rate", (*of, span_words(seconds)), standing.burn(seconds))


def _executors() -> Iterator[Sample]:
    rows = list(Executor.objects.all())
    # Export zeros, too: otherwise a rule would find no sample, never become true, and nobody would be paged.
    found = Tally((str(row.role), health_of(row)) for row in rows)
    for role in Executor.Role.values:
        for health in get_args(Health):
            yield Value("executors", (role, health), found[role, health])
    for row in rows:
        of = (row.host, str(row.pid), str(row.cluster_id))
        yield Value("executor_slots", of, row.slots)
        yield Value("executor_in_flight", of, row.in_flight)
        yield Value("executor_loop_lag_seconds", of, row.loop_lag_ms / 1000)
        yield Value("executor_heartbeat_age_seconds", of, _age(row.heartbeat_at))
        yield Value("executor_leases_lost", of, row.leases_lost)
        yield Value("executor_loops_held", of, row.loops_held)


def _pools() -> Iterator[Sample]:
    for depth in pool_depths():
        of = (depth.name,)
        for state, jobs in (("ready", depth.ready), ("parked", depth.parked), ("running", depth.running)):
            yield Value("pool_jobs", (*of, state), jobs)
        yield Value("pool_executors", of, depth.executors)
        yield Value("pool_oldest_seconds", of, _age(depth.since) if depth.since else 0.0)


def _results() -> Iterator[Sample]:
    totals = ResultStoreTotals.objects.first()
    if totals is not None:
        for outcome in ("stored", "in_row", "failed"):
            yield Value("results_stored", (outcome,), getattr(totals, outcome))
        yield Value("results_stored_bytes", (), totals.bytes)
        yield Value("result_objects_removed", (), totals.removed)
        if totals.swept_at is not None:
            yield Value("result_sweep_age_seconds", (), _age(totals.swept_at))


def _database() -> Iterator[Sample]:
    oldest = oldest_transaction()
    yield Value("oldest_transaction_seconds", (), oldest.seconds if oldest else 0.0)
    if target := settings.QUEUEOPS.audit_stream:
        yield Value("audit_stream_lag_seconds", (), stream.lag_seconds(target))
    for table, dead, _ in most_dead_rows(TABLES_WITH_DEAD_ROWS):
        yield Value("dead_rows", (table,), dead)


def _replica() -> Iterator[Sample]:
    standing = replica_standing()
    if standing is not None:
        yield Value("replica_in_use", (), float(not standing.trouble))
        if standing.lag_seconds is not None:
            yield Value("replica_lag_seconds", (), standing.lag_seconds)


def _age(moment: datetime) -> float:
    return max(0.0, (timezone.now() - moment).total_seconds())
