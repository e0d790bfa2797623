"""Watches lanes whose work waits because a limit is full, and lanes with room whose work waits nevertheless."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import transaction

from jobs.lanes import read_lane
from jobs.services.claim.stopped import stopped_lanes
from jobs.services.explain.queues import count_lanes
from queueops.core.sql import run_sql
from queueops.tenancy.moves import projects_away
from ratelimits.alerts.alerts import Opening, reconcile, resolve, saturation
from ratelimits.limiter.counters import counter_of
from ratelimits.limiter.decide import Binding
from ratelimits.limiter.drain import passed_at
from ratelimits.limiter.view.headroom import Headroom, read_headroom
from ratelimits.limits.catalogue import Rule, rule_of_ramp, rules
from ratelimits.models import Counter, QuotaAlert
from ratelimits.subjects import counter_id

MAX_LANES_WATCHED = 1000
MAX_COSTS_WATCHED = 5000  # jobs whose costs are read
SATURATED_SECONDS = 10  # a queue that clears sooner needs no alert


@dataclass(frozen=True, slots=True)
class StaleLane:
    """
    A project's lane with room for all its waiting work, where a job that no limit has put back waits since `since`.
    """

    project: str
    since: datetime


@dataclass(slots=True)
class _Behind:
    """The work that waits behind one counter."""

    rule: Rule
    key: str
    waiting: int = 0
    calls: list[tuple[float, float]] = field(default_factory=list)
    more: bool = False
    capacity: float = 0.0


def watch_lanes() -> list[StaleLane]:
    """
    Open, update and resolve the alerts of saturated counters.

    An alert is opened where work waits behind a full counter and will take more than SATURATED_SECONDS to clear. It
    stays until no lane of that counter has more work than room: there often is room for one call between two calls.
    Work that a pause or an outage holds counts for none.

    Returns:
        The lanes where work waits though it could go.
    """
    away = projects_away()
    listed = [lane for lane, _ in run_sql("jobs", "list_lanes", {"after": "", "most": MAX_LANES_WATCHED})]
    named = {name: read_lane(name) for name in listed}
    stopped = stopped_lanes(named.values())
    read = {name: lane for name, lane in named.items() if lane.project not in away and lane not in stopped}
    if not read:
        reconcile(QuotaAlert.Kind.SATURATED, [])
        return []
    open_rooms = read_headroom(lane.subject for lane in read.values())
    ramp = rule_of_ramp()  # work that no limit counts waits for the ramp
    by_id = {rule.id: rule for rule in rules()}
    shadows = {rule.id for rule in rules() if rule.shadow}
    behind: dict[str, _Behind] = {}
    held_up: set[str] = set()
    stale = []
    for count in count_lanes(list(read), sampled=MAX_COSTS_WATCHED):
        lane = read[count.name]
        room = open_rooms[lane.subject]
        if count.waiting * count.calls > room.calls:
            held_up.update(one for one in room.counters if int(one.partition(":")[0]) not in shadows)
        elif count.since is not None and not room.blocking and not ramp:
            stale.append(StaleLane(lane.project, datetime.fromtimestamp(count.since, UTC)))
        if count.waiting and (binding := _binding(room, by_id)):
            rule = by_id[binding.limit_id]
            one = behind.setdefault(counter_id(rule.id, binding.key), _Behind(rule, binding.key))
            one.waiting += count.waiting
            one.calls.append(count.calls_for(rule))
            one.more |= count.more
            one.capacity = binding.capacity
    now = next(iter(open_rooms.values())).now
    counters = Counter.objects.in_bulk(list(behind)) if behind else {}
    found = [opening for name, one in behind.items() if (opening := _opening(one, counters.get(name), now))]
    complete = len(listed) < MAX_LANES_WATCHED
    known = held_up if complete else {*held_up, *_open_subjects()}
    reconcile(QuotaAlert.Kind.SATURATED, found, keep=known)
    _end_usage({one.subject for one in found})
    return stale


@transaction.atomic
def _end_usage(subjects: set[str]) -> None:
    """
    End alerts about a counter's use: waiting work has an alert already. Locks in the order in which alerts are opened.
    """
    usage = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.USAGE, subject__in=subjects, resolved_at=None)
    told = usage.order_by("subject", "threshold").select_for_update().values_list("pk", flat=True)
    resolve(QuotaAlert.objects.filter(pk__in=list(told)))


def _binding(room: Headroom, by_id: dict[int, Rule]) -> Binding | None:
    """Return the limit that takes longest to have room; None: there is room now."""
    return next((binding for binding in room.blocking if binding.limit_id in by_id), None)


def _opening(one: _Behind, counter: Counter | None, now: float) -> Opening | None:
    clears_at = passed_at(counter_of(one.rule, one.key, counter, now), one.calls)
    # If it is not known how long calls take, open an alert if as much work waits as the counter's capacity.
    is_news = one.waiting >= one.capacity if clears_at is None else clears_at - now >= SATURATED_SECONDS
    if not is_news:
        return None
    return saturation(one.rule, one.key, waiting=one.waiting, clears_at=clears_at, now=now, more=one.more)


def _open_subjects() -> set[str]:
    alerts = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.SATURATED, resolved_at=None)
    return set(alerts.values_list("subject", flat=True))
