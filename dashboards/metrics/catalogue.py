"""The metrics as data: the documentation, the collector and the check of the Grafana file use this list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jobs.features.flow.flow import MAX_SERVICES_NAMED
from jobs.features.outages.breaker import MAX_HELD_COUNTED
from jobs.services.explain.depths import MAX_WAITING_COUNTED
from jobs.services.operate.scheduled_jobs import MAX_SCHEDULED_COUNTED

PREFIX = "queueops_"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `name`: without the prefix; counters are exported with the suffix `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str

    @property
    def exported(self) -> str:
        """The name in queries; a histogram's series also have the suffix _bucket, _sum or _count."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


_ALL = (
    Metric("jobs_submitted", "counter", ("service",), "Jobs accepted."),
    Metric("jobs_ended", "counter", ("service", "outcome"), "Jobs completed, failed for good, or cancelled."),
    Metric("attempts_failed", "counter", ("service",), "Attempts that failed and are repeated."),
    Metric("jobs_deferred", "counter", ("service",), "Times a job was put back because a limit had no room."),
    Metric("jobs_crashed", "counter", ("service",), "Times a job's process died, or its lease lapsed."),
    Metric(
        "leases_lost",
        "counter",
        ("service",),
        "Writes refused because the executor had been judged gone; a cancel is none.",
    ),
    Metric(
        "provider_answers",
        "counter",
        ("service", "answer"),
        "Calls to providers by answer: 2xx, 3xx, 400, 401, 403, 404, 429, 4xx (the others), 5xx, none.",
    ),
    Metric("provider_answer_bytes", "histogram", ("service",), "Size of providers' answers, decompressed."),
    Metric("handler_seconds", "histogram", ("service",), "How long attempts took."),
    Metric(
        "pickup_seconds",
        "histogram",
        ("service",),
        "From ready to run to taken by a worker: first attempts of jobs that no limit had put back. Counted when the "
        "attempt ends.",
    ),
    Metric(
        "limiter_decisions",
        "counter",
        ("decision", "service", "call_type", "limit"),
        "Calls granted, by service and call type; jobs deferred or rejected, by service and by the limit that did it.",
    ),
    Metric("jobs", "gauge", ("state",), "Jobs by state. Those deleted by retention stay counted."),
    Metric(
        "jobs_waiting",
        "gauge",
        ("service", "state", "priority"),
        f"Ready jobs (queued), those that wait for their time (scheduled), those a limit holds (rate_limited); of each "
        f"service and state at most {MAX_WAITING_COUNTED:,} are counted.",
    ),
    Metric(
        "jobs_scheduled",
        "gauge",
        (),
        f"Jobs that wait for their time: a part of those queued; at most {MAX_SCHEDULED_COUNTED:,} are counted.",
    ),
    Metric("breakers_open", "gauge", ("service",), "Outage breakers that are open: one a target and project."),
    Metric(
        "jobs_held_by_outage",
        "gauge",
        ("service",),
        f"Jobs that wait for an outage to end; of a target and project at most {MAX_HELD_COUNTED:,} are counted.",
    ),
    Metric("oldest_ready_seconds", "gauge", (), "Age of the oldest ready job outside of lanes; 0: none."),
    Metric("longest_run_seconds", "gauge", (), "How long the job that has been running for longest has; 0: none runs."),
    Metric("dead_letters_open", "gauge", (), "Dead letters that nobody has requeued or discarded."),
    Metric("limit_usage_ratio", "gauge", ("service", "limit"), "Share of the cap in use, of the fullest counter."),
    Metric("limit_counters", "gauge", ("service", "limit"), "Counters of a limit that are in use."),
    Metric("limit_counters_full", "gauge", ("service", "limit"), "Of them, those whose cap is reached."),
    Metric("limit_counters_cooling", "gauge", ("service", "limit"), "Of them, those that cool down after a push-back."),
    Metric(
        "limit_pressure_ratio", "gauge", ("service", "limit"), "Part of the cap in use since push-backs; the least."
    ),
    Metric("ramp_share_ratio", "gauge", (), "Part of every limit that the ramp after a resume leaves open; 1: all."),
    Metric("limit_shadow_denials", "gauge", ("service", "limit"), "What limits in shadow mode would have refused."),
    Metric("quota_exceeded", "gauge", ("service", "limit"), "Open alerts that a provider refused or a cap was passed."),
    Metric("alerts_open", "gauge", ("kind", "severity"), "Alerts that are not resolved."),
    Metric(
        "allowance_users",
        "gauge",
        ("project", "level"),
        "Users by how much of this month's quota they have used: 0, 60, 80, 100 percent or more of it; 101: passed. "
        "Users who used and reserved nothing are not counted. Read once a minute, as the next five.",
    ),
    Metric("allowance_used_ratio", "gauge", ("project",), "What users have used of this month's quotas together."),
    Metric("allowance_reserved", "gauge", ("project",), "Units held by active reservations of this month."),
    Metric("allowance_overage", "gauge", ("project",), "Units used beyond quotas this month."),
    Metric("allowance_refusals", "gauge", ("project",), "Reservations refused this month for want of room."),
    Metric("allowance_expired", "gauge", ("project",), "Reservations of this month that nobody confirmed in time."),
    Metric(
        "spend_today_money",
        "gauge",
        ("project", "provider"),
        "What calls cost since midnight in UTC, in QUEUEOPS_CURRENCY; without what has no price. Read each 30 s.",
    ),
    Metric("spend_today_unpriced", "gauge", ("project", "provider"), "Calls since midnight in UTC without a price."),
    Metric(
        "objective_attained_ratio",
        "gauge",
        ("objective", "project"),
        "Share of jobs that met an objective over its window; missing: there were none. Read each 10 s.",
    ),
    Metric("objective_target_ratio", "gauge", ("objective", "project"), "Share of jobs that is to meet it."),
    Metric(
        "objective_budget_left_ratio",
        "gauge",
        ("objective", "project"),
        "Share of the misses it allows that is left; below 0: it is broken.",
    ),
    Metric(
        "objective_burn_rate",
        "gauge",
        ("objective", "project", "window"),
        "How many times as fast as it may its budget is used up, over 5 min, 30 min, 1 h, 6 h and 3 d.",
    ),
    Metric("executors", "gauge", ("role", "health"), "Registered worker processes: alive, draining or silent."),
    Metric("executor_slots", "gauge", ("host", "pid", "cluster"), "Calls that a worker process carries out at once."),
    Metric("executor_in_flight", "gauge", ("host", "pid", "cluster"), "Calls that it carries out now."),
    Metric("executor_loop_lag_seconds", "gauge", ("host", "pid", "cluster"), "How late its event loop answers."),
    Metric("executor_heartbeat_age_seconds", "gauge", ("host", "pid", "cluster"), "Since it last renewed."),
    Metric("executor_leases_lost", "gauge", ("host", "pid", "cluster"), "Leases that it has lost since it began."),
    Metric(
        "executor_loops_held",
        "gauge",
        ("host", "pid", "cluster"),
        "Times since it began that a handler held its event loop for longer than QUEUEOPS_LOOP_BUDGET_SECONDS.",
    ),
    Metric(
        "pool_jobs",
        "gauge",
        ("pool", "state"),
        "Jobs of a pool (empty: that no pool names) that are ready, parked by a limit, or running; of the first two up "
        "to 10,000 are counted in lanes and as many outside.",
    ),
    Metric("pool_executors", "gauge", ("pool",), "Live worker processes that serve this pool; empty: all."),
    Metric("pool_oldest_seconds", "gauge", ("pool",), "How long the oldest job that waits in a pool has waited."),
    Metric(
        "results_stored",
        "counter",
        ("outcome",),
        "Results for the result store: stored, in_row (the database has them instead), and writes that failed.",
    ),
    Metric("results_stored_bytes", "counter", (), "Size of the results that went there."),
    Metric("result_objects_removed", "counter", (), "Its objects that no job named any more."),
    Metric("result_sweep_age_seconds", "gauge", (), "Since it was last looked through; missing: it never was."),
    Metric(
        "oldest_transaction_seconds", "gauge", (), "How long the database's longest open transaction has been open."
    ),
    Metric(
        "dead_rows", "gauge", ("table",), "Deleted or replaced rows that take room still, of the five tables with most."
    ),
    Metric(
        "replica_in_use",
        "gauge",
        (),
        "Whether this web process reads lists, exports, charts and depths from the replica; 0: from the primary.",
    ),
    Metric("replica_lag_seconds", "gauge", (), "How far the replica lags behind the primary; missing: nobody knows."),
    Metric(
        "audit_stream_lag_seconds",
        "gauge",
        (),
        "How long the oldest entry of the audit trail has waited for its collector; missing: none is set here.",
    ),
    Metric("flow_lag_seconds", "gauge", (), "How far the counters of this page lag behind the job log."),
    Metric("relay_lag_seconds", "gauge", (), "How far this web process's websockets lag behind the job log."),
    Metric("websocket_clients", "gauge", (), "Websockets open in this web process."),
    Metric("waiting_requests", "gauge", (), "Requests with `?wait=` that this web process holds until an end."),
    Metric("web_requests_waiting", "gauge", (), "Requests that wait for their turn in this web process."),
    Metric(
        "web_requests_dropped",
        "counter",
        ("reason",),
        "Requests that this web process did not carry out: no room to wait (full), no turn in time (late), client gone "
        "(left), no room for their bodies (room).",
    ),
    Metric("web_spooled_bytes", "gauge", (), "Room that bodies take in this web process, or have announced to take."),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}

SERVICES_NOTE = f"At most {MAX_SERVICES_NAMED} services have a label of their own; the others are `other` together."
