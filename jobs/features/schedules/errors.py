"""Refusals of schedules."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class BadSchedule(QueueOpsError):
    """A schedule or a job of it is not valid."""

    code = "bad_schedule"
    status = 422


class UnknownSchedule(QueueOpsError):
    """There is no such schedule."""

    code = "unknown_schedule"
    status = 404
    detail_fields = ("schedule_id",)
