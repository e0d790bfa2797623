"""
When limits should let waiting work go. A forecast from rates and queues as they are now, never a promise.

For one job and one limit, with `n` lanes that share the limit's key and have work of the job's class or a higher one:

    amount = (calls of its lane that go before it + its own) * n        in tokens for limits that count those
    start  = when the last of `amount` has passed: what is free goes at once, the rest at the limit's rate

The latest of all limits counts, and no start lies before the last of them has room for the job. So lanes are taken to
have equal turns and enough work to use them; unequal weights, lanes that run dry and jobs still to come are not
foreseen. A batch's amount is its own work in the lanes that share a key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from jobs.aging import class_of
from jobs.lanes import read_lane, subject_of
from jobs.models import Job
from jobs.states import WAITING, JobState, Priority
from queueops.core.sql import run_sql
from queueops.tenancy.credentials import find_principals
from queueops.tenancy.scope import for_everyone
from ratelimits.services.catalogue import limited_services
from ratelimits.services.outlook import Asked, Outlook, look_ahead

from .position import Position, Rules, effective_priority_of, reached_by

MOST_LANES = 500  # that are looked at for sharers; some milliseconds
MOST_SAMPLED = 2000  # waiting jobs of a batch, a state; its other jobs are taken to be like them


@dataclass(frozen=True, slots=True)
class Forecast:
    """
    Attributes:
        limit: Which limit it follows from; None: from a time alone.
        lanes: How many lanes are taken to share it.
        basis: What it was computed from, in words.
    """

    starts_at: datetime
    basis: str
    limit: str | None = None
    lanes: int = 1


def read_limits(job: Job, *, now: datetime) -> tuple[Outlook, ...]:
    """The limits that count a job's call, as they stand; none where its service has none."""
    if job.lane is not None:
        subject = read_lane(job.lane).subject
    elif job.service in limited_services():  # the limit came after the job
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
    [found] = look_ahead([Asked(subject, job.cost, job.known_cost)], now=now.timestamp())
    return found


def forecast_start(
    job: Job,
    position: Position | None,
    limits: tuple[Outlook, ...],
    rules: Rules,
    *,
    not_before: datetime | None,
    now: datetime,
) -> Forecast | None:
    """
    Say when a job should start.

    Args:
        position: With calls and costs, where a limit counts those.
        not_before: The latest time that is known already, of schedules and of limits without room.

    Returns:
        None while a place in flight must become free, where a limit never lets it go, and where nothing is known.
    """
    if any(limit.is_closed and limit.free_at is None for limit in limits):
        return None
    floor = not_before or now
    by_time = None if not_before is None else Forecast(not_before, "the time it waits for")
    if position is None:
        return by_time
    best: Forecast | None = None
    sharers = _sharers(job, limits, rules, now=now)
    for limit in limits:
        lanes, is_exact = sharers[limit.rule.id]
        amount = _amount(job, position, limit) * lanes
        at = limit.passed_at(amount)
        if at is None:
            continue
        starts_at = max(floor, datetime.fromtimestamp(at, UTC))
        if best is None or starts_at > best.starts_at:
            best = Forecast(starts_at, _basis(limit, amount, lanes, is_exact=is_exact), limit.rule.name, lanes)
    if best is None and position.ahead:
        return None  # no rate tells how fast those ahead of it go
    return best or by_time


@for_everyone()
def seconds_of_batch(batch_id: UUID, counts: Mapping[str, int], *, now: datetime) -> tuple[float, bool] | None:
    """
    Return how long the limits need at least for what is left of a batch, and whether all of that is limited.

    Reads a bounded sample of the waiting jobs. Work of others is not counted. None: no limit with a rate applies.
    """
    calls: dict[str, float] = defaultdict(float)
    costs: dict[str, float] = defaultdict(float)
    unlimited = 0.0
    for state in sorted(WAITING):
        for lane, number, cost in _sampled(batch_id, state, counts.get(state, 0)):
            if lane is None:
                unlimited += number
            else:
                calls[lane] += number
                costs[lane] += cost
    lanes = sorted(calls)
    asked = [Asked(read_lane(lane).subject, costs[lane] / calls[lane]) for lane in lanes]
    amounts: dict[tuple[int, str], float] = defaultdict(float)
    limits: dict[tuple[int, str], Outlook] = {}
    for lane, outlooks in zip(lanes, look_ahead(asked, now=now.timestamp()), strict=True):
        if not outlooks:
            unlimited += calls[lane]
        for limit in outlooks:
            counter = (limit.rule.id, limit.key)
            limits[counter] = limit
            amounts[counter] += calls[lane] if limit.per_call else costs[lane]
    ends = [limits[counter].passed_at(amount) for counter, amount in amounts.items()]
    known = [end for end in ends if end is not None]
    if not known:
        return None
    return max(0.0, max(known) - now.timestamp()), not unlimited


def _amount(job: Job, position: Position, limit: Outlook) -> float:
    if not limit.per_call:
        return (position.cost_ahead or 0) + job.cost
    calls = position.ahead if position.calls_ahead is None else position.calls_ahead
    return calls + 1


def _basis(limit: Outlook, amount: float, lanes: int, *, is_exact: bool) -> str:
    unit = ("call" if limit.per_call else "token") + ("" if amount == 1 else "s")
    pace = f"{amount:,.0f} {unit} at {limit.rate_per_second:.3g} a second of {limit.rule.name}"
    if lanes == 1:
        return pace
    return f"{pace}, which {'' if is_exact else 'at least '}{lanes:,} lanes share"


def _sharers(job: Job, limits: tuple[Outlook, ...], rules: Rules, *, now: datetime) -> dict[int, tuple[int, bool]]:
    """By limit: how many lanes with work of the job's class or a higher one share its counter, and if all were seen."""
    if not limits or job.lane is None:
        return {}
    own_class = class_of(effective_priority_of(job, now=now, rules=rules), rules)
    cuts = {tier: reached_by(tier, rules[own_class].base, rules, now=now) for tier in Priority}
    service, _, _ = job.lane.partition("/")
    rows = run_sql("jobs", "find_waiting_lanes", {"from_lane": f"{service}/", "most": MOST_LANES})
    rivals = []
    for lane, *since in rows:
        oldest = zip(cuts.values(), since, strict=True)
        if lane != job.lane and any(cut and first and first <= cut for cut, first in oldest):
            rivals.append(read_lane(lane).subject)
    return {
        limit.rule.id: (
            1 + sum(limit.rule.applies_to(rival) and limit.rule.key(rival) == limit.key for rival in rivals),
            len(rows) < MOST_LANES,
        )
        for limit in limits
    }


def _sampled(batch_id: UUID, state: JobState, count: int) -> list[tuple[str | None, float, float]]:
    """Lane, calls and costs of each job of a sample, scaled up to the state's count."""
    # A range and an order, so that the index is walked: of an equal batch the planner would read all it has.
    jobs = Job.objects.filter(batch_id__gte=batch_id, batch_id__lte=batch_id, status=state).order_by("batch_id")
    rows = list(jobs.values_list("lane", "cost", "coalesce_key")[:MOST_SAMPLED])
    factor = max(1.0, count / len(rows)) if len(rows) == MOST_SAMPLED else 1.0
    together = Counter((lane, key) for lane, _, key in rows if key is not None)
    return [(lane, factor / (1 if key is None else together[lane, key]), factor * cost) for lane, cost, key in rows]
