"""
Forecasts of when work that is not submitted yet would end: from its limits, the work before it, and the slots.

    limits: For each limit, the calls that wait in the batch's own lanes, and the batch itself. Each other lane that
        shares the limit adds at most as many calls as the longest of the batch's lanes has, as lanes take turns.
    slots: The batch's calls side by side in all slots, each as long as calls to its service have lately taken.

The latest of these ends counts. It is never before the last job may begin, or before the longest job has made its
calls. One more call and the maintenance windows in between are added. Work still to come, retries and failures are not
foreseen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import NamedTuple

from django.db.models import Q

from jobs.features.windows.windows import spans_over
from jobs.lanes import read_lane
from jobs.models import SINCE_EVER, FlowSample, PauseSwitch
from jobs.services.explain.queues import LaneCount, count_lanes
from jobs.services.operate.pauses import count_slots
from jobs.times.calendar import stretched
from queueops.core.clock import Now
from queueops.core.sql import run_sql
from queueops.tenancy.scope import for_everyone
from ratelimits.costs import NO_AMOUNTS, UNTIL_THE_END
from ratelimits.limiter.view.start_forecast import Asked, LimitForecast, look_ahead
from ratelimits.limits.alternatives import counted_as
from ratelimits.subjects import Subject

from .queue_calls import LineCall, LineJob, calls_of

MAX_LANES_READ = 500  # lanes of a service that are read to find those that share a limit
RECENT = timedelta(hours=1)  # how far back calls are read for their durations; if there are none, all calls
RECENT_SPAN_SECONDS = 300

Calls = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LimitNeed:
    """
    One limit's part in the batch's duration.

    Attributes:
        needed: What the batch takes, in the limit's unit.
        ahead: What the work before the batch takes, in the same unit.
        seconds: Until the last call of the batch has passed the limit; None: never, for the reason in `why`.
        share: `seconds` as a part of the batch's whole duration; near 1 if the limit sets the pace.
    """

    limit: str
    key: str
    unit: str
    needed: float
    ahead: float
    seconds: float | None
    share: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class ForecastEnd:
    """
    Attributes:
        seconds: From now until the last job has ended; None: nobody knows, see `why`.
        limits: The limits that take a part of that time, the slowest first.
    """

    seconds: float | None
    limits: Sequence[LimitNeed] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """
    The work that would be submitted, in the order in which lanes release it.

    Attributes:
        lanes: The jobs by lane; under None, the jobs in no lane.
        largest: By lane, the call that its limits reserve most for, which waits longest for room.
        services: Calls by service.
        scheduled_seconds: Seconds until the last job may begin at all.
        longest: By service, how many calls the job with the most calls takes, one after the other.
    """

    project: str
    lanes: Mapping[str | None, Sequence[LineJob]]
    largest: Mapping[str, Asked]
    services: Counter[str]
    kinds: frozenset[str]
    scheduled_seconds: float = 0.0
    longest: Mapping[str, float] = field(default_factory=dict)


class Durations(NamedTuple):
    by_service: Mapping[str, float]

    def of(self, services: Mapping[str, int]) -> float | None:
        """Seconds that all of these calls take, one after the other; None: calls to a service were never measured."""
        if any(service not in self.by_service for service in services):
            return None
        return sum(self.by_service[service] * count for service, count in services.items())


class _Beside(NamedTuple):
    """
    The calls and lanes that every limit is compared with.

    Attributes:
        own: The batch's calls, by lane.
        waiting: The jobs that wait, by lane.
        seconds: How long all calls of the batch take, one after the other; None: nobody knows.
        calls: How many calls the batch has.
    """

    own: Mapping[str, Sequence[LineCall]]
    waiting: Mapping[str, LaneCount]
    seconds: float | None
    calls: int


@for_everyone()
def foresee_end(work: Work, *, now: datetime) -> ForecastEnd:
    """Return when the work would end if it were submitted now. Reads a bounded part of what waits."""
    needs = _limits(work, now)
    stuck = next((need for need in needs if need.seconds is None), None)
    if stuck is not None:
        return ForecastEnd(None, (stuck,), f"{stuck.limit} never lets such a call go: {stuck.why}")
    if why := _stopped(work):
        return ForecastEnd(None, needs, why)
    durations = call_durations(list(work.services))
    slots = count_slots()
    if not slots:
        return ForecastEnd(None, needs, "no executor is running")
    taken = durations.of(work.services)
    if taken is None and (None in work.lanes or not needs):
        return ForecastEnd(None, needs, "no call to its service was measured yet, and no limit sets its pace")
    one = max((durations.by_service.get(service, 0.0) for service in work.services), default=0.0)
    held = max((need.seconds or 0.0 for need in needs), default=0.0)
    longest = max((durations.by_service.get(of, 0.0) * calls for of, calls in work.longest.items()), default=0.0)
    seconds = max(held, (taken or 0.0) / slots - one, work.scheduled_seconds, longest - one) + one
    seconds = stretched(seconds, spans_over(work.project, services=work.services, kinds=work.kinds, now=now), now)
    told = [replace(need, share=min(1.0, (need.seconds or 0.0) / seconds)) for need in needs if seconds]
    return ForecastEnd(seconds, tuple(sorted(told, key=lambda need: -need.share)))


def _limits(work: Work, now: datetime) -> list[LimitNeed]:
    own = {lane: calls_of(line)[0] for lane, line in work.lanes.items() if lane is not None and line}
    if not own:
        return []
    met = look_ahead([work.largest[lane] for lane in own], now=now.timestamp())
    found: dict[tuple[int, str], LimitForecast] = {}
    lanes: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
    for lane, limits in zip(own, met, strict=True):
        members = max(1, len(counted_as(read_lane(lane).subject)))
        for limit in limits:
            counter = (limit.rule.id, limit.key)
            kept = found.get(counter)
            found[counter] = limit if kept is None or limit.needed > kept.needed else kept
            lanes[counter].append((lane, members))
    beside = _Beside(own, _waiting(own), call_durations(list(work.services)).of(work.services), work.services.total())
    return [_need(limit, lanes[counter], beside) for counter, limit in found.items()]


def _need(limit: LimitForecast, lanes: Sequence[tuple[str, int]], beside: _Beside) -> LimitNeed:
    mine: list[Calls] = []
    before: list[Calls] = []
    longest = 0.0
    for lane, members in lanes:
        waits = beside.waiting.get(lane)
        before.append([_share(waits, limit, members)] if waits else [])
        mine.append([(limit.amount_of(call), call.times / members) for call in beside.own[lane]])
        longest = max(longest, sum(times for _, times in [*before[-1], *mine[-1]]))
    names = {lane for lane, _ in lanes}
    for name, count in beside.waiting.items():
        rival = read_lane(name).subject
        if name not in names and _counts(limit, rival):
            amount, times = _share(count, limit, max(1, len(counted_as(rival))))
            before.append([(amount, min(times, longest))])
    needed, ahead = _sum(mine), _sum(before)
    told = LimitNeed(limit.rule.name, limit.key, limit.rule.unit, needed, ahead, 0.0)
    if limit.is_closed and limit.free_at is None and limit.rule.unit not in UNTIL_THE_END:
        return replace(told, seconds=None, why=limit.why or "it has no room for it")
    if limit.rule.unit in UNTIL_THE_END:
        calls = sum(times for each in mine for _, times in each)
        at_once = max(1.0, limit.capacity / max(1.0, needed / max(1.0, calls)))
        mean = (beside.seconds or 0.0) / beside.calls
        return replace(told, seconds=max(0.0, (calls / at_once - 1.0) * mean))
    passed = limit.passed_at([*_in_turns(before), *_in_turns(mine)])
    return replace(told, seconds=0.0 if passed is None else max(0.0, passed - limit.counter.now))


def _waiting(own: Mapping[str, object]) -> dict[str, LaneCount]:
    """Count the waiting jobs of every lane that has a service in common with these lanes."""
    names: dict[str, None] = {}
    for service in sorted({lane.partition("/")[0] for lane in own}):
        rows = run_sql("jobs", "list_lanes", {"after": f"{service}/", "most": MAX_LANES_READ})
        names |= dict.fromkeys(str(lane) for lane, _ in rows if str(lane).startswith(f"{service}/"))
    return {count.name: count for count in count_lanes(list(names)) if count.waiting} if names else {}


def _share(count: LaneCount, limit: LimitForecast, beside: int) -> tuple[float, float]:
    if limit.per_call:
        return 1.0, count.waiting * count.calls / beside
    call = LineCall(count.cost, None, 1.0, NO_AMOUNTS)
    return limit.amount_of(call), count.waiting * max(1.0, count.calls) / beside


def _counts(limit: LimitForecast, rival: Subject) -> bool:
    return any(limit.rule.applies_to(one) and limit.rule.key(one) == limit.key for one in counted_as(rival))


def _in_turns(lanes: Sequence[Calls]) -> Calls:
    return [call for turn in zip_longest(*lanes) for call in turn if call is not None]


def _sum(lanes: Sequence[Calls]) -> float:
    return sum(amount * times for calls in lanes for amount, times in calls)


def _stopped(work: Work) -> str:
    """Name a pause without a known end that keeps some of the work from starting; empty: none."""
    scopes = PauseSwitch.Scope
    of_work = {
        (scopes.GLOBAL.value, ""),
        (scopes.PROJECT.value, work.project),
        *((scopes.SERVICE.value, service) for service in work.services),
        *((scopes.KIND.value, kind) for kind in work.kinds),
    }
    found = PauseSwitch.objects.filter(window=None, key__in=[key for _, key in of_work]).order_by("created_at")
    return next((f"{switch} is paused" for switch in found if (switch.scope, switch.key) in of_work), "")


def call_durations(services: Sequence[str]) -> Durations:
    """How long calls to these services have taken on average, in seconds."""
    recent = Q(span_seconds=RECENT_SPAN_SECONDS, at__gt=Now() - RECENT)
    rows = FlowSample.objects.filter(recent | Q(span_seconds=SINCE_EVER), service__in=services)
    sums: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [0.0, 0.0], False: [0.0, 0.0]})
    for span, service, latencies, latency in rows.values_list("span_seconds", "service", "latencies", "latency_ms"):
        of = sums[service][span != SINCE_EVER]
        of[0] += sum(latencies)
        of[1] += latency / 1000.0
    found = {}
    for service, by_age in sums.items():
        count, seconds = by_age[True] if by_age[True][0] else by_age[False]
        if count:
            found[service] = seconds / count
    return Durations(found)
