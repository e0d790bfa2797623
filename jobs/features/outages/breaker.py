"""
The outage breaker: a target that does not answer gets one probe at a time, and its other jobs wait unharmed.

A closed breaker counts failures, by target and project. THRESHOLD failures in a row, of several calls, open it. The
project's ready jobs for that target are then parked (rate_limited without a time), and one of them at a time is let
through as a probe. A job that was under way then spends no attempt; a probe does. Any answer of the target, to
whichever project, closes its breakers for all projects. docs/adr/0032 says why each project has its own breaker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction

from jobs.features.pools.pools import pools_served
from jobs.lanes import name_of
from jobs.models import ServiceBreaker
from jobs.transitions import Move, move_jobs
from queueops.core.notify import Channel, notify
from queueops.core.sql import run_sql

THRESHOLD = 10
SECONDING = 3  # failures that are enough where the target is out for another project
MIN_CALLS = 3  # calls that must fail: otherwise one bad job, tried again and again, would open the breaker
OUTWEIGHED = 9  # failures that one answer makes up for: more than nine in ten must fail
MOVED_AT_ONCE = 2000  # jobs parked or released in one statement
FIRST_PROBE_SECONDS = 2.0
MAX_PROBE_SECONDS = 60.0
LAST_DOUBLING = 5  # 2 s doubled five times is past the longest pause; without a bound, an outage of days would overflow
MAX_PATHS = 500  # paths remembered for a breaker
MAX_PROBED = 100  # jobs remembered as probes; others are sent first
MAX_HELD_COUNTED = 10_000  # jobs that wait for one breaker
# Without this setting, each part would begin with a bitmap of all parked jobs if the planner expects few of them.
PART_BY_PART = "SET LOCAL enable_bitmapscan = off"
CLOSED_KEPT_SECONDS = 600  # how long a closed breaker is remembered, while there are jobs
FORGET_BREAKERS_SECONDS = (
    30.0  # between two looks, each of which reads the waiting jobs of projects with a failing address
)
MAX_JOBS_READ = 100_000  # of a project, service and call type


class Answered(NamedTuple):
    """A call that was answered properly: by which service and target, and on which path."""

    service: str
    target: str
    path: int


class Unanswered(NamedTuple):
    """A job that failed by its target's fault. Jobs that left together have the same `call`."""

    service: str
    target: str
    project: str
    job: UUID
    call: UUID
    path: int
    error: str


def record_answers(answered: Sequence[Answered], unanswered: Sequence[Unanswered]) -> set[UUID]:
    """
    Count the answers and failures of targets, in the caller's transaction.

    Returns:
        The jobs of `unanswered` whose failure spends no attempt.
    """
    if answered:
        answers = Counter((one.service, one.target) for one in answered)
        failures = Counter((one.service, one.target, one.project) for one in unanswered)
        unanswered = [one for one in unanswered if failures[one[:3]] > OUTWEIGHED * answers[one[:2]]]
    _begin({one[:3] for one in unanswered})
    if answered and unanswered:
        _lock([*answered, *unanswered])
    if answered:
        different = set(answered)
        run_sql(
            "jobs",
            "close_breakers",
            {
                "services": [one.service for one in different],
                "targets": [one.target for one in different],
                "paths": [one.path for one in different],
                "most_paths": MAX_PATHS,
            },
        )
    if not unanswered:
        return set()
    rows = run_sql(
        "jobs",
        "count_outages",
        {
            "services": [one.service for one in unanswered],
            "targets": [one.target for one in unanswered],
            "projects": [one.project for one in unanswered],
            "jobs": [one.job for one in unanswered],
            "calls": [one.call for one in unanswered],
            "paths": [one.path for one in unanswered],
            "errors": [one.error for one in unanswered],
            "threshold": THRESHOLD,
            "seconding": SECONDING,
            "least_calls": MIN_CALLS,
            "most_calls": THRESHOLD,
            "most_paths": MAX_PATHS,
            "first_probe": FIRST_PROBE_SECONDS,
        },
    )
    return {row[0] for row in rows}


def _begin(failing: Collection[tuple[str, str, str]]) -> None:
    """Insert missing rows before any row is locked: else two flushes that find no row would each count by itself."""
    if not failing:
        return
    new = [ServiceBreaker(service=service, target=target, project_id=name) for service, target, name in sorted(failing)]
    ServiceBreaker.objects.bulk_create(new, ignore_conflicts=True)


def _lock(told: Sequence[Answered | Unanswered]) -> None:
    """Lock the rows in one order before they change: otherwise two flushes with opposite answers would deadlock."""
    services, targets = {one.service for one in told}, {one.target for one in told}
    known = ServiceBreaker.objects.filter(service__in=services, target__in=targets)
    list(known.order_by("service", "target", "project_id").select_for_update().values_list("pk"))


class BreakerDuty:
    """Tends breakers each second, and looks less often for those that no job needs."""

    def __init__(self) -> None:
        self._forget_at = float("-inf")

    def do(self) -> None:
        now = time.monotonic()
        is_due = now >= self._forget_at
        if is_due:
            self._forget_at = now + FORGET_BREAKERS_SECONDS
        tend_breakers(forgets=is_due)


def tend_breakers(*, forgets: bool = True) -> None:
    """
    Park the ready jobs of targets that are out, send due probes, and release jobs of targets that are back.

    Args:
        forgets: Whether to look for breakers that no job needs.
    """
    if forgets:
        _forget()
    if ServiceBreaker.objects.exclude(opened_at=None).exists():
        _move_all("choose_stranded", "park", "{name} does not answer")
        _probe()
        _count()
    _move_all("choose_released", "release", "{name} is not held as out any more")


@transaction.atomic
def _forget() -> None:
    """Delete the breakers that no job waits for, and those that have long been closed."""
    run_sql("jobs", "forget_breakers", {"kept": CLOSED_KEPT_SECONDS, "most": MAX_JOBS_READ})


def _move_all(statement: str, edge: str, message: str) -> None:
    moved = MOVED_AT_ONCE
    while moved == MOVED_AT_ONCE:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(PART_BY_PART)
            rows = run_sql("jobs", statement, {"most": MOVED_AT_ONCE})
            moves = [Move(job, message=message.format(name=name_of(service, target))) for job, service, target in rows]
            moved = len(move_jobs(edge, moves))
            if moved and edge == "release":
                notify(Channel.READY)


@transaction.atomic
def _probe() -> None:
    """Send a probe to each target where one is due; the longer the outage, the longer the pause between probes."""
    rows = run_sql(
        "jobs",
        "choose_probes",
        {
            "first": FIRST_PROBE_SECONDS,
            "longest": MAX_PROBE_SECONDS,
            "last_doubling": LAST_DOUBLING,
            "most_probed": MAX_PROBED,
            "most": MAX_HELD_COUNTED,
            "pools": None if (served := pools_served()) is None else sorted(served),
        },
    )
    if rows:
        move_jobs("release", [Move(job) for (job,) in rows], message="sent as a probe")
        notify(Channel.READY)


def _count() -> None:
    """
    Note how many jobs wait for each breaker, for display, and delete the breakers that no job needs.

    Otherwise an alert would last, and the next job would be parked, until the next look for all such breakers.
    """
    none_waits = [pk for (pk,) in run_sql("jobs", "count_held_by_outages", {"most": MAX_HELD_COUNTED})]
    if none_waits:
        run_sql("jobs", "forget_unneeded_breakers", {"breakers": none_waits, "most": MOVED_AT_ONCE})
