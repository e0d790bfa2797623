"""Pools: which workers carry out which jobs."""

from jobs.feature import Feature, Tab

POOLS = Feature(
    package="jobs.features.pools",
    page="how-to/worker-pools.md",
    screens="admin",
    tabs=(Tab("Pools", "jobs_pool", after="jobs_executor"),),
    viewer=("view_pool",),
    administrator=("add_pool", "change_pool", "delete_pool"),
    duties=("assign.follow_pools",),
)
