"""Refusals of maintenance windows."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class BadWindow(QueueOpsError):
    """A maintenance window is not valid."""

    code = "bad_window"
    status = 422


class UnknownWindow(QueueOpsError):
    """There is no such maintenance window."""

    code = "unknown_window"
    status = 404
    detail_fields = ("window_id",)
