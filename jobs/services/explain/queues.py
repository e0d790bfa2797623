"""The jobs that wait behind limits, for screens. It reads a bounded part of each lane, without locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from jobs.lanes import read_lane
from queueops.core.clock import foretold
from queueops.core.sql import plain_array, run_sql
from queueops.tenancy.moves import projects_away
from ratelimits.limiter.drain import passed_at
from ratelimits.limiter.view.gauges import CounterGauge
from ratelimits.limits.alternatives import counted_as
from ratelimits.limits.catalogue import Rule, windows_of
from ratelimits.subjects import Subject

MAX_LANES_COUNTED = 500
MAX_QUEUED_COUNTED = 20_000  # jobs, shared out among the lanes
MAX_COSTS_SAMPLED = 2000  # jobs whose costs are looked at
FEWEST = 10  # jobs that are read of each lane in any case
DEEPEST = 2_000_000_000  # cap on a window's jobs: more never wait, and a larger number would not fit an integer
MAX_LANES_NAMED = 10


class LaneCount(NamedTuple):
    """
    The jobs that wait in one lane.

    Attributes:
        cost: The mean cost of a call, in a sample.
        calls: Calls per job: below 1 where jobs leave together, above 1 where they take several.
        since: When the oldest job that no limit has put back began to wait, in seconds since 1970.
        more: There are more jobs than `waiting`.
    """

    name: str
    waiting: int
    cost: float
    calls: float
    since: float | None
    more: bool

    def calls_for(self, rule: Rule) -> tuple[float, float]:
        """Return about how much of a limit each call of the lane takes, and how many calls there are."""
        if not rule.per_call:
            return self.cost, self.waiting * max(1.0, self.calls)
        return 1.0, self.waiting * self.calls


def count_lanes(lanes: Sequence[str], *, sampled: int = MAX_COSTS_SAMPLED) -> list[LaneCount]:
    """Count waiting jobs by lane: at most MAX_QUEUED_COUNTED together, but up to FEWEST of each lane in any case."""
    most = max(FEWEST, MAX_QUEUED_COUNTED // len(lanes))
    parameters = {"lanes": list(lanes), "most": most, "sampled": max(FEWEST, sampled // len(lanes))}
    rows = run_sql("jobs", "count_lanes", parameters)
    return [
        LaneCount(name, waiting, cost, calls, since, more=waiting >= most) for name, waiting, cost, calls, since in rows
    ]


def crowded_lanes(names: Sequence[str]) -> frozenset[str]:
    """Return the lanes with more waiting calls or tokens than the lane's share of a window."""
    depths, amounts = _shares(names, in_tokens=False), _shares(names, in_tokens=True)
    limited = [name for name in names if name in depths or name in amounts]
    if not limited:
        return frozenset()
    parameters = {
        "lanes": limited,
        "depths": plain_array([min(int(depths[name]), DEEPEST) if name in depths else None for name in limited]),
        "amounts": plain_array([amounts.get(name) for name in limited]),
        "sampled": FEWEST,
    }
    return frozenset(row[0] for row in run_sql("jobs", "find_crowded_lanes", parameters))


def _shares(names: Sequence[str], *, in_tokens: bool) -> dict[str, float]:
    """Return each lane's share of its smallest window."""
    windows = {name: windows_of(read_lane(name).subject, in_tokens=in_tokens) for name in names}
    sharing = Counter(counter for found in windows.values() for counter, _ in found)
    return {
        name: min(capacity / sharing[counter] for counter, capacity in found)
        for name, found in windows.items()
        if found
    }


@dataclass(frozen=True, slots=True)
class WaitingLane:
    """The waiting jobs of one lane. `more`: there are more than were counted."""

    name: str
    project: str
    user: str
    waiting: int
    more: bool


@dataclass(slots=True)
class Queue:
    """
    Waiting jobs whose calls one counter counts. They may wait for another limit that counts them too.

    Attributes:
        calls: How much of the limit the calls take, estimated for each lane, in the form of `drain.Calls`.
        more: There are more jobs than were counted.
        lanes: The longest first, at most MAX_LANES_NAMED.
    """

    waiting: int = 0
    calls: list[tuple[float, float]] = field(default_factory=list)
    more: bool = False
    lanes: list[WaitingLane] = field(default_factory=list)

    @property
    def units(self) -> float:
        return sum(amount * times for amount, times in self.calls)

    @property
    def count(self) -> str:
        return f"more than {self.waiting:,}" if self.more else f"{self.waiting:,}"


def queues_behind(rules: Sequence[Rule]) -> dict[int, dict[str, Queue]]:
    """
    Return the queues behind these limits, by limit and by the key of the counter.

    At most MAX_LANES_COUNTED lanes are read; if there may be more, `more` is set on each queue.
    """
    if not rules:
        return {}
    rows = run_sql("jobs", "list_lanes", {"after": "", "most": MAX_LANES_COUNTED})
    away = projects_away()
    read = {str(lane): read_lane(str(lane)) for lane, _ in rows}
    here = {name: lane.subject for name, lane in read.items() if lane.project not in away}
    lanes = [name for name, subject in here.items() if any(rule.applies_to(subject) for rule in rules)]
    found: dict[int, dict[str, Queue]] = {rule.id: {} for rule in rules}
    if not lanes:
        return found
    for count in count_lanes(lanes):
        lane = read_lane(count.name)
        for rule in rules:
            for key in _keys(rule, lane.subject) if count.waiting and rule.applies_to(lane.subject) else ():
                queue = found[rule.id].setdefault(key, Queue())
                queue.waiting += count.waiting
                amount, times = count.calls_for(rule)
                queue.calls.append((amount, times / len(counted_as(lane.subject))))
                queue.more |= count.more or len(rows) == MAX_LANES_COUNTED
                queue.lanes.append(WaitingLane(count.name, lane.project, lane.user, count.waiting, more=count.more))
    for by_key in found.values():
        for queue in by_key.values():
            queue.lanes = sorted(queue.lanes, key=lambda one: (-one.waiting, one.project, one.user))[:MAX_LANES_NAMED]
    return found


def _keys(rule: Rule, subject: Subject) -> set[str]:
    """Return the keys under which a limit may count such calls; a pool's calls may count under each member's key."""
    return {rule.key(one) for one in counted_as(subject)}


def queue_of(gauge: CounterGauge, queues: Mapping[str, Queue]) -> Queue:
    """Return the jobs behind a counter; none for a shadow limit: the jobs that it counts wait for other limits."""
    return Queue() if gauge.holds_nothing else queues.get(gauge.key, Queue())


def clears_at(queue: Queue, gauge: CounterGauge) -> datetime | None:
    """Return about when the whole queue has passed its limit; None: no pace is known, or nothing waits."""
    at = passed_at(gauge.opened, queue.calls) if queue.waiting else None
    return None if at is None else foretold(at)
