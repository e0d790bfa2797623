"""When jobs ended, for a chart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, F, FloatField, Func, IntegerField, Max, Min, QuerySet, Value
from django.db.models.functions import Extract

from jobs.models import Job
from jobs.states import TERMINAL

BUCKETS = 60


@dataclass(frozen=True, slots=True)
class Pace:
    """
    Attributes:
        bucket: The time that one entry of `ended` covers, from `since` on.
        ended: One mapping for each bucket: how many jobs ended in each state.
    """

    since: datetime
    until: datetime
    bucket: timedelta
    ended: tuple[dict[str, int], ...]


def pace_of(jobs: QuerySet[Job]) -> Pace | None:
    """
    Count the ended jobs by bucket and state; None: no job has ended, or all ended at the same moment.

    Args:
        jobs: Few enough to read all of them, such as the jobs of a batch.
    """
    ended = jobs.filter(status__in=sorted(TERMINAL)).order_by()
    span = ended.aggregate(since=Min("finished_at"), until=Max("finished_at"))
    if span["since"] is None or span["since"] == span["until"]:
        return None
    bounds = [Value(moment.timestamp(), FloatField()) for moment in (span["since"], span["until"])]
    epoch = Extract(F("finished_at"), "epoch", output_field=FloatField())
    bucket = Func(epoch, *bounds, Value(BUCKETS), function="width_bucket", output_field=IntegerField())
    counted: dict[int, dict[str, int]] = defaultdict(dict)
    for place, status, count in ended.annotate(place=bucket).values_list("place", "status").annotate(n=Count("pk")):
        # Count the last moment in the last bucket: width_bucket puts its upper bound into a further bucket.
        kept = counted[min(max(place, 1), BUCKETS)]
        kept[status] = kept.get(status, 0) + count
    return Pace(
        since=span["since"],
        until=span["until"],
        bucket=(span["until"] - span["since"]) / BUCKETS,
        ended=tuple(counted.get(place, {}) for place in range(1, BUCKETS + 1)),
    )
