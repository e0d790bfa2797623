"""What waits behind limits: for screens. Reads without locks, and a bounded part of each lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from jobs.lanes import read_lane
from queueops.core.sql import run_sql
from ratelimits.models import Unit
from ratelimits.services.limiter.gauges import CounterGauge
from ratelimits.services.limits.catalogue import Rule

MOST_LANES_COUNTED = 500
MOST_QUEUED_COUNTED = 20_000  # jobs, shared out among the lanes
MOST_COSTS_SAMPLED = 2000  # of which costs are looked at
FEWEST = 10  # of each lane
MOST_LANES_NAMED = 10


class LaneCount(NamedTuple):
    """
    What waits in one lane.

    Attributes:
        cost: Of a job, the mean of a sample.
        calls: A job; below 1 where jobs leave together.
        since: When the oldest began to wait that no limit has put back, seconds since 1970.
        more: There are more jobs than `waiting`.
    """

    name: str
    waiting: int
    cost: float
    calls: float
    since: float | None
    more: bool

    def units_of(self, rule: Rule) -> float:
        """What its jobs need of a limit, about."""
        return self.waiting * (self.cost if rule.unit == Unit.TOKENS else self.calls)


def count_lanes(lanes: Sequence[str], *, sampled: int = MOST_COSTS_SAMPLED) -> list[LaneCount]:
    """Count what waits in lanes: of all together at most MOST_QUEUED_COUNTED jobs, FEWEST of each at the least."""
    most = max(FEWEST, MOST_QUEUED_COUNTED // len(lanes))
    parameters = {"lanes": list(lanes), "most": most, "sampled": max(FEWEST, sampled // len(lanes))}
    rows = run_sql("jobs", "count_lanes", parameters)
    return [
        LaneCount(name, waiting, cost, calls, since, more=waiting >= most) for name, waiting, cost, calls, since in rows
    ]


@dataclass(frozen=True, slots=True)
class WaitingLane:
    """Jobs of one lane that wait. `more`: there are more than were counted."""

    name: str
    project: str
    user: str
    waiting: int
    more: bool


@dataclass(slots=True)
class Queue:
    """
    Jobs whose calls one counter counts, and that wait, be it for this limit or for another that counts them too.

    Attributes:
        units: What they need of the limit, about.
        more: There are more jobs than were counted.
        lanes: The longest first, at most MOST_LANES_NAMED.
    """

    waiting: int = 0
    units: float = 0.0
    more: bool = False
    lanes: list[WaitingLane] = field(default_factory=list)

    @property
    def count(self) -> str:
        return f"more than {self.waiting:,}" if self.more else f"{self.waiting:,}"


def queues_behind(rules: Sequence[Rule]) -> dict[int, dict[str, Queue]]:
    """
    Return what waits behind each of these limits, by limit and by the key of its counter.

    At most MOST_LANES_COUNTED lanes are looked at; where there are more, each queue says so.
    """
    if not rules:
        return {}
    rows = run_sql("jobs", "list_lanes", {"after": "", "most": MOST_LANES_COUNTED})
    lanes = [str(lane) for lane, _ in rows if any(rule.applies_to(read_lane(str(lane)).subject) for rule in rules)]
    found: dict[int, dict[str, Queue]] = {rule.id: {} for rule in rules}
    if not lanes:
        return found
    for count in count_lanes(lanes):
        lane = read_lane(count.name)
        for rule in rules:
            if count.waiting and rule.applies_to(lane.subject):
                queue = found[rule.id].setdefault(rule.key(lane.subject), Queue())
                queue.waiting += count.waiting
                queue.units += count.units_of(rule)
                queue.more |= count.more or len(rows) == MOST_LANES_COUNTED
                queue.lanes.append(WaitingLane(count.name, lane.project, lane.user, count.waiting, more=count.more))
    for by_key in found.values():
        for queue in by_key.values():
            queue.lanes = sorted(queue.lanes, key=lambda one: (-one.waiting, one.project, one.user))[:MOST_LANES_NAMED]
    return found


def clears_at(queue: Queue, gauge: CounterGauge, now: float) -> datetime | None:
    """Return about when a queue has passed its limit at the limit's pace; None: no pace is known, or nothing waits."""
    if not queue.waiting or not gauge.per_second:
        return None
    begins = max(now, gauge.blocked_until.timestamp() if gauge.blocked_until else now)
    missing = max(0.0, queue.units - gauge.available)
    return datetime.fromtimestamp(begins + missing / gauge.per_second, UTC)
