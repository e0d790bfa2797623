"""
Parking: mark a lane's waiting jobs as `rate_limited`, with the time at which the limit is expected to admit them.

Parking moves no job that a claim could take now, and a claim takes parked jobs as well as queued ones. Parking serves
people who look at jobs: it tells jobs that wait for a limit from jobs that wait for a worker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from jobs.lanes import lane_name, subject_of
from jobs.models import Job
from jobs.services.explain.waiting import explain_waiting
from queueops.core.sql import nullable, plain_array, run_sql
from queueops.tenancy.secrets.credentials import find_principals
from ratelimits.costs import Amounts, read_amounts
from ratelimits.limiter.decide import Call, unfit
from ratelimits.limiter.estimates import Alike, with_cached
from ratelimits.limiter.view.headroom import Headroom
from ratelimits.limiter.view.start_forecast import Asked, LimitForecast, look_ahead
from ratelimits.limits.alternatives import is_pooled
from ratelimits.limits.catalogue import counted, limited_services

from .admit import reject
from .deferrals import Deferral, Met, defer_jobs
from .lanes import TIERS, LaneHeadroom

PARKED_AT_ONCE = 25
ADOPTED_AT_ONCE = 100
FEW_ADOPTED_AT_ONCE = 50  # used where a claim may have to wait for the adoption
PARKING_SHARE = 0.05  # the part of an executor's time for parking; see docs/adr/0023
MAX_REST_SECONDS = 1.0  # parking has to stay ahead of the jobs that leave
LANES_AT_ONCE = 10
MAX_TAILS = 10_000
TAIL_SECONDS = 10.0  # after this, the forecast of a lane's next job is made from its whole queue again
SOON_SECONDS = 1.0  # jobs that are expected to leave within this time are not parked


def rest_seconds(took_seconds: float) -> float:
    """
    Return how long to rest after a part of parking that took `took_seconds`.

    Nothing waits for parking, but everything waits for the database. The busier the database is, the longer a part and
    the rest after it take.
    """
    return min(took_seconds * (1 / PARKING_SHARE - 1), MAX_REST_SECONDS)


class Unparked(NamedTuple):
    """A row of choose_unparked.sql."""

    id: UUID
    lane: str
    priority: str
    eligible_since: datetime
    kind: str
    cost: int
    known_cost: int | None
    costs: str | None


class Parking:
    """One executor's share of parking: keeps the last forecast of each lane and tier, and which services it adopted."""

    def __init__(self) -> None:
        self._tails: dict[tuple[str, str], _Tail] = {}  # by lane and tier
        self._adopted: frozenset[str] = frozenset()
        self._round: list[str] = []  # lanes still to be looked at

    def park(self, waiting: Sequence[LaneHeadroom], *, most: int = PARKED_AT_ONCE) -> int:
        """
        Park up to `most` queued jobs, of lanes that cannot release them soon, in one transaction.

        Each job gets the forecast that its page shows. The forecast is worked out for the first job of a lane and tier;
        the jobs behind it follow at the slowest limit's pace. Where the limit has no pace, as with calls in flight, all
        these jobs are expected when the limit opens.

        Each call reads LANES_AT_ONCE lanes, in turn, until `is_through`: reading all of them would keep claims waiting.

        Returns:
            How many jobs were parked.
        """
        narrow = {one.name: one for one in waiting if one.room.calls < MAX_TAILS and not _is_shut(one)}
        self._round = [name for name in self._round if name in narrow] or list(narrow)
        if not self._round:
            return 0
        lanes = [narrow[name] for name in self._round[:LANES_AT_ONCE]]
        with transaction.atomic(durable=True):
            rows = run_sql(
                "jobs",
                "choose_unparked",
                {
                    "lanes": [one.name for one in lanes],
                    "services": [one.lane.subject.service for one in lanes],
                    "call_types": [one.lane.subject.call_type for one in lanes],
                    "projects": [one.lane.project for one in lanes],
                    "users": nullable([one.lane.user or None for one in lanes]),
                    "soon": plain_array([_soon(one) for one in lanes]),
                    "most": most,
                },
            )
            fitting = _without_unfit([Unparked(*row) for row in rows], narrow)
            fitting.sort(key=lambda job: (job.lane, TIERS[job.priority], job.eligible_since, job.id))
            moved = defer_jobs("park", self._forecasts(fitting, narrow), message="waits for a limit")
        if len(rows) < most:
            del self._round[:LANES_AT_ONCE]
        return len(moved)

    @property
    def is_through(self) -> bool:
        """Whether every lane has been read since the round began."""
        return not self._round

    def adopt(self, *, most: int = ADOPTED_AT_ONCE) -> int:
        """
        Put ready jobs of services that newly got a limit into their lanes, at most `most` of each service.

        The first service with so many jobs ends the call; the next call goes on with it.

        Until they are adopted, a claim finds these jobs among the ready jobs outside lanes, and the limiter decides on
        each.
        """
        limited = limited_services()
        self._adopted &= limited
        for service in sorted(limited - self._adopted):
            found = _adopt(service, most)
            if found == most:
                return found
            self._adopted |= {service}
        return 0

    def _forecasts(self, jobs: Sequence[Unparked], lanes: Mapping[str, LaneHeadroom]) -> list[Deferral]:
        if not jobs:
            return []
        now = max(lanes[job.lane].room.now for job in jobs)
        calls = [_asked(job, lanes[job.lane]) for job in jobs]
        deferrals = []
        for job, limits in zip(jobs, look_ahead(calls, now=now), strict=True):
            tail = self._tails.get((job.lane, job.priority))
            if tail is None or tail.is_old or any(limit.is_large for limit in limits):
                tail = _foreseen(job, lanes[job.lane].room)
            else:
                needed = max((_needed_seconds(limit) for limit in limits), default=0.0)
                tail = tail._replace(at=tail.at + needed * tail.share)
            self._tails[job.lane, job.priority] = tail
            deferrals.append(Deferral(job.id, max(0.0, tail.at - now), "rate_limit_schedule", _met(limits)))
        if len(self._tails) > MAX_TAILS:
            self._tails.clear()
        return deferrals


class _Tail(NamedTuple):
    """
    The forecast of the last parked job of a lane and tier.

    Attributes:
        at: Seconds since 1970.
        share: How many calls the limit admits for each job of the lane: above 1 where lanes share the limit, below 1
            where jobs leave together.
        made_at: When it was last foreseen from the whole queue, by the monotonic clock.
    """

    at: float
    share: float
    made_at: float

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self.made_at > TAIL_SECONDS


def _foreseen(job: Unparked, room: Headroom) -> _Tail:
    """Return the forecast that the job's page would show."""
    told = explain_waiting(Job.objects.get(pk=job.id))
    opens_at = max(room.opens_at, room.now)
    if told is None or told.forecast is None:
        return _Tail(opens_at, 0.0, time.monotonic())
    position, lanes = told.position, told.forecast.lanes
    calls = (
        1.0
        if position is None or position.calls is None
        else sum(call.times for call in position.calls) / (position.ahead + 1)
    )
    share = lanes * calls / told.forecast.side_by_side
    return _Tail(max(opens_at, told.forecast.starts_at.timestamp()), share, time.monotonic())


def _without_unfit(jobs: Sequence[Unparked], lanes: Mapping[str, LaneHeadroom]) -> list[Unparked]:
    """Fail jobs that a limit can never admit: at once, not hours later when their turn comes. Return the others."""
    reasons = {job: unfit(_call(job, lanes[job.lane])) for job in jobs}
    reject([(job.id, job.kind, *reason) for job, reason in reasons.items() if reason is not None])
    return [job for job, reason in reasons.items() if reason is None]


def _call(job: Unparked, lane: LaneHeadroom) -> Call:
    return Call(*_asked(job, lane)[:3], amounts=_amounts(job, lane))


def _asked(job: Unparked, lane: LaneHeadroom) -> Asked:
    return Asked(lane.lane.subject, job.cost, job.known_cost, _amounts(job, lane))


def _amounts(job: Unparked, lane: LaneHeadroom) -> Amounts:
    subject = lane.lane.subject
    alike = Alike(lane.lane.project, subject.service, job.kind, subject.model or None)
    return with_cached(read_amounts(job.costs), alike)


def _is_shut(one: LaneHeadroom) -> bool:
    """Whether a lane is closed because no credential of its pool may be used: no limit holds its jobs."""
    return is_pooled(one.lane.subject) and not one.room.calls and not one.room.counters


def _soon(one: LaneHeadroom) -> int:
    """How many of the lane's jobs are expected to leave within SOON_SECONDS."""
    if one.room.calls == 0 and one.room.opens_at - one.room.now > SOON_SECONDS:
        return 0
    return one.room.calls + int((one.rate_per_second or 0.0) * SOON_SECONDS)


def _met(limits: Sequence[LimitForecast]) -> list[Met]:
    """The limits that count a job's call: first the limit that opens last or, if all have room, the slowest limit."""
    never = float("inf")
    ordered = sorted(
        limits,
        key=lambda one: (one.is_closed, (one.free_at or never) if one.is_closed else _needed_seconds(one)),
        reverse=True,
    )
    return [Met(one.rule.name, one.key, one.rule.unit, one.needed, one.available, one.capacity) for one in ordered]


def _needed_seconds(one: LimitForecast) -> float:
    """How long the limit takes to refill what one such call needs; 0 where no rate is known."""
    return one.needed / one.rate_per_second if one.rate_per_second else 0.0


@transaction.atomic
def _adopt(service: str, most: int) -> int:
    rows = run_sql("jobs", "choose_laneless", {"service": service, "most": most})
    principals = find_principals({credential for *_, credential, _ in rows if credential})
    names = []
    for _, call_type, model, project, user_id, target, credential, kind in rows:
        user = str(user_id or "")
        subject = subject_of(
            service=service,
            call_type=call_type,
            model=model,
            project=project,
            user=user,
            principals=principals.get(credential or "", ("", "")),
            kind=counted().kind_of(kind),
        )
        names.append(lane_name(subject, project=project, user=user, target=target))
    if rows:
        run_sql("jobs", "set_lanes", {"ids": [row[0] for row in rows], "lanes": names})
    return len(rows)
