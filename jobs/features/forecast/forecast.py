"""
Forecasts of when limits should let waiting work go: from rates and queues as they are now, never a promise.

For one job and one limit, with `n` lanes that share the limit's key and have work of the job's class or a higher one:

    - calls = (the calls of its lane that go before it + its own) * n, in tokens for limits that count tokens
    - start = when the last of these calls has passed: calls that find room go at once, the rest at the limit's rate

Jobs that leave together are one call, and a call that fills much of a window waits until all of it fits.

The latest start of all limits counts, but not before every limit has room for the job. The forecast assumes that
lanes have equal turns and enough work to use them. It does not foresee unequal weights, lanes that run dry or jobs
still to come. A batch's amount is its own work in the lanes that share a key.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from typing import Any
from uuid import UUID

from jobs.aging import class_of
from jobs.features.windows.windows import spans_over
from jobs.lanes import read_lane, subject_of
from jobs.models import Job
from jobs.models.job import IN_SEVERAL_CALLS
from jobs.services.explain.position import Position, Rules, effective_priority_of, reached_by
from jobs.services.explain.queues import crowded_lanes
from jobs.states import RUNNING, WAITING, JobState, Priority
from queueops.core.clock import foretold
from queueops.core.sql import run_sql
from queueops.tenancy.scope import for_everyone
from queueops.tenancy.secrets.credentials import find_principals
from ratelimits.costs import NO_AMOUNTS
from ratelimits.limiter.view.start_forecast import Asked, LimitForecast, look_ahead
from ratelimits.limits.alternatives import counted_as
from ratelimits.limits.catalogue import counted, rule_of_ramp
from ratelimits.subjects import Subject

from .end import call_durations
from .queue_calls import LINE_COLUMNS, LINE_COST_COLUMNS, LineCall, LineJob, calls_left, calls_of, coming_back

MAX_SHARERS_READ = 500  # lanes read to find those that share a limit; this takes some milliseconds
FULL_SHARE = 0.5
COSTS = LineJob._fields.index("costs")
ORDER = ("priority", "eligible_since", "pk")
TIERS = [tier.value for tier in (Priority.URGENT, Priority.NORMAL, Priority.LOW)]
MAX_OF_A_BATCH_SAMPLED = 2000  # jobs read of each state of a batch; its other jobs are assumed to be alike


@dataclass(frozen=True, slots=True)
class Forecast:
    """
    Attributes:
        limit: The limit that sets the start; None: a time alone sets it.
        lanes: How many lanes are assumed to share the limit.
        side_by_side: How many credentials of a pool are assumed to carry the calls, each at that pace; 1: no pool.
        basis: What the start was computed from, in words.
    """

    starts_at: datetime
    basis: str
    limit: str | None = None
    lanes: int = 1
    side_by_side: int = 1


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """
    Attributes:
        seconds: Until the batch's last call may go.
        is_whole: Limits count all that is left of the batch.
        is_full: Little of the slowest limit is free: the limit sets the pace, not the executors.
    """

    seconds: float
    is_whole: bool
    is_full: bool


def read_limits(job: Job, *, now: datetime) -> tuple[LimitForecast, ...]:
    """Return the limits that count a job's call, as they are now; empty if no limit counts it."""
    if job.lane is not None:
        subject = read_lane(job.lane).subject
    elif (
        counted().counts(job.service, project=job.project_id, kind=job.kind) or rule_of_ramp()
    ):  # the limit was made after the job
        subject = subject_of(
            service=job.service,
            call_type=job.call_type,
            model=job.model,
            project=job.project_id,
            user=str(job.user_id or ""),
            principals=find_principals({job.credential or ""}).get(job.credential or "", ("", "")),
        )
    else:
        return ()
    if kind := counted().kind_of(job.kind):
        subject = subject._replace(kind=kind)
    [found] = look_ahead([Asked(subject, job.cost, job.known_cost, job.costs or NO_AMOUNTS)], now=now.timestamp())
    return found


def forecast_start(
    job: Job,
    position: Position | None,
    limits: tuple[LimitForecast, ...],
    rules: Rules,
    *,
    not_before: datetime | None,
    now: datetime,
) -> Forecast | None:
    """
    Say when a job should start.

    Args:
        position: The job's place in its lane; with calls and costs where a limit counts them.
        not_before: The latest start that is known already, from schedules and from limits without room.

    Returns:
        None if the job waits for a running call to end, if a limit never lets it go, or if nothing is known.
    """
    if any(limit.is_closed and limit.free_at is None for limit in limits):
        return None
    floor = not_before or now
    by_time = None if not_before is None else Forecast(not_before, "the time it waits for")
    if position is None:
        return by_time
    best: Forecast | None = None
    sharers = _sharers(job, limits, rules, now=now)
    crowded = bool(job.lane and crowded_lanes([job.lane]))
    beside = len(counted_as(read_lane(job.lane).subject)) if job.lane else 1
    for limit in limits:
        lanes, is_exact = sharers[limit.rule.id]
        calls = [(amount, times * lanes / beside) for amount, times in _amounts(position, limit)]
        at = limit.passed_at(calls, crowded=crowded)
        if at is None:
            continue
        starts_at = max(floor, foretold(at))
        if best is None or starts_at > best.starts_at:
            whole = sum(amount * times for amount, times in calls)
            basis = _basis(limit, whole, lanes, is_exact=is_exact)
            if beside > 1:
                basis += f", by each of {beside} credentials"
            best = Forecast(starts_at, basis, limit.rule.name, lanes, beside)
    if best is None and position.ahead:
        return None  # no rate tells how fast the jobs ahead of it go
    return best or by_time


def past_windows(forecast: Forecast | None, job: Job, *, now: datetime) -> Forecast | None:
    """
    Return the forecast, delayed by the maintenance windows before its start. A start that no limit sets is delayed only
    by windows that are open then.
    """
    if forecast is None:
        return None
    spans = spans_over(job.project_id, services={job.service}, kinds={job.kind}, now=now)
    starts_at = forecast.starts_at
    for span in spans:
        if span.begins_at <= starts_at < span.ends_at:
            starts_at = span.ends_at
        elif now < span.begins_at <= starts_at and forecast.limit is not None:
            starts_at += span.ends_at - span.begins_at
    if starts_at == forecast.starts_at:
        return forecast
    return replace(forecast, starts_at=starts_at, basis=f"{forecast.basis}; after maintenance")


@for_everyone()
def limits_of_batch(batch_id: UUID, counts: Mapping[str, int], *, now: datetime) -> BatchLimits | None:
    """
    Return how long the limits need at least for what is left of a batch.

    Reads a bounded sample of the waiting jobs, and of the running ones, which may take more calls. A job's calls go one
    after the other, so the batch lasts at least as long as the longest job's calls. Work of others is not counted.

    Returns:
        None where no limit with a rate applies.
    """
    given = {"batch": batch_id, "states": sorted(WAITING), "most": MAX_OF_A_BATCH_SAMPLED, "tiers": TIERS}
    sample = run_sql("jobs", "sample_batch", given)
    read, waiting = sample[0][0], [row[1:] for row in sample if row[1] is not None]
    scale = max(1.0, sum(counts.get(state, 0) for state in WAITING) / max(1, read))
    lines: dict[str, list[LineJob]] = defaultdict(list)
    is_whole = len(waiting) == read
    for lane, *standing in waiting:
        standing[COSTS] = standing[COSTS] and json.loads(standing[COSTS])
        lines[lane].append(LineJob(*standing))
    calls = {lane: calls_of(line, times=scale)[0] for lane, line in lines.items()}
    for lane, *standing in _coming_back(batch_id):
        if lane is not None and (back := coming_back(LineJob(*standing))):
            lines[lane].append(back)
            calls.setdefault(lane, []).extend(calls_of([back])[0])
    asked = [
        Asked(read_lane(lane).subject, made[0].cost, made[0].known_cost, made[0].amounts)
        for lane, made in calls.items()
    ]
    amounts: dict[tuple[int, str], list[list[tuple[float, float]]]] = defaultdict(list)
    limits: dict[tuple[int, str], LimitForecast] = {}
    for one, made, forecasts in zip(asked, calls.values(), look_ahead(asked, now=now.timestamp()), strict=True):
        is_whole &= bool(forecasts)
        beside = max(1, len(counted_as(one.subject)))
        for limit in forecasts:
            counter = (limit.rule.id, limit.key)
            limits[counter] = limit
            amounts[counter].append([(amount, times / beside) for amount, times in _taken(limit, made)])
    ends = [
        (end, limits[counter])
        for counter, of_lanes in amounts.items()
        if (end := limits[counter].passed_at(_in_turns(of_lanes))) is not None
    ]
    if not ends:
        return None
    end, slowest = max(ends, key=lambda one: one[0])
    return BatchLimits(
        seconds=max(0.0, end - now.timestamp(), _longest(lines)),
        is_whole=is_whole,
        is_full=slowest.available < FULL_SHARE * slowest.capacity,
    )


def _longest(lines: Mapping[str, Sequence[LineJob]]) -> float:
    """Return the seconds that the longest job's calls need, by how long calls to its service have lately taken."""
    most: dict[str, float] = {}
    for job in (job for line in lines.values() for job in line):
        if (left := calls_left(job.costs, job.progress)) > 1:
            most[job.service] = max(most.get(job.service, 0.0), left)
    taken = call_durations(sorted(most)).by_service if most else {}
    return max((calls * taken.get(service, 0.0) for service, calls in most.items()), default=0.0)


def _in_turns(lanes: list[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [call for turn in zip_longest(*lanes) for call in turn if call is not None]


def _in_order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    _, priority, *age = row
    return (TIERS.index(priority), *age)


def _amounts(position: Position, limit: LimitForecast) -> list[tuple[float, float]]:
    """Return how much of a limit each call up to the job's own takes, and how many such calls there are."""
    return [(1.0, position.ahead + 1.0)] if position.calls is None else _taken(limit, position.calls)


def _taken(limit: LimitForecast, calls: Sequence[LineCall]) -> list[tuple[float, float]]:
    return [(limit.amount_of(call), call.times) for call in calls]


def _basis(limit: LimitForecast, amount: float, lanes: int, *, is_exact: bool) -> str:
    unit = limit.noun.removesuffix("s") if amount == 1 else limit.noun
    pace = f"{amount:,.0f} {unit} at {limit.rate_per_second:.3g} a second of {limit.rule.name}"
    if lanes == 1:
        return pace
    return f"{pace}, which {'' if is_exact else 'at least '}{lanes:,} lanes share"


def _sharers(
    job: Job, limits: tuple[LimitForecast, ...], rules: Rules, *, now: datetime
) -> dict[int, tuple[int, bool]]:
    """
    Return, by limit, how many lanes share its counter, and whether all lanes that wait were read.

    The job's own lane is counted. Other lanes count if they have work of the job's class or of a higher class.
    """
    if not limits or job.lane is None:
        return {}
    own_class = class_of(effective_priority_of(job, now=now, rules=rules), rules)
    cuts = {tier: reached_by(tier, rules[own_class].base, rules, now=now) for tier in Priority}
    service, _, _ = job.lane.partition("/")
    rows = run_sql("jobs", "find_waiting_lanes", {"from_lane": f"{service}/", "most": MAX_SHARERS_READ})
    rivals = []
    for lane, *since in rows:
        oldest = zip(cuts.values(), since, strict=True)
        if lane != job.lane and any(cut and first and first <= cut for cut, first in oldest):
            rivals.append(read_lane(lane).subject)
    return {
        limit.rule.id: (
            1 + sum(_counts(limit, rival) for rival in rivals),
            len(rows) < MAX_SHARERS_READ,
        )
        for limit in limits
    }


def _counts(limit: LimitForecast, rival: Subject) -> bool:
    """Whether a limit may count a rival's calls by the same counter."""
    return any(limit.rule.applies_to(one) and limit.rule.key(one) == limit.key for one in counted_as(rival))


def sample_of_batch(batch_id: UUID) -> list[tuple[str | None, UUID]]:
    """Lane and id of waiting jobs of a batch, in the order in which their lanes release them."""
    waiting = [row for state in sorted(WAITING) for row in _sampled(batch_id, state)]
    return [(lane, pk) for lane, *_, pk in sorted(waiting, key=_in_order)]


def _coming_back(batch_id: UUID) -> list[tuple[Any, ...]]:
    """
    Return, for each of a batch's running jobs that take several calls, its lane and the values of LineJob. Without such
    jobs the read is cheap: a look into a partial index.
    """
    jobs = Job.objects.filter(IN_SEVERAL_CALLS, batch_id=batch_id, status__in=sorted(RUNNING))
    return list(jobs.values_list("lane", *LINE_COLUMNS, *LINE_COST_COLUMNS)[:MAX_OF_A_BATCH_SAMPLED])


def _sampled(batch_id: UUID, state: JobState) -> list[tuple[Any, ...]]:
    """Return the lanes of the batch's first jobs in a state, and the columns that order a lane, as sample_batch.sql."""
    jobs = Job.objects.filter(batch_id__gte=batch_id, batch_id__lte=batch_id, status=state).order_by("batch_id")
    return list(jobs.values_list("lane", *ORDER)[:MAX_OF_A_BATCH_SAMPLED])
