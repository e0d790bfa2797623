"""A waiting job's score, and its place among the jobs of its lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Aggregate, Count, Q, Sum

from jobs.aging import Rule, age_of_score, class_of, effective_priority
from jobs.models import AgingRule, Job
from jobs.models.job import IN_LANE
from jobs.states import JobState, Priority

MOST_COUNTED = 10_000  # jobs ahead; about 5 ms by the lane's index
SUSPECT_CRASHES = 2  # from then on quarantine claims a job, not its lane

Rules = Mapping[Priority, Rule]


@dataclass(frozen=True, slots=True)
class Position:
    """
    Who goes before a job in its own lane.

    Attributes:
        ahead: Jobs; MOST_COUNTED where there are more.
        is_exact: False: there are more than `ahead`.
        by_class: The same by the class their scores have reached; its own class and those above.
        calls_ahead: Calls they make; less than `ahead` where some leave together. None: not asked for.
        cost_ahead: The sum of their costs. None: not asked for.
    """

    ahead: int
    is_exact: bool
    by_class: Mapping[Priority, int]
    calls_ahead: int | None = None
    cost_ahead: int | None = None


def find_position(job: Job, rules: Rules, *, now: datetime, weighed: bool = False) -> Position | None:
    """
    Count who goes before a job in its lane: a higher score, or the same and older.

    One bounded read a tier. Inside a tier the score follows the age, so those ahead are the first of the lane's
    index up to some age; jobs ahead need no reading one by one.

    Args:
        weighed: Also sum up calls and costs, which the index doesn't have.

    Returns:
        None where the job stands in no lane: it is scheduled, held, retried, suspect, or has no limits.
    """
    if not is_in_lane(job):
        return None
    score = effective_priority_of(job, now=now, rules=rules)
    own_class = class_of(score, rules)
    higher = [tier for tier in rules if rules[tier].base > rules[own_class].base]
    counted = dict.fromkeys([*higher, own_class], 0)
    calls = cost = 0
    with _without_sorts():
        sums_by_tier = [
            _sums_ahead(job, tier, score=score, higher=higher, rules=rules, now=now, weighed=weighed) for tier in rules
        ]
    for sums in sums_by_tier:
        above = 0
        # A class is counted from its own base: those of the class above it are among them.
        for of_class in sorted(higher, key=lambda one: -rules[one].base):
            counted[of_class] += sums.get(of_class.value, 0) - above
            above = sums.get(of_class.value, 0)
        counted[own_class] += sums.get("everyone", 0) - above
        calls += sums.get("keys", 0) + sums.get("alone", 0)
        cost += sums.get("cost") or 0
    ahead = sum(counted.values())
    return Position(
        ahead=min(ahead, MOST_COUNTED),
        is_exact=ahead <= MOST_COUNTED,
        by_class=counted,
        calls_ahead=calls if weighed else None,
        cost_ahead=cost if weighed else None,
    )


def is_in_lane(job: Job) -> bool:
    """Whether its lane may release the job now; the same as IN_LANE says of rows."""
    is_ready = job.status == JobState.RATE_LIMITED or (job.status == JobState.QUEUED and job.scheduled_at is None)
    return job.lane is not None and is_ready and not job.held and job.crash_count < SUSPECT_CRASHES


def effective_priority_of(job: Job, *, now: datetime, rules: Rules | None = None) -> int:
    """The score by which the job is claimed, by the same rules as the claim itself."""
    age = max(0.0, (now - job.eligible_since).total_seconds())
    return effective_priority(Priority(job.priority), age, rules or aging_rules())


def aging_rules() -> dict[Priority, Rule]:
    return {
        Priority(row.tier): Rule(
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
    """Jobs of the tier that are eligible since then or longer have at least this score; None: none has."""
    age = age_of_score(tier, score, rules)
    return None if age is None else now - timedelta(seconds=age)


@contextmanager
def _without_sorts() -> Iterator[None]:
    """
    Let nothing but an index that has the order serve a LIMITed read.

    Whatever sorts reads the whole lane first, and by the planner's figures that is often the cheaper way.
    For reads: the block is rolled back, which ends the setting with it.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off")
        yield
        transaction.set_rollback(True)


def _sums_ahead(
    job: Job, tier: Priority, *, score: int, higher: list[Priority], rules: Rules, now: datetime, weighed: bool
) -> dict[str, int]:
    """Of one tier: how many go before the job, and how many of them have reached each higher class."""
    cuts = {of_class: reached_by(tier, rules[of_class].base, rules, now=now) for of_class in higher}
    sums: dict[str, Aggregate] = {"everyone": Count("pk")}
    sums |= {name.value: Count("pk", filter=Q(eligible_since__lte=cut)) for name, cut in cuts.items() if cut}
    if weighed:
        sums |= {
            "keys": Count("coalesce_key", distinct=True),
            "alone": Count("pk", filter=Q(coalesce_key=None)),
            "cost": Sum("cost"),
        }
    outscore, equal = reached_by(tier, score + 1, rules, now=now), reached_by(tier, score, rules, now=now)
    if equal is None:
        return {}
    as_old = min(equal, job.eligible_since)
    first_come = Q(eligible_since__lt=job.eligible_since) | Q(eligible_since=job.eligible_since, pk__lt=job.pk)
    older = Q(eligible_since__lte=as_old) & first_come
    if outscore is not None and outscore >= as_old:
        older = Q(eligible_since__lte=outscore)
    ahead = Job.objects.filter(IN_LANE, older, lane=job.lane, priority=tier).order_by("eligible_since", "pk")
    found: dict[str, int] = ahead[: MOST_COUNTED + 1].aggregate(**sums)
    return found
