"""A waiting job's score, and its place among the jobs of its lane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Aggregate, Count, Q, QuerySet

from jobs.aging import TierGrowth, age_of_score, class_of, effective_priority
from jobs.features.forecast.queue_calls import LINE_COLUMNS, LINE_COST_COLUMNS, LineCall, LineJob, calls_of, coming_back
from jobs.models import AgingRule, Job
from jobs.models.job import IN_LANE
from jobs.states import RUNNING, JobState, Priority
from ratelimits.costs import CALLS

MAX_AHEAD_COUNTED = 10_000  # jobs ahead; about 5 ms by the lane's index
MAX_WEIGHED = 4000  # jobs whose calls and costs are looked at
MAX_COMING_BACK = 500  # running jobs that take more calls
SUSPECT_CRASHES = 2  # with so many crashes, a job is claimed for quarantine, not from its lane

Rules = Mapping[Priority, TierGrowth]


@dataclass(frozen=True, slots=True)
class Position:
    """
    The jobs that go before a job in its own lane.

    Attributes:
        ahead: How many jobs go before it, at most MAX_AHEAD_COUNTED.
        is_exact: Whether `ahead` is the exact number; False: there are more.
        by_class: Jobs ahead by the class that their scores have reached: its own class and those above.
        calls: The calls in which these jobs and the job leave, the job's own call last. Jobs that leave together share
            a call. At most MAX_WEIGHED jobs are read, and represent the others. None: the calls were not asked for.
    """

    ahead: int
    is_exact: bool
    by_class: Mapping[Priority, int]
    calls: Sequence[LineCall] | None = None


def find_position(job: Job, rules: Rules, *, now: datetime, weighed: bool = False) -> Position | None:
    """
    Count the jobs that go before a job in its lane: with a higher score, or with the same score and older.

    It takes one bounded read per tier. Inside a tier the score follows the age, so the jobs ahead are the first of the
    lane's index up to some age. They need not be compared one by one.

    Args:
        weighed: Also read the calls, which the index doesn't have.

    Returns:
        None if the job is in no lane: it is scheduled, held, retried, suspect, or has no limits.
    """
    if not is_in_lane(job):
        return None
    score = effective_priority_of(job, now=now, rules=rules)
    own_class = class_of(score, rules)
    higher = [tier for tier in rules if rules[tier].base > rules[own_class].base]
    counted = dict.fromkeys([*higher, own_class], 0)
    line: list[LineJob] = []
    with _without_sorts():
        ahead_by_tier = {tier: _ahead(job, tier, score=score, rules=rules, now=now) for tier in rules}
        sums_by_tier = [_sums(rows, higher=higher, rules=rules, now=now) for rows in ahead_by_tier.items()]
        if weighed:
            line += _coming_back(job, score=score, rules=rules, now=now)
        for rows in ahead_by_tier.values() if weighed else ():
            if rows is not None and (most := MAX_WEIGHED - len(line)):
                line += [LineJob(*row) for row in rows[:most].values_list(*LINE_COLUMNS, *LINE_COST_COLUMNS)]
    for sums in sums_by_tier:
        above = 0
        # A class is counted from its own base, so its count includes the jobs of the classes above it.
        for of_class in sorted(higher, key=lambda one: -rules[one].base):
            counted[of_class] += sums.get(of_class.value, 0) - above
            above = sums.get(of_class.value, 0)
        counted[own_class] += sums.get("everyone", 0) - above
    ahead = min(sum(counted.values()), MAX_AHEAD_COUNTED)
    return Position(
        ahead=ahead,
        is_exact=sum(counted.values()) <= MAX_AHEAD_COUNTED,
        by_class=counted,
        calls=_calls(job, line, times=max(1.0, (ahead + 1) / (len(line) + 1))) if weighed else None,
    )


def is_in_lane(job: Job) -> bool:
    """Whether the job may be released by its lane now; IN_LANE is the same condition for rows."""
    is_ready = job.status == JobState.RATE_LIMITED or (job.status == JobState.QUEUED and job.scheduled_at is None)
    return job.lane is not None and is_ready and not job.held and job.crash_count < SUSPECT_CRASHES


def effective_priority_of(job: Job, *, now: datetime, rules: Rules | None = None) -> int:
    """The score by which the job is claimed, by the same rules as the claim itself."""
    age = max(0.0, (now - job.eligible_since).total_seconds())
    return effective_priority(Priority(job.priority), age, rules or aging_rules())


def aging_rules() -> dict[Priority, TierGrowth]:
    return {
        Priority(row.tier): TierGrowth(
            base=row.base,
            cap=row.cap,
            first_after=row.first_after_seconds,
            first_score=row.first_score,
            step=row.step_seconds,
            promote_after=row.promote_after_seconds,
            promote_to=Priority(row.promote_to) if row.promote_to else None,
        )
        for row in AgingRule.objects.all()
    }


def reached_by(tier: Priority, score: int, rules: Rules, *, now: datetime) -> datetime | None:
    """Return the latest `eligible_since` with which jobs of the tier have at least this score; None: no job can."""
    age = age_of_score(tier, score, rules)
    return None if age is None else now - timedelta(seconds=age)


@contextmanager
def _without_sorts() -> Iterator[None]:
    """
    Make the planner use an index in the right order for a read with LIMIT.

    A plan that sorts reads the whole lane first, and the planner often takes it for the cheaper one.
    Only for reads: the block is rolled back, and the setting with it.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off")
        yield
        transaction.set_rollback(True)


def _ahead(job: Job, tier: Priority, *, score: int, rules: Rules, now: datetime) -> QuerySet[Job] | None:
    """Return the jobs of one tier that go before the job, in order; None: no job of the tier does."""
    outscore, equal = reached_by(tier, score + 1, rules, now=now), reached_by(tier, score, rules, now=now)
    if equal is None:
        return None
    as_old = min(equal, job.eligible_since)
    first_come = Q(eligible_since__lt=job.eligible_since) | Q(eligible_since=job.eligible_since, pk__lt=job.pk)
    older = Q(eligible_since__lte=as_old) & first_come
    if outscore is not None and outscore >= as_old:
        older = Q(eligible_since__lte=outscore)
    return Job.objects.filter(IN_LANE, older, lane=job.lane, priority=tier).order_by("eligible_since", "pk")


def _coming_back(job: Job, *, score: int, rules: Rules, now: datetime) -> list[LineJob]:
    """Return running jobs that will take more calls, and come back to the lane ahead of the job."""
    rows = Job.objects.filter(status__in=sorted(RUNNING), lane=job.lane, costs__has_key=CALLS)
    older = rows.filter(eligible_since__lte=job.eligible_since).order_by("lease_expires_at")[:MAX_COMING_BACK]
    first = [_line_of(row) for row in older if effective_priority_of(row, now=now, rules=rules) >= score]
    return [back for one in first if (back := coming_back(one))]


def _sums(
    ahead: tuple[Priority, QuerySet[Job] | None], *, higher: list[Priority], rules: Rules, now: datetime
) -> dict[str, int]:
    """Count the jobs of one tier that go before the job, and how many of these have reached each higher class."""
    tier, rows = ahead
    if rows is None:
        return {}
    cuts = {of_class: reached_by(tier, rules[of_class].base, rules, now=now) for of_class in higher}
    sums: dict[str, Aggregate] = {"everyone": Count("pk")}
    sums |= {name.value: Count("pk", filter=Q(eligible_since__lte=cut)) for name, cut in cuts.items() if cut}
    found: dict[str, int] = rows[: MAX_AHEAD_COUNTED + 1].aggregate(**sums)
    return found


def _calls(job: Job, line: Sequence[LineJob], *, times: float) -> Sequence[LineCall]:
    size = len(json.dumps(job.payload)) if job.coalesce_key else 0
    # The job starts with its next call, so only that call counts.
    costs = {name: value for name, value in (job.costs or {}).items() if name != CALLS}
    own = _line_of(job)._replace(size=size, costs=costs)
    calls, place = calls_of([*line, own], times=times)
    return calls[: place + 1]


def _line_of(job: Job) -> LineJob:
    costs = (job.cost, job.known_cost, job.costs, job.model, job.project_id, job.service, job.progress)
    return LineJob(job.kind, job.coalesce_key, 0, *costs)
