"""The executors that serve each pool, and how much waits in it. Reads are bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from jobs.features.pools.pools import alive
from jobs.models import Executor, Pool
from queueops.core.sql import run_sql

MAX_OF_A_POOL = 10_000  # jobs of one pool that are counted in lanes, and as many outside of lanes
MAX_HEADS = 5_000  # queues whose oldest job is read


@dataclass(frozen=True, slots=True)
class PoolDepth:
    """
    Attributes:
        name: The pool's name. The empty name stands for the jobs that belong to no pool.
        ready: How many jobs could go at once. Outside lanes at most MAX_OF_A_POOL are counted.
        parked: How many jobs a limit keeps in their lanes. In lanes at most MAX_OF_A_POOL ready and parked jobs are
            counted.
        since: When the oldest waiting job became eligible; None: no job waits.
        clusters, executors: How many live ones serve this pool alone; under the empty name, how many serve all jobs.
        is_served: Whether any live executor serves it.
    """

    name: str
    ready: int
    parked: int
    running: int
    since: datetime | None
    clusters: int
    executors: int
    is_served: bool

    @property
    def is_least(self) -> bool:
        """Whether there may be more than was counted."""
        return self.ready + self.parked >= MAX_OF_A_POOL

    @property
    def waiting(self) -> str:
        """Ready and parked jobs, for people."""
        return f"{self.ready + self.parked:,}{' or more' * self.is_least}"


def pool_depths() -> list[PoolDepth]:
    """Count every pool in the order of their places, and the jobs that no pool names; empty without pools."""
    if not Pool.objects.exists():
        return []
    executors, clusters = Counter(Executor.objects.filter(alive()).values_list("pool", flat=True)), Counter[str]()
    for pool, _ in Executor.objects.filter(alive()).order_by().values_list("pool", "cluster_id").distinct():
        clusters[pool] += 1
    return [
        PoolDepth(
            name=name,
            ready=ready,
            parked=parked,
            running=running,
            since=since,
            clusters=clusters[name],
            executors=executors[name],
            is_served=bool(executors[name] or executors[""]),
        )
        for name, ready, parked, running, since in run_sql(
            "jobs", "count_pools", {"most": MAX_OF_A_POOL, "most_heads": MAX_HEADS}
        )
    ]
