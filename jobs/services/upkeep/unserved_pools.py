"""Jobs that wait although clusters run, because all of these serve other pools."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from jobs.models import Pool
from jobs.services.explain.pools import PoolDepth, pool_depths
from jobs.services.operate.pools import pools_served
from queueops.core.sql import run_sql
from queueops.core.values.numbers import numbered
from ratelimits.models import QuotaAlert
from ratelimits.services.alerts.alerts import Opening
from ratelimits.subjects import LONGEST_ID

MOST_QUEUES = 500


def unserved_pools() -> list[Opening]:
    """
    What to tell: pools with waiting jobs and no live cluster, and kinds that no pool names while every cluster serves one.

    A pool that was served within a lease is none: its cluster is just being restarted.
    """
    served = pools_served()
    pools = Pool.objects.all() if served is None else Pool.objects.filter(pk__in=served)
    pools.update(served_at=Now())
    if served is None:
        return []
    found = [_of_pool(depth) for depth in pool_depths() if _is_left(depth)]
    for kind, since in run_sql("jobs", "find_poolless", {"most": MOST_QUEUES}):
        message = f"No pool names kind {kind}, and every cluster that runs serves a pool: its jobs wait"
        found.append(_opening(f"no pool names {kind}"[:LONGEST_ID], message, {"since": since.isoformat()}))
    return found


def _is_left(depth: PoolDepth) -> bool:
    if depth.is_served or depth.since is None:
        return False
    served_at, lease = depth.pool.served_at, timedelta(seconds=settings.QUEUEOPS.lease_seconds)
    return served_at is None or timezone.now() - served_at > lease


def _of_pool(depth: PoolDepth) -> Opening:
    waiting = depth.ready + depth.parked
    jobs = numbered(waiting, "job waits", "jobs wait", before="at least " * depth.is_least)
    message = f"Pool {depth.pool}: {jobs}, and no live cluster serves it"
    return _opening(f"pool {depth.pool}", message, {"jobs": waiting})


def _opening(subject: str, message: str, figures: dict[str, object]) -> Opening:
    return Opening(QuotaAlert.Kind.UNSERVED, subject, QuotaAlert.Severity.WARNING, message, figures)
