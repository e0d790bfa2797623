"""Finds jobs that wait although clusters run, because every live cluster serves other pools."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from jobs.features.pools.figures import PoolDepth, pool_depths
from jobs.features.pools.pools import pools_served
from jobs.features.watches.by_project import count_by_project, jobs_wait
from jobs.models import Job, Pool
from jobs.services.operate.job_filter import Counted
from jobs.states import WAITING
from queueops.core.clock import Now
from queueops.core.sql import run_sql
from queueops.core.values.numbers import numbered
from ratelimits.alerts.alerts import Opening
from ratelimits.models import QuotaAlert
from ratelimits.subjects import MAX_ID_LENGTH

MAX_POOLLESS = 5_000  # jobs read in lanes, and as many outside of lanes


def unserved_pools() -> list[Opening]:
    """
    Find pools with waiting jobs and no live cluster, and kinds that no pool names while each cluster serves a pool.

    A pool that was served within a lease is left out: its cluster is just being restarted.
    """
    served = pools_served()
    pools = Pool.objects.all() if served is None else Pool.objects.filter(pk__in=served)
    pools.update(served_at=Now())
    if served is None:
        return []
    lately = Now() - timedelta(seconds=settings.QUEUEOPS.lease_seconds)
    restarting = {"", *Pool.objects.filter(served_at__gt=lately).values_list("name", flat=True)}
    found = [
        opening
        for depth in pool_depths()
        if depth.since and depth.name not in served | restarting
        for opening in _of_pool(depth)
    ]
    for kind, count, since, projects in run_sql("jobs", "find_poolless", {"most": MAX_POOLLESS}):
        jobs = numbered(count, "job waits", "jobs wait", before="at least " * (count >= MAX_POOLLESS))
        message = f"No pool names kind {kind}, and every live cluster serves a pool: {jobs}"
        figures = {"jobs": count, "since": since.isoformat(), "projects": projects}
        found.append(_opening(f"no pool {kind}", message, figures))
    return found


def _of_pool(depth: PoolDepth) -> list[Opening]:
    counts = count_by_project(Job.objects.filter(pool=depth.name, status__in=WAITING, held=False))
    if len(counts) == 1:
        counts = dict.fromkeys(counts, Counted(depth.ready + depth.parked, depth.is_least))
    found = []
    for project, counted in counts.items():
        message = f"Pool {depth.name}: {jobs_wait(counted, project)}, and no live cluster serves it"
        figures = {"jobs": counted.count, "projects": [project], "cause": f"pool {depth.name}"}
        found.append(_opening(f"pool {depth.name}/{project}", message, figures))
    return found


def _opening(subject: str, message: str, figures: dict[str, object]) -> Opening:
    return Opening(QuotaAlert.Kind.UNSERVED, subject[:MAX_ID_LENGTH], QuotaAlert.Severity.WARNING, message, figures)
