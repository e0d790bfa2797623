"""What each pool serves, who serves it, and how much waits. Bounded reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from jobs.models import Executor, Pool
from jobs.services.operate.pools import alive
from queueops.core.sql import run_sql

MOST_COUNTED = 10_000  # ready or parked jobs of one pool, in lanes and outside of them
MOST_HEADS = 5_000  # queues asked for their oldest job


@dataclass(frozen=True, slots=True)
class PoolDepth:
    """
    Attributes:
        ready: Jobs that could go at once; counted up to MOST_COUNTED in lanes and outside of them.
        parked: Jobs that a limit keeps in their lanes, likewise.
        clusters, executors: Live ones that serve this pool alone.
        is_served: Whether any live executor serves it, also one that serves all jobs.
        since: When the oldest that waits became eligible; None: none waits.
    """

    pool: Pool
    ready: int
    parked: int
    running: int
    clusters: int
    executors: int
    is_served: bool
    since: datetime | None

    @property
    def is_least(self) -> bool:
        """Whether there may be more than was counted."""
        return self.ready + self.parked >= MOST_COUNTED


def pool_depths() -> list[PoolDepth]:
    """Of every pool, in the order of their places."""
    pools = {pool.name: pool for pool in Pool.objects.all()}
    if not pools:
        return []
    serving = executors_by_pool()
    clusters = Counter(pool for pool, _ in Executor.objects.filter(alive()).values_list("pool", "cluster_id").distinct())
    rows = run_sql("jobs", "count_pools", {"most": MOST_COUNTED, "most_heads": MOST_HEADS})
    return [
        PoolDepth(
            pool=pools[name],
            ready=ready,
            parked=parked,
            running=running,
            clusters=clusters[name],
            executors=serving[name],
            is_served=bool(serving[name] or serving[""]),
            since=since,
        )
        for name, ready, parked, running, since in rows
        if name in pools
    ]


def executors_by_pool() -> Counter[str]:
    """Live executors by the pool that they serve; under the empty name those that serve all jobs."""
    return Counter(Executor.objects.filter(alive()).values_list("pool", flat=True))
