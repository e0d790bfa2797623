"""Errors of refused changes of pools."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class BadPool(QueueOpsError):
    """A pool's name or lists are not valid, or there is none of the name."""

    code = "bad_pool"
    status = 422


class PoolInUse(QueueOpsError):
    """Live clusters serve the pool."""

    code = "pool_in_use"
    status = 409
    detail_fields = ("executors",)
